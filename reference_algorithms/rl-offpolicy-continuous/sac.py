LOG_STD_MIN, LOG_STD_MAX = -5, 2


class Actor(nn.Module):
    """A Gaussian over the state, squashed by tanh and scaled to the action bound."""

    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, 2 * action_dim)
        self.max_action = max_action

    def forward(self, obs):
        """The Gaussian's mean and standard deviation, before the squashing: (B, A) each."""
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(log_std) + 1)
        return mean, log_std.exp()

    def sample(self, obs):
        """Actions (B, A), differentiable in the network, and their log-densities (B,)."""
        mean, std = self(obs)
        noise = torch.randn_like(mean)
        squashed = torch.tanh(mean + std * noise)
        # The Gaussian's log-density, less the logarithm of how much the squashing stretches there.
        log_density = -0.5 * noise**2 - std.log() - 0.5 * math.log(2 * math.pi)
        stretch = torch.log(self.max_action * (1 - squashed**2) + 1e-6)
        return squashed * self.max_action, (log_density - stretch).sum(dim=-1)

    def get_action(self, obs):
        """An evaluation acts without noise."""
        mean, _ = self(obs)
        return torch.tanh(mean) * self.max_action


class QNetwork(nn.Module):
    """Q(s, a): two hidden layers over the state and the action side by side."""

    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=1))


class OffPolicyAlgorithm:
    """SAC with a learned temperature (Haarnoja et al. 2018, arXiv 1812.05905), as in CleanRL.

    Two differences to CleanRL's script: the task's learning rate, 3e-4, for every network and the
    temperature, where the script gives the critics and the temperature 1e-3; and a temperature that
    learns from the actions of the actor's own step, where the script draws others after it.
    """

    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args = args
        self.device = device
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.qf1 = QNetwork(obs_dim, action_dim).to(device)
        self.qf2 = QNetwork(obs_dim, action_dim).to(device)
        self.qf1_target = copy.deepcopy(self.qf1)
        self.qf2_target = copy.deepcopy(self.qf2)
        self.log_alpha = torch.zeros(1, requires_grad=True, device=device)  # log of the temperature
        self.target_entropy = -action_dim
        critics = [*self.qf1.parameters(), *self.qf2.parameters()]
        self.q_optimizer = adam(critics, lr=args.learning_rate)
        self.actor_optimizer = adam(self.actor.parameters(), lr=args.learning_rate)
        self.alpha_optimizer = adam([self.log_alpha], lr=args.learning_rate)
        self.updates = 0

    def select_action(self, obs):
        with acting():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            action, _ = self.actor.sample(obs.unsqueeze(0))
            return action[0].cpu().numpy()

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.updates += 1
        alpha = self.log_alpha.detach().exp()

        with torch.no_grad():
            next_actions, next_log_prob = self.actor.sample(next_obs)
            next_q = torch.min(
                self.qf1_target(next_obs, next_actions), self.qf2_target(next_obs, next_actions)
            ).view(-1)
            soft_value = next_q - alpha * next_log_prob
            target = rewards + (1 - dones) * self.args.gamma * soft_value

        q1 = self.qf1(obs, actions).view(-1)
        q2 = self.qf2(obs, actions).view(-1)
        q_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()
        metrics = {"q_loss": q_loss.detach(), "q1": q1.detach().mean(), "alpha": alpha}

        if self.updates % self.args.policy_frequency == 0:
            for _ in range(self.args.policy_frequency):  # as often as the critics, in fewer turns
                metrics |= self.update_actor(obs)

        soft_update(self.qf1_target, self.qf1, self.args.tau)
        soft_update(self.qf2_target, self.qf2, self.args.tau)
        return metrics

    def update_actor(self, obs):
        actions, log_prob = self.actor.sample(obs)
        q = torch.min(self.qf1(obs, actions), self.qf2(obs, actions)).view(-1)
        actor_loss = (self.log_alpha.detach().exp() * log_prob - q).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward(inputs=list(self.actor.parameters()))  # none for the critics
        self.actor_optimizer.step()

        gap = log_prob.detach() + self.target_entropy
        alpha_loss = -(self.log_alpha.exp() * gap).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        return {"actor_loss": actor_loss.detach(), "entropy": -log_prob.detach().mean()}
