"""Checks of what a policy trainer's methods return, in words that name the method."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from sandbox.guest.shapes import BadAction


def checked_networks(returned: Any) -> nn.ModuleDict:
    """What `create_policy_networks` returned, by name. Raises TypeError or ValueError."""
    method = "create_policy_networks"
    if not isinstance(returned, Mapping | nn.ModuleDict):
        kind = type(returned).__name__
        raise TypeError(f"{method} returned {kind}; a dict of networks by name is needed")
    for name, network in returned.items():
        if not isinstance(network, nn.Module):
            kind = type(network).__name__
            raise TypeError(f"{method} returned {kind} as {name!r}; an nn.Module is needed")
        if not isinstance(name, str) or not name.isidentifier() or hasattr(nn.ModuleDict, name):
            raise ValueError(f"{method}: a network cannot be called {name!r}")
    networks = nn.ModuleDict(dict(returned.items()))
    if not any(True for _ in networks.parameters()):
        raise ValueError(f"{method} returned nothing that has parameters to be trained")
    return networks


def checked_names(returned: Any, networks: nn.ModuleDict) -> tuple[str, ...]:
    """What `get_target_update_modules` returned, names. Raises TypeError or ValueError."""
    method = "get_target_update_modules"
    if isinstance(returned, str):
        returned = (returned,)
    if not isinstance(returned, Iterable):
        raise TypeError(f"{method} returned {type(returned).__name__}; names are needed")
    names = tuple(returned)
    for name in names:
        if name not in networks:
            made = ", ".join(networks)
            raise ValueError(f"{method} names {name!r}; create_policy_networks made: {made}")
    return names


def checked_loss(returned: Any) -> tuple[torch.Tensor, Mapping[str, Any]]:
    """What `compute_actor_loss` returned, a scalar with gradients and metrics. Raises TypeError."""
    method, needed = "compute_actor_loss", "a loss and a dict of metrics are needed"
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(f"{method} returned {type(returned).__name__}; {needed}")
    loss, metrics = returned
    if not isinstance(metrics, Mapping):
        raise TypeError(f"{method} returned {type(metrics).__name__} for metrics; {needed}")
    scalar = "a scalar tensor that depends on the networks is needed"
    if not isinstance(loss, torch.Tensor):
        raise TypeError(f"{method} returned {type(loss).__name__} for a loss; {scalar}")
    if loss.numel() != 1:
        raise TypeError(f"{method} returned a loss of shape {tuple(loss.shape)}; {scalar}")
    if not loss.requires_grad:
        raise TypeError(f"{method} returned a loss without gradients; {scalar}")
    return loss, metrics


def checked_actions(returned: Any, observations: torch.Tensor, action_dim: int) -> torch.Tensor:
    """What `sample_actions` returned for observations (B, O): (B, A), clipped to -1 and 1, in their
    precision. Raises BadAction."""
    method, shape = "sample_actions", (len(observations), action_dim)
    if not isinstance(returned, torch.Tensor):
        raise BadAction(method, f"{type(returned).__name__}; a tensor {shape} is needed")
    if tuple(returned.shape) != shape:
        raise BadAction(method, f"shape {tuple(returned.shape)}; {shape} is needed")
    return returned.to(observations.dtype).clamp(-1.0, 1.0)
