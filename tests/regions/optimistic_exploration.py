"""Optimistic exploration: SAC that acts along the gradient of an upper bound of its critics.

From the mean u of the policy (before tanh) the exploring policy is shifted by

    sqrt(2 delta) * S g / ||g||_S,    g = d/du [ (q1 + q2) / 2 + BETA_UB * |q1 - q2| / 2 ]

where S is the policy's covariance: the mean of the most optimistic Gaussian within a KL distance of
delta. Acting therefore needs a gradient, and must not happen under no_grad.
"""

BETA_UB = 4.66
DELTA = 23.53


class Actor(nn.Module):
    LOG_STD_BOUNDS = (-5.0, 2.0)

    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.body = _mlp_factory(obs_dim, action_dim * 2)
        self.max_action = max_action

    def forward(self, obs):
        mean, log_std = torch.tensor_split(self.body(obs), 2, dim=-1)
        return mean, log_std.clamp(*self.LOG_STD_BOUNDS).exp()

    def squash(self, u):
        return self.max_action * torch.tanh(u)

    def rsample(self, obs):
        mean, std = self(obs)
        noise = torch.randn_like(std)
        u = mean + std * noise
        log_prob = -0.5 * (noise**2 + math.log(2 * math.pi)) - std.log()
        log_prob -= math.log(self.max_action) + 2 * (math.log(2) - u - F.softplus(-2 * u))
        return self.squash(u), log_prob.sum(dim=-1)

    def get_action(self, obs):
        return self.squash(self(obs)[0])


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.body = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.body(torch.cat((obs, action), dim=-1))


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.device, self.gamma, self.tau = device, args.gamma, args.tau
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.q = nn.ModuleList([QNetwork(obs_dim, action_dim) for _ in range(2)]).to(device)
        self.q_target = copy.deepcopy(self.q)
        for p in self.q_target.parameters():
            p.requires_grad = False
        self.log_alpha = torch.zeros(1, device=device, requires_grad=True)
        self.target_entropy = -action_dim
        self.q_optimizer = adam(self.q.parameters(), lr=args.learning_rate)
        self.pi_optimizer = adam(self.actor.parameters(), lr=args.learning_rate)
        self.alpha_optimizer = adam([self.log_alpha], lr=args.learning_rate)
        self.last_shift = 0.0

    def upper_bound(self, obs, action):
        q1, q2 = (critic(obs, action) for critic in self.q)
        return (q1 + q2) / 2 + BETA_UB * (q1 - q2).abs() / 2

    def select_action(self, obs):
        assert torch.is_grad_enabled(), "the shift is a gradient"
        obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device).unsqueeze(0)
        with torch.no_grad():
            mean, std = self.actor(obs)
        u = mean.clone().requires_grad_(True)
        bound = self.upper_bound(obs, self.actor.squash(u)).sum()
        (gradient,) = torch.autograd.grad(bound, u)
        # a diagonal covariance: S g is elementwise
        length = torch.sqrt((gradient.square() * std.square()).sum()) + 1e-6
        shift = math.sqrt(2 * DELTA) * std.square() * gradient / length
        self.last_shift = shift.norm().item()
        action = self.actor.squash(mean + shift + std * torch.randn_like(std))
        return action.detach().squeeze(0).cpu().numpy()

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_actions, next_log_prob = self.actor.rsample(next_obs)
            next_q = torch.cat([q(next_obs, next_actions) for q in self.q_target], dim=1)
            backup = next_q.min(dim=1).values - alpha * next_log_prob
            target = rewards + self.gamma * (1 - dones) * backup
        estimates = torch.cat([q(obs, actions) for q in self.q], dim=1)
        q_loss = F.mse_loss(estimates, target[:, None].expand_as(estimates)) * 2
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()

        self.q.requires_grad_(False)
        new_actions, log_prob = self.actor.rsample(obs)
        new_q = torch.cat([q(obs, new_actions) for q in self.q], dim=1)
        pi_loss = (alpha * log_prob - new_q.min(dim=1).values).mean()
        self.pi_optimizer.zero_grad()
        pi_loss.backward()
        self.pi_optimizer.step()
        self.q.requires_grad_(True)

        alpha_loss = -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        soft_update(self.q_target, self.q, self.tau)
        return {"q_loss": q_loss, "pi_loss": pi_loss, "alpha": alpha, "shift": self.last_shift}
