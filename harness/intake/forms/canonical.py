"""The canonical patch: an accepted source as a unified diff, the same bytes for every form."""

import difflib
from collections.abc import Hashable, Iterator, Sequence

from harness.intake.forms.proposal import SCAFFOLD, Scaffold
from harness.intake.text import split_lines
from harness.task import Task

_CONTEXT = 3


def canonical_patch(accepted_source: bytes, task: Task) -> bytes:
    """What `git apply`, `patch -p1` and intake make the accepted source of, in a checkout.

    `accepted_source` is the scaffold with another region, as `submission.Submission` has it.
    """
    scaffold = Scaffold.of(task)
    region = scaffold.region_of(accepted_source.decode())
    if region is None:
        raise ValueError(f"this is not the scaffold of {task.name} with another region")
    path = f"tasks/{task.name}/{SCAFFOLD}"
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n", *_hunks(scaffold, region)]
    return "".join(lines).encode()


def _hunks(scaffold: Scaffold, region: str) -> Iterator[str]:
    old, new = split_lines(scaffold.source), split_lines(scaffold.with_region(region))
    matcher = difflib.SequenceMatcher(
        None, _keys(scaffold, scaffold.region), _keys(scaffold, region)
    )
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        _, old_start, _, new_start, _ = group[0]
        _, _, old_end, _, new_end = group[-1]
        yield f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n"
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i:j])
            else:
                yield from (f"-{line}" for line in old[i:j])
                yield from (f"+{line}" for line in new[k:m])


def _keys(scaffold: Scaffold, region: str) -> Sequence[Hashable]:
    """The lines of a source as they are compared: a fixed line is equal to itself alone.

    So no copy of a fixed line in the region is taken for the line itself.
    """
    return [
        *enumerate(split_lines(scaffold.prefix)),
        *split_lines(region),
        *((-number, line) for number, line in enumerate(split_lines(scaffold.suffix), 1)),
    ]


def _range(start: int, end: int) -> str:
    """Lines `start` to `end` (0-based, exclusive) as the header of a hunk says them."""
    count = end - start
    # An empty range is named by the line before it.
    return f"{start + bool(count)},{count}"
