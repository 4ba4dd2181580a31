"""The one door: a file that was handed in becomes an accepted source, or is refused with its lines.

Each form (today a region file and a unified diff) is only a way to say what the region holds: a
function from text to `Proposal`. One judgement follows for all of them: pristine prefix + region +
pristine suffix, byte for byte, and a region that obeys the source rules.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from harness.intake import limited_child, text, unified_diff
from harness.intake.refusals import MAX_FINDINGS, Finding, Refused, finding
from harness.task import REGION_BEGINS, REGION_ENDS, Task

SCAFFOLD = unified_diff.SCAFFOLD

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# A joiner between two non-ASCII characters is part of an emoji or of ordinary script.
_INVISIBLE = re.compile(
    rf"[{_BIDIRECTIONAL}\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


@dataclass(frozen=True)
class Accepted:
    """What intake hands on. `source` is all that a guest ever runs."""

    form: str
    """How it was handed in: "region file" or "unified diff"."""
    source: bytes
    """The scaffold with the region filled in: pristine prefix + region + pristine suffix."""
    region: bytes
    """The editable lines, each with its LF."""
    sha256: str
    """Of `source`, in hex: the submission's name."""
    notes: tuple[str, ...]
    """What was normalised, a sentence each."""
    original: bytes
    """The file as it was read."""
    warnings: tuple[Finding, ...] = ()
    """What is allowed and seldom meant."""
    where: tuple["Where", ...] = ()
    """Of each line of the region, where it was handed in."""


class HandedIn(NamedTuple):
    """A submission as it was read, once: everything after looks at these bytes."""

    file: str
    """For messages: the path that was named, "<stdin>" for standard input."""
    content: bytes


class Scaffold(NamedTuple):
    """The pristine scaffold, cut at its region."""

    prefix: str
    """Up to and with the opening banner line."""
    region: str
    suffix: str
    """From the closing banner line on."""

    @classmethod
    def of(cls, task: Task) -> "Scaffold":
        """Cut the task's scaffold, whose banners Task.load has checked."""
        lines = split_lines(task.scaffold.decode("utf-8"))
        first, last = task.region.first_line, task.region.last_line
        parts = (lines[: first - 1], lines[first - 1 : last], lines[last:])
        return cls(*("".join(each) for each in parts))

    @property
    def source(self) -> str:
        """The whole file."""
        return self.prefix + self.region + self.suffix


class Where(NamedTuple):
    """Where a line of the region is found by the one who handed it in."""

    file: str
    line: int


class Proposal(NamedTuple):
    """What a form says the region should be, and where each of its lines came from."""

    region: str
    where: Sequence[Where]
    notes: tuple[str, ...] = ()


class Form(NamedTuple):
    """A way to hand in: how its text is told from others, and how it is read."""

    name: str
    matches: Callable[[Sequence[str], Scaffold], bool]
    """From the text's lines (without LF)."""
    propose: Callable[[str, str, Task, Scaffold], Proposal]
    """From text, file's name, task and scaffold. Raises Refused."""


STANDARD_INPUT = Path("-")


def read(path: Path) -> HandedIn:
    """The file of that path, or what comes through standard input for "-". Raises Refused."""
    if path == STANDARD_INPUT:
        return HandedIn("<stdin>", text.read_standard_input())
    return HandedIn(str(path), text.read(path))


def accept(task: Task, path: Path) -> Accepted:
    """Read a submission and judge it. Raises Refused with every broken rule."""
    return judge(task, read(path))


def judge(task: Task, handed_in: HandedIn) -> Accepted:
    """The accepted source. Raises Refused with every broken rule."""
    accepted = unjudged(task, handed_in)
    warnings = _judge(task, accepted, handed_in.file)
    return replace(accepted, warnings=warnings)


def unjudged(task: Task, handed_in: HandedIn) -> Accepted:
    """The same source without a look at the rules: for its author, at work on it.

    Nothing but an unranked run outside the sandbox takes it. Raises Refused where the text cannot
    be made into a region at all.
    """
    file = handed_in.file
    decoded = text.decode(handed_in.content, file)
    scaffold = Scaffold.of(task)
    lines = decoded.text.split("\n")
    form = next(each for each in FORMS if each.matches(lines, scaffold))
    proposal = form.propose(decoded.text, file, task, scaffold)
    source = scaffold.prefix + proposal.region + scaffold.suffix
    if source == scaffold.source:
        message = "the region is the scaffold's own, unchanged"
        raise Refused([finding("nothing-changed", file, None, message)])
    encoded = source.encode()
    return Accepted(
        form=form.name,
        source=encoded,
        region=proposal.region.encode(),
        sha256=hashlib.sha256(encoded).hexdigest(),
        notes=(*decoded.notes, *proposal.notes),
        original=handed_in.content,
        where=tuple(proposal.where),
    )


