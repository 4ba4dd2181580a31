"""The rulebook: the rules, the sizes and the main lists of names, for a terminal, a page or a
program.

It is made of the tables that the checks themselves use. `python -m harness.intake.rules.rulebook >
docs/rules.md` writes the page.
"""

import json
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from harness.intake import trial
from harness.intake.rules import data_rules, source_rules
from harness.intake.rules.rule_tables import (
    ALLOWED_IMPORTS,
    DEFINED_SPECIAL,
    LIBRARY_PARTS,
    LIBRARY_REFUSED,
    READ_SPECIAL,
    REFUSED_ATTRIBUTES,
    REFUSED_NAMES,
)
from harness.intake.rules.table import GROUPS, Rule
from harness.intake.text import MAX_FILE_BYTES
from harness.task import TASKS, Task
from sandbox.wire import MEBIBYTE

WIDTH = 100
COMMAND = "python -m harness.intake.rules.rulebook > docs/rules.md"
INTRODUCTION = (
    "What a submission is held against before it trains. A broken rule refuses it, with its line, "
    "the reason and what to do; a warning does not. The rules keep honest submissions comparable "
    "and readable; what holds a dishonest one is the sandbox."
)


class Words(NamedTuple):
    """A list of names that the rules know."""

    key: str
    title: str
    explanation: str
    words: frozenset[str]


class Cap(NamedTuple):
    """A size or a time that is bounded."""

    what: str
    most: int
    unit: str


WORDS: tuple[Words, ...] = (
    Words(
        "imports",
        "Imports that are allowed",
        "Top-level modules; torch and numpy without the parts below.",
        ALLOWED_IMPORTS,
    ),
    Words(
        "names", "Names that are refused", "As variables; methods may be called so.", REFUSED_NAMES
    ),
    Words(
        "attributes",
        "Attributes that are refused",
        "Of anything, also behind leading underscores.",
        REFUSED_ATTRIBUTES,
    ),
    Words(
        "library_attributes",
        "Attributes of libraries that are refused",
        "Free as names of your own: `self.load` is fine, `torch.load` is not. Names with a leading "
        "underscore are refused there, too, but for torch's `_foreach_` functions.",
        LIBRARY_REFUSED,
    ),
    *(
        Words(f"parts_of_{module}", f"Parts of {module}", "These and no others.", parts)
        for module, parts in sorted(LIBRARY_PARTS.items())
    ),
    Words(
        "defined_special",
        "Special names that may be defined",
        "In a class; `super()` may read them.",
        DEFINED_SPECIAL,
    ),
    Words("read_special", "Special names that may be read", "Of anything.", READ_SPECIAL),
)

