"""Dueling critics for continuous actions: Q(s, a) = V(s) + A(s, a) - A(s, pi(s)).

With a finite set of actions the advantage is centred by its mean over the set. Here it is centred
at the policy's own action, which makes V the value of the policy and lets it learn without the
noise of the actions in the batch. The centre comes from the target policy, without a gradient.
"""


class Actor(nn.Module):
    """
    Args:
        obs_dim (int): size of an observation.
        action_dim (int): size of an action.
        max_action (float): bound.
    """

    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.policy = nn.Sequential(
            nn.Linear(obs_dim, 256),
            nn.SiLU(inplace=True),
            nn.Linear(256, 256),
            nn.SiLU(inplace=True),
            nn.Linear(256, action_dim),
            nn.Tanh(),
        )
        self.max_action = max_action

    def forward(self, obs):
        return self.policy(obs) * self.max_action

    def get_action(self, obs):
        return self(obs)


class QNetwork(nn.Module):
    """Two streams over one embedding of the state; `centre` is where the advantage is zero."""

    def __init__(self, obs_dim, action_dim, width=176):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.advantage = nn.Sequential(
            nn.Linear(width + action_dim, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, obs, action, centre=None):
        h = self.embed(obs)
        # one pass for both actions
        actions = torch.stack([action, action if centre is None else centre])
        a, at_centre = self.advantage(torch.cat([h.expand(2, -1, -1), actions], dim=-1))
        if centre is None:  # uncentred: ranks actions, which is all that a policy needs
            return self.value(h) + a
        return self.value(h) + a - at_centre


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args = args
        self.device = device
        self.max_action = max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.critic_1 = QNetwork(obs_dim, action_dim).to(device)
        self.critic_2 = QNetwork(obs_dim, action_dim).to(device)
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_1_target = copy.deepcopy(self.critic_1)
        self.critic_2_target = copy.deepcopy(self.critic_2)
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=args.learning_rate)
        self.critic_optimizer = optim.Adam(
            [
                {"params": self.critic_1.parameters()},
                {"params": self.critic_2.parameters()},
            ],
            lr=args.learning_rate,
        )
        self._n_updates = 0

    def select_action(self, obs):
        obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device).unsqueeze(0)
        with torch.no_grad():
            action = self.actor(obs).cpu().numpy().squeeze(axis=0)
        scale = self.args.exploration_noise * self.max_action
        action = action + np.random.normal(loc=0.0, scale=scale, size=action.shape)
        return action.clip(-self.max_action, self.max_action)

    def update(self, batch):
        self._n_updates += 1
        obs, next_obs, actions, rewards, dones = batch
        rewards, dones = rewards.unsqueeze(1), dones.unsqueeze(1)

        with torch.no_grad():
            centre = self.actor_target(obs)
            next_centre = self.actor_target(next_obs)
            noise = actions.clone().normal_(0, 0.2).clamp(-0.5, 0.5) * self.max_action
            next_actions = (next_centre + noise).clamp(-self.max_action, self.max_action)
            next_q = torch.min(
                self.critic_1_target(next_obs, next_actions, next_centre),
                self.critic_2_target(next_obs, next_actions, next_centre),
            )
            target_q = rewards + (1 - dones) * self.args.gamma * next_q

        current_q = [
            critic(obs, actions, centre) for critic in (self.critic_1, self.critic_2)
        ]
        critic_loss = sum(F.mse_loss(q, target_q) for q in current_q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        logs = {"train/critic_loss": critic_loss.item()}
        if self._n_updates % self.args.policy_frequency == 0:
            pi = self.actor(obs)
            actor_loss = -self.critic_1(obs, pi).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            for source, target in [
                (self.critic_1, self.critic_1_target),
                (self.critic_2, self.critic_2_target),
                (self.actor, self.actor_target),
            ]:
                soft_update(target, source, self.args.tau)
            logs["train/actor_loss"] = actor_loss.item()
        return logs
