"""Lists of edits in the protocol published with MLS-Bench, read and applied in memory.

    [{"op": "replace", "filename": "scaffold.py", "start_line": 70, "end_line": 72, "content": ""}]

Lines count from 1 in the file as the edits before have left it; both ends belong to the edit. The
editable lines begin where the region does and grow and shrink with each edit; no other line can be
replaced. A line end at the end of `content` adds no line, and an empty `content` deletes. All the
edits hold, or none. One object without the list is a list of one.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from harness.intake import text
from harness.intake.forms.proposal import SCAFFOLD, Proposal, Scaffold, file_problem, placed
from harness.intake.refusals import refuse

_KEYS = {"op": str, "filename": str, "start_line": int, "end_line": int, "content": str}
_KINDS = {str: "a string", int: "an integer"}
_MAX_DIGITS = 18


class Edit(NamedTuple):
    """One replacement of lines."""

    name: str
    """For messages: "mine.json, edit 2"."""
    start: int
    end: int
    lines: tuple[str, ...]
    """Each with its LF."""
    notes: tuple[str, ...]


def propose(content: str, file: str, scaffold: Scaffold) -> Proposal:
    """The region after all edits. Raises Refused at the first that cannot be made."""
    content, notes = text.with_lf(content, file)
    first = scaffold.first
    lines = placed(text.split_lines(scaffold.region), SCAFFOLD, first)
    for edit in parse(content, file, scaffold.task):
        _require_editable(edit, first, first + len(lines) - 1)
        lines[edit.start - first : edit.end + 1 - first] = placed(edit.lines, edit.name, 1)
        notes += edit.notes
    return Proposal.of(lines, notes)


def parse(content: str, file: str, task: str) -> list[Edit]:
    """The edits of a JSON document. Raises Refused."""
    raw = _load(content, file)
    edits: Sequence[object] = raw if isinstance(raw, list) else [raw]
    return [_edit(each, f"{file}, edit {number}", task) for number, each in enumerate(edits, 1)]


def _load(content: str, file: str) -> object:
    try:
        return json.loads(
            content,
            object_pairs_hook=_without_repetition,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as error:
        message = f"this is no JSON: {error.msg}"
        if error.msg.startswith("Invalid control character"):
            message = "this is no JSON: inside a string, a line end is written \\n and a tab \\t"
        shown = content.split("\n")[error.lineno - 1]
        refuse("json-edits", file, error.lineno, message, text=shown, column=error.colno)
    except ValueError as error:
        refuse("json-edits", file, None, f"this JSON cannot be taken: {error}")
    except RecursionError:
        refuse("json-edits", file, None, "this JSON is nested too deeply")


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key `{key}` stands twice in one object")
        result[key] = value
    return result


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _edit(raw: object, name: str, task: str) -> Edit:
    if not isinstance(raw, dict):
        refuse("json-edits", name, None, "an edit is an object, in braces")
    if isinstance(raw.get("edits"), list):
        refuse("json-edits", name, None, "hand in the list itself, without an object around it")
    if raw.get("op", "replace") != "replace":
        message = f'the only `op` is "replace"; this is {json.dumps(raw["op"])}'
        refuse("json-edits", name, None, message)
    missing = ", ".join(f"`{key}`" for key in _KEYS if key not in raw)
    unknown = ", ".join(f"`{key}`" for key in raw if key not in _KEYS)
    if missing:
        refuse("json-edits", name, None, f"this edit lacks {missing}")
    if unknown:
        refuse("json-edits", name, None, f"unknown key {unknown}")
    for key, kind in _KEYS.items():
        # Exactly: True is an int to Python, and no line number.
        if type(raw[key]) is not kind:
            refuse("json-edits", name, None, f"`{key}` has to be {_KINDS[kind]}")
    if problem := file_problem(raw["filename"], task):
        refuse("wrong-file", name, None, problem)
    text.require_plain(raw["content"], name)
    content, notes = text.with_lf(raw["content"], name)
    if content and not content.endswith("\n"):
        content += "\n"
    return Edit(
        name=name,
        start=raw["start_line"],
        end=raw["end_line"],
        lines=tuple(text.split_lines(content)),
        notes=tuple(f"{name}: {note}" for note in notes),
    )


def _require_editable(edit: Edit, first: int, last: int) -> None:
    if last < first:
        message = "the edits before have left no line that can be edited"
        refuse("edit-range", edit.name, None, message)
    if edit.start > edit.end:
        message = f"start_line {edit.start} lies behind end_line {edit.end}"
    elif edit.start < first or edit.end > last:
        message = f"lines {edit.start} to {edit.end} exceed the editable range"
    else:
        return
    refuse("edit-range", edit.name, None, f"{message}; lines {first} to {last} can be edited now")
