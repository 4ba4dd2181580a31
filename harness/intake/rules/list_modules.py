"""Prints `library_modules.py`, from the libraries that are installed: run it when they change.

    python -m harness.intake.rules.list_modules > harness/intake/rules/library_modules.py

In a process of its own, since whatever else is imported may bring modules along.
"""

import importlib
import pkgutil
import textwrap
import types
import warnings
from collections.abc import Iterable, Iterator

from harness.intake.rules.rule_tables import ALLOWED_IMPORTS, library_problem

_HEAD = '''\
"""The modules that lie in the libraries which a region may import. Generated: `list_modules.py`."""

from harness.intake.rules.rule_tables import words
'''


def _modules(path: str, module: types.ModuleType) -> Iterator[types.ModuleType]:
    """The module, and all that lie in it, are allowed and can be had by their own path."""
    yield module
    for each in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if library_problem(path, each.name) is not None:
            continue
        found = _imported(f"{path}.{each.name}")
        # A function may stand in the module's place: `torch.autograd.gradcheck`.
        if found is not None and getattr(module, each.name, found) is found:
            yield from _modules(f"{path}.{each.name}", found)


def _imported(path: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(path)
    except ImportError:
        return None  # For another machine, or of a package that is not here.


def listing() -> str:
    """The text of `library_modules.py`."""
    tops = {path: module for path in ALLOWED_IMPORTS if (module := _imported(path)) is not None}
    own = {each.__name__: each for path, top in tops.items() for each in _modules(path, top)}
    carried: dict[str, str] = {}
    left = list(own.values())
    while left:
        module = left.pop()
        for name in dir(module):
            value = getattr(module, name, None)
            path = f"{module.__name__}.{name}"
            if not isinstance(value, types.ModuleType) or library_problem(module.__name__, name):
                continue
            if value.__name__ != path:
                carried[path] = value.__name__
            elif path not in own:
                own[path] = value
                left.append(value)
    pairs = [f"{path}={target}" for path, target in carried.items()]
    return (
        f"{_HEAD}\n"
        f"{_assignment('MODULES', {*own} - {*tops})}\n"
        '"""By the path under which each lies; a plain `import` names others."""\n\n'
        f"{_assignment('_PAIRS', pairs)}\n"
        'CARRIED_MODULES = dict(each.split("=") for each in sorted(_PAIRS))\n'
        '"""Modules under a path that is not their own, each with its own."""\n'
    )


def _assignment(name: str, paths: Iterable[str]) -> str:
    text = textwrap.fill(
        " ".join(sorted(paths)), 100, break_long_words=False, break_on_hyphens=False
    )
    return f'{name} = words("""\n{text}\n""")'


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(listing(), end="")
