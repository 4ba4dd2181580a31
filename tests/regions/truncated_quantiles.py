"""TQC-like: three small quantile critics, pooled, sorted, and cut at the top, over SAC's actor."""

import torch.nn.functional as F
from torch.distributions import Normal

N_NETS = 3
N_QUANTILES = 25
DROP_PER_NET = 2
LOG_STD_MIN, LOG_STD_MAX = -20, 2


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(obs_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
        )
        self.mu = nn.Linear(256, action_dim)
        self.log_std = nn.Linear(256, action_dim)
        self.max_action = max_action

    def forward(self, obs):
        h = self.trunk(obs)
        return Normal(self.mu(h), self.log_std(h).clamp(LOG_STD_MIN, LOG_STD_MAX).exp())

    def sample(self, obs):
        normal = self(obs)
        u = normal.rsample()
        # log(1 - tanh(u)^2) without cancellation
        correction = 2 * (math.log(2) - u - F.softplus(-2 * u)) + math.log(self.max_action)
        log_prob = (normal.log_prob(u) - correction).sum(-1, keepdim=True)
        return torch.tanh(u) * self.max_action, log_prob

    def get_action(self, obs):
        return torch.tanh(self(obs).mean) * self.max_action


class QNetwork(nn.Module):
    """(B, obs_dim), (B, action_dim) -> (B, N_QUANTILES)."""

    def __init__(self, obs_dim, action_dim, hidden=160):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, N_QUANTILES, hidden)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=1))


class Critic(nn.Module):
    """All nets at once: (B, N_NETS, N_QUANTILES)."""

    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.nets = nn.ModuleList([QNetwork(obs_dim, action_dim) for _ in range(N_NETS)])

    def forward(self, obs, action):
        return torch.stack([net(obs, action) for net in self.nets], dim=1)


def quantile_huber_loss(quantiles, samples):
    """quantiles (B, nets, quantiles) against samples (B, samples), kappa = 1."""
    delta = samples[:, None, None, :] - quantiles[..., None]
    n = quantiles.shape[2]
    tau = (torch.arange(n, device=quantiles.device).float() + 0.5) / n
    below = (delta.detach() < 0).float()
    huber = torch.where(delta.abs() > 1, delta.abs() - 0.5, delta**2 * 0.5)
    return (torch.abs(tau[None, None, :, None] - below) * huber).mean()


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args, self.device = args, device
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.critic = Critic(obs_dim, action_dim).to(device)
        self.critic_target = copy.deepcopy(self.critic)
        self.log_alpha = nn.Parameter(torch.zeros((), device=device))
        self.target_entropy = -float(np.prod((action_dim,)))
        self.actor_optim = adam(self.actor.parameters(), lr=args.learning_rate)
        self.critic_optim = adam(self.critic.parameters(), lr=args.learning_rate)
        self.alpha_optim = adam([self.log_alpha], lr=args.learning_rate)
        self.kept = N_NETS * (N_QUANTILES - DROP_PER_NET)

    def select_action(self, obs):
        with torch.no_grad():
            obs = torch.from_numpy(np.asarray(obs, dtype=np.float32)).to(self.device)
            action, _ = self.actor.sample(obs.unsqueeze(0))
        return action.squeeze(0).cpu().numpy()

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        alpha = self.log_alpha.exp().detach()

        with torch.no_grad():
            next_actions, next_log_prob = self.actor.sample(next_obs)
            pooled = self.critic_target(next_obs, next_actions).flatten(1)
            # the largest atoms of the mixture carry the overestimation: they are cut off
            atoms = torch.sort(pooled, dim=1).values[:, : self.kept] - alpha * next_log_prob
            target = rewards[:, None] + (1 - dones[:, None]) * self.args.gamma * atoms

        quantiles = self.critic(obs, actions)
        critic_loss = quantile_huber_loss(quantiles, target)
        self.critic_optim.zero_grad()
        critic_loss.backward()
        self.critic_optim.step()

        new_actions, log_prob = self.actor.sample(obs)
        value = self.critic(obs, new_actions).mean(dim=(1, 2))
        actor_loss = (alpha * log_prob.squeeze(1) - value).mean()
        self.actor_optim.zero_grad()
        actor_loss.backward()
        self.actor_optim.step()

        alpha_loss = -self.log_alpha * (log_prob.detach() + self.target_entropy).mean()
        self.alpha_optim.zero_grad()
        alpha_loss.backward()
        self.alpha_optim.step()

        soft_update(self.critic_target, self.critic, self.args.tau)
        return dict(
            critic_loss=critic_loss.item(),
            actor_loss=actor_loss.item(),
            alpha=alpha.item(),
            quantile_spread=(quantiles.amax(-1) - quantiles.amin(-1)).mean().item(),
        )
