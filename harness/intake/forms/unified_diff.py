"""Unified diffs, read into hunks: one file, one change, and counts that are what they say.

A parser of our own, because `git apply` and `patch` forgive counts and follow paths. No path in a
diff is ever opened.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from harness.intake.forms.diff_kinds import COMMIT, GIT, is_mail, other_kind
from harness.intake.forms.proposal import SCAFFOLD, file_problem, path_problem
from harness.intake.refusals import refuse

MAX_LINES = 50_000
"""Of one side of a hunk. A region has at most 32 KiB."""
MAX_LOST = 3
"""Blank context lines that a diff may have lost at its end: as many as the context of one."""

_NUMBER = "[0-9]{1,9}"
_HUNK = re.compile(rf"@@ -({_NUMBER})(?:,({_NUMBER}))? \+({_NUMBER})(?:,({_NUMBER}))? @@")
_NAMES_SCAFFOLD = re.compile(rf'[ /\\"]{re.escape(SCAFFOLD)}(?=[ "]|$)')
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How git writes a byte of a quoted path."""
_TIMESTAMP = re.compile(r"\s[0-9]{4}-[0-9]{2}-[0-9]{2}[ T].*$")
_TRAILER = re.compile(r"(?:base-commit|prerequisite-patch-id): [0-9a-f]+$")
_SIGNATURES = ("-- ", "--")
"""What a mail's signature begins with."""
_EXTENDED = (
    # Lines between `diff --git` and the first hunk that ask for more than a change of text.
    (("rename ", "copy ", "similarity index ", "dissimilarity index "), "diff-rename"),
    (("old mode ", "new mode ", "new file mode ", "deleted file mode "), "diff-mode"),
    (("GIT binary patch",), "diff-binary"),
)
_BINARY = re.compile(r"Binary files? .* (?:differ|has changed)$")


class Line(NamedTuple):
    """One line of a hunk."""

    sign: str
    """One of " ", "-", "+"."""
    text: str
    """With its LF; without one where the diff says that the file ends there."""
    number: int
    """1-based, in the diff."""


class Hunk(NamedTuple):
    """One hunk: `old` is the index (0-based) of the first old line, or where lines come in."""

    number: int
    old: int
    lines: tuple[Line, ...]

    def side(self, sign: str) -> list[str]:
        """The text before ("-") or after ("+") the hunk."""
        return [line.text for line in self.lines if line.sign in (" ", sign)]


class Parsed(NamedTuple):
    """The hunks of a diff, and what was supplied, a sentence each."""

    hunks: tuple[Hunk, ...]
    notes: tuple[str, ...]


def parse(lines: Sequence[str], file: str, task: str) -> Parsed:
    """The hunks of a diff of one file named scaffold.py. Raises Refused with the diff's line."""
    other = other_kind(lines)
    if other is not None and not any(line.startswith("@@ -") for line in lines):
        index, kind = other
        refuse("diff-kind", file, index + 1, f"this is {kind}", text=lines[index])
    return _Parser(lines, file, task).parse()


