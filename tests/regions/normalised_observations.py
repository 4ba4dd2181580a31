"""TD3 on whitened observations: the statistics are buffers of the actor and travel with its export."""


class RunningNorm(nn.Module):
    """Mean and variance of everything seen so far (Chan's parallel update), in float64."""

    def __init__(self, dim, clip=10.0):
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0, dtype=torch.int64))

    @torch.no_grad()
    def observe(self, x):
        x = x.double()
        n = x.shape[0]
        total = self.count + n
        delta = x.mean(0) - self.mean
        self.m2 += ((x - x.mean(0)) ** 2).sum(0) + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.count += n

    @property
    def std(self):
        if self.count < 2:
            return torch.ones_like(self.mean)
        return (self.m2 / (self.count - 1)).sqrt().clamp_min(1e-3)

    def forward(self, x):
        z = (x - self.mean.float()) / self.std.float()
        return z.clamp(-self.clip, self.clip)

    def extra_repr(self):
        return f"{self.mean.numel()}, clip={self.clip}"


class Policy(nn.Sequential):
    """tanh at the end; takes observations that are whitened already."""

    def __init__(self, obs_dim, action_dim):
        super().__init__(*_mlp_factory(obs_dim, action_dim), nn.Tanh())
        with torch.no_grad():
            self[-2].weight.mul_(0.01)
            self[-2].bias.zero_()


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.norm = RunningNorm(obs_dim)
        self.policy = Policy(obs_dim, action_dim)
        self.register_buffer("action_scale", torch.full((action_dim,), float(max_action)))

    def forward(self, whitened):
        return self.policy(whitened) * self.action_scale

    def get_action(self, obs):
        return self(self.norm(obs))


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, whitened, action):
        return self.net(torch.cat([whitened, action], dim=1))


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args, self.device, self.max_action = args, device, max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.target_policy = copy.deepcopy(self.actor.policy)
        self.q = nn.ModuleDict({k: QNetwork(obs_dim, action_dim) for k in ("one", "two")})
        self.q.to(device)
        self.q_target = copy.deepcopy(self.q)
        self.opt_q = adam(self.q.parameters(), lr=args.learning_rate)
        self.opt_pi = adam(self.actor.policy.parameters(), lr=args.learning_rate)
        self.updates = 0
        self.warm = False

    def select_action(self, obs):
        x = torch.as_tensor(obs, dtype=torch.float32, device=self.device)[None]
        self.actor.norm.observe(x)
        with torch.no_grad():
            action = self.actor.get_action(x)
            action += torch.randn_like(action) * self.args.exploration_noise * self.max_action
        return action[0].clamp(-self.max_action, self.max_action).cpu().numpy()

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        if not self.warm:  # the random warm-up was never seen by select_action
            self.actor.norm.observe(obs)
            self.warm = True
        obs, next_obs = map(self.actor.norm, (obs, next_obs))
        self.updates += 1
        bound = self.max_action

        with torch.no_grad():
            noise = (torch.randn_like(actions) * 0.2).clamp(-0.5, 0.5) * bound
            smoothed = self.target_policy(next_obs) * self.actor.action_scale + noise
            smoothed = smoothed.clamp(-bound, bound)
            next_q = torch.minimum(*(q(next_obs, smoothed) for q in self.q_target.values()))
            y = rewards[:, None] + self.args.gamma * (1 - dones[:, None]) * next_q

        loss = sum(F.mse_loss(q(obs, actions), y) for q in self.q.values())
        self.opt_q.zero_grad()
        loss.backward()
        self.opt_q.step()
        metrics = {"q_loss": loss.item(), "obs_std": self.actor.norm.std.mean().item()}

        if self.updates % self.args.policy_frequency == 0:
            pi_loss = -self.q["one"](obs, self.actor(obs)).mean()
            self.opt_pi.zero_grad()
            pi_loss.backward()
            self.opt_pi.step()
            soft_update(self.target_policy, self.actor.policy, self.args.tau)
            soft_update(self.q_target, self.q, self.args.tau)
            metrics["pi_loss"] = pi_loss.item()
        return metrics
