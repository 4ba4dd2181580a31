# REDQ-like: five small critics in one vmap call; the target is the minimum of two drawn at random.
#
# The ensemble is never a list of modules at run time: `stack_module_state` turns the five into one
# dict of tensors with a leading axis, and a skeleton on the meta device lends its forward pass.

from functools import partial

from torch.func import functional_call, stack_module_state

ENSEMBLE, SUBSET, HIDDEN = 5, 2, 128
EPS = 1e-6


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, 2 * action_dim)
        self.max_action = max_action

    def _moments(self, obs):
        mean, raw = self.net(obs).chunk(2, dim=-1)
        return mean, raw.clamp(-5.0, 2.0).exp()

    def rsample(self, obs):
        mean, std = self._moments(obs)
        dist = torch.distributions.Independent(torch.distributions.Normal(mean, std), 1)
        u = dist.rsample()
        a = u.tanh()
        jacobian = (self.max_action * (1 - a.pow(2)) + EPS).log().sum(-1)
        return a * self.max_action, dist.log_prob(u) - jacobian

    def get_action(self, obs):
        return self._moments(obs)[0].tanh() * self.max_action


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1, hidden=HIDDEN)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=-1))


class Ensemble:
    """Stacked critics: `ensemble(parameters, obs, action)` is (ENSEMBLE, B)."""

    def __init__(self, make, count, device):
        members = [make().to(device) for _ in range(count)]
        self.skeleton = copy.deepcopy(members[0]).to("meta")
        self.parameters, self.buffers = stack_module_state(members)
        self.targets = {k: v.detach().clone() for k, v in self.parameters.items()}
        self._batched = torch.vmap(self._single, in_dims=(0, 0, None, None))

    def _single(self, parameters, buffers, obs, action):
        return functional_call(self.skeleton, (parameters, buffers), (obs, action)).squeeze(-1)

    def __call__(self, parameters, obs, action):
        return self._batched(parameters, self.buffers, obs, action)

    def track(self, tau):
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.targets.values()), [p.detach() for p in self.parameters.values()], tau
            )


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args = args
        self.device = device
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.critics = Ensemble(partial(QNetwork, obs_dim, action_dim), ENSEMBLE, device)
        self.log_alpha = torch.tensor(0.0, device=device, requires_grad=True)
        self.entropy_goal = -action_dim
        lr = args.learning_rate
        self.opt = {
            "actor": optim.Adam(self.actor.parameters(), lr=lr),
            "critic": optim.Adam(list(self.critics.parameters.values()), lr=lr),
            "alpha": optim.Adam([self.log_alpha], lr=lr),
        }

    def _descend(self, name, loss):
        self.opt[name].zero_grad()
        loss.backward()
        self.opt[name].step()

    def select_action(self, obs):
        with acting():
            x = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            return self.actor.rsample(x[None])[0][0].cpu().numpy()

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        alpha = self.log_alpha.detach().exp()
        q = self.critics
        with torch.no_grad():
            next_actions, next_logp = self.actor.rsample(next_obs)
            chosen = torch.randperm(ENSEMBLE, device=self.device)[:SUBSET]
            next_q = q(q.targets, next_obs, next_actions)[chosen].amin(dim=0)
            y = rewards + self.args.gamma * (1 - dones) * (next_q - alpha * next_logp)
        estimates = q(q.parameters, obs, actions)
        critic_loss = ((estimates - y) ** 2).mean(dim=1).sum()
        self._descend("critic", critic_loss)
        q.track(self.args.tau)

        new_actions, logp = self.actor.rsample(obs)
        value = q(q.parameters, obs, new_actions).mean(dim=0)  # the whole ensemble
        actor_loss = (alpha * logp - value).mean()
        self._descend("actor", actor_loss)
        self._descend("alpha", -(self.log_alpha * (logp.detach() + self.entropy_goal)).mean())
        return {
            "critic_loss": critic_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "alpha": alpha,
            "ensemble_std": estimates.detach().std(dim=0).mean(),
        }
