"""How a broken rule is shown: a finding at its line, and a refusal that lists them.

Whatever a submission wrote reaches a message only through `printable`: no terminal escapes, no
endless lines.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from harness.intake.rules.table import RULES

MAX_FINDINGS = 50
"""More are counted and not shown: a hostile text must not make the host write a book."""
MAX_TEXT = 110
MAX_MESSAGE = 400
MAX_LINES = 40


@dataclass(frozen=True)
class Finding:
    """One broken rule at one place. All text in it is safe to print; build it with `finding`."""

    rule: str
    file: str
    line: int | None
    """1-based, in `file`; None where the fault is in no line."""
    column: int | None
    """1-based, in `text` as it is shown."""
    text: str
    message: str
    reason: str
    advice: str
    detail: str = ""
    """Several lines: a traceback."""

    @property
    def is_warning(self) -> bool:
        """Whether a submission is accepted in spite of it."""
        return RULES[self.rule].warns

    def render(self) -> str:
        """The finding in the manner of Rust's compiler, several lines without a final LF."""
        number = "" if self.line is None else str(self.line)
        gutter = " " * max(len(number), 2)
        place = self.file if self.line is None else f"{self.file}:{number}"
        level = "warning" if self.is_warning else "error"
        lines = [f"{level}[{self.rule}]: {self.message}", f"{gutter}--> {place}"]
        if self.line is not None:
            lines += [f"{gutter} |", f"{number:>{len(gutter)}} | {self.text}"]
            caret = f"{' ' * (self.column - 1)}^" if self.column else ""
            lines.append(f"{gutter} | {caret}".rstrip())
        lines += [f"{gutter} : {each}" for each in self.detail.splitlines()]
        lines += [f"{gutter} = why: {self.reason}", f"{gutter} = help: {self.advice}"]
        return "\n".join(lines)


class Refused(Exception):
    """A submission is not accepted. Nothing else is raised for what a submission holds."""

    def __init__(self, findings: Iterable[Finding], more: int = 0) -> None:
        """`more` counts findings beyond those listed."""
        listed = sorted(findings, key=lambda each: each.is_warning)
        self.findings = tuple(listed[:MAX_FINDINGS])
        """Errors first."""
        self.more = more + max(0, len(listed) - MAX_FINDINGS)
        super().__init__(self.render())

    def render(self) -> str:
        """Every finding, and how many there are."""
        parts = [each.render() for each in self.findings]
        warnings = sum(each.is_warning for each in self.findings)
        counts = [_counted(len(self.findings) - warnings, "finding")]
        if warnings:
            counts.append(_counted(warnings, "warning"))
        if self.more:
            counts.append(f"{self.more} more not shown")
        parts.append(f"refused: {', '.join(counts)}")
        return "\n\n".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def finding(
    rule: str,
    file: str,
    line: int | None,
    message: str,
    *,
    text: str = "",
    column: int | None = None,
    detail: str = "",
) -> Finding:
    """A finding whose untrusted parts are escaped and cut.

    `column` is 1-based and counts characters of `text`.
    """
    shown, position = _excerpt(text, column)
    return Finding(
        rule=rule,
        file=printable(file, MAX_MESSAGE),
        line=line,
        column=position,
        text=shown,
        message=printable(message, MAX_MESSAGE),
        reason=RULES[rule].reason,
        advice=RULES[rule].advice,
        detail="\n".join(printable(each, MAX_MESSAGE) for each in detail.split("\n")[-MAX_LINES:]),
    )


def refuse(
    rule: str,
    file: str,
    line: int | None,
    message: str,
    *,
    text: str = "",
    column: int | None = None,
) -> NoReturn:
    """Raises Refused with one finding."""
    raise Refused([finding(rule, file, line, message, text=text, column=column)])


def printable(text: str, limit: int) -> str:
    """At most `limit` characters of `text`; what a terminal could obey is written as an escape."""
    cut = text[:limit]
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut
    )
    return shown[: limit - 1] + "…" if len(shown) > limit or len(text) > limit else shown


def _excerpt(text: str, column: int | None) -> tuple[str, int | None]:
    """The part of a line around `column`, escaped, and the column in it."""
    text = text.rstrip("\n")
    if column is None:
        return printable(text.replace("\t", "    "), MAX_TEXT), None
    column = max(1, min(column, len(text) + 1))
    start = 0 if column <= MAX_TEXT // 2 else column - MAX_TEXT // 2
    lead = "…" if start else ""
    before = lead + printable(text[start : column - 1].replace("\t", "    "), 6 * MAX_TEXT)
    after = printable(text[column - 1 : column - 1 + MAX_TEXT].replace("\t", "    "), MAX_TEXT)
    return before + after, len(before) + 1
