"""TD3 with residual, weight-normalised networks and an activation that is a lambda."""
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)

from torch.nn.utils.parametrizations import weight_norm

layer_init = lambda layer, gain=1.0: (nn.init.orthogonal_(layer.weight, gain), layer)[1]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = weight_norm(layer_init(nn.Linear(width, width)))
        self.act = lambda x: F.leaky_relu(x, 0.01)

    def forward(self, x): return x + self.act(self.lin(x))


class Net(nn.Module):
    def __init__(self, n_in, n_out, width=256, depth=1, gain=1.0):
        super().__init__()
        self.inp = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.out = layer_init(nn.Linear(width, n_out), gain)

    def forward(self, x):
        x = F.leaky_relu(self.inp(x))
        for block in self.blocks: x = block(x)
        return self.out(x)


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net, self.max_action = Net(obs_dim, action_dim, gain=0.01), max_action

    def forward(self, obs): return self.net(obs).tanh() * self.max_action
    def get_action(self, obs): return self(obs)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = Net(obs_dim + action_dim, 1)

    def forward(self, obs, action): return self.net(torch.cat([obs, action], 1))


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        γ, τ = args.gamma, args.tau
        self.γ, self.τ, self.every = γ, τ, args.policy_frequency
        self.device, self.σ, self.hi = device, args.exploration_noise, max_action
        nets = {
            "π": Actor(obs_dim, action_dim, max_action),
            "Q1": QNetwork(obs_dim, action_dim),
            "Q2": QNetwork(obs_dim, action_dim),
        }
        self.nets = nn.ModuleDict(nets).to(device)
        self.old = copy.deepcopy(self.nets)
        self.actor = self.nets["π"]
        self.opt_π = optim.RAdam(self.actor.parameters(), lr=args.learning_rate)
        self.opt_Q = optim.RAdam(
            [*self.nets["Q1"].parameters(), *self.nets["Q2"].parameters()], lr=args.learning_rate
        )
        self.k = 0

    def select_action(self, obs):
        with torch.no_grad():
            a = self.actor(torch.tensor(obs, device=self.device)[None])[0].cpu().numpy()
        return np.clip(a + self.σ * self.hi * np.random.randn(a.size), -self.hi, self.hi)

    def update(self, batch):
        s, s2, a, r, done = batch
        self.k += 1
        with torch.no_grad():
            ε = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5) * self.hi
            a2 = (self.old["π"](s2) + ε).clamp(-self.hi, self.hi)
            y = r + self.γ * (1 - done) * torch.min(
                self.old["Q1"](s2, a2), self.old["Q2"](s2, a2)
            ).view(-1)
        δ1, δ2 = (self.nets[q](s, a).view(-1) - y for q in ("Q1", "Q2"))
        loss = (δ1**2 + δ2**2).mean()
        self.opt_Q.zero_grad(); loss.backward(); self.opt_Q.step()
        out = dict(loss=loss.item(), δ=δ1.abs().mean().item())
        if self.k % self.every == 0:
            J = self.nets["Q1"](s, self.actor(s)).mean()
            self.opt_π.zero_grad(); (-J).backward(); self.opt_π.step()
            soft_update(self.old, self.nets, self.τ)
            out["J"] = J.item()
        return out


if __name__ == "__main__":
    pass  # python weight_normed_actor.py was how the networks were tried out
