class Actor(nn.Module):
    """Deterministic policy: two hidden layers, tanh, scaled to the action bound."""

    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, action_dim)
        self.max_action = max_action

    def forward(self, obs):
        return torch.tanh(self.net(obs)) * self.max_action

    def get_action(self, obs):
        return self(obs)


class QNetwork(nn.Module):
    """Q(s, a): two hidden layers over the state and the action side by side."""

    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=1))


class OffPolicyAlgorithm:
    """DDPG (Lillicrap et al. 2016, arXiv 1509.02971), with the hyperparameters of CleanRL's script.

    Against the paper: Gaussian exploration instead of an Ornstein-Uhlenbeck process, no layer
    normalisation, and an actor and target networks that move once in `policy_frequency` updates.
    """

    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args = args
        self.device = device
        self.max_action = max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.qf = QNetwork(obs_dim, action_dim).to(device)
        self.target_actor = copy.deepcopy(self.actor)
        self.qf_target = copy.deepcopy(self.qf)
        self.q_optimizer = adam(self.qf.parameters(), lr=args.learning_rate)
        self.actor_optimizer = adam(self.actor.parameters(), lr=args.learning_rate)
        self.updates = 0

    def select_action(self, obs):
        with acting():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            action = self.actor(obs.unsqueeze(0))[0].cpu().numpy()
        noise = np.random.normal(0, self.args.exploration_noise * self.max_action, action.shape)
        return np.clip(action + noise, -self.max_action, self.max_action)

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.updates += 1

        with torch.no_grad():
            next_q = self.qf_target(next_obs, self.target_actor(next_obs)).view(-1)
            target = rewards + (1 - dones) * self.args.gamma * next_q

        q = self.qf(obs, actions).view(-1)
        q_loss = F.mse_loss(q, target)
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()
        metrics = {"q_loss": q_loss.detach(), "q": q.detach().mean()}

        if self.updates % self.args.policy_frequency == 0:
            actor_loss = -self.qf(obs, self.actor(obs)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward(inputs=list(self.actor.parameters()))  # none for the critic
            self.actor_optimizer.step()
            soft_update(self.target_actor, self.actor, self.args.tau)
            soft_update(self.qf_target, self.qf, self.args.tau)
            metrics["actor_loss"] = actor_loss.detach()
        return metrics
