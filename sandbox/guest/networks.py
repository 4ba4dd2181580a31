"""FQL's networks in PyTorch, which a submission to an offline task may build on or leave aside.

After `utils/networks.py` of the code of Flow Q-Learning (Park, Li and Levine, 2025, arXiv
2502.02538), which is Flax. Sizes of inputs, which Flax infers, are arguments here and come first.
Layer norm and initial weights are Flax's; how weights are drawn is torch's, by its global
generator. GELU is the function itself: jax's default approximates it by a tanh, never more than
5e-4 away, and on a CPU torch takes more than twice the time for that.

B stands for a batch, O and A for the sizes of an observation and of an action. Wherever (B, ...)
is said, more leading dimensions will do, the same ones for all inputs.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.distributions import (
    Distribution,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

LAYER_NORM_EPS = 1e-6
"""Flax's; torch's own is 1e-5."""


class MLP(nn.Module):
    """Fully connected layers: (B, input_dim) -> (B, layer_dims[-1]).

    `layer_dims` are the widths of all layers, the output's last: `MLP(28, (512, 512, 5))` has two
    hidden layers. GELU follows each hidden layer, and with `layer_norm` a layer norm follows GELU.
    The last layer is linear; with `activate_final` it is treated as the hidden ones are.

    Weights are uniform with variance scaling by the average of fan-in and fan-out (Glorot and
    Bengio, 2010), the last layer's scaled by `final_scale`; biases are 0.
    """

    def __init__(
        self,
        input_dim: int,
        layer_dims: Sequence[int],
        *,
        layer_norm: bool = False,
        activate_final: bool = False,
        final_scale: float = 1.0,
    ) -> None:
        super().__init__()
        if not layer_dims:
            raise ValueError("MLP: layer_dims is empty; the output's width is its last number")
        layers: list[nn.Module] = []
        last = len(layer_dims) - 1
        for index, width in enumerate(layer_dims):
            scale = final_scale if index == last else 1.0
            layers.append(linear(input_dim, width, scale))
            if index < last or activate_final:
                layers.append(nn.GELU())
                if layer_norm:
                    layers.append(nn.LayerNorm(width, eps=LAYER_NORM_EPS))
            input_dim = width
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


class Value(nn.Module):
    """Values of states, where `action_dim` is 0, or of actions in states.

    An ensemble has members that share nothing, and its values are (num_ensembles, B). A single
    network, `num_ensembles=1`, has no dimension for members: (B,).
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        hidden_dims: Sequence[int],
        *,
        num_ensembles: int = 2,
        layer_norm: bool = True,
    ) -> None:
        super().__init__()
        if num_ensembles < 1:
            raise ValueError(f"Value: num_ensembles is {num_ensembles}; 1 is the smallest")
        self._widths = {"observations": observation_dim}
        if action_dim:
            self._widths["actions"] = action_dim
        # A stack of layers each: one batched product for all would miss oneDNN (numerics.py).
        self.members = nn.ModuleList(
            MLP(observation_dim + action_dim, (*hidden_dims, 1), layer_norm=layer_norm)
            for _ in range(num_ensembles)
        )

    def forward(
        self, observations: torch.Tensor, actions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(B, O) and (B, A), or (B, O) alone where `action_dim` is 0 -> (E, B), or (B,) of one.

        Raises ValueError for inputs that it was not built for.
        """
        inputs = _joined(self, self._widths, {"observations": observations, "actions": actions})
        values = [member(inputs).squeeze(-1) for member in self.members]
        return torch.stack(values) if len(values) > 1 else values[0]


class GaussianActor(nn.Module):
    """A normal distribution of actions for each observation, with a diagonal covariance.

    Its standard deviations are, by the first of these that holds:
        state_dependent_std: exp of a second linear head, beside that of the means;
        const_std: 1, and nothing of them is learned;
        neither: exp of A parameters, the same for all observations, from 1 on.
    Their logarithms are clipped to [log_std_min, log_std_max] first. Weights of the heads are
    scaled by `final_scale`, so that the first means are close to 0.

    With `tanh_squash`, actions are the tanh of such a normal distribution's.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        hidden_dims: Sequence[int],
        *,
        const_std: bool = True,
        state_dependent_std: bool = False,
        tanh_squash: bool = False,
        layer_norm: bool = False,
        final_scale: float = 1e-2,
        log_std_min: float = -5.0,
        log_std_max: float = 2.0,
    ) -> None:
        super().__init__()
        self._tanh_squash = tanh_squash
        self._log_std_bounds = (log_std_min, log_std_max)
        self.trunk = MLP(observation_dim, hidden_dims, layer_norm=layer_norm, activate_final=True)
        self.mean_head = linear(hidden_dims[-1], action_dim, final_scale)
        self.log_std_head: nn.Linear | None = None
        self.log_stds: nn.Parameter | None = None
        if state_dependent_std:
            self.log_std_head = linear(hidden_dims[-1], action_dim, final_scale)
        elif not const_std:
            self.log_stds = nn.Parameter(torch.zeros(action_dim))

    def forward(
        self, observations: torch.Tensor, temperature: float | torch.Tensor = 1.0
    ) -> Distribution:
        """(B, O) -> a distribution of actions (B, A), its standard deviation times `temperature`.

        `log_prob` is summed over an action's components, (B,); `rsample` lets gradients through;
        `mode` is (B, A), and of squashed actions the tanh of the normal distribution's, as in FQL.

        At temperature 0 all samples are the mode, and `log_prob` is of no use. Squashed, actions
        of exactly -1 or 1 have no finite `log_prob`, but for the very tensor that was sampled last.
        """
        features = self.trunk(observations)
        means = self.mean_head(features)
        stds = self._log_stds(features, means).clamp(*self._log_std_bounds).exp() * temperature
        # Checks of arguments would refuse temperature 0, and wait for the GPU each time.
        normal = Independent(Normal(means, stds, validate_args=False), 1, validate_args=False)
        return SquashedNormal(normal) if self._tanh_squash else normal

    def _log_stds(self, features: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
        """Before clipping: (B, A), or (A,)."""
        if self.log_std_head is not None:
            out: torch.Tensor = self.log_std_head(features)
            return out
        return torch.zeros_like(means) if self.log_stds is None else self.log_stds


class SquashedNormal(TransformedDistribution):
    """The tanh of a normal distribution's samples, with a mode, which torch does not define."""

    def __init__(self, normal: Independent[Normal]) -> None:
        # The cache: a sample's log_prob needs no atanh, which is infinite where tanh rounds to 1.
        super().__init__(normal, TanhTransform(cache_size=1), validate_args=False)

    @property
    def mode(self) -> torch.Tensor:
        """The tanh of the normal distribution's: the median, not where the density is highest."""
        return self.base_dist.mode.tanh()


class VectorFieldActor(nn.Module):
    """A velocity for each action, given an observation and, with `times`, a time from 0 to 1.

    With times it is a flow's field, integrated from noise to an action. Without, it maps noise to
    an action at once: FQL's one-step policy.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        hidden_dims: Sequence[int],
        *,
        times: bool = True,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self._widths = {"observations": observation_dim, "actions": action_dim}
        if times:
            self._widths["times"] = 1
        layer_dims = (*hidden_dims, action_dim)
        self.field = MLP(sum(self._widths.values()), layer_dims, layer_norm=layer_norm)

    def forward(
        self,
        observations: torch.Tensor,
        actions: torch.Tensor,
        times: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, O), (B, A) and, where it was built with times, (B, 1) -> (B, A).

        Raises ValueError for inputs that it was not built for.
        """
        parts = {"observations": observations, "actions": actions, "times": times}
        out: torch.Tensor = self.field(_joined(self, self._widths, parts))
        return out


def linear(input_dim: int, output_dim: int, scale: float = 1.0) -> nn.Linear:
    """Flax's `Dense` with variance scaling: uniform up to sqrt(6 scale / (in + out)); biases 0."""
    layer = nn.Linear(input_dim, output_dim)
    nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(scale))
    nn.init.zeros_(layer.bias)
    return layer


def _joined(
    module: nn.Module, widths: Mapping[str, int], parts: Mapping[str, torch.Tensor | None]
) -> torch.Tensor:
    """The parts side by side. Raises ValueError where they are others than `module` was built for.

    A batch of one of them is never stretched to that of another.
    """
    given = {name: part for name, part in parts.items() if part is not None}
    leading = given["observations"].shape[:-1]
    shapes = {name: tuple(part.shape) for name, part in given.items()}
    needed = {name: (*leading, width) for name, width in widths.items()}
    if shapes != needed:
        name = type(module).__name__
        raise ValueError(f"{name} was built for {_listed(needed)}; it got {_listed(shapes)}")
    return torch.cat(list(given.values()), dim=-1)


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
