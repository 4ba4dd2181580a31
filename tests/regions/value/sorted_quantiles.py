# QR-DQN whose quantiles cannot cross: the head's numbers are sorted before anybody sees them.
#
# Sorting is a permutation, so gradients pass through it, and which number plays which quantile is
# free to change from state to state. Hyperparameters as in the paper, with the task's learning rate.

from typing import NamedTuple, Optional


class Config(NamedTuple):
    quantiles: int = 200
    kappa: float = 1.0
    clip: Optional[float] = 10.0


class QNetwork(nn.Module):
    def __init__(self, envs, config: Config = Config()) -> None:
        super().__init__()
        self.n: int = envs.single_action_space.n
        self.config = config
        self.encoder = NatureDQNEncoder()
        self.head = nn.Linear(ENCODER_FEATURE_DIM, self.n * config.quantiles)

    def quantiles(self, x: torch.Tensor) -> torch.Tensor:
        """(B, n, quantiles), ascending."""
        raw = self.head(self.encoder(x))
        return raw.reshape(x.shape[0], self.n, self.config.quantiles).sort(dim=-1).values

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # the mean does not depend on the order, so there is no need for one here
        return self.head(self.encoder(x)).unflatten(1, (self.n, -1)).mean(-1)


def take(values: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Of (B, n, quantiles), those of one action a row: (B, quantiles)."""
    index = actions.reshape(-1, 1, 1).expand(-1, 1, values.shape[-1])
    return torch.gather(values, 1, index).squeeze(1)


def quantile_regression(theta: torch.Tensor, target: torch.Tensor, kappa: float) -> torch.Tensor:
    """(B, N) against (B, N'): (B,)."""
    count = theta.shape[1]
    levels = torch.linspace(0.5 / count, 1 - 0.5 / count, count, device=theta.device)
    error = target[:, None, :] - theta[:, :, None]
    small = error.abs().clamp(max=kappa)
    huber = small * (error.abs() - 0.5 * small)
    asymmetry = (levels[None, :, None] - error.detach().lt(0).float()).abs()
    return (asymmetry * huber / kappa).mean(2).sum(1)


class ValueAlgorithm:
    def __init__(self, envs, device: torch.device, args) -> None:
        self.args, self.device = args, device
        self.config = Config()
        self.q_network = QNetwork(envs, self.config).to(device)
        self.target_network = copy.deepcopy(self.q_network).requires_grad_(False)
        self.optimizer = optim.Adam(
            self.q_network.parameters(), lr=args.learning_rate, eps=0.01 / args.batch_size
        )

    @torch.no_grad()
    def select_action(self, obs: np.ndarray, epsilon: float = 0.0) -> np.ndarray:
        return self.q_network(torch.from_numpy(obs).to(self.device)).argmax(1).cpu().numpy()

    @torch.no_grad()
    def _target(self, rewards, next_observations, dones) -> torch.Tensor:
        following = self.target_network.quantiles(next_observations)
        best = following.mean(-1).argmax(1)
        return rewards + self.args.gamma * (1.0 - dones) * take(following, best)

    def update(self, batch, global_step: int) -> dict[str, float]:
        target = self._target(batch.rewards, batch.next_observations, batch.dones)
        theta = take(self.q_network.quantiles(batch.observations), batch.actions)
        loss = quantile_regression(theta, target, self.config.kappa).mean()

        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.tensor(0.0)
        if self.config.clip is not None:
            norm = nn.utils.clip_grad_norm_(self.q_network.parameters(), self.config.clip)
        self.optimizer.step()

        if not global_step % self.args.target_network_frequency:
            self.target_network.load_state_dict(self.q_network.state_dict())
        spread = theta.detach()[:, -1] - theta.detach()[:, 0]
        return {
            "loss": loss.item(),
            "gradient_norm": float(norm),
            "spread": spread.mean().item(),
        }
