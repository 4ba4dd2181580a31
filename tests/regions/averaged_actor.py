"""TD3 that acts by an average of its actor: what is exported is the averaged module, not the learner.

The average doubles as the target policy, so the whole holds two actors and four critics, like TD3.
"""
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, action_dim)
        self.max_action = max_action

    def forward(self, obs):
        return torch.tanh(self.net(obs)) * self.max_action

    def get_action(self, obs):
        return self(obs)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=1))


class TwinQ(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.a = QNetwork(obs_dim, action_dim)
        self.b = QNetwork(obs_dim, action_dim)

    def forward(self, obs, action):
        return self.a(obs, action), self.b(obs, action)


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args = args
        self.device = device
        self.max_action = max_action
        self.learner = Actor(obs_dim, action_dim, max_action).to(device)
        self._average = AveragedModel(
            self.learner, multi_avg_fn=get_ema_multi_avg_fn(1 - args.tau)
        )
        self.twin = TwinQ(obs_dim, action_dim).to(device)
        self._twin_average = AveragedModel(
            self.twin, multi_avg_fn=get_ema_multi_avg_fn(1 - args.tau)
        )
        # AveragedModel takes its first update as a copy: made here, before anything was learnt.
        self._average.update_parameters(self.learner)
        self._twin_average.update_parameters(self.twin)
        lr = args.learning_rate
        self.learner_optimizer = optim.Adam(self.learner.parameters(), lr=lr)
        self.twin_optimizer = optim.Adam(self.twin.parameters(), lr=lr)
        self.updates = 0

    @property
    def actor(self):
        """The scaffold exports this one."""
        return self._average.module

    def select_action(self, obs):
        """Exploration follows the average as well: it changes slowly, so that episodes cohere."""
        with acting():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            action = self.actor(obs.unsqueeze(0))[0].cpu().numpy()
        sigma = self.args.exploration_noise * self.max_action
        return np.clip(
            action + np.random.normal(0.0, sigma, action.shape), -self.max_action, self.max_action
        )

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.updates += 1
        with torch.no_grad():
            noise = torch.randn_like(actions).mul_(0.2).clamp_(-0.5, 0.5).mul_(self.max_action)
            next_actions = self._average(next_obs).add(noise)
            next_actions.clamp_(-self.max_action, self.max_action)
            next_q = torch.min(*self._twin_average(next_obs, next_actions)).squeeze(1)
            target = rewards + (1 - dones) * self.args.gamma * next_q

        losses = [F.mse_loss(q.squeeze(1), target) for q in self.twin(obs, actions)]
        self.twin_optimizer.zero_grad()
        sum(losses).backward()
        self.twin_optimizer.step()
        metrics = {f"q_loss_{i}": loss.item() for i, loss in enumerate(losses)}

        if self.updates % self.args.policy_frequency == 0:
            loss = -self.twin.a(obs, self.learner(obs)).mean()
            self.learner_optimizer.zero_grad()
            loss.backward()
            self.learner_optimizer.step()
            self._average.update_parameters(self.learner)
            self._twin_average.update_parameters(self.twin)
            metrics["actor_loss"] = loss.item()
            with torch.no_grad():
                pairs = zip(self.learner.parameters(), self.actor.parameters())
                metrics["lag"] = sum((p - q).norm().item() for p, q in pairs)
        return metrics
