# Advantage-weighted actor-critic: the policy imitates the replay buffer, good actions first.
#
# No gradient of Q with respect to the action is ever taken. The actor maximises
#     E_(s,a)~buffer [ exp(A(s, a) / lambda) * log pi(a | s) ],   A = Q(s, a) - V(s),
# V(s) being the mean of Q over a few actions of the policy. The weights are normalised within the
# batch and lambda follows the spread of the advantages, so that no environment needs its own.

from torch.distributions import Independent, Normal

LAMBDA = 1.0
MAX_WEIGHT = 20.0
VALUE_SAMPLES = 4


class Actor(nn.Module):
    """A Gaussian around tanh(net(s)), with a standard deviation that no state changes."""

    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.mean_net = _mlp_factory(obs_dim, action_dim)
        self.log_std = nn.Parameter(torch.full((action_dim,), -0.7))
        self.max_action = max_action

    def forward(self, obs):
        mean = torch.tanh(self.mean_net(obs)) * self.max_action
        std = self.log_std.clamp(-3.0, 0.0).exp() * self.max_action
        return Independent(Normal(mean, std.expand_as(mean)), 1)

    def get_action(self, obs):
        return self(obs).mean


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=-1)).squeeze(-1)


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.device, self.args, self.max_action = device, args, max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.q1 = QNetwork(obs_dim, action_dim).to(device)
        self.q2 = QNetwork(obs_dim, action_dim).to(device)
        self.q1_target = copy.deepcopy(self.q1)
        self.q2_target = copy.deepcopy(self.q2)
        self.actor_opt = optim.Adam(self.actor.parameters(), lr=args.learning_rate)
        self.q_opt = optim.Adam(
            list(self.q1.parameters()) + list(self.q2.parameters()), lr=args.learning_rate
        )

    def bounded(self, actions):
        return actions.clamp(-self.max_action, self.max_action)

    def select_action(self, obs):
        with torch.no_grad():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            return self.bounded(self.actor(obs).sample()).cpu().numpy()

    @torch.no_grad()
    def advantage(self, obs, actions, policy):
        samples = self.bounded(policy.sample((VALUE_SAMPLES,)))
        repeated = obs.expand(VALUE_SAMPLES, *obs.shape)
        v = torch.min(self.q1(repeated, samples), self.q2(repeated, samples)).mean(dim=0)
        return torch.min(self.q1(obs, actions), self.q2(obs, actions)) - v

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch

        with torch.no_grad():
            next_actions = self.bounded(self.actor(next_obs).sample())
            next_q = torch.min(
                self.q1_target(next_obs, next_actions), self.q2_target(next_obs, next_actions)
            )
            y = rewards + self.args.gamma * (1.0 - dones) * next_q
        q_loss = F.smooth_l1_loss(self.q1(obs, actions), y)
        q_loss += F.smooth_l1_loss(self.q2(obs, actions), y)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()

        policy = self.actor(obs)
        adv = self.advantage(obs, actions, policy)
        temperature = LAMBDA * (adv.std() + 1e-6)
        weights = torch.exp((adv - adv.mean()) / temperature).clamp(max=MAX_WEIGHT)
        weights = weights / weights.mean()
        actor_loss = -(weights * policy.log_prob(actions)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        soft_update(self.q1_target, self.q1, self.args.tau)
        soft_update(self.q2_target, self.q2, self.args.tau)
        effective = weights.sum() ** 2 / (weights**2).sum() / len(weights)
        return {
            "q_loss": q_loss.item(),
            "actor_loss": actor_loss.item(),
            "advantage_std": adv.std().item(),
            "effective_share": effective.item(),
            "policy_std": self.actor.log_std.exp().mean().item(),
        }
