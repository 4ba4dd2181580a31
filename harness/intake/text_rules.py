"""The rules on a region's text as such: no banner line in it, and nothing that cannot be seen."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from harness.intake.refusals import MAX_FINDINGS
from harness.intake.rule_tables import Found
from harness.task import REGION_BEGINS, REGION_ENDS

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# A joiner between two non-ASCII characters is part of an emoji or of ordinary script.
_INVISIBLE = re.compile(
    rf"[{_BIDIRECTIONAL}\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u206f"
    r"\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


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
        for match in _INVISIBLE.finditer(line):
            message = f"the invisible character U+{ord(match[0]):04X}"
            yield Found("invisible-characters", number, match.start() + 1, message)
