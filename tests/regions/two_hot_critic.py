"""Classification in place of regression: critics over two-hot bins of symlog returns, and TD3 above.

Cross-entropy on a fixed set of bins has gradients of one size whatever the rewards are; symlog
squeezes returns of 10 and of 10,000 into the same bins. ⚠️ The target is computed on the scale of
the rewards, between two conversions: symlog is not linear, and a backup inside it would be biased.
"""

from collections import namedtuple

Batch = namedtuple("Batch", "obs next_obs actions rewards dones")
BINS = namedtuple("Bins", ["low", "high", "count"])(low=-12.0, high=12.0, count=97)


@torch.jit.script
def symlog(x: torch.Tensor) -> torch.Tensor:
    return torch.sign(x) * torch.log1p(torch.abs(x))


@torch.jit.script
def symexp(x: torch.Tensor) -> torch.Tensor:
    return torch.sign(x) * torch.expm1(torch.abs(x))


class TwoHot(nn.Module):
    """Between scalars (B,) and distributions over bins (B, count)."""

    def __init__(self):
        super().__init__()
        centres = torch.linspace(BINS.low, BINS.high, BINS.count)
        self.register_buffer("centres", centres, persistent=False)

    def encode(self, x):
        x = symlog(x).clamp(BINS.low, BINS.high)
        position = (x - BINS.low) / (BINS.high - BINS.low) * (BINS.count - 1)
        left = position.floor().clamp(max=BINS.count - 2)
        share = (position - left).unsqueeze(-1)
        index = left.long().unsqueeze(-1)
        target = torch.zeros(*x.shape, BINS.count, device=x.device)
        target.scatter_(-1, index, 1 - share)
        return target.scatter_(-1, index + 1, share)

    def decode(self, logits):
        return symexp((logits.softmax(-1) * self.centres).sum(-1))


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, 256), nn.LayerNorm(256), nn.Mish())
        self.decoder = nn.Sequential(nn.Linear(256, 256), nn.Mish(), nn.Linear(256, action_dim))
        self.max_action = max_action
        with torch.no_grad():  # LayerNorm makes large outputs from the start, and tanh saturates
            self.decoder[-1].weight.mul_(0.01)

    def forward(self, obs):
        return torch.tanh(self.decoder(self.encoder(obs))) * self.max_action

    def get_action(self, obs):
        return self.forward(symlog(obs))


class QNetwork(nn.Module):
    """Logits (B, count); `value` gives (B, 1)."""

    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, BINS.count, hidden=192)
        self.two_hot = TwoHot()
        # all bins alike at first: the value 0
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=-1))

    def value(self, obs, action):
        return self.two_hot.decode(self(obs, action)).unsqueeze(-1)

    def loss(self, batch, target):
        return F.cross_entropy(self(batch.obs, batch.actions), self.two_hot.encode(target))


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args, self.device, self.max_action = args, device, max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.critics = [QNetwork(obs_dim, action_dim).to(device) for _ in range(2)]
        self.actor_target, self.critics_target = copy.deepcopy((self.actor, self.critics))
        self.actor_optimizer = adam(self.actor.parameters(), lr=args.learning_rate)
        self.critic_optimizers = [
            adam(critic.parameters(), lr=args.learning_rate) for critic in self.critics
        ]
        self.rng = np.random.Generator(np.random.PCG64(args.seed))
        self.updates = 0
        self.started = time.perf_counter()

    def select_action(self, obs):
        with acting():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            action = self.actor.get_action(obs[None])[0].cpu().numpy()
        noise = self.rng.normal(scale=self.args.exploration_noise, size=action.shape)
        return np.clip(action + noise * self.max_action, -self.max_action, self.max_action)

    def update(self, batch):
        batch = Batch(*batch)
        batch = batch._replace(obs=symlog(batch.obs), next_obs=symlog(batch.next_obs))
        self.updates += 1
        with torch.no_grad():
            noise = (torch.randn_like(batch.actions) * 0.2).clamp(-0.5, 0.5)
            next_actions = self.actor_target(batch.next_obs) + noise * self.max_action
            next_actions = next_actions.clamp(-self.max_action, self.max_action)
            values = [c.value(batch.next_obs, next_actions) for c in self.critics_target]
            bootstrap = torch.cat(values, dim=1).min(dim=1)[0]
            target = batch.rewards + self.args.gamma * (1 - batch.dones) * bootstrap

        losses = []
        for critic, optimizer in zip(self.critics, self.critic_optimizers):
            loss = critic.loss(batch, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        metrics = {
            "cross_entropy": np.mean(losses),
            "target": target.mean(),
            "clipped_share": (symlog(target).abs() >= BINS.high).float().mean(),
            "updates_per_second": self.updates / (time.perf_counter() - self.started),
        }
        if self.updates % self.args.policy_frequency == 0:
            q = self.critics[0].value(batch.obs, self.actor(batch.obs))
            actor_loss = -symlog(q).mean()  # gradients of one size here as well
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            soft_update(self.actor_target, self.actor, self.args.tau)
            for online, slow in zip(self.critics, self.critics_target):
                soft_update(slow, online, self.args.tau)
            metrics["actor_loss"] = actor_loss.detach()
        return metrics