CAPS: tuple[Cap, ...] = (
    Cap("the file that is handed in", MAX_FILE_BYTES, "bytes"),
    Cap("one string or bytes", data_rules.MAX_LITERAL, "characters"),
    Cap("one whole number", data_rules.MAX_LITERAL, "digits"),
    Cap("one list, tuple, set or dict that is written out", data_rules.MAX_LITERAL, "elements"),
    Cap("all strings and bytes, docstrings apart", data_rules.MAX_CHARACTERS, "characters"),
    Cap("all numbers, longer ones counted by 32 bits", data_rules.MAX_NUMBERS, "numbers"),
    Cap("all lists, tuples, sets and dicts", data_rules.MAX_ELEMENTS, "elements"),
    Cap("one name", data_rules.MAX_NAME, "characters"),
    Cap("all different names", data_rules.MAX_NAMES, "characters"),
    Cap("the nesting of the syntax tree", source_rules.MAX_DEPTH, "levels"),
    Cap("the time to read a region", source_rules.CPU_SECONDS, "seconds of CPU"),
    Cap("the memory to read a region", source_rules.MEMORY_BYTES // MEBIBYTE, "MiB"),
    Cap("the thinking time of the trial", int(trial.SECONDS), "seconds"),
    Cap("the memory of the trial", trial.LIMITS.memory_bytes // MEBIBYTE, "MiB"),
)


def to_text() -> str:
    """For a terminal: at most 100 columns, no colours, with a final LF."""
    blocks = [*textwrap.wrap(INTRODUCTION, WIDTH), ""]
    for title, rules in GROUPS.items():
        blocks += [title.upper(), *_lines_of_rules(rules), ""]
    for task in _tasks():
        blocks += [f"THE TASK {task.name}", *(f"  {each}" for each in _demands(task)), ""]
    blocks += ["SIZES, AT MOST", *_lines_of_caps(), ""]
    for each in WORDS:
        blocks += [each.title.upper(), *_indented(each.explanation, "  ")]
        blocks += [*_indented(" ".join(sorted(each.words)), "    "), ""]
    return "\n".join(blocks)


def to_markdown() -> str:
    """The page docs/rules.md."""
    blocks = [
        "# The rules of submissions",
        "\n".join(textwrap.wrap(INTRODUCTION, WIDTH)),
        f"This page is generated: `{COMMAND}`. `touchstone rules` prints the same.",
    ]
    for title, rules in GROUPS.items():
        rows = ((f"`{name}`", rule.reason, rule.advice) for name, rule in rules.items())
        blocks += [f"## {title}", _table(("rule", "why", "what to do"), rows)]
    for task in _tasks():
        blocks += [f"## The task {task.name}", "\n".join(f"- {each}" for each in _demands(task))]
    caps = ((each.what, f"{each.most:,} {each.unit}") for each in CAPS)
    blocks += ["## Sizes", _table(("of", "at most"), caps)]
    for each in WORDS:
        names = ", ".join(f"`{name}`" for name in sorted(each.words))
        blocks += [f"## {each.title}", each.explanation, names]
    return "\n\n".join(blocks) + "\n"


def to_json() -> str:
    """For programs."""
    rules = [
        {"id": name, "group": title, "level": "warning" if rule.warns else "error"}
        | {"reason": rule.reason, "advice": rule.advice}
        for title, rules in GROUPS.items()
        for name, rule in rules.items()
    ]
    tasks = {task.name: task.region.model_dump(mode="json") for task in _tasks()}
    book = {
        "rules": rules,
        "tasks": tasks,
        "caps": [each._asdict() for each in CAPS],
        "words": {each.key: sorted(each.words) for each in WORDS},
    }
    return json.dumps(book, indent=2, ensure_ascii=False) + "\n"


def _tasks() -> list[Task]:
    return [Task.load(path.parent.name) for path in sorted(TASKS.glob("*/task.toml"))]


def _demands(task: Task) -> list[str]:
    """What a task asks of its region."""
    region = task.region
    defined = [
        f"class {name}" + (f" with {', '.join(methods)}" if methods else "")
        for name, methods in region.classes.items()
    ]
    place = f"lines {region.first_line}-{region.last_line} of its scaffold.py"
    budget = f"at most {task.budget.factor} times the parameters of the largest reference in all"
    return [f"the region is {place}, at most {region.max_bytes:,} bytes", *defined, budget]


def _lines_of_rules(rules: dict[str, Rule]) -> Iterable[str]:
    width = max(map(len, rules))
    margin = " " * (width + 4)
    for name, rule in rules.items():
        yield from textwrap.wrap(
            rule.reason, WIDTH, initial_indent=f"  {name:{width}}  ", subsequent_indent=margin
        )
        yield from textwrap.wrap(
            rule.advice, WIDTH, initial_indent=f"{margin}-> ", subsequent_indent=f"{margin}   "
        )


def _lines_of_caps() -> list[str]:
    width = max(len(f"{each.most:,}") for each in CAPS)
    return [f"  {each.most:>{width},} {each.unit}: {each.what}" for each in CAPS]


def _indented(text: str, margin: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(header), *map(list, rows)]
    lines = ["| " + " | ".join(each.replace("|", "\\|") for each in row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


if __name__ == "__main__":
    print(to_markdown(), end="")
