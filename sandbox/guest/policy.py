"""Turns an acting module into bytes and back, inside sandboxes alone: the host never opens them."""

import io
import pickle
from collections.abc import Callable

import torch
from torch import nn

WHOLE_MODULE = b"M"
STATE_DICT = b"S"
"""First byte of an artefact: a pickled module, or the state dict for a freshly built one."""

_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError, RuntimeError, NotImplementedError)


def export_policy(module: nn.Module) -> bytes:
    """The module with its parameters, buffers, plain attributes and training flag.

    A module that cannot be pickled (a lambda among its attributes) is exported as its state dict.
    """
    try:
        return WHOLE_MODULE + _saved(module)
    except _UNPICKLABLE:
        return STATE_DICT + _saved({"training": module.training, "state": module.state_dict()})


def load_policy(artefact: bytes, build: Callable[[], nn.Module], device: torch.device) -> nn.Module:
    """The module again. `build` makes a fresh one and is called for a state dict alone."""
    content = io.BytesIO(artefact[1:])
    # The bytes are a submission's own, opened in a sandbox of its own: code in them gains nothing.
    loaded = torch.load(content, map_location=device, weights_only=False)
    if artefact[:1] == WHOLE_MODULE:
        return loaded  # type: ignore[no-any-return]
    module = build()
    module.load_state_dict(loaded["state"])
    return module.train(loaded["training"])


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
