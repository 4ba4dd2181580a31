"""How much data a region may carry: the sizes of its literals and of its names, each and in all.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
from collections.abc import Iterator, Sequence

from harness.intake.rules.rule_tables import Found, at

MAX_LITERAL = 1000
"""Characters of a string, bytes, digits of a number, or elements of a literal list."""
MAX_CHARACTERS = 4000
"""Of all strings and bytes together, docstrings apart."""
MAX_NUMBERS = 2000
"""Numbers and booleans written out in all; a long one counts once for each 32 bits."""
MAX_ELEMENTS = 2000
"""Elements of all lists, tuples, sets and dicts written out."""
MAX_NAME = 100
"""Characters of a name."""
MAX_NAMES = 8000
"""Characters of all different names together; a reference algorithm has 700."""


def literal(node: ast.AST) -> Iterator[Found]:
    """For a constant, or a list, tuple, set or dict that is written out, by itself."""
    match node:
        case ast.Constant(value=str(value) | bytes(value)) if len(value) > MAX_LITERAL:
            message = f"a literal of {len(value):,} characters; at most {MAX_LITERAL:,} are allowed"
            yield at("carried-data", node, message)
        # Ten bits hold three digits; the digits themselves would be slow to write out.
        case ast.Constant(value=int(value)) if value.bit_length() > MAX_LITERAL * 10 // 3:
            yield at("carried-data", node, f"a number of more than {MAX_LITERAL:,} digits")
        case _ if (count := _elements(node)) > MAX_LITERAL:
            message = f"{count:,} elements written out; at most {MAX_LITERAL:,} are allowed"
            yield at("carried-data", node, message)


def totals(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """Names that are too long, and one finding for each total, where it is exceeded."""
    characters = _Total("characters of literals", MAX_CHARACTERS)
    numbers = _Total("numbers written out", MAX_NUMBERS)
    elements = _Total("elements of lists, tuples, sets and dicts", MAX_ELEMENTS)
    names = _Total("characters of different names", MAX_NAMES)
    seen: set[str] = set()
    for node in sorted(nodes, key=_place):
        match node:
            case ast.Constant(value=str(value) | bytes(value)):
                yield from characters.add(len(value), node)
            case ast.Constant(value=int(value)):
                yield from numbers.add(1 + value.bit_length() // 32, node)
            case ast.Constant(value=float() | complex()):
                yield from numbers.add(1, node)
            case _:
                yield from elements.add(_elements(node), node)
        for name in names_of(node):
            if len(name) > MAX_NAME and name not in seen:
                message = f"a name of {len(name):,} characters; at most {MAX_NAME} are allowed"
                yield at("carried-data", node, message)
            yield from names.add(0 if name in seen else len(name), node)
            seen.add(name)


class _Total:
    """A sum that may not exceed its cap."""

    def __init__(self, what: str, cap: int) -> None:
        self.what = what
        self.cap = cap
        self.sum = 0

    def add(self, amount: int, node: ast.AST) -> Iterator[Found]:
        before, self.sum = self.sum, self.sum + amount
        if before <= self.cap < self.sum:
            yield at("carried-data", node, f"more than {self.cap:,} {self.what} in all")


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _elements(node: ast.AST) -> int:
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return len(elements)
        case ast.Dict(values=values):
            return len(values)
    return 0


def names_of(node: ast.AST) -> Iterator[str]:
    """The names in a node itself, which code can read: `__name__`, `dict(a=1)`, an Enum's."""
    if isinstance(node, ast.Constant):
        return
    for _, field in ast.iter_fields(node):
        for each in field if isinstance(field, list) else [field]:
            if isinstance(each, str):
                yield each
