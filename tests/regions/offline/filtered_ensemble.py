# CRR with the binary filter (Wang et al. 2020), for an ensemble of behaviour policies in one batched
# product. Members see different halves of a batch. Judged by the member closest to all of the others.

import itertools
from dataclasses import dataclass as _dataclass


@_dataclass
class HyperParameters:
    members: int = 4
    samples: int = 2
    keep: float = 0.5


class BatchedLinear(nn.Module):
    """(K, B, in) -> (K, B, out)"""

    def __init__(self, k, n_in, n_out):
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(k, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(k, 1, n_out))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class Ensemble(nn.Module):
    def __init__(self, k, sizes):
        super().__init__()
        layers = []
        for n_in, n_out in itertools.pairwise(sizes):
            layers += [BatchedLinear(k, n_in, n_out), nn.ReLU()]
        self.k, self.layers = k, nn.Sequential(*layers[:-1])

    def forward(self, obs):
        mean, log_std = self.layers(obs.expand(self.k, *obs.shape)).chunk(2, dim=-1)
        return torch.tanh(mean), log_std.clamp(-4, 1)


class PolicyTrainer:
    hp = HyperParameters()

    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config
        self.rng = np.random.default_rng(config.seed)

    def create_policy_networks(self):
        hidden = [width // 2 for width in self.config.actor_hidden_dims]
        sizes = [self.observation_dim, *hidden, 2 * self.action_dim]
        return {"members": Ensemble(self.hp.members, sizes)}

    def compute_actor_loss(self, networks, batch, critic):
        obs, actions = batch.observations, batch.actions
        mean, log_std = networks["members"](obs)
        with torch.no_grad():
            q_data = critic(obs, actions).min(0)[0]
            proposals = []
            for _ in range(self.hp.samples):
                k = int(self.rng.integers(self.hp.members))
                noisy = mean[k] + log_std[k].exp() * torch.randn_like(actions)
                proposals.append(critic(obs, noisy.clamp(-1, 1)).min(0)[0])
            baseline = torch.stack(proposals).mean(0)
            better = (q_data > baseline).float()
            keep = self.rng.random((self.hp.members, len(obs))) < self.hp.keep
            weight = better * torch.as_tensor(keep, dtype=torch.float32, device=obs.device)
        nll = 0.5 * ((actions - mean) / log_std.exp()).square() + log_std
        loss = (weight * nll.sum(-1)).sum() / weight.sum().clamp(min=1.0)
        return loss, {"kept": better.mean().item(), "spread": mean.detach().std(0).mean().item()}

    def sample_actions(self, networks, observations, temperature):
        mean, log_std = networks["members"](observations)  # (K, B, A)
        if temperature == 0.0:
            distances = torch.cdist(mean.transpose(0, 1), mean.transpose(0, 1)).sum(-1)  # (B, K)
            chosen = distances.argmin(dim=1)
        else:
            chosen = torch.randint(self.hp.members, (len(observations),), device=mean.device)
        rows = torch.arange(len(observations), device=mean.device)
        noise = temperature * torch.randn_like(mean[0])
        return mean[chosen, rows] + log_std[chosen, rows].exp() * noise
