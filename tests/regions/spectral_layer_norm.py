"""DDPG with one regularised critic: spectral and layer normalisation instead of a second critic.

Layer norm bounds how far Q can grow away from the data; the spectral norm of the layer before last
bounds how steep it is. Both act on the cause of overestimation, where the minimum of two critics
acts on the symptom.
"""

from torch.nn.utils.parametrizations import spectral_norm


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(obs_dim, 256),
            nn.LayerNorm(256),
            nn.ELU(),
            nn.Linear(256, 256),
            nn.ELU(),
            nn.Linear(256, action_dim),
        )
        self.register_buffer("scale", torch.as_tensor(max_action, dtype=torch.float32))

    def forward(self, obs):
        return self.scale * self.layers(obs).tanh()

    get_action = forward


class QNetwork(nn.Module):
    WIDTH = 320

    def __init__(self, obs_dim, action_dim):
        super().__init__()
        w = self.WIDTH
        self.embed = nn.Sequential(nn.Linear(obs_dim + action_dim, w), nn.LayerNorm(w), nn.Tanh())
        self.hidden = spectral_norm(nn.Linear(w, w), n_power_iterations=1)
        self.head = nn.Linear(w, 1)

    def forward(self, obs, action):
        h = self.embed(torch.cat((obs, action), -1))
        h = h + F.elu(self.hidden(h))
        return self.head(h)

    @property
    def lipschitz(self):
        """Of the hidden layer; about 1 after a few power iterations."""
        return torch.linalg.matrix_norm(self.hidden.weight.detach(), ord=2)


class OffPolicyAlgorithm:
    REPORT = 100  # updates between two singular value decompositions

    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args, self.device, self.bound = args, device, max_action
        make = (Actor(obs_dim, action_dim, max_action), QNetwork(obs_dim, action_dim))
        self.actor, self.critic = (net.to(device) for net in make)
        self.target = {"actor": copy.deepcopy(self.actor), "critic": copy.deepcopy(self.critic)}
        for net in self.target.values():
            net.requires_grad_(False).eval()  # no power iterations of its own
        self.optimizers = [
            optim.Adam(net.parameters(), lr=args.learning_rate, eps=1e-5)
            for net in (self.actor, self.critic)
        ]
        self.count = 0
        self.steepness = 1.0

    def select_action(self, obs):
        with torch.inference_mode():
            x = torch.from_numpy(obs).to(self.device)
            action = self.actor(x.unsqueeze(0)).squeeze(0).cpu().numpy()
        noise = np.random.randn(*action.shape) * self.args.exploration_noise
        return np.clip(action + self.bound * noise, -self.bound, self.bound)

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.count += 1
        actor_optimizer, critic_optimizer = self.optimizers
        with torch.no_grad():
            noise = torch.empty_like(actions).normal_(0, 0.2).clamp_(-0.5, 0.5) * self.bound
            next_actions = (self.target["actor"](next_obs) + noise).clamp_(-self.bound, self.bound)
            bootstrap = self.target["critic"](next_obs, next_actions)[:, 0]
            target = torch.addcmul(rewards, 1 - dones, bootstrap, value=self.args.gamma)

        predicted = self.critic(obs, actions)[:, 0]
        critic_loss = F.mse_loss(predicted, target)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

        actor_loss = -self.critic(obs, self.actor(obs)).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward(inputs=list(self.actor.parameters()))
        actor_optimizer.step()

        self.synchronise()
        if self.count % self.REPORT == 1:
            self.steepness = self.critic.lipschitz
        return {
            "critic_loss": critic_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "td_error": (predicted.detach() - target).abs().mean(),
            "hidden_lipschitz": self.steepness,
        }

    def synchronise(self):
        for name, online in {"actor": self.actor, "critic": self.critic}.items():
            soft_update(self.target[name], online, self.args.tau)
            # the power iteration's vectors are buffers: taken over as they are
            for slow, fast in zip(self.target[name].buffers(), online.buffers(), strict=True):
                slow.copy_(fast)
