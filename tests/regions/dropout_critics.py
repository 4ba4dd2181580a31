"""DroQ-like SAC: dropout and layer norm turn two critics into an implicit ensemble."""

from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

_Activation = Callable[[torch.Tensor], torch.Tensor]


class DropoutMLP(nn.Module):
    """``Linear -> Dropout -> LayerNorm -> activation``, in the order of the paper.

    :param dims: sizes of all layers, the first being the input's
    :param p: probability of dropping a unit; 0 disables it
    :param activation: elementwise function; ReLU if not given
    """

    def __init__(
        self, dims: Sequence[int], p: float = 0.01, activation: Optional[_Activation] = None
    ) -> None:
        super().__init__()
        *hidden, n_out = dims
        self.p = p
        self.activation = activation or F.relu
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(hidden, hidden[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in hidden[1:])
        self.out = nn.Linear(hidden[-1], n_out)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        for linear, norm in zip(self.linears, self.norms):
            input = F.dropout(linear(input), p=self.p, training=self.training)
            input = self.activation(norm(input))
        return self.out(input)


class Actor(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int, max_action: float) -> None:
        super().__init__()
        self.latent_pi = nn.Sequential(
            nn.Linear(obs_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
        )
        self.heads = nn.ModuleDict(
            {"mean": nn.Linear(256, action_dim), "log_std": nn.Linear(256, action_dim)}
        )
        self.max_action = max_action

    def forward(self, obs: torch.Tensor) -> torch.distributions.Normal:
        latent = self.latent_pi(obs)
        log_std = self.heads["log_std"](latent).clamp(-20, 2)
        return torch.distributions.Normal(self.heads["mean"](latent), log_std.exp())

    def action_log_prob(self, obs: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        gaussian = self.forward(obs)
        pre_tanh = gaussian.rsample()
        actions = pre_tanh.tanh()
        log_prob = gaussian.log_prob(pre_tanh).sum(dim=1)
        log_prob = log_prob - torch.log(self.max_action * (1 - actions**2) + 1e-6).sum(dim=1)
        return self.max_action * actions, log_prob.reshape(-1, 1)

    def get_action(self, obs: torch.Tensor) -> torch.Tensor:
        return self.max_action * self.forward(obs).mean.tanh()


class QNetwork(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.qf = DropoutMLP([obs_dim + action_dim, 256, 256, 1])

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.qf(torch.cat([obs, action], dim=1))


class OffPolicyAlgorithm:
    """
    Dropout stays active in the targets, too: each evaluation of a target is another member of the
    ensemble. The actor climbs the mean of both critics, as in REDQ, and not their minimum.
    """

    log_ent_coef: torch.Tensor

    def __init__(
        self, obs_dim: int, action_dim: int, max_action: float, device: Union[torch.device, str],
        args: Any,
    ) -> None:
        self.device = torch.device(device)
        self.gamma, self.tau = args.gamma, args.tau
        self.policy_delay = args.policy_frequency
        self.actor = Actor(obs_dim, action_dim, max_action).to(self.device)
        self.critic = nn.ModuleList([QNetwork(obs_dim, action_dim) for _ in range(2)])
        self.critic.to(self.device)
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_target.requires_grad_(False)
        self.ent_coef = "auto_0.1"
        init_value = float(self.ent_coef.split("_")[1])
        self.log_ent_coef = torch.log(init_value * torch.ones(1, device=self.device))
        self.log_ent_coef.requires_grad_(True)
        self.target_entropy = float(-np.prod((action_dim,)).astype(np.float32))
        lr = args.learning_rate
        self.optimizers: Dict[str, optim.Optimizer] = {
            "actor": adam(self.actor.parameters(), lr=lr),
            "critic": adam(self.critic.parameters(), lr=lr),
            "ent_coef": adam([self.log_ent_coef], lr=lr),
        }
        self._n_updates = 0

    def _minimize(self, name: str, loss: torch.Tensor) -> None:
        self.optimizers[name].zero_grad()
        loss.backward()
        self.optimizers[name].step()

    def select_action(self, obs: np.ndarray) -> np.ndarray:
        with acting():
            tensor = torch.as_tensor(obs[np.newaxis], dtype=torch.float32, device=self.device)
            actions, _ = self.actor.action_log_prob(tensor)
            return actions.squeeze(0).cpu().numpy()

    def update(self, batch: Tuple[torch.Tensor, ...]) -> Dict[str, float]:
        observations, next_observations, actions, rewards, dones = batch
        self._n_updates += 1
        ent_coef = torch.exp(self.log_ent_coef.detach())

        with torch.no_grad():
            next_actions, next_log_prob = self.actor.action_log_prob(next_observations)
            next_q_values = torch.cat(
                [q(next_observations, next_actions) for q in self.critic_target], dim=1
            )
            next_q_values, _ = torch.min(next_q_values, dim=1, keepdim=True)
            next_q_values = next_q_values - ent_coef * next_log_prob
            target_q_values = (
                rewards.reshape(-1, 1) + (1 - dones.reshape(-1, 1)) * self.gamma * next_q_values
            )

        current_q_values = [q(observations, actions) for q in self.critic]
        critic_loss = 0.5 * sum(F.mse_loss(q, target_q_values) for q in current_q_values)
        self._minimize("critic", critic_loss)
        soft_update(self.critic_target, self.critic, self.tau)
        logs = {"critic_loss": critic_loss.item(), "ent_coef": ent_coef.item()}

        if self._n_updates % self.policy_delay == 0:
            actions_pi, log_prob = self.actor.action_log_prob(observations)
            q_values_pi = torch.cat([q(observations, actions_pi) for q in self.critic], dim=1)
            actor_loss = (ent_coef * log_prob - q_values_pi.mean(dim=1, keepdim=True)).mean()
            self._minimize("actor", actor_loss)
            gap = (log_prob + self.target_entropy).detach()
            self._minimize("ent_coef", -(self.log_ent_coef * gap).mean())
            logs["actor_loss"] = actor_loss.item()
        return logs
