"""TD3 whose exploration noise falls along a cosine of its own step counter, from 0.3 to 0.05."""
# hyper-parameters live in one frozen place
from dataclasses import dataclass


@dataclass(frozen=True)
class CosineSchedule:
    start: float
    end: float
    horizon: int

    def __post_init__(self):
        if self.horizon <= 0:
            raise ValueError(f"horizon must be positive, got {self.horizon}")

    def __call__(self, step: int) -> float:
        progress = min(step / self.horizon, 1.0)
        return self.end + 0.5 * (self.start - self.end) * (1 + math.cos(math.pi * progress))


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, action_dim)
        nn.init.uniform_(self.net[-1].weight, -3e-3, 3e-3)
        nn.init.zeros_(self.net[-1].bias)
        self.max_action = max_action

    def forward(self, obs):
        return self.max_action * torch.tanh(self.net(obs))

    def get_action(self, obs):
        return self(obs)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.hstack([obs, action]))


class OffPolicyAlgorithm:
    """Wide noise early covers the space, narrow noise late refines what works.

    The same schedule shrinks the smoothing of the target policy, in proportion: smoothing is there
    to hide the critic's sharp peaks, which become fewer as the data becomes denser.
    """

    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args = args
        self.device = device
        self.max_action = max_action
        acting_steps = args.total_timesteps - args.learning_starts
        # the last tenth of the run is spent at the final level
        self.noise = CosineSchedule(0.3, 0.05, horizon=max(1, int(0.9 * acting_steps)))
        self.smoothing = CosineSchedule(0.25, 0.15, horizon=self.noise.horizon)
        self.steps = 0
        self.updates = 0

        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.actor_t = copy.deepcopy(self.actor)
        self.q1 = QNetwork(obs_dim, action_dim).to(device)
        self.q2 = QNetwork(obs_dim, action_dim).to(device)
        self.q1_t, self.q2_t = map(copy.deepcopy, [self.q1, self.q2])
        self.opt_a = adam(self.actor.parameters(), args.learning_rate)
        self.opt_c = adam([*self.q1.parameters(), *self.q2.parameters()], args.learning_rate)

    def select_action(self, obs):
        sigma = self.noise(self.steps)
        self.steps += 1
        with acting():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            mean = self.actor(obs[None, :])[0].cpu().numpy()
        action = np.random.normal(mean, sigma * self.max_action)
        return np.clip(action, -self.max_action, self.max_action)

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.updates += 1
        sigma = self.smoothing(self.steps)

        with torch.no_grad():
            noise = torch.clamp(torch.randn_like(actions) * sigma, -2.5 * sigma, 2.5 * sigma)
            next_actions = self.actor_t(next_obs) + noise * self.max_action
            next_actions = next_actions.clamp(-self.max_action, self.max_action)
            q_next = torch.min(self.q1_t(next_obs, next_actions), self.q2_t(next_obs, next_actions))
            target = rewards + (1 - dones) * self.args.gamma * q_next.ravel()

        q1, q2 = self.q1(obs, actions).ravel(), self.q2(obs, actions).ravel()
        loss = F.huber_loss(q1, target) + F.huber_loss(q2, target)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()

        if self.updates % self.args.policy_frequency == 0:
            objective = self.q1(obs, self.actor(obs)).mean()
            self.opt_a.zero_grad()
            (-objective).backward()
            self.opt_a.step()
            for slow, fast in (
                (self.actor_t, self.actor),
                (self.q1_t, self.q1),
                (self.q2_t, self.q2),
            ):
                soft_update(slow, fast, self.args.tau)

        return {"critic_loss": loss.item(), "noise": self.noise(self.steps), "smoothing": sigma}
