"""Text that a submission may have written, made harmless for each place where we print it.

Names, causes, logs and tracebacks may hold terminal escapes, markup, formulas or characters that
turn the reading direction. Every output of this wing goes through one of these functions.
"""

import re
import unicodedata
from collections.abc import Sequence

_TERMINAL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC and kin
    r"|\x1b[ -/]*[0-~]"
)
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that are removed: controls, direction marks, zero widths, surrogates."""

_FORMULA = re.compile(r"(^|[;,|\"]\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet may begin to read a formula: at the start of a cell, the full-width forms
too, or after a separator of another locale, should the file be split at that."""

_MARKDOWN = re.compile(r"([\\`*_\[\]|~#!$@])|(?<=[A-Za-z])(:)(?=//)|(?<=\b[Ww]{3})(\.)")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def one_line(text: str, limit: int = 300) -> str:
    """`text` as one line of at most `limit` visible characters; runs of white space become one."""
    spaced = re.sub(r"\s+", " ", _TERMINAL_SEQUENCE.sub("", text))
    return _cut(_visible(spaced).strip(), limit)


def lines(text: str, last: int = 40, width: int = 200) -> list[str]:
    """The last lines of `text`, each of at most `width` visible characters; none if it is blank."""
    found = [
        _cut(_visible(line.expandtabs(4)).rstrip(), width)
        for line in _TERMINAL_SEQUENCE.sub("", text).splitlines()
    ]
    while found and not found[-1]:
        found.pop()
    return found[-last:]


def markdown(text: str, limit: int = 300) -> str:
    """One line for inside a paragraph, list item or table cell, shown as it is: no markup, no HTML,
    no links. What precedes it on its line must not be empty, or it might begin a list."""
    escaped = one_line(text, limit).translate(_HTML)
    return _MARKDOWN.sub(lambda found: "\\" + found.group(), escaped)


def fenced(text: str, last: int = 40) -> str:
    """A fenced block that `text` cannot end: its fence is longer than any backticks in it."""
    return _fence(lines(text, last), "text")


def fenced_patch(text: str, most: int) -> str:
    """A fenced block of a patch, which hides nothing of it.

    Lines end in LF alone, as they do for Python, and none is cut. What is not plain is written as
    an escape. After `most` lines it says how many are left out.
    """
    body = [
        "".join(
            each if each == "\t" or _is_plain(each) else each.encode("unicode_escape").decode()
            for each in line
        )
        for line in text.removesuffix("\n").split("\n")
    ]
    if len(body) > most:
        body[most:] = [f"... {len(body) - most:,} more lines"]
    return _fence(body, "diff")


def csv_cell(text: str, limit: int = 300) -> str:
    """One line that a spreadsheet shows as text; an apostrophe stands before a would-be formula."""
    return _FORMULA.sub(r"\1'", one_line(text, limit))


def _fence(body: Sequence[str], kind: str) -> str:
    longest = max((len(run) for line in body for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{kind}", *body, fence])


def _is_plain(character: str) -> bool:
    category = unicodedata.category(character)
    return character == " " or category not in _INVISIBLE | {"Zs"}


def _visible(text: str) -> str:
    return "".join(each for each in text if unicodedata.category(each) not in _INVISIBLE)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
