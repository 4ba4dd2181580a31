"""The one door: a file that was handed in becomes an accepted source, or is refused with its lines.

Each form is only a way to say what the region holds: a function from text to `Proposal`
(`forms`). One judgement follows for all of them: pristine prefix + region + pristine suffix, byte
for byte, and a region that obeys the source rules.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from harness.intake import text
from harness.intake.forms.form import form_of
from harness.intake.forms.proposal import SCAFFOLD, Scaffold, Where
from harness.intake.refusals import MAX_MESSAGE, Finding, Refused, finding, printable, refuse
from harness.intake.rules import limited_child, text_rules
from harness.intake.rules.rule_tables import OTHER_LINE, Found
from harness.task import Task


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
    """For messages, safe to print: the path that was named, "<stdin>" for standard input."""
    content: bytes


def accept(task: Task, path: Path) -> Submission:
    """Read a submission and judge it. Raises Refused with every broken rule."""
    return judge(task, assemble(task, read(path)))


def read(path: Path) -> HandedIn:
    """The file of that path, or what comes through standard input for "-". Raises Refused."""
    if path == text.STANDARD_INPUT:
        return HandedIn(text.STDIN_NAME, text.read_standard_input())
    return HandedIn(printable(str(path), MAX_MESSAGE), text.read(path))


def assemble(task: Task, handed_in: HandedIn) -> Submission:
    """The scaffold with the region that was handed in. Nothing about the region is judged yet.

    Raises Refused where the text is of no form, reaches out of the region, or changes nothing.
    """
    file = handed_in.file
    decoded = text.decode(handed_in.content, file)
    scaffold = Scaffold.of(task)
    form = form_of(decoded.text, file, scaffold)
    proposal = form.propose(decoded.text, file, scaffold)
    if proposal.region.strip() == scaffold.region.strip():
        refuse("nothing-changed", file, None, "the region is the scaffold's own, unchanged")
    source = scaffold.with_region(proposal.region).encode()
    fixed = [Where(SCAFFOLD, number) for number in range(1, scaffold.source.count("\n") + 1)]
    return Submission(
        form=form.name,
        source=source,
        region=proposal.region.encode(),
        sha256=hashlib.sha256(source).hexdigest(),
        notes=(*decoded.notes, *proposal.notes),
        original=handed_in.content,
        file=file,
        where=(*fixed[: scaffold.first - 1], *proposal.where, *fixed[scaffold.last :]),
    )


def judge(task: Task, submission: Submission) -> Submission:
    """The same with what there is to warn of. Raises Refused unless it obeys every rule."""
    size, allowed = len(submission.region), task.region.max_bytes
    if size > allowed:
        message = f"the region has {size:,} bytes; at most {allowed:,} are allowed"
        refuse("region-size", submission.file, None, message)
    region = submission.region.decode()
    answer = limited_child.check(
        region,
        task.scaffold.decode(),
        task.region.first_line,
        task.region.last_line,
        task.region.classes,
    )
    lines = text.split_lines(region)
    found = [
        _located(task, submission, lines, each)
        for each in (*text_rules.check(lines), *answer.found)
    ]
    found.sort(key=lambda each: each.line or 0)
    if any(not each.is_warning for each in found):
        raise Refused(found, answer.more)
    return replace(submission, warnings=tuple(found))


def _located(task: Task, submission: Submission, lines: Sequence[str], found: Found) -> Finding:
    """The finding at the line that was handed in, as is the other line that it names."""
    first = task.region.first_line - 1
    where = submission.where[first : first + len(lines)]
    message = found.message
    if 0 < found.other <= len(lines):
        file, line = where[found.other - 1]
        named = f"line {line}" + (f" of {file}" if file != submission.file else "")
        # Not by str.format: what the message quotes may hold braces.
        message = message.replace(OTHER_LINE, named)
    if not 0 < found.line <= len(lines):
        return finding(found.rule, submission.file, None, message)
    return finding(
        found.rule,
        *where[found.line - 1],
        message,
        text=lines[found.line - 1],
        column=found.column or None,
    )
