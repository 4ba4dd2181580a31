"""SAC whose policy is a TransformedDistribution: Normal -> tanh -> scale. No formula by hand."""

from torch import distributions as pyd
from torch import nn
from torch.distributions.transforms import AffineTransform, ComposeTransform, TanhTransform


class SquashedNormal(pyd.TransformedDistribution):
    """tanh(Normal) * scale. With BOTH caches log_prob(rsample()) is exact: no atanh(1) is taken."""

    def __init__(self, loc, std, scale):
        self.loc, self.std = loc, std
        parts = [TanhTransform(cache_size=1), AffineTransform(0.0, scale, cache_size=1)]
        super().__init__(pyd.Normal(loc, std), [ComposeTransform(parts)], validate_args=False)

    @property
    def mode(self):  # of the Gaussian, pushed through
        value = self.loc
        for transform in self.transforms:
            value = transform(value)
        return value

    def entropy(self):
        sample = self.rsample()
        return -self.log_prob(sample).sum(-1)


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.orthogonal_(module.weight.data)
        if hasattr(module.bias, "data"):
            module.bias.data.fill_(0.0)


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action, log_std_bounds=(-5, 2)):
        super().__init__()
        self.log_std_bounds = log_std_bounds
        self.max_action = max_action
        self.trunk = _mlp_factory(obs_dim, 2 * action_dim)
        self.apply(init_weights)

    def forward(self, obs):
        mu, log_std = self.trunk(obs).chunk(2, dim=-1)
        low, high = self.log_std_bounds
        log_std = low + 0.5 * (high - low) * (torch.tanh(log_std) + 1)
        return SquashedNormal(mu, log_std.exp(), self.max_action)

    def get_action(self, obs):
        return self.forward(obs).mode


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.trunk = _mlp_factory(obs_dim + action_dim, 1)
        self.apply(init_weights)

    def forward(self, obs, action):
        assert obs.size(0) == action.size(0)
        return self.trunk(torch.cat([obs, action], dim=-1))


class DoubleQ(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.Q1, self.Q2 = QNetwork(*shape), QNetwork(*shape)

    def forward(self, obs, action):
        return self.Q1(obs, action), self.Q2(obs, action)


class eval_mode(object):
    """with eval_mode(a, b): both in eval mode inside, as they were before outside."""

    def __init__(self, *models):
        self.models = models

    def __enter__(self):
        self.prev_states = []
        for model in self.models:
            self.prev_states.append(model.training)
            model.train(False)

    def __exit__(self, *args):
        for model, state in zip(self.models, self.prev_states):
            model.train(state)
        return False


class OffPolicyAlgorithm(object):
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.device, self.discount, self.critic_tau = device, args.gamma, args.tau
        self.actor_update_frequency = args.policy_frequency
        self.critic = DoubleQ(obs_dim, action_dim).to(device)
        self.critic_target = DoubleQ(obs_dim, action_dim).to(device)
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.log_alpha = torch.tensor(np.log(0.1), dtype=torch.float32, device=device)
        self.log_alpha.requires_grad = True
        self.target_entropy = -action_dim
        betas = [0.9, 0.999]
        self.actor_optimizer = torch.optim.Adam(
            self.actor.parameters(), lr=args.learning_rate, betas=betas
        )
        self.critic_optimizer = torch.optim.Adam(
            self.critic.parameters(), lr=args.learning_rate, betas=betas
        )
        self.log_alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=1e-4, betas=betas)
        self.step = 0
        self.actor.train()
        self.critic.train()

    @property
    def alpha(self):
        return self.log_alpha.exp()

    def select_action(self, obs):
        with torch.no_grad(), eval_mode(self.actor):
            obs = torch.as_tensor(obs, device=self.device).float().unsqueeze(0)
            action = self.actor(obs).sample()
        assert action.ndim == 2 and action.shape[0] == 1
        return action[0].cpu().numpy()

    def update_critic(self, obs, next_obs, action, reward, not_done):
        with torch.no_grad():
            dist = self.actor(next_obs)
            next_action = dist.rsample()
            log_prob = dist.log_prob(next_action).sum(-1, keepdim=True)
            target_Q1, target_Q2 = self.critic_target(next_obs, next_action)
            target_V = torch.min(target_Q1, target_Q2) - self.alpha.detach() * log_prob
            target_Q = reward + (not_done * self.discount * target_V)
        current_Q1, current_Q2 = self.critic(obs, action)
        critic_loss = F.mse_loss(current_Q1, target_Q) + F.mse_loss(current_Q2, target_Q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        return {"train_critic/loss": critic_loss.item()}

    def update_actor_and_alpha(self, obs):
        dist = self.actor(obs)
        action = dist.rsample()
        log_prob = dist.log_prob(action).sum(-1, keepdim=True)
        actor_loss = (self.alpha.detach() * log_prob - torch.min(*self.critic(obs, action))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        alpha_loss = (self.alpha * (-log_prob - self.target_entropy).detach()).mean()
        self.log_alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.log_alpha_optimizer.step()
        return {"train_actor/loss": actor_loss.item(), "train_alpha/value": self.alpha.item()}

    def update(self, batch):
        obs, next_obs, action, reward, done = batch
        self.step += 1
        logs = self.update_critic(obs, next_obs, action, reward[:, None], 1 - done[:, None])
        if self.step % self.actor_update_frequency == 0:
            for _ in range(self.actor_update_frequency):
                logs.update(self.update_actor_and_alpha(obs))
        soft_update(self.critic_target, self.critic, self.critic_tau)
        with torch.no_grad():
            logs["train_actor/entropy"] = self.actor(obs).entropy().mean().item()
        return logs
