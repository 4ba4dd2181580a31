"""The one door: a file that was handed in becomes an accepted source, or is refused with its lines.

Each form is only a way to say what the region holds: a function from text to `Proposal`
(`forms`). One judgement follows for all of them: pristine prefix + region + pristine suffix, byte
for byte, and a region that obeys the source rules.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from harness.intake import limited_child, text
from harness.intake.forms import form_of
from harness.intake.proposal import SCAFFOLD, Scaffold, Where
from harness.intake.refusals import MAX_FINDINGS, Finding, Refused, finding
from harness.intake.rule_tables import Found
from harness.intake.text import split_lines
from harness.task import REGION_BEGINS, REGION_ENDS, Task

__all__ = [
    "SCAFFOLD",
    "STANDARD_INPUT",
    "HandedIn",
    "Scaffold",
    "Submission",
    "Where",
    "accept",
    "assemble",
    "judge",
    "read",
    "split_lines",
]

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_REGION_LINE = re.compile(r"line (\d{1,7}) of the region")
# A joiner between two non-ASCII characters is part of an emoji or of ordinary script.
_INVISIBLE = re.compile(
    rf"[{_BIDIRECTIONAL}\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u206f"
    r"\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


@dataclass(frozen=True)
class Submission:
    """What was handed in, as the one file that it comes to. `source` is all that a guest runs."""

    form: str
    """How it was handed in: "region file", "whole file", "unified diff" or "list of edits"."""
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
    file: str
    """What messages call it: the path that was named, or "<stdin>"."""
    where: tuple[Where, ...]
    """Of each line of the source, where it was handed in; the scaffold's own are its own."""
    warnings: tuple[Finding, ...] = ()
    """What is allowed and seldom meant: known once the submission is judged."""


class HandedIn(NamedTuple):
    """A submission as it was read, once: everything after looks at these bytes."""

    file: str
    """For messages: the path that was named, "<stdin>" for standard input."""
    content: bytes


STANDARD_INPUT = Path("-")


def accept(task: Task, path: Path) -> Submission:
    """Read a submission and judge it. Raises Refused with every broken rule."""
    return judge(task, assemble(task, read(path)))


def read(path: Path) -> HandedIn:
    """The file of that path, or what comes through standard input for "-". Raises Refused."""
    if path == STANDARD_INPUT:
        return HandedIn("<stdin>", text.read_standard_input())
    return HandedIn(str(path), text.read(path))


def assemble(task: Task, handed_in: HandedIn) -> Submission:
    """The scaffold with the region that was handed in. Nothing about the region is judged yet.

    Raises Refused where the text is of no form, reaches out of the region, or changes nothing.
    """
    file = handed_in.file
    decoded = text.decode(handed_in.content, file)
    scaffold = Scaffold.of(task)
    form = form_of(decoded.text, file, task, scaffold)
    proposal = form.propose(decoded.text, file, task, scaffold)
    if proposal.region.strip() == scaffold.region.strip():
        message = "the region is the scaffold's own, unchanged"
        raise Refused([finding("nothing-changed", file, None, message)])
    source = (scaffold.prefix + proposal.region + scaffold.suffix).encode()
    fixed = [Where(SCAFFOLD, number) for number in range(1, scaffold.source.count("\n") + 1)]
    return Submission(
        form=form.name,
        source=source,
        region=proposal.region.encode(),
        sha256=hashlib.sha256(source).hexdigest(),
        notes=(*decoded.notes, *proposal.notes),
        original=handed_in.content,
        file=file,
        where=(
            *fixed[: task.region.first_line - 1],
            *proposal.where,
            *fixed[task.region.last_line :],
        ),
    )


def judge(task: Task, submission: Submission) -> Submission:
    """The same with what there is to warn of. Raises Refused unless it obeys every rule."""
    size, allowed = len(submission.region), task.region.max_bytes
    if size > allowed:
        message = f"the region has {size:,} bytes; at most {allowed:,} are allowed"
        raise Refused([finding("region-size", submission.file, None, message)])
    region = submission.region.decode()
    answer = limited_child.check(
        region,
        task.scaffold.decode(),
        task.region.first_line,
        task.region.last_line,
        task.region.classes,
    )
    lines = split_lines(region)
    found = [
        _located(task, submission, lines, each)
        for each in (*_banner_lines(lines), *_invisible_characters(lines), *answer.found)
    ]
    found.sort(key=lambda each: each.line or 0)
    if any(not each.is_warning for each in found):
        raise Refused(found, answer.more)
    return replace(submission, warnings=tuple(found))


def _banner_lines(lines: Sequence[str]) -> list[Found]:
    banners = (REGION_BEGINS, REGION_ENDS)
    return [
        Found("banner-line", number, 1, "a banner line inside the region")
        for number, line in enumerate(lines, 1)
        if line.strip() in banners
    ][:MAX_FINDINGS]


def _invisible_characters(lines: Sequence[str]) -> list[Found]:
    found = (
        Found(
            "invisible-characters",
            number,
            match.start() + 1,
            f"the invisible character U+{ord(match[0]):04X}",
        )
        for number, line in enumerate(lines, 1)
        for match in _INVISIBLE.finditer(line)
    )
    return list(islice(found, MAX_FINDINGS))


def _located(task: Task, submission: Submission, lines: Sequence[str], found: Found) -> Finding:
    """The finding at the line that was handed in, as are the other lines that it names."""
    where = submission.where[task.region.first_line - 1 :]

    def handed_in(named: re.Match[str]) -> str:
        index = int(named[1]) - 1
        if not 0 <= index < len(lines):
            return named[0]
        file, line = where[index]
        return f"line {line}" + (f" of {file}" if file != submission.file else "")

    message = _REGION_LINE.sub(handed_in, found.message)
    if not 0 < found.line <= len(lines):
        return finding(found.rule, submission.file, None, message)
    return finding(
        found.rule,
        *where[found.line - 1],
        message,
        text=lines[found.line - 1],
        column=found.column or None,
    )
