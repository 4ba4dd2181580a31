"""A unified diff as a submission: its hunks, applied to the scaffold that we hold.

A hunk stands where its old line numbers say, or the diff is refused: `git apply` and `patch` would
search for a place.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NoReturn

from harness.intake import text
from harness.intake.forms import unified_diff
from harness.intake.forms.proposal import SCAFFOLD, Placed, Proposal, Scaffold, Where, placed
from harness.intake.forms.unified_diff import Hunk, Line
from harness.intake.refusals import MAX_FINDINGS, Refused, finding, refuse


def propose(content: str, file: str, scaffold: Scaffold) -> Proposal:
    """The region after the diff. Raises Refused unless it changes the region alone."""
    notes: tuple[str, ...] = ()
    if text.is_crlf(content):
        content, notes = text.with_lf(content, file)
    lines = content.removesuffix("\n").split("\n")
    parsed = unified_diff.parse(lines, file, scaffold.task)
    hunks, more_notes = _with_lf(parsed.hunks, file)
    notes += parsed.notes + more_notes
    result = apply(hunks, text.split_lines(scaffold.source), file)
    if result and not result[-1].text.endswith("\n"):
        result[-1] = result[-1]._replace(text=result[-1].text + "\n")
        notes += (text.FINAL_LF_NOTE,)
    region = scaffold.region_of("".join(each.text for each in result))
    if region is None:
        raise _outside(hunks, scaffold, file)
    return Proposal.of(result[scaffold.first - 1 :][: region.count("\n")], notes)


def _with_lf(hunks: Sequence[Hunk], file: str) -> tuple[tuple[Hunk, ...], tuple[str, ...]]:
    """The hunks with LF alone, and a note if that took a change. Raises Refused for a mixture.

    A diff of files that use CRLF has it in its content and not in its headers. The old file and
    the new one may differ in this; each by itself is CRLF throughout, or not at all.
    """
    lines = [line for hunk in hunks for line in hunk.lines]
    if not any("\r" in line.text for line in lines):
        return tuple(hunks), ()
    for sign, side in (("-", "old"), ("+", "new")):
        _require_one_line_end([line for line in lines if line.sign in (" ", sign)], side, file)
    converted = tuple(
        hunk._replace(
            lines=tuple(line._replace(text=line.text.replace("\r\n", "\n")) for line in hunk.lines)
        )
        for hunk in hunks
    )
    return converted, ("Lines of the files that were compared ended in CRLF and end in LF now.",)


def apply(hunks: Sequence[Hunk], old: Sequence[str], file: str) -> list[Placed]:
    """The lines (each with its LF) after the hunks, `old` being the scaffold's. Raises Refused."""
    result: list[Placed] = []
    scaffold = placed(old, SCAFFOLD, 1)
    done = 0
    for hunk in hunks:
        before = hunk.side("-")
        if hunk.old < done:
            refuse("diff-order", file, hunk.number, "this hunk begins before the last one ends")
        end = hunk.old + len(before)
        if before and end == len(old):
            # Of a file's last line the text counts, whether or not it ends in LF.
            before[-1] = before[-1].removesuffix("\n") + "\n"
        if end > len(old) or list(old[hunk.old : end]) != before:
            _misplaced(hunk, old, file)
        result += scaffold[done : hunk.old]
        done = hunk.old
        for line in hunk.lines:
            if line.sign == "+":
                result.append(Placed(line.text, Where(file, line.number)))
            elif line.sign == " ":
                result.append(scaffold[done])
            done += line.sign != "+"
    result += scaffold[done:]
    for each in result[:-1]:
        if not each.text.endswith("\n"):
            message = "a line without a line end in the middle of the file"
            refuse("diff-newline", *each.where, message, text=each.text)
    return result


def _outside(hunks: Sequence[Hunk], scaffold: Scaffold, file: str) -> Refused:
    first, last = scaffold.first, scaffold.last
    changes = list(_changes_outside(hunks, first, last))
    message = f"this changes {SCAFFOLD} outside its editable lines {first}-{last}"
    if not changes:
        return Refused([finding("outside-region", file, hunks[0].number, message)])
    found = [
        finding("outside-region", file, line.number, message, text=line.sign + line.text)
        for line in changes[:MAX_FINDINGS]
    ]
    return Refused(found, len(changes) - len(found))


def _changes_outside(hunks: Sequence[Hunk], first: int, last: int) -> Iterator[Line]:
    """The first line of each change that reaches out of the old lines `first` to `last` (1-based).

    Lines that a change removes and adds again unchanged at its ends are not counted.
    """
    for hunk in hunks:
        at = hunk.old
        for context, group in groupby(hunk.lines, key=lambda line: line.sign == " "):
            run = list(group)
            removed = [line for line in run if line.sign == "-"]
            added = [line for line in run if line.sign == "+"]
            if not context:
                yield from _reaching_out(removed, added, at, first, last)
            at += len(run) if context else len(removed)


def _reaching_out(
    removed: list[Line], added: list[Line], at: int, first: int, last: int
) -> Iterator[Line]:
    shorter = min(len(removed), len(added))
    head = 0
    while head < shorter and removed[head].text == added[head].text:
        head += 1
    tail = 0
    while tail < shorter - head and removed[-1 - tail].text == added[-1 - tail].text:
        tail += 1
    removed, added = (side[head : len(side) - tail] for side in (removed, added))
    for number, line in enumerate(removed, at + head + 1):
        if not first <= number <= last:
            yield line
            return
    if added and not first - 1 <= at + head <= last:
        yield added[0]


def _require_one_line_end(lines: Sequence[Line], side: str, file: str) -> None:
    """Raises Refused unless the lines end in LF, all of them, or in CRLF."""
    for line in lines:
        if line.text.endswith("\r"):
            refuse("line-endings", file, line.number, text.LONE_CR, text=line.sign + line.text)
    if odd := text.odd_line_end([line.text for line in lines]):
        line = lines[odd.at]
        message = f"this line ends in {odd.ends}, others of the {side} file in {odd.others}"
        refuse("line-endings", file, line.number, message, text=line.sign + line.text)


def _misplaced(hunk: Hunk, old: Sequence[str], file: str) -> NoReturn:
    before = hunk.side("-")
    places = [
        start + 1
        for start in range(len(old) - len(before) + 1)
        if list(old[start : start + len(before)]) == before
    ]
    sources = [line for line in hunk.lines if line.sign != "+"]
    here = old[hunk.old : hunk.old + len(before)]
    wrong = next(
        (line for line, there in zip(sources, here, strict=False) if line.text != there),
        sources[min(len(here), len(sources) - 1)] if sources else None,
    )
    message = f"the text of this hunk does not stand at line {hunk.old + 1} of {SCAFFOLD}"
    if not before:
        message = f"{SCAFFOLD} has {len(old)} lines, and this hunk adds after line {hunk.old}"
    elif places:
        message += f"; it would fit at line {', '.join(map(str, places[:3]))}"
    else:
        message += ", nor anywhere else in it"
    refuse(
        "diff-placement",
        file,
        wrong.number if wrong else hunk.number,
        message,
        text=wrong.sign + wrong.text if wrong else "",
    )
