"""🤖 TD3 with a choice of targets, written with whatever Python 3.11 has to offer."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import cached_property, partial, wraps
from itertools import count, pairwise


class Target(Enum):
    MINIMUM = auto()
    MEAN = auto()
    OPTIMISTIC = auto()

    def __call__(self, qs: torch.Tensor) -> torch.Tensor:
        """(N, B, 1) -> (B,)."""
        match self:
            case Target.MINIMUM:
                reduced = qs.amin(0)
            case Target.MEAN:
                reduced = qs.mean(0)
            case Target.OPTIMISTIC:
                reduced = qs.mean(0) + 0.5 * qs.std(0, correction=0)
            case other:
                raise ValueError(f"{other!r}?")
        return reduced.squeeze(-1)


def numpy_in_numpy_out(method):
    """Let a method that maps (1, n) tensors be called with (n,) arrays."""

    @wraps(method)
    @torch.no_grad()
    def wrapper(self, obs, *args, **kwargs):
        tensor = torch.as_tensor(obs, dtype=torch.float32, device=self.device)[None]
        return method(self, tensor, *args, **kwargs)[0].cpu().numpy()

    return wrapper


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    for p in parameters:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)


def tower(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    def layers() -> Iterator[nn.Module]:
        for n_in, n_out in pairwise(widths):
            yield nn.Linear(n_in, n_out)
            yield activation()

    return nn.Sequential(*[*layers()][:-1])


class Actor(nn.Module):
    class Head(nn.Module):
        """Squash and scale."""

        def __init__(self, bound: float) -> None:
            super().__init__()
            self.bound = bound

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.tanh() * self.bound

    def __init__(self, obs_dim: int, action_dim: int, max_action: float) -> None:
        super().__init__()
        self.net = tower(obs_dim, 256, 256, action_dim)
        self.head = self.Head(max_action)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.head(self.net(obs))

    get_action = forward


class QNetwork(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.net = tower(obs_dim + action_dim, 256, 256, 1, activation=partial(nn.ELU, alpha=1.0))

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat((obs, action), dim=-1))


class Window:
    """Mean of the last values of a metric."""

    __slots__ = ("values",)

    def __init__(self, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)

    def __iadd__(self, value: float) -> "Window":
        self.values.append(value)
        return self

    def __float__(self) -> float:
        return sum(self.values) / len(self.values) if self.values else 0.0


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args, *, explore=0.02):
        self.device, self.args, self.bound = device, args, max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.critics = nn.ModuleList(QNetwork(obs_dim, action_dim) for _ in range(2)).to(device)
        self.slow = nn.ModuleDict({"actor": self.actor, "critics": self.critics})
        self.slow = copy.deepcopy(self.slow).requires_grad_(False)
        make = partial(adam, lr=args.learning_rate)
        self.optimizers = {
            "actor": make(self.actor.parameters()),
            "critics": make(self.critics.parameters()),
        }
        self.clock = count(1)
        self.explore = explore
        self.td = Window(100)
        self.step_no = 0

    @cached_property
    def optimistic_until(self) -> int:
        return int(self.explore * self.args.total_timesteps)

    @property
    def target(self) -> Target:
        """Optimism for the first steps, then the mean for as long again, then TD3's minimum."""
        if (n := self.step_no) < self.optimistic_until:
            return Target.OPTIMISTIC
        return Target.MEAN if n < 2 * self.optimistic_until else Target.MINIMUM

    @numpy_in_numpy_out
    def select_action(self, obs):
        action = self.actor(obs)
        noise = torch.randn_like(action) * self.args.exploration_noise * self.bound
        return (action + noise).clamp(-self.bound, self.bound)

    @contextmanager
    def minimising(self, name: str):
        """Collects one loss in a list and takes the step when the block is left."""
        yield (losses := [])
        optimizer = self.optimizers[name]
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()

    @staticmethod
    def evaluate(critics, obs, actions) -> torch.Tensor:
        return torch.stack([critic(obs, actions) for critic in critics])

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.step_no = next(self.clock)
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(actions)).clamp(-0.5, 0.5) * self.bound
            following = (self.slow["actor"](next_obs) + noise).clamp(-self.bound, self.bound)
            value = self.target(self.evaluate(self.slow["critics"], next_obs, following))
            y = rewards + self.args.gamma * (1 - dones) * value

        with self.minimising("critics") as losses:
            error = self.evaluate(self.critics, obs, actions).squeeze(-1) - y
            losses.append(error.square().mean(1).sum())
        self.td += error.detach().abs().mean().item()

        metrics = {"td_error": float(self.td), f"target/{self.target.name.lower()}": 1}
        if not self.step_no % self.args.policy_frequency:
            with frozen(self.critics), self.minimising("actor") as losses:
                losses.append(-self.critics[0](obs, self.actor(obs)).mean())
            for name, module in {"actor": self.actor, "critics": self.critics}.items():
                soft_update(self.slow[name], module, self.args.tau)
            metrics |= {"actor_loss": losses[-1].item()}
        return metrics
