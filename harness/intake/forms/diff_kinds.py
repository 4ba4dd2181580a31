"""How diffs look, of whatever kind: what tells them from code, and one kind from another."""

import re
from collections.abc import Sequence
from itertools import pairwise

GIT = "diff --git "
COMMIT = re.compile(r"(?:From|commit) [0-9a-f]{7,64}\b")
"""The first line of a commit that git printed, or made a mail of."""

_RANGE = r"[0-9]+(?:,[0-9]+)?"
_SCRIPT = rf"{_RANGE}[acd]$|[ad][0-9]+ [0-9]+$"
"""A command for an editor, which lines of text follow."""
_OPENING = re.compile(
    rf"diff |--- |\*\*\* |@@ |{COMMIT.pattern}|# HG changeset |{_RANGE}[acd][0-9]|{_SCRIPT}"
    # Not `Subject: str = "x"`, which is code.
    r"|(?:Index|From|Subject): (?!.* = )"
)
_PREFIXED = re.compile(rf"(.{{1,20}}?)@@ -{_RANGE} \+{_RANGE} @@")
"""A hunk's header behind what stands before every line: of a quotation, of git's graph."""
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


def prefixed(lines: Sequence[str]) -> tuple[int, str] | None:
    """The index of the first line of a diff whose lines have a prefix, and the prefix.

    None for any other text. A prefix of spaces stands before all lines below, or they are code.
    """
    for index in range(2, len(lines)):
        if (match := _PREFIXED.match(lines[index])) is None:
            continue
        prefix = match[1]
        old, new = lines[index - 2 : index]
        if old.startswith(f"{prefix}--- ") and new.startswith(f"{prefix}+++ "):
            below = [each for each in lines[index:] if each.strip()]
            if prefix.strip() or all(each.startswith(prefix) for each in below):
                return index - 2, prefix
    return None


def is_mail(line: str) -> bool:
    """Whether a text's first line is that of a commit that git made a mail of, or of a mail."""
    return re.match(r"From [0-9a-f]{7,64}\b|(?:From|Subject): ", line) is not None


def other_kind(lines: Sequence[str]) -> tuple[int, str] | None:
    """The index of the first line that marks a diff of another kind, and the kind."""
    for index, (line, following) in enumerate(pairwise([*lines, ""])):
        for pattern, kind in _OTHER_KINDS:
            if pattern.match(line):
                return index, kind
        if following.startswith(("< ", "> ")) and _PLAIN.match(line):
            return index, "a diff without context lines (`diff` alone)"
    return None
