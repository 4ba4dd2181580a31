"""How diffs look, of whatever kind: what tells them from code, and one kind from another."""

import re
from collections.abc import Sequence
from itertools import pairwise

GIT = "diff --git "
COMMIT = re.compile(r"(?:From|commit) [0-9a-f]{7,64}\b")
"""The first line of a commit that git printed, or made a mail of."""

_RANGE = r"\d+(?:,\d+)?"
_SCRIPT = rf"{_RANGE}[acd]$|[ad]\d+ \d+$"
"""A command for an editor, which lines of text follow."""
_OPENING = re.compile(
    rf"diff |--- |\*\*\* |@@ |Index: |{COMMIT.pattern}|(?:From|Subject): |# HG "
    rf"|{_RANGE}[acd]\d|{_SCRIPT}"
)
_OTHER_KINDS = (
    (re.compile(r"diff --(?:cc|combined) |@@@+ -"), "a combined diff of a merge"),
    (re.compile(rf"\*{{15}}$|\*\*\* {_RANGE} \*\*\*\*$"), "a context diff"),
    (re.compile(r"\*\*\* Begin Patch"), "an edit for a chat program"),
    (re.compile(_SCRIPT), "a script for an editor"),
)
_PLAIN = re.compile(rf"{_RANGE}[acd]{_RANGE}$")
"""A hunk's header in the output of `diff` without options; `< ` or `> ` follows."""


def opens_diff(line: str) -> bool:
    """Whether a text's first line is that of a diff, or of a mail or commit around it."""
    return _OPENING.match(line) is not None


def looks_like_diff(lines: Sequence[str]) -> bool:
    """Whether the text means to be a diff of any kind; code has such lines only inside strings."""
    return other_kind(lines) is not None or any(
        line.startswith((GIT, "@@ -")) or (line.startswith("--- ") and following.startswith("+++ "))
        for line, following in pairwise([*lines, ""])
    )


def other_kind(lines: Sequence[str]) -> tuple[int, str] | None:
    """The index of the first line that marks a diff of another kind, and the kind."""
    for index, (line, following) in enumerate(pairwise([*lines, ""])):
        for pattern, kind in _OTHER_KINDS:
            if pattern.match(line):
                return index, kind
        if following.startswith(("< ", "> ")) and _PLAIN.match(line):
            return index, "a diff without context lines (`diff` alone)"
    return None
