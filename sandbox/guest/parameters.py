"""Counts what an algorithm holds against its budget: a courtesy to honest submissions.

A submission runs in the same process and could make any count lie. The bound that holds is the
host's cap on the bytes of the exported policy.
"""

import functools
import types
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

BYTES_PER_PARAMETER = 4
"""float32: what the budgets are counted in."""

_CONTAINERS = (list, tuple, set, frozenset, deque)
_ATOMS = {int, float, bool, complex, str, bytes, type(None)}
_PASSED_OVER = (torch.optim.Optimizer, type, types.ModuleType)


class OverBudget(Exception):
    """The algorithm holds more parameters than its task allows; the message names the modules."""


def check_budget(algorithm: object, budget: int) -> int:
    """The number of parameters that `algorithm` holds. Raises OverBudget where it is over `budget`.

    Every distinct tensor or array reachable through attributes, containers and closures counts
    once: parameters, buffers, target networks, plain tensors. Each counts the larger of its
    elements and its bytes / 4. Optimizers and their state do not count.
    """
    by_module = count_by_module(algorithm)
    total = sum(by_module.values())
    if total > budget:
        largest = sorted(by_module.items(), key=lambda item: -item[1])
        listing = ", ".join(f"{name} {count:,}" for name, count in largest[:12])
        raise OverBudget(
            f"the algorithm holds {total:,} parameters, {total - budget:,} over the budget of "
            f"{budget:,} at these shapes (target networks count). It holds, by attribute: {listing}"
        )
    return total


def count_by_module(algorithm: object) -> dict[str, int]:
    """Parameters by the attribute of `algorithm` that reaches them first."""
    counts: dict[str, int] = defaultdict(int)
    storages: dict[int, tuple[str, int]] = {}
    for name, value in _attributes(algorithm).items():
        for tensor in _tensors(value, seen=set()):
            address, size = _storage(tensor)
            owner, counted = storages.get(address, (name, 0))
            counts[owner] += max(size - counted, 0)
            storages[address] = (owner, max(size, counted))
    return dict(counts)


def _tensors(value: Any, seen: set[int]) -> Iterator[torch.Tensor | np.ndarray]:
    """Every tensor below `value`; `seen` holds the ids of what was visited."""
    stack = [value]
    while stack:
        each = stack.pop()
        if type(each) in _ATOMS or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor | np.ndarray):
            if not _is_derived(each):
                yield each
        elif not isinstance(each, _PASSED_OVER):
            stack.extend(_parts(each))


def _is_derived(tensor: torch.Tensor | np.ndarray) -> bool:
    """Whether it holds nothing of its own.

    Either it was computed from parameters that are counted (weight normalisation keeps such), or it
    is a shape without numbers.
    """
    return isinstance(tensor, torch.Tensor) and (not tensor.is_leaf or tensor.is_meta)


def _parts(value: Any) -> Iterable[Any]:
    """What an object holds: elements, attributes, and what a function was given to keep."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, _CONTAINERS):
        return value
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, types.MethodType):
        return (value.__self__,)
    if isinstance(value, types.FunctionType):
        return [each.cell_contents for each in value.__closure__ or () if _is_filled(each)]
    if isinstance(value, torch.jit.ScriptModule):
        return (*value.parameters(), *value.buffers())
    return _attributes(value).values()


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - that is the question
    except ValueError:
        return False
    return True


def _attributes(value: object) -> dict[str, Any]:
    """What an object holds in its `__dict__` and in its classes' `__slots__`."""
    slots = (
        name
        for each in type(value).__mro__
        for name in _names(vars(each).get("__slots__", ()))
        if name != "__dict__" and hasattr(value, name)
    )
    return {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _storage(tensor: torch.Tensor | np.ndarray) -> tuple[int, int]:
    """Where the numbers lie, and how many parameters they count as."""
    if isinstance(tensor, np.ndarray):
        base = tensor
        while isinstance(base.base, np.ndarray):
            base = base.base
        return base.ctypes.data, max(tensor.size, -(-base.nbytes // BYTES_PER_PARAMETER))
    if nn.parameter.is_lazy(tensor):
        return id(tensor), 0  # counted once it has a shape
    if tensor.layout is not torch.strided:
        return id(tensor), tensor._nnz()
    storage = tensor.untyped_storage()
    bytes_ = storage.nbytes()
    address = storage.data_ptr() or id(tensor)
    return address, max(tensor.numel(), -(-bytes_ // BYTES_PER_PARAMETER))