class _Parser:
    """One pass over the lines; `at` is the index of the next one."""

    def __init__(self, lines: Sequence[str], file: str, task: str) -> None:
        self.content = lines
        # A diff's own lines may end in CRLF where its content does not, and the other way round.
        self.lines = [line.removesuffix("\r") for line in lines]
        self.file = file
        self.task = task
        self.at = 0
        self.notes: tuple[str, ...] = ()

    def parse(self) -> Parsed:
        self._preamble()
        hunks = []
        while self.at < len(self.lines) and self.lines[self.at].startswith("@@"):
            hunks.append(self._hunk())
        if not hunks:
            self._refuse("diff-header", self.at, "a hunk (`@@ -...`) is expected here")
        self._epilogue()
        return Parsed(tuple(hunks), self.notes)

    def _preamble(self) -> None:
        """Everything up to the first hunk: a mail's text, a program's header, the two names."""
        git = False
        self.at = self._message()
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(GIT):
                git = True
                self._git_names(line)
            for starts, rule in _EXTENDED if git else ():
                if line.startswith(starts):
                    self._refuse(rule, self.at, "this line asks for more than new text")
            if _BINARY.match(line):
                self._refuse("diff-binary", self.at, "this is no text")
            following, second = self._line(self.at + 1), self._line(self.at + 2)
            if line.startswith("--- ") and not following and second.startswith("+++ "):
                message = (
                    "a blank line stands between this and the next: join what difflib gives with "
                    '`"".join`, or give it `lineterm=""`'
                )
                self._refuse("diff-header", self.at, message)
            if line.startswith("@@ -"):
                self._refuse("diff-header", self.at, "no file is named before this hunk")
            if self._begins_file(self.at):
                self._names()
                return
            self.at += 1
        self._refuse("diff-header", len(self.lines) - 1, "the diff names no file and has no hunk")

    def _message(self) -> int:
        """The index behind a mail's message, which may hold anything: git ends it so, too."""
        start = next(index for index, line in enumerate(self.lines) if line.strip())
        if not is_mail(self.lines[start]):
            return 0
        for index, line in enumerate(self.lines):
            if line.rstrip() == "---" or line.startswith(GIT) or self._begins_file(index):
                return index
        return 0

    def _git_names(self, line: str) -> None:
        others = [n for n in range(self.at + 1, len(self.lines)) if self._line(n).startswith(GIT)]
        if others:
            self._refuse("diff-several", others[0], "another change begins here")
        # Names with spaces cannot be told apart here; the two lines that follow say more.
        for part in re.split(r'[ "]', line):
            if problem := path_problem(part, self.task):
                self._refuse("wrong-file", self.at, problem)
        if not _NAMES_SCAFFOLD.search(line):
            self._refuse("wrong-file", self.at, f"this names another file than `{SCAFFOLD}`")

    def _names(self) -> None:
        old, new = (_path(self.lines[self.at + offset]) for offset in (0, 1))
        # The old name alone says which file is meant: `diff -u scaffold.py mine.py` is fine.
        problems = (file_problem(old, self.task), path_problem(new, self.task))
        for offset, (path, problem) in enumerate(zip((old, new), problems, strict=True)):
            if path == "/dev/null":
                self._refuse("diff-mode", self.at + offset, "this makes or deletes a file")
            if problem:
                self._refuse("wrong-file", self.at + offset, problem)
        self.at += 2

    def _hunk(self) -> Hunk:
        start = self.at
        match = _HUNK.match(self.lines[start])
        if match is None:
            self._refuse("diff-header", start, "the numbers of this hunk cannot be read")
        first = int(match[1])
        declared = tuple(1 if each is None else int(each) for each in (match[2], match[4]))
        if first == 0 and declared[0]:
            self._refuse("diff-header", start, "line 0 does not exist; lines count from 1")
        if declared == (0, 0):
            self._refuse("diff-counts", start, "this hunk declares no lines")
        if max(declared) > MAX_LINES:
            message = f"this hunk declares {max(declared):,} lines; at most {MAX_LINES:,} are read"
            self._refuse("diff-counts", start, message)
        self.at += 1
        lines: list[Line] = []
        old, new = declared
        while old > 0 or new > 0:
            if self.at == len(self.lines) and lines and old == new <= MAX_LOST:
                self._supply(lines, old)
                break
            line = self._line(self.at) if self.at < len(self.lines) else "@"
            # Mailers and editors strip the space of an empty context line.
            sign = line[0] if line else " "
            if sign == "\\":
                self._no_newline(lines)
                continue
            old -= sign in " -"
            new -= sign in " +"
            if sign not in " -+" or old < 0 or new < 0:
                self._miscounted(start, declared)
            content = self.content[self.at].removeprefix(sign)
            lines.append(Line(sign, content + "\n", self.at + 1))
            self.at += 1
        if self._line(self.at).startswith("\\"):
            self._no_newline(lines)
        if self._line(self.at).startswith((" ", "+", "-")) and not self._ends_here():
            self._miscounted(start, declared)
        return Hunk(start + 1, first - 1 if declared[0] else first, tuple(lines))

    def _supply(self, lines: list[Line], count: int) -> None:
        """Blank context lines, which a paste or an editor took from the end of the diff.

        With them it took the CR of the line before, where the compared files have one.
        """
        crlf = any(line.text.endswith("\r\n") for line in lines[:-1] if line.sign != "+")
        end = "\r\n" if crlf else "\n"
        if crlf and not lines[-1].text.endswith(end):
            lines[-1] = lines[-1]._replace(text=lines[-1].text.removesuffix("\n") + end)
        lines += [Line(" ", end, len(self.lines))] * count
        plural = "s" if count > 1 else ""
        self.notes += (f"The diff lacked {count} blank context line{plural} at its end: supplied.",)

    def _no_newline(self, lines: list[Line]) -> None:
        if not lines or not lines[-1].text.endswith("\n"):
            self._refuse("diff-newline", self.at, "this mark belongs to no line")
        lines[-1] = lines[-1]._replace(text=lines[-1].text[:-1])
        self.at += 1

    def _ends_here(self) -> bool:
        """Whether the line opens a mail's signature or the next file."""
        line = self.lines[self.at]
        return line in _SIGNATURES or self._begins_file(self.at)

    def _begins_file(self, index: int) -> bool:
        return self._line(index).startswith("--- ") and self._line(index + 1).startswith("+++ ")

    def _miscounted(self, start: int, declared: tuple[int, ...]) -> NoReturn:
        if any("{+" in line and "+}" in line for line in self.lines[start:]):
            self._refuse("diff-kind", start, "this is a diff of words")
        self.at = start + 1
        found: list[str] = []
        while self.at < min(len(self.lines), start + MAX_LINES) and not self._ends_here():
            line = self.lines[self.at]
            if line and line[0] not in " +-\\":
                break
            found.append(line[:1] or " ")
            self.at += 1
        # Blank lines between a hunk and what follows are more likely no part of it.
        while found and self.lines[start + len(found)] == "":
            found.pop()
        old, new = (sum(sign in " " + side for sign in found) for side in "-+")
        message = (
            f"the header declares {declared[0]} old and {declared[1]} new lines, "
            f"{old} and {new} are there"
        )
        self._refuse("diff-counts", start, message)

    def _epilogue(self) -> None:
        signature = False
        for index in range(self.at, len(self.lines)):
            line = self.lines[index]
            if line.startswith("@@ -"):
                self._refuse("diff-header", index, "no file is named directly before this hunk")
            if line.startswith(GIT) or self._begins_file(index):
                self._refuse("diff-several", index, "another change begins here")
            if signature and line.startswith(("+", "-")) and line not in _SIGNATURES:
                self._refuse("diff-trailing", index, "this line belongs to no hunk")
            signature = signature or line in _SIGNATURES
            if line.strip() and not signature and not _TRAILER.match(line):
                if COMMIT.match(line):
                    self._refuse("diff-several", index, "another commit begins here")
                if line.startswith("Property changes on: "):
                    self._refuse("diff-mode", index, "this line asks for more than new text")
                self._refuse("diff-trailing", index, "this line belongs to no hunk")

    def _line(self, index: int) -> str:
        return self.lines[index] if index < len(self.lines) else ""

    def _refuse(self, rule: str, index: int, message: str) -> NoReturn:
        # Past the end the last line is shown.
        index = max(0, min(index, len(self.lines) - 1))
        refuse(rule, self.file, index + 1, message, text=self.lines[index])


def _path(header: str) -> str:
    """The path of a `---` or `+++` line, without a timestamp or git's quotes."""
    path = _TIMESTAMP.sub("", header[4:].split("\t", 1)[0]).strip()
    if len(path) > 1 and path[0] == path[-1] == '"':
        return _OCTAL.sub(lambda match: chr(int(match[1], 8)), path[1:-1])
    return path
