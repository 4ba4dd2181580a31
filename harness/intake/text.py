"""From a path to text: one opening, one bounded read, and only such text as means one thing.

What is repaired (a byte-order mark, CRLF throughout) is said in a note; what could be read in two
ways is refused. Lines are split on LF alone, here and everywhere in intake.
"""

import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.intake.refusals import refuse

STANDARD_INPUT = Path("-")
"""The path that means standard input."""
STDIN_NAME = "<stdin>"
"""What messages call it."""
MAX_FILE_BYTES = 256 * 1024
LONE_CR = "a carriage return stands alone"
FINAL_LF_NOTE = "The last line had no line end and got one."

_NOT_PLAIN = (
    # C0 and C1 without tab, LF and CR, and without vertical tab, form feed and U+0085, which end no
    # line of ours.
    (
        "control-characters",
        re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"),
        "the control character U+{:04X} is not plain text",
    ),
    ("line-endings", re.compile(r"\r(?!\n)"), LONE_CR),
    ("encoding", re.compile(r"[\ud800-\udfff]"), "U+{:04X} is half of a pair and no character"),
)
"""Rule, what breaks it, and how that is said."""
_UTF8_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class Text(NamedTuple):
    """Text, and what was done to it, a sentence each."""

    text: str
    notes: tuple[str, ...]


class OddLineEnd(NamedTuple):
    """One line of a text that mixes LF and CRLF."""

    at: int
    """0-based."""
    ends: str
    """How this line ends: "LF" or "CRLF"."""
    others: str


def read(path: Path) -> bytes:
    """The bytes of a regular file of at most MAX_FILE_BYTES. Raises Refused.

    A link to a file is followed: the path is the caller's word, not the submission's.
    """
    file = str(path)
    try:
        # Before the opening, which alone can set off a device; the check after it is what counts.
        _require_regular(file, path.stat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as opened:
            _require_regular(file, os.fstat(descriptor))
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        refuse("file-unreadable", file, None, f"cannot read the file: {reason}")
    # A file can grow between the look at its size and the read.
    _require_size(file, len(content))
    return content


def read_standard_input() -> bytes:
    """What comes through standard input, to its end. Raises Refused over MAX_FILE_BYTES.

    At a terminal that is what is typed until Ctrl-D, as programs commonly do.
    """
    if sys.stdin is None:
        # Closed when the process began: another file may have taken the number since.
        refuse("file-unreadable", STDIN_NAME, None, "standard input is closed")
    parts: list[bytes] = []
    size = 0
    try:
        while size <= MAX_FILE_BYTES and (part := os.read(0, MAX_FILE_BYTES + 1 - size)):
            parts.append(part)
            size += len(part)
    except OSError as error:
        message = f"cannot read standard input: {error.strerror}"
        refuse("file-unreadable", STDIN_NAME, None, message)
    _require_size(STDIN_NAME, size)
    return b"".join(parts)


def decode(content: bytes, file: str) -> Text:
    """`content` as plain text, which may still hold CRLF. Raises Refused with the line."""
    notes: tuple[str, ...] = ()
    if content.startswith(_OTHER_BOMS):
        refuse("encoding", file, 1, "the file begins like UTF-16 or UTF-32")
    if content.startswith(_UTF8_BOM):
        content = content[len(_UTF8_BOM) :]
        notes = ("A byte-order mark at the start was dropped.",)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        start = before.rfind(b"\n") + 1
        line = content[start:].split(b"\n", 1)[0].decode("utf-8", "backslashreplace")
        column = len(before[start:].decode("utf-8")) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        refuse("encoding", file, before.count(b"\n") + 1, message, text=line, column=column)
    require_plain(text, file)
    if not text.strip():
        refuse("empty", file, None, "the file holds no text")
    return Text(text, notes)


def require_plain(text: str, file: str) -> None:
    """Raises Refused at what is no plain text, wherever `text` comes from."""
    for rule, pattern, message in _NOT_PLAIN:
        if found := pattern.search(text):
            start = text.rfind("\n", 0, found.start()) + 1
            refuse(
                rule,
                file,
                text.count("\n", 0, start) + 1,
                message.format(ord(found[0])),
                text=text[start:].split("\n", 1)[0],
                column=found.start() - start + 1,
            )


def is_crlf(text: str) -> bool:
    """Whether every line ends in CRLF."""
    return 0 < text.count("\r\n") == text.count("\n")


def odd_line_end(lines: Sequence[str]) -> OddLineEnd | None:
    """The first line with the rarer end, LF if both are as frequent; None unless they are mixed."""
    crlf = {index: line.endswith("\r\n") for index, line in enumerate(lines) if line.endswith("\n")}
    pairs = sum(crlf.values())
    if not 0 < pairs < len(crlf):
        return None
    crlf_is_rarer = 2 * pairs < len(crlf)
    index = next(index for index, is_pair in crlf.items() if is_pair == crlf_is_rarer)
    return OddLineEnd(index, *(("CRLF", "LF") if crlf_is_rarer else ("LF", "CRLF")))


def with_lf(text: str, file: str) -> Text:
    """Plain text whose lines end in LF: CRLF throughout is converted. Raises Refused if mixed."""
    if "\r\n" not in text:
        return Text(text, ())
    lines = split_lines(text)
    if odd := odd_line_end(lines):
        line = lines[odd.at].removesuffix("\n")
        message = f"this line ends in {odd.ends}, others in {odd.others}"
        column = len(line.removesuffix("\r")) + 1
        refuse("line-endings", file, odd.at + 1, message, text=line, column=column)
    note = "Line ends were CRLF throughout and are LF now."
    return Text(text.replace("\r\n", "\n"), (note,))


def with_final_lf(text: str, file: str) -> Text:
    """As `with_lf`, and the last line ends, too."""
    text, notes = with_lf(text, file)
    if text.endswith("\n"):
        return Text(text, notes)
    return Text(text + "\n", (*notes, FINAL_LF_NOTE))


def split_lines(text: str) -> list[str]:
    """The lines of `text`, each with its LF; only LF ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _require_regular(file: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next(name for test, name in _KINDS if test(status.st_mode))
        refuse("file-kind", file, None, f"this is {kind}, not a file")
    _require_size(file, status.st_size)


def _require_size(file: str, size: int) -> None:
    if size > MAX_FILE_BYTES:
        refuse("file-size", file, None, f"the file has more than {MAX_FILE_BYTES:,} bytes")


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (lambda mode: True, "a device"),
)
