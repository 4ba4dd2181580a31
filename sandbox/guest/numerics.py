"""The numeric backends of a run: chosen by the host, installed before a submission is imported.

Each changes the speed of the same algorithm and at most the rounding of its numbers. The manifest
of an evaluation names them, so that a resume and a repeat compute the same bits. What a submission
writes itself (its own `optim.Adam(...)`) is left as it is, but for matrix products.
"""

import contextlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

_chosen: dict[str, str] = {}

ONEDNN_MULTIPLICATIONS = 1 << 20
"""Products with fewer multiplications stay with torch's default: what oneDNN gains there is less
than the detour through Python costs (10 microseconds a product)."""

_library: torch.library.Library | None = None


def install(numerics: Mapping[str, str]) -> None:
    """Use the backends of that manifest from here on. Names that it lacks are torch's default."""
    _chosen.clear()
    _chosen.update(numerics)
    _use_onednn(numerics.get("matmul") == "onednn")


def adam(parameters: Iterable[nn.Parameter], lr: float, **options: Any) -> torch.optim.Adam:
    """`torch.optim.Adam(parameters, lr, **options)`, in one fused step for all of its tensors.

    Options that ask for another form of Adam, `foreach` or `differentiable`, get it.
    """
    if _chosen.get("adam") == "fused" and not options.keys() & {"foreach", "differentiable"}:
        options = {"fused": True} | options
    return torch.optim.Adam(parameters, lr, **options)


def soft_update(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Polyak averaging in place: target = (1 - tau) * target + tau * source, over parameters.

    Raises ValueError, before anything has moved, where the two have not as many parameters.
    """
    slow: list[torch.Tensor] = list(target.parameters())
    fast: list[torch.Tensor] = list(source.parameters())
    if len(slow) != len(fast):
        raise ValueError(
            f"soft_update: {len(slow)} parameters in the target, {len(fast)} in source"
        )
    with torch.no_grad():
        if _chosen.get("soft_update") == "foreach" and slow:
            torch._foreach_lerp_(slow, fast, tau)
            return
        for each, towards in zip(slow, fast, strict=True):
            each.lerp_(towards, tau)


def acting() -> contextlib.AbstractContextManager[object]:
    """Around a forward pass whose result is never differentiated: `with acting(): ...`."""
    if _chosen.get("acting") == "inference mode":
        return torch.inference_mode()
    return torch.no_grad()


def memory_format() -> torch.memory_format:
    """How convolutions keep their weights and images in memory: the order, never the values."""
    channels_last = _chosen.get("convolutions") == "channels_last"
    return torch.channels_last if channels_last else torch.contiguous_format


def to_floats(images: torch.Tensor) -> torch.Tensor:
    """Images (B, C, H, W), uint8 or float, as float32 in `memory_format()`; the values as they are.

    What is so already is passed on, so that a batch that two networks see is converted once.
    """
    # Bytes are put in order before they grow to four: half the time of the other way round.
    return images.contiguous(memory_format=memory_format()).float()


def _use_onednn(wanted: bool) -> None:
    """Send the large products behind nn.Linear, forward and backward, to oneDNN.

    Autograd lies above these two operators, so that both passes are covered. oneDNN stands in the
    same wheel of torch as the BLAS that is the default, and is the faster of the two on some CPUs:
    the host finds out by a measurement on the machine itself.
    """
    global _library
    _library = None  # its end takes the overrides back
    if wanted:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning only once for all operators")
            _library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
            for name, ours in (("mm", _mm), ("addmm", _addmm)):
                _library.impl(name, ours, "CPU", allow_override=True)  # type: ignore[no-untyped-call]


def _mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if _worth_it(left, right):
        return _product(left, right, None)
    return torch.mm(left, right, out=left.new_empty(0))


def _addmm(
    added: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    if beta == 1 and alpha == 1 and _is_bias(added, right) and _worth_it(left, right):
        return _product(left, right, added)
    return torch.addmm(added, left, right, beta=beta, alpha=alpha, out=left.new_empty(0))


def _product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
        left, right.t(), bias, "none", [], ""
    )
    return product


def _worth_it(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (
        left.dim() == right.dim() == 2
        and left.shape[1] == right.shape[0]
        and left.numel() * right.shape[1] >= ONEDNN_MULTIPLICATIONS
        and left.dtype == right.dtype == torch.float32
        and _is_dense(left)
        and _is_dense(right)
    )


def _is_dense(matrix: torch.Tensor) -> bool:
    """Or the transpose of one: other views fall to oneDNN's slowest kernels."""
    return matrix.is_contiguous() or matrix.t().is_contiguous()


def _is_bias(added: torch.Tensor, right: torch.Tensor) -> bool:
    return (
        added.dim() == 1
        and added.shape[0] == right.shape[1]
        and added.dtype == torch.float32
        and added.is_contiguous()  # oneDNN reads another one wrongly
    )
