"""The rules on a region's text as such: no banner line in it, and nothing that cannot be seen."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice

from harness.intake.refusals import MAX_FINDINGS
from harness.intake.rules.rule_tables import Found
from harness.task import REGION_BEGINS, REGION_ENDS

_JOINERS = "\u200c\u200d"
"""Between two characters that are not ASCII, part of an emoji or of ordinary script."""
_SELECTORS = "\ufe0e\ufe0f"
"""Behind a character that has two looks: as text, or as an emoji."""
_PREFIXES = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2\u0890\u0891") | {
    "\U000110bd",
    "\U000110cd",
}
"""Formats that are seen, around the digits or letters that follow them."""
_KINDS = {"Cf": "invisible", "Co": "private-use", "Cn": "unassigned", "Cs": "incomplete"}
"""General categories (UAX #44) of characters that show nothing, or nobody knows what."""
_INVISIBLE = re.compile(
    # Of other categories, and ignored where they are shown or blank there.
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0"
    r"\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_COMING = re.compile(r"[\U0001f000-\U0001fafd\U00020000-\U0003fffd]")
"""Unassigned ones that are for emoji and ideographs alone: younger than this Python they show."""


def check(lines: Sequence[str]) -> list[Found]:
    """What breaks these rules in a region's lines, at most MAX_FINDINGS of each rule."""
    return [
        found
        for rule in (_banner_lines, _invisible_characters)
        for found in islice(rule(lines), MAX_FINDINGS)
    ]


def _banner_lines(lines: Sequence[str]) -> Iterator[Found]:
    for number, line in enumerate(lines, 1):
        if line.strip() in (REGION_BEGINS, REGION_ENDS):
            yield Found("banner-line", number, 1, "a banner line inside the region")


def _invisible_characters(lines: Sequence[str]) -> Iterator[Found]:
    for number, line in enumerate(lines, 1):
        if line.isascii():
            continue
        for index, character in enumerate(line):
            if not character.isascii() and (kind := _kind(line, index)) is not None:
                message = f"the {kind} character U+{ord(character):04X}"
                yield Found("invisible-characters", number, index + 1, message)


def _kind(line: str, index: int) -> str | None:
    """What is wrong with the character there; None if it is seen as what it is."""
    character = line[index]
    before, after = line[index - 1 : index], line[index + 1 : index + 2]
    if character in _JOINERS:
        fits = all(each > "\x7f" and each not in _JOINERS for each in (before, after))
    elif character in _SELECTORS:
        # `1`, the selector, and a keycap around both.
        fits = (before > "\x7f" and before not in _SELECTORS) or after == "\u20e3"
    elif character in _PREFIXES:
        fits = after > "\x7f" and after not in _PREFIXES
    elif _INVISIBLE.match(character):
        fits = False
    else:
        kind = _KINDS.get(unicodedata.category(character))
        return None if kind == "unassigned" and _COMING.match(character) else kind
    return None if fits else "invisible"
