"""IQL, with its own Q and V (Kostrikov et al. 2021): the task's critic is only watched.

The Q function here bootstraps from V, so it is never asked about actions that are not in the data. The
slow copy of Q is one more network of ours, without gradients, and we move it ourselves: the targets of
the loop reach `sample_actions` alone, and not the loss.
"""

EXPECTILE = 0.9
BETA = 3.0


def half(dims):
    return [max(d // 2, 8) for d in dims]


class Residual(nn.Module):
    """x + f(norm(x)), one hidden layer."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + F.silu(self.fc(self.norm(x)))


class ResidualActor(nn.Module):
    def __init__(self, obs_dim, act_dim, dims):
        super().__init__()
        width = dims[0]
        self.net = nn.Sequential(
            nn.Linear(obs_dim, width), *[Residual(width) for _ in dims[1:]], nn.LayerNorm(width)
        )
        self.mu = nn.Linear(width, act_dim)
        self.log_std = nn.Parameter(torch.full((act_dim,), -1.0))

    def forward(self, obs):
        return torch.tanh(self.mu(self.net(obs)))

    def log_prob(self, obs, act):
        return torch.distributions.Normal(self(obs), self.log_std.exp()).log_prob(act).sum(-1)


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.o, self.a, self.cfg = observation_dim, action_dim, config

    def create_policy_networks(self):
        dims = half(self.cfg.value_hidden_dims)
        q = Value(self.o, self.a, dims, num_ensembles=1)
        return {
            "pi": ResidualActor(self.o, self.a, self.cfg.actor_hidden_dims),
            "v": Value(self.o, 0, dims, num_ensembles=1),
            "q": q,
            "q_slow": copy.deepcopy(q).requires_grad_(False),
        }

    def compute_actor_loss(self, networks, batch, critic):
        q, q_slow, v = networks["q"], networks["q_slow"], networks["v"]

        with torch.no_grad():
            for slow, fast in zip(q_slow.parameters(), q.parameters()):
                slow.mul_(1 - self.cfg.tau).add_(fast, alpha=self.cfg.tau)
            old_q = q_slow(batch.observations, batch.actions)
            next_v = v(batch.next_observations)
            backup = batch.rewards + self.cfg.discount * batch.masks * next_v

        u = old_q - v(batch.observations)
        v_loss = (torch.abs(EXPECTILE - (u < 0).float()) * u**2).mean()
        q_loss = F.mse_loss(q(batch.observations, batch.actions), backup)

        w = torch.exp(BETA * u.detach() / (u.detach().std() + 1e-6)).clamp(max=100.0)
        pi_loss = -(w * networks["pi"].log_prob(batch.observations, batch.actions)).mean()

        with torch.no_grad():
            gap = (critic(batch.observations, batch.actions).mean(0) - old_q).mean()
        return v_loss + q_loss + pi_loss, {"v": v_loss, "q_own": q_loss, "pi": pi_loss, "gap": gap}

    def sample_actions(self, networks, observations, temperature):
        pi = networks["pi"]
        mean = pi(observations)
        if not temperature:
            return mean
        return mean + temperature * pi.log_std.exp() * torch.randn_like(mean)
