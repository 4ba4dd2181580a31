"""Why a submission is refused: the one table of rules, and how a broken one is shown.

Checks name a rule by its id and say what they found; reason and advice stand here alone. Whatever a
submission wrote reaches a message only through `printable`: no terminal escapes, no endless lines.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

MAX_FINDINGS = 50
"""More are counted and not shown: a hostile text must not make the host write a book."""
MAX_TEXT = 110
MAX_MESSAGE = 400


class Rule(NamedTuple):
    """What a rule protects, and what to do when it is broken."""

    reason: str
    advice: str
    warns: bool = False
    """Said, and no ground for a refusal."""


FORMS = "a region file (the code between the banner lines) or a unified diff against scaffold.py"

RULES: dict[str, Rule] = {
    # The file
    "file-unreadable": Rule(
        "A submission is one file that this user can read.",
        "Check the path and its permissions.",
    ),
    "file-kind": Rule(
        "A submission is a regular file: pipes, devices and directories can block or never end.",
        "Save the submission as a file and name that file.",
    ),
    "file-size": Rule(
        "A submission is read up to 256 KiB.",
        f"Hand in {FORMS}, and nothing else.",
    ),
    "encoding": Rule(
        "Submissions are UTF-8 text.",
        "Save the file as UTF-8. In Windows PowerShell, `git diff > x.patch` writes UTF-16: use "
        "`git diff --output=x.patch`.",
    ),
    "control-characters": Rule(
        "Control characters can hide text from a reader, and colours break a diff.",
        "Remove the character. For a coloured diff: `git diff --no-color`.",
    ),
    "line-endings": Rule(
        "Lines end in LF. A file that uses CRLF throughout is converted; a mixture is ambiguous.",
        "Convert the file to LF, for instance with `dos2unix`; write a CR in a string as \\r.",
    ),
    "empty": Rule(
        "A submission has to bring code.",
        f"Hand in {FORMS}.",
    ),
    # The form
    "whole-file": Rule(
        "Whole scaffold files are not among the accepted forms yet.",
        "Keep only the lines between the two banner lines, without the banners, or hand in a "
        "diff: `diff -u scaffold.py yours.py`.",
    ),
    "json-edits": Rule(
        "Lists of edits are not among the accepted forms yet.",
        f"Hand in {FORMS}.",
    ),
    "markdown-fence": Rule(
        "A submission is code, without the markup of a chat or a web page.",
        "Remove the fence lines and whatever stands outside them.",
    ),
    "diff-kind": Rule(
        "Of the kinds of diff only the unified one is accepted.",
        "Make it with `git diff` or `diff -u`.",
    ),
    # A unified diff
    "diff-header": Rule(
        "A unified diff names its file (`--- scaffold.py`, `+++ ...`) before its first hunk "
        "(`@@ -start,count +start,count @@`).",
        "Make the diff with `git diff` or `diff -u` and leave its lines as they are.",
    ),
    "diff-file": Rule(
        "A submission changes one file, the scaffold of its task.",
        "Make the diff against this task's scaffold.py, by a path without `..` or `.git`.",
    ),
    "diff-several": Rule(
        "A submission changes one file, in one commit.",
        "Leave the other changes out: `git diff COMMIT -- path/to/scaffold.py`.",
    ),
    "diff-rename": Rule(
        "The scaffold keeps its name and its place.",
        "Change the file where it is; `git diff --no-renames` shows a change as a change.",
    ),
    "diff-mode": Rule(
        "The scaffold is neither made, deleted nor given another mode.",
        "Leave the mode alone (`git -c core.fileMode=false diff`) and diff against the scaffold "
        "of the task.",
    ),
    "diff-binary": Rule(
        "The scaffold is text.",
        "Make the diff with `git diff --text` from a UTF-8 file.",
    ),
    "diff-counts": Rule(
        "A hunk's header says how many lines it has; a wrong count hides what was meant.",
        "Make the diff anew with a tool; after editing one by hand, `recountdiff` corrects it.",
    ),
    "diff-order": Rule(
        "Hunks follow each other in the order of the file and do not overlap.",
        "Make the diff anew with `git diff` or `diff -u`.",
    ),
    "diff-placement": Rule(
        "A hunk stands where its old line numbers say; nothing is searched for or guessed.",
        "Make the diff against the scaffold of this version of the task.",
    ),
    "diff-newline": Rule(
        "Only the last line of a file can be without a line end.",
        "Remove the line `\\ No newline at end of file` or make the diff anew.",
    ),
    "diff-trailing": Rule(
        "After the last hunk only blank lines or a mail's signature (`-- `) may follow.",
        "Remove what follows the diff.",
    ),
    # The result
    "outside-region": Rule(
        "A submission may change the editable region alone; the rest stays byte for byte.",
        "Take this change back. What you need can be defined inside the region.",
    ),
    "nothing-changed": Rule(
        "The result is the scaffold as it was.",
        "Fill the region with an algorithm.",
    ),
    "region-size": Rule(
        "The region's size is bounded, so that it cannot carry trained weights.",
        "Shorten the region.",
    ),
    # The region's text
    "banner-line": Rule(
        "The banner lines mark the region's ends, once each, and belong to the fixed part.",
        "Remove the line.",
    ),
    "invisible-characters": Rule(
        "Invisible and direction-changing characters make code read otherwise than it runs.",
        "Remove the character; inside a string, write it as an escape such as \\u200b.",
    ),
    "identifier": Rule(
        "Names are read as they are written: in NFKC, in Latin or Greek letters.",
        "Write the name with ordinary letters.",
    ),
    "syntax": Rule(
        "The region has to be Python that parses on its own, without the lines around it.",
        "Correct the line, or what stands open before it.",
    ),
    "too-heavy": Rule(
        "The region is parsed under limits of memory and time.",
        "Simplify deeply nested or repeated expressions.",
    ),
    "too-deep": Rule(
        "The nesting of code is bounded, so that parsing it is, too.",
        "Split the expression or the chain of `elif` into several.",
    ),
    "literal-length": Rule(
        "Long literals, and many short ones, carry data, such as trained weights.",
        "Compute the values, or shorten the literals; docstrings and comments may be long.",
    ),
    "missing-class": Rule(
        "The scaffold looks these classes up by name.",
        "Define the class at the top level of the region.",
    ),
    "fixed-name": Rule(
        "Names that the fixed part defines keep their meaning; importing the same module under "
        "the same name is fine.",
        "Choose another name.",
    ),
    "fixed-builtin": Rule(
        "The fixed part uses this builtin and must get Python's own.",
        "Choose another name, at the top level of the region; inside functions it is free.",
    ),
    "import": Rule(
        "A region may import torch, numpy and a part of the standard library.",
        "Do without this module.",
    ),
    "import-form": Rule(
        "Imports say what they bring.",
        "Import the module, or the names that are needed, by absolute path.",
    ),
    "refused-name": Rule(
        "This name runs text as code, reaches the interpreter or the machine.",
        "Do without it; if it is a name of your own, choose another.",
    ),
    "refused-attribute": Rule(
        "This attribute leads from a library to the interpreter or the machine.",
        "Do without it; if it is a name of your own, choose another.",
    ),
    "special-name": Rule(
        "Names with two underscores at both ends belong to Python; a region may define a list of "
        "them (`__init__`, `__call__`, `__len__`, ...), and read a shorter one.",
        "Do without it; in a method, `super().__setattr__(...)` reaches what the class defines.",
    ),
    "computed-attribute": Rule(
        "Attribute names are written out, so that a reader can see them.",
        'Give a literal name, `getattr(args, "gamma", 0.99)`, or use a dict or nn.ModuleDict.',
    ),
    "library-private": Rule(
        "What a library keeps for itself, its files and its tools lead past the other rules.",
        "Use the library's public, numerical part.",
    ),
    "module-value": Rule(
        "A module is used by attributes that are written out, so that a reader can see them.",
        "Write `torch.relu` where it is needed, or bind that: `relu = torch.relu`.",
    ),
    "fixed-attribute": Rule(
        "What the fixed part and the libraries define keeps its meaning, attributes included.",
        "Set it on an object of your own, or write a subclass or a function.",
    ),
    "builtin-value": Rule(
        "Passed around, this builtin makes classes, sets attributes or catches signals unseen.",
        "Write `type(x)` with one argument, `isinstance(x, type)`, a base `object`, `Exception`; "
        "if it is a name of your own, choose another.",
    ),
    "call-form": Rule(
        "In other forms this function reads or sets attributes, or runs text, by computed names.",
        "Write `@dataclass` directly above its class, `@functools.wraps(function)`, `super()` and "
        "`torch.compile(function)` with literal options.",
    ),
    "metaclass": Rule(
        "Classes are written as class statements, without metaclasses.",
        "Write an ordinary class.",
    ),
    "broad-except": Rule(
        "A handler that catches everything also swallows the signals that end a run.",
        "Catch `Exception` or something narrower.",
    ),
    "global-statement": Rule(
        "Functions do not rebind names of the module.",
        "Keep the value in an attribute of an object.",
    ),
}


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
        listed = tuple(findings)
        self.findings = listed[:MAX_FINDINGS]
        self.more = more + max(0, len(listed) - MAX_FINDINGS)
        super().__init__(self.render())

    def render(self) -> str:
        """Every finding, and how many there are."""
        total = len(self.findings) + self.more
        parts = [each.render() for each in self.findings]
        shown = f"; the first {len(self.findings)} are shown" if self.more else ""
        parts.append(f"refused: {total} finding{'s' if total > 1 else ''}{shown}")
        return "\n\n".join(parts)


def finding(
    rule: str,
    file: str,
    line: int | None,
    message: str,
    *,
    text: str = "",
    column: int | None = None,
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
    )


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
