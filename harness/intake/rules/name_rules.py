"""The rule on letters in names: names are read as they look.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterator, Sequence

from harness.intake.rules.data_rules import names_of
from harness.intake.rules.rule_tables import PLAIN_LETTERS, Found, at

_F_STRING = re.compile(r"[rR]?[fF][rR]?['\"]")


def check(region: str, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    # The tree holds names in NFKC already: the other rules cannot be evaded so, only a reader.
    if region.isascii():
        return
    told: set[str] = set()
    inside: dict[str, ast.AST] = {}
    """The names in f-strings, each with one; inner nodes have no reliable place before 3.12."""
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            for each in _outermost(node):
                inside |= dict.fromkeys(names_of(each), node)
    for token in tokenize.generate_tokens(io.StringIO(region, newline="\n").readline):
        if token.string.isascii():
            continue
        names: list[str] = []
        # Python's parser takes for letters what this tokenizer takes for errors: a middle dot.
        if token.type in (tokenize.NAME, tokenize.ERRORTOKEN):
            names = [token.string]
        elif token.type == tokenize.STRING and _F_STRING.match(token.string):
            # Before Python 3.12 it is one token, names included.
            words = dict.fromkeys(re.findall(r"\w+", token.string))
            names = [each for each in words if unicodedata.normalize("NFKC", each) in inside]
        for name in names:
            if not name.isascii() and (message := _problem(name)) is not None:
                told.add(unicodedata.normalize("NFKC", name))
                column = len(token.line[: token.start[1]].encode())
                yield Found("identifier", token.start[0], column + 1, message)
    for name, node in inside.items():
        if name not in told and (message := _problem(name)) is not None:
            yield at("identifier", node, message)


def _outermost(string: ast.JoinedStr) -> Iterator[ast.AST]:
    """All nodes in it but those of strings within, which are looked at by themselves."""
    stack: list[ast.AST] = [string]
    while stack:
        node = stack.pop()
        yield node
        stack += (
            each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.JoinedStr)
        )


def _problem(name: str) -> str | None:
    read = unicodedata.normalize("NFKC", name)
    odd = next((each for each in name if not each.isascii() and each not in PLAIN_LETTERS), "")
    if odd:
        return f"`{name}` holds {unicodedata.name(odd, 'a letter without a name')}"
    return f"`{name}` is read as `{read}`" if read != name else None
