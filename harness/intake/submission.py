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
    "Accepted",
    "HandedIn",
    "Scaffold",
    "Where",
    "accept",
    "judge",
    "read",
    "split_lines",
    "unjudged",
]

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# A joiner between two non-ASCII characters is part of an emoji or of ordinary script.
_REGION_LINE = re.compile(r"line (\d{1,7}) of the region")
_INVISIBLE = re.compile(
    rf"[{_BIDIRECTIONAL}\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u206f"
    r"\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


@dataclass(frozen=True)
class Accepted:
    """What intake hands on. `source` is all that a guest ever runs."""

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
    warnings: tuple[Finding, ...] = ()
    """What is allowed and seldom meant."""
    where: tuple[Where, ...] = ()
    """Of each line of the region, where it was handed in."""
    file: str = ""
    """What messages call it: the path that was named, or "<stdin>"."""


class HandedIn(NamedTuple):
    """A submission as it was read, once: everything after looks at these bytes."""

    file: str
    """For messages: the path that was named, "<stdin>" for standard input."""
    content: bytes


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
    warnings = _judge(task, accepted)
    return replace(accepted, warnings=warnings)


def unjudged(task: Task, handed_in: HandedIn) -> Accepted:
    """The same source without a look at the rules: for its author, at work on it.

    Nothing but an unranked run outside the sandbox takes it. Raises Refused where the text cannot
    be made into a region at all.
    """
    file = handed_in.file
    decoded = text.decode(handed_in.content, file)
    scaffold = Scaffold.of(task)
    form = form_of(decoded.text, file, task, scaffold)
    proposal = form.propose(decoded.text, file, task, scaffold)
    if proposal.region.strip() == scaffold.region.strip():
        message = "the region is the scaffold's own, unchanged"
        raise Refused([finding("nothing-changed", file, None, message)])
    source = scaffold.prefix + proposal.region + scaffold.suffix
    encoded = source.encode()
    return Accepted(
        form=form.name,
        source=encoded,
        region=proposal.region.encode(),
        sha256=hashlib.sha256(encoded).hexdigest(),
        notes=(*decoded.notes, *proposal.notes),
        original=handed_in.content,
        where=proposal.where,
        file=file,
    )


def _judge(task: Task, accepted: Accepted) -> tuple[Finding, ...]:
    """What there is to warn of. Raises Refused unless the region obeys every rule."""
    size, allowed = len(accepted.region), task.region.max_bytes
    if size > allowed:
        message = f"the region has {size:,} bytes; at most {allowed:,} are allowed"
        raise Refused([finding("region-size", accepted.file, None, message)])
    region = accepted.region.decode()
    answer = limited_child.check(
        region,
        task.scaffold.decode(),
        task.region.first_line,
        task.region.last_line,
        task.region.classes,
    )
    lines = split_lines(region)
    found = [
        _located(accepted, lines, each)
        for each in (*_banner_lines(lines), *_invisible_characters(lines), *answer.found)
    ]
    found.sort(key=lambda each: each.line or 0)
    if any(not each.is_warning for each in found):
        raise Refused(found, answer.more)
    return tuple(found)


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


def _located(accepted: Accepted, lines: Sequence[str], found: Found) -> Finding:
    """The finding at the line that was handed in, as are the other lines that it names."""

    def handed_in(named: re.Match[str]) -> str:
        index = int(named[1]) - 1
        if not 0 <= index < len(accepted.where):
            return named[0]
        where = accepted.where[index]
        return f"line {where.line}" + (f" of {where.file}" if where.file != accepted.file else "")

    message = _REGION_LINE.sub(handed_in, found.message)
    if not 0 < found.line <= len(lines):
        return finding(found.rule, accepted.file, None, message)
    where = accepted.where[found.line - 1]
    return finding(
        found.rule,
        where.file,
        where.line,
        message,
        text=lines[found.line - 1],
        column=found.column or None,
    )
