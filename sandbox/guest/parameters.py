"""Counts what an algorithm holds against its budget: a courtesy to honest submissions.

A submission runs in the same process and could make any count lie. The bound that holds is the
host's cap on the bytes of the exported policy.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

BYTES_PER_PARAMETER = 4
"""float32: what the budgets are counted in."""

_CONTAINERS = (list, tuple, set, frozenset)


class OverBudget(Exception):
    """The algorithm holds more parameters than its task allows; the message names the modules."""


def check_budget(algorithm: object, budget: int) -> int:
    """The number of parameters that `algorithm` holds. Raises OverBudget where it is over `budget`.

    Every distinct tensor or array reachable through attributes and containers counts once:
    parameters, buffers, target networks, plain tensors. Each counts the larger of its elements and
    its bytes / 4. Optimizers and their state do not count.
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
    for name, value in vars(algorithm).items():
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
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor | np.ndarray):
            yield each
        elif isinstance(each, torch.optim.Optimizer):
            continue
        elif isinstance(each, Mapping):
            stack.extend(each.values())
        elif isinstance(each, _CONTAINERS):
            stack.extend(each)
        elif isinstance(each, nn.Module) or _has_own_attributes(each):
            stack.extend(vars(each).values())


def _has_own_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value)


def _storage(tensor: torch.Tensor | np.ndarray) -> tuple[int, int]:
    """Where the numbers lie, and how many parameters they count as."""
    if isinstance(tensor, np.ndarray):
        base = tensor
        while isinstance(base.base, np.ndarray):
            base = base.base
        return base.ctypes.data, max(tensor.size, -(-base.nbytes // BYTES_PER_PARAMETER))
    storage = tensor.untyped_storage()
    bytes_ = storage.nbytes()
    address = storage.data_ptr() or id(tensor)
    return address, max(tensor.numel(), -(-bytes_ // BYTES_PER_PARAMETER))