def split_lines(content: str) -> list[str]:
    """The lines of `content`, each with its LF; only LF ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", content)


def _judge(task: Task, accepted: Accepted, file: str) -> tuple[Finding, ...]:
    """What there is to warn of. Raises Refused unless the region obeys every rule."""
    region = accepted.region.decode()
    lines = split_lines(region)

    def locate(rule: str, line: int, column: int, message: str) -> Finding:
        if not 0 < line <= len(lines):
            return finding(rule, file, None, message)
        where = accepted.where[line - 1]
        shown = lines[line - 1]
        return finding(rule, where.file, where.line, message, text=shown, column=column or None)

    size = len(region.encode())
    if size > task.region.max_bytes:
        message = f"the region has {size:,} bytes; at most {task.region.max_bytes:,} are allowed"
        raise Refused([finding("region-size", file, None, message)])
    banners = (REGION_BEGINS, REGION_ENDS)
    found = [
        locate("banner-line", number, 1, "a banner line inside the region")
        for number, line in enumerate(lines, 1)
        if line.strip() in banners
    ][:MAX_FINDINGS]
    for match in _INVISIBLE.finditer(region):
        start = region.rfind("\n", 0, match.start()) + 1
        line = region.count("\n", 0, start) + 1
        message = f"the invisible character U+{ord(match[0]):04X}"
        found.append(locate("invisible-characters", line, match.start() - start + 1, message))
        if len(found) >= 2 * MAX_FINDINGS:
            break
    answer = limited_child.check(
        region,
        task.scaffold.decode(),
        task.region.first_line,
        task.region.last_line,
        task.region.classes,
    )
    found += [locate(*each) for each in answer.found]
    found.sort(key=lambda each: each.line or 0)
    if any(not each.is_warning for each in found):
        raise Refused(found, answer.more)
    return tuple(found)


def _propose_region(content: str, file: str, task: Task, scaffold: Scaffold) -> Proposal:
    notes: tuple[str, ...] = ()
    if not content.endswith("\n"):
        content += "\n"
        notes = ("The last line had no line end and got one.",)
    count = content.count("\n")
    return Proposal(content, [Where(file, number) for number in range(1, count + 1)], notes)


def _propose_diff(content: str, file: str, task: Task, scaffold: Scaffold) -> Proposal:
    lines = content.removesuffix("\n").split("\n")
    hunks = unified_diff.parse(lines, file, task.name)
    result = unified_diff.apply(hunks, split_lines(scaffold.source), file)
    source = "".join(each.text for each in result)
    rest = len(source) - len(scaffold.prefix) - len(scaffold.suffix)
    kept = source.startswith(scaffold.prefix) and source.endswith(scaffold.suffix) and rest >= 0
    region = source[len(scaffold.prefix) : len(scaffold.prefix) + rest] if kept else ""
    if not kept or (region and not region.endswith("\n")):
        raise _outside(hunks, task, file)
    first = task.region.first_line
    # Lines that the diff did not bring are the scaffold's, and counted in the result.
    where = [
        Where(SCAFFOLD, number) if line.number is None else Where(file, line.number)
        for number, line in enumerate(result[first - 1 :][: region.count("\n")], first)
    ]
    return Proposal(region, where)


def _outside(hunks: Sequence[unified_diff.Hunk], task: Task, file: str) -> Refused:
    first, last = task.region.first_line, task.region.last_line
    changes = list(unified_diff.changes_outside(hunks, first, last))
    message = f"this changes {SCAFFOLD} outside its editable lines {first}-{last}"
    if not changes:
        return Refused([finding("outside-region", file, hunks[0].number, message)])
    found = [
        finding("outside-region", file, line.number, message, text=line.sign + line.text)
        for line in changes[:MAX_FINDINGS]
    ]
    return Refused(found, len(changes) - len(found))


def _is_diff(lines: Sequence[str], scaffold: Scaffold) -> bool:
    return unified_diff.looks_like_diff(lines)


def _is_whole_file(lines: Sequence[str], scaffold: Scaffold) -> bool:
    opening = [each for each in scaffold.prefix.split("\n") if each.strip()][:3]
    there = [each for each in lines if each.strip()][:3]
    banners = (REGION_BEGINS, REGION_ENDS)
    return there == opening or any(each.strip() in banners for each in lines)


def _is_json(lines: Sequence[str], scaffold: Scaffold) -> bool:
    return next(each for each in lines if each.strip()).lstrip().startswith(("[", "{"))


def _is_fenced(lines: Sequence[str], scaffold: Scaffold) -> bool:
    written = [each for each in lines if each.strip()]
    return any(each.lstrip().startswith(("```", "~~~")) for each in (written[0], written[-1]))


def _refuse_form(
    rule: str, message: str, shows: Callable[[str], bool]
) -> Callable[[str, str, Task, Scaffold], Proposal]:
    """A form that is known and not accepted; the first line that `shows` is the one named."""

    def propose(content: str, file: str, task: Task, scaffold: Scaffold) -> Proposal:
        lines = content.split("\n")
        number = next((n for n, each in enumerate(lines, 1) if shows(each.strip())), 1)
        raise Refused([finding(rule, file, number, message, text=lines[number - 1])])

    return propose


FORMS: tuple[Form, ...] = (
    # The first that matches. A fence or a banner line inside a diff is part of its text.
    Form(
        "fenced text",
        _is_fenced,
        _refuse_form(
            "markdown-fence",
            "this is a fence of Markdown",
            lambda line: line.startswith(("```", "~~~")),
        ),
    ),
    Form("unified diff", _is_diff, _propose_diff),
    Form(
        "whole file",
        _is_whole_file,
        _refuse_form(
            "whole-file",
            "this is a whole scaffold file",
            lambda line: line in (REGION_BEGINS, REGION_ENDS),
        ),
    ),
    Form("list of edits", _is_json, _refuse_form("json-edits", "this looks like JSON", bool)),
    Form("region file", lambda lines, scaffold: True, _propose_region),
)
