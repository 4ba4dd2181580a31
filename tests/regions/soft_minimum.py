"""TD3 with a soft minimum of its twin critics, whose sharpness follows how far they disagree.

Soft twin target
----------------

The hard minimum always trusts the more pessimistic critic, however small the difference, and its
subgradient jumps between the two. The soft minimum

    softmin_b(q_1, ..., q_n) = -(logsumexp(-b q_1, ..., -b q_n) - log n) / b

is smooth, lies between the minimum and the mean, and tends to the one for b -> inf and to the other
for b -> 0. A fixed b means something else in every environment (returns of 10 or of 10,000), so the
one here is in units of the critics' own disagreement, which is tracked by a running average.
"""

from typing import Final, NamedTuple, TypeAlias

from numpy.typing import NDArray

Tensor: TypeAlias = torch.Tensor
Metrics: TypeAlias = dict[str, float]

SHARPNESS: Final[float] = 2.0
TRACKING_RATE: Final[float] = 1e-2
TINY: Final[float] = 1e-6


class Batch(NamedTuple):
    """What `update` is handed, by name."""

    obs: Tensor
    next_obs: Tensor
    actions: Tensor
    rewards: Tensor
    dones: Tensor


def soft_minimum(values: Tensor, sharpness: float) -> Tensor:
    """Soft minimum over the last axis.

    Parameters
    ----------
    values : Tensor
        Shape ``(..., n)``.
    sharpness : float
        ``b`` above; positive.

    Returns
    -------
    Tensor
        Shape ``(...)``; between the minimum and the mean.
    """
    count: int = values.shape[-1]
    return -(torch.logsumexp(-sharpness * values, dim=-1) - math.log(count)) / sharpness


class Actor(nn.Module):
    """A deterministic policy, ``a = max_action * tanh(f(s))``."""

    def __init__(self, obs_dim: int, action_dim: int, max_action: float) -> None:
        super().__init__()
        self.net: nn.Sequential = _mlp_factory(obs_dim, action_dim)
        self.max_action: float = float(max_action)

    def forward(self, obs: Tensor) -> Tensor:
        return self.max_action * torch.tanh(self.net(obs))

    @torch.no_grad()
    def get_action(self, obs: Tensor) -> Tensor:
        return self.forward(obs)


class QNetwork(nn.Module):
    """One critic, ``(B, obs_dim), (B, action_dim) -> (B, 1)``."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.net: nn.Sequential = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.net(torch.cat((obs, action), dim=-1))


class OffPolicyAlgorithm:
    """TD3 but for the target."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        max_action: float,
        device: torch.device,
        args: "Args",
    ) -> None:
        self.device: torch.device = device
        self.max_action: float = max_action
        self.gamma: float = args.gamma
        self.tau: float = args.tau
        self.policy_frequency: int = args.policy_frequency
        self.noise: float = args.exploration_noise
        self.actor: Actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.critics: nn.ModuleList = nn.ModuleList(
            QNetwork(obs_dim, action_dim) for _ in range(2)
        ).to(device)
        self.actor_target: Actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.critics_target: nn.ModuleList = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_optimizer: optim.Adam = adam(self.actor.parameters(), lr=args.learning_rate)
        self.critic_optimizer: optim.Adam = adam(self.critics.parameters(), lr=args.learning_rate)
        self.disagreement: float = 1.0
        self.updates: int = 0

    def select_action(self, obs: NDArray[np.float32]) -> NDArray[np.float64]:
        with acting():
            state: Tensor = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            action: NDArray[np.float32] = self.actor(state[None]).squeeze(0).cpu().numpy()
        noisy = action + self.max_action * self.noise * np.random.standard_normal(action.shape)
        return np.clip(noisy, -self.max_action, self.max_action)

    @property
    def sharpness(self) -> float:
        return SHARPNESS / max(self.disagreement, TINY)

    def _all(self, critics: nn.ModuleList, obs: Tensor, actions: Tensor) -> Tensor:
        return torch.cat([critic(obs, actions) for critic in critics], dim=-1)

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        noise: Tensor = (0.2 * torch.randn_like(batch.actions)).clamp_(-0.5, 0.5)
        proposed: Tensor = self.actor_target(batch.next_obs) + noise * self.max_action
        proposed.clamp_(-self.max_action, self.max_action)
        values: Tensor = self._all(self.critics_target, batch.next_obs, proposed)
        spread: float = (values.amax(-1) - values.amin(-1)).mean().item()
        self.disagreement += TRACKING_RATE * (spread - self.disagreement)
        return batch.rewards + self.gamma * (1.0 - batch.dones) * soft_minimum(
            values, self.sharpness
        )

    def update(self, batch: tuple[Tensor, ...]) -> Metrics:
        self.updates += 1
        data: Batch = Batch(*batch)
        target: Tensor = self._target(data)
        values: Tensor = self._all(self.critics, data.obs, data.actions)
        critic_loss: Tensor = (values - target.unsqueeze(-1)).square().mean(dim=0).sum()
        self.critic_optimizer.zero_grad(set_to_none=True)
        critic_loss.backward()
        self.critic_optimizer.step()
        metrics: Metrics = {
            "critic_loss": critic_loss.item(),
            "disagreement": self.disagreement,
            "sharpness": self.sharpness,
        }
        if self.updates % self.policy_frequency == 0:
            value: Tensor = self.critics[0](data.obs, self.actor(data.obs))
            actor_loss: Tensor = -value.mean()
            self.actor_optimizer.zero_grad(set_to_none=True)
            actor_loss.backward()
            self.actor_optimizer.step()
            soft_update(self.actor_target, self.actor, self.tau)
            soft_update(self.critics_target, self.critics, self.tau)
            metrics["actor_loss"] = actor_loss.item()
        return metrics
