"""Keeps torch's compiler from being imported until something compiles: it takes as long as torch.

Every optimizer of torch imports `torch._dynamo` for two calls that do nothing outside of a
compilation. Here a stand-in answers those two; whatever else is asked of it loads the real one.
No number changes: a test trains with and without.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"


def install() -> None:
    """Stand in for the compiler, unless it is there already."""
    if NAME not in sys.modules:
        stand_in = _StandIn(NAME)
        sys.modules[NAME] = stand_in
        torch._dynamo = stand_in  # as its import would bind it


class _StandIn(ModuleType):
    __file__ = None  # whoever looks through all modules for a file wants none of this

    def graph_break(self, *_: object, **__: object) -> None:
        """Between the parts of a compilation; outside of one it does nothing."""

    def disable(self, function: Callable[..., Any], *options: Any, **more: Any) -> Any:
        """Keep a function out of compilations: torch's own functions, on their first call."""
        if more == {"wrapping": False}:
            return function
        return _real().disable(function, *options, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(), name)


def _real() -> Any:
    if isinstance(sys.modules.get(NAME), _StandIn):
        del sys.modules[NAME]
        del torch._dynamo
    return importlib.import_module(NAME)
