"""Advantage-weighted mixture density network, with `torch.distributions` used as it is.

Several ways through a maze are several components, where a single Gaussian would hit the wall between
them. Judged by the mean of the heaviest component.
"""

import torch.distributions as D
from functools import partial

COMPONENTS = 5
TEMPERATURE = 5.0
LOG_STD = (-4.0, 0.0)

orthogonal = partial(nn.init.orthogonal_, gain=math.sqrt(2))


class MixtureDensityNetwork(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int, hidden):
        super().__init__()
        widths = [obs_dim, *hidden]
        trunk = []
        for n, m in zip(widths, widths[1:]):
            layer = nn.Linear(n, m)
            orthogonal(layer.weight)
            trunk.extend((layer, nn.Mish()))
        self.trunk = nn.Sequential(*trunk)
        self.logits = nn.Linear(widths[-1], COMPONENTS)
        self.components = nn.Linear(widths[-1], 2 * COMPONENTS * act_dim)

    def forward(self, obs) -> D.MixtureSameFamily:
        h = self.trunk(obs)
        loc, log_std = self.components(h).unflatten(-1, (2, COMPONENTS, -1)).unbind(-3)
        components = D.Independent(D.Normal(loc.tanh(), log_std.clamp(*LOG_STD).exp()), 1)
        return D.MixtureSameFamily(D.Categorical(logits=self.logits(h)), components)


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        c = self.config
        return {
            "mdn": MixtureDensityNetwork(self.observation_dim, self.action_dim, c.actor_hidden_dims),
            "baseline": MLP(self.observation_dim, (*c.value_hidden_dims[:1], 1)),
        }

    def compute_actor_loss(self, networks, batch, critic):
        policy = networks["mdn"](batch.observations)
        v = networks["baseline"](batch.observations).squeeze(-1)
        with torch.no_grad():
            q = critic(batch.observations, batch.actions).mean(dim=0)
            sampled = policy.sample().clamp(-1, 1)
            q_pi = critic(batch.observations, sampled).mean(dim=0)
            advantage = q - v
            weights = F.softmax(TEMPERATURE * advantage / advantage.abs().mean(), dim=0) * len(q)
        baseline_loss = F.smooth_l1_loss(v, q_pi)
        loss = -(weights.clamp(max=20) * policy.log_prob(batch.actions)).mean()
        entropy = policy.mixture_distribution.entropy().mean()
        return loss + baseline_loss - 0.01 * entropy, {
            "nll": loss,
            "baseline": baseline_loss,
            "mixture entropy": entropy,
            "effective batch": weights.sum() ** 2 / weights.square().sum(),
        }

    def sample_actions(self, networks, observations, temperature):
        policy = networks["mdn"](observations)
        if temperature > 0:
            return policy.sample()
        heaviest = policy.mixture_distribution.logits.argmax(dim=-1)
        return policy.component_distribution.mean[torch.arange(len(observations)), heaviest]
