"""The forms of handing in: which one a text has, and what region it proposes.

A form only says what the region holds. None of them decides what is accepted: that is one
judgement for all (`submission.judge`).
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from harness.intake import text
from harness.intake.forms import diff_form, edits
from harness.intake.forms.diff_kinds import looks_like_diff, opens_diff, prefixed
from harness.intake.forms.proposal import SCAFFOLD, Placed, Proposal, Scaffold, placed
from harness.intake.refusals import Finding, Refused, finding, refuse
from harness.task import REGION_BEGINS, REGION_ENDS

_FENCE = re.compile(r"```|~~~")
_FENCE_ENDS = re.compile(r"(?:`{3,}|~{3,})\s*$")
_JSON = re.compile(r"\s*[\[{]")


class Form(NamedTuple):
    """A way to hand in, and how it is read."""

    name: str
    propose: Callable[[str, str, Scaffold], Proposal]
    """From plain text (which may hold CRLF), the file's name and the scaffold. Raises Refused."""


def form_of(content: str, file: str, scaffold: Scaffold) -> Form:
    """The form of a text. Raises Refused for text with the markup of a chat or a web page."""
    lines = content.replace("\r\n", "\n").split("\n")
    first = next(line for line in lines if line.strip())
    if (index := _fence(lines, first)) is not None:
        refuse("markdown-fence", file, index + 1, "this is a fence of Markdown", text=lines[index])
    whole = _is_whole_file(lines, scaffold)
    if not _is_code(lines, first, scaffold):
        # A banner line inside a diff is part of its text.
        if looks_like_diff(lines):
            return UNIFIED_DIFF
        if _JSON.match(first):
            return LIST_OF_EDITS
        if (found := prefixed(lines)) is not None:
            index, prefix = found
            message = (
                f"`{prefix}` stands before each line of this diff, as a mail's quotation or "
                "`git log --graph` puts it there: remove it"
            )
            refuse("diff-kind", file, index + 1, message, text=lines[index])
    return WHOLE_FILE if whole else REGION_FILE


def _fence(lines: Sequence[str], first: str) -> int | None:
    """The index of a Markdown fence, or None.

    Below a triple quote it may be text of a string, in a diff text of a commit, unless it ends the
    file.
    """
    for index, line in enumerate([] if opens_diff(first) else lines):
        if _FENCE.match(line):
            return index
        if '"""' in line or "'''" in line:
            break
    last = max(index for index, line in enumerate(lines) if line.strip())
    return last if _FENCE_ENDS.match(lines[last]) else None


def _is_code(lines: Sequence[str], first: str, scaffold: Scaffold) -> bool:
    """Whether a required class begins at a line's start: in diffs and JSON something precedes it.

    Then lines like those of a diff stand in a string of the code.
    """
    classes = re.compile(rf"class\s+(?:{'|'.join(map(re.escape, scaffold.classes))})\b")
    begins_otherwise = opens_diff(first) or _JSON.match(first)
    return not begins_otherwise and any(map(classes.match, lines))


def _is_whole_file(lines: Sequence[str], scaffold: Scaffold) -> bool:
    """Whether the text holds a banner line or begins as the scaffold does."""
    opening = [each for each in scaffold.prefix.split("\n") if each.strip()][:3]
    there = [each for each in lines if each.strip()][:3]
    return there == opening or any(each.strip() in (REGION_BEGINS, REGION_ENDS) for each in lines)


def _propose_region(content: str, file: str, scaffold: Scaffold) -> Proposal:
    content, notes = text.with_final_lf(content, file)
    return Proposal.of(placed(text.split_lines(content), file, 1), notes)


def _propose_whole_file(content: str, file: str, scaffold: Scaffold) -> Proposal:
    content, notes = text.with_final_lf(content, file)
    lines = text.split_lines(content)
    begins, ends = _find_banners(lines, file)
    if not any(line.strip() for line in (*lines[:begins], *lines[ends + 1 :])):
        message = "the banner lines stand here without the scaffold around them"
        refuse("whole-file", file, begins + 1, message, text=lines[begins])
    mine = placed(lines, file, 1)
    theirs = placed(text.split_lines(scaffold.source), SCAFFOLD, 1)
    # Both ends of a part hold a banner line, so parts of unequal length differ before they end.
    found = [
        *_first_difference(mine[: begins + 1], theirs[: scaffold.first - 1]),
        *_first_difference(mine[: ends - 1 : -1], theirs[: scaffold.last - 1 : -1]),
    ]
    if found:
        raise Refused(found)
    return Proposal.of(mine[begins + 1 : ends], notes)


def _find_banners(lines: Sequence[str], file: str) -> tuple[int, int]:
    """The indices of the two banner lines. Raises Refused unless each is there once."""
    places = {
        banner: [index for index, line in enumerate(lines) if line.strip() == banner]
        for banner in (REGION_BEGINS, REGION_ENDS)
    }
    for banner, found in places.items():
        if not found:
            message = f"the banner line `{banner}` is missing"
            other = min(chain(*places.values()), default=0)
            refuse("whole-file", file, other + 1, message, text=lines[other])
        if len(found) > 1:
            message = f"this banner line stands here again; the first is line {found[0] + 1}"
            refuse("whole-file", file, found[1] + 1, message, text=lines[found[1]])
    [begins], [ends] = places.values()
    if ends < begins:
        message = "the banner line of the region's end stands before that of its begin"
        refuse("whole-file", file, ends + 1, message, text=lines[ends])
    return begins, ends


def _first_difference(mine: Sequence[Placed], theirs: Sequence[Placed]) -> list[Finding]:
    """The first line of `mine` that is not what the scaffold has there, if there is one."""
    for here, there in zip(mine, theirs, strict=False):
        if here.text != there.text:
            original = f"`{there.text.rstrip()}`" if there.text.strip() else "empty"
            message = (
                f"the fixed part was changed: line {there.where.line} of {SCAFFOLD} is {original}"
            )
            return [finding("outside-region", *here.where, message, text=here.text)]
    return []


REGION_FILE = Form("region file", _propose_region)
WHOLE_FILE = Form("whole file", _propose_whole_file)
UNIFIED_DIFF = Form("unified diff", diff_form.propose)
LIST_OF_EDITS = Form("list of edits", edits.propose)
