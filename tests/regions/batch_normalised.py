"""CrossQ-like SAC: batch norm in wide critics and in the actor, and no target networks at all.

Both halves of the Bellman equation, (s, a) and (s', a'), go through a critic as ONE batch, so that
one set of statistics normalises both. The statistics at acting time are the running ones: the actor
is in eval mode always but in its own update, and it is exported so.
"""

from contextlib import contextmanager


@contextmanager
def training(*modules):
    """Batch statistics inside, running statistics outside."""
    for module in modules:
        module.train()
    try:
        yield
    finally:
        for module in modules:
            module.eval()


def mlp(sizes, momentum=0.01):
    layers = [nn.BatchNorm1d(sizes[0], momentum=momentum)]
    for i, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(n_in, n_out))
        if i < len(sizes) - 2:
            layers += [nn.ReLU(), nn.BatchNorm1d(n_out, momentum=momentum)]
    return nn.Sequential(*layers)


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = mlp([obs_dim, 256, 256, 2 * action_dim])
        self.max_action = max_action

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        return mean, torch.clamp(log_std, -5, 2)

    def sample(self, obs):
        mean, log_std = self.forward(obs)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x = normal.rsample()
        action = torch.tanh(x)
        log_prob = normal.log_prob(x) - torch.log(self.max_action * (1 - action.pow(2)) + 1e-6)
        return action * self.max_action, log_prob.sum(-1, keepdim=True)

    def get_action(self, obs):
        mean, _ = self.forward(obs)
        return torch.tanh(mean) * self.max_action


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim, hidden=320):
        super().__init__()
        self.net = mlp([obs_dim + action_dim, hidden, hidden, 1])

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=-1))


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args, self.device = args, device
        self.actor = Actor(obs_dim, action_dim, max_action).to(device).eval()
        self.critics = [QNetwork(obs_dim, action_dim).to(device).eval() for _ in range(2)]
        betas = (0.5, 0.999)  # less momentum, since nothing else slows the target down
        self.q_optim = optim.Adam(
            [p for q in self.critics for p in q.parameters()], lr=args.learning_rate, betas=betas
        )
        self.pi_optim = optim.Adam(self.actor.parameters(), lr=args.learning_rate, betas=betas)
        self.log_alpha = torch.full((1,), math.log(0.1), device=device, requires_grad=True)
        self.alpha_optim = optim.Adam([self.log_alpha], lr=args.learning_rate, betas=betas)
        self.target_entropy = -float(action_dim)
        self.n = 0

    def select_action(self, obs):
        # a single observation has no batch statistics: eval mode is not optional here
        assert not self.actor.training
        with torch.no_grad():
            action, _ = self.actor.sample(torch.as_tensor(obs, device=self.device).view(1, -1))
        return action.view(-1).cpu().numpy()

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        rewards, not_dones = rewards.unsqueeze(-1), 1 - dones.unsqueeze(-1)
        self.n += 1
        alpha = self.log_alpha.detach().exp()

        with torch.no_grad():
            next_actions, next_log_prob = self.actor.sample(next_obs)
        both_obs = torch.cat([obs, next_obs])
        both_actions = torch.cat([actions, next_actions])
        with training(*self.critics):
            halves = [q(both_obs, both_actions).chunk(2) for q in self.critics]
        current, following = zip(*halves)
        with torch.no_grad():
            next_value = torch.min(*following) - alpha * next_log_prob
            target = rewards + not_dones * self.args.gamma * next_value
        q_loss = sum(F.mse_loss(q, target) for q in current)
        self.q_optim.zero_grad()
        q_loss.backward()
        self.q_optim.step()
        metrics = {"q_loss": q_loss.item(), "q": current[0].mean().item(), "alpha": alpha.item()}

        if self.n % self.args.policy_frequency == 0:
            with training(self.actor):
                new_actions, log_prob = self.actor.sample(obs)
            value = torch.min(*(q(obs, new_actions) for q in self.critics))
            pi_loss = (alpha * log_prob - value).mean()
            self.pi_optim.zero_grad()
            pi_loss.backward()
            self.pi_optim.step()

            alpha_loss = -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean()
            self.alpha_optim.zero_grad()
            alpha_loss.backward()
            self.alpha_optim.step()
            metrics |= {"pi_loss": pi_loss.item(), "entropy": -log_prob.mean().item()}
        return metrics
