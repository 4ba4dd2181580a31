# -*- coding: utf-8 -*-
"""
Rainbow-lite := C51 ⊕ dueling ⊕ double, and nothing that a uniform 1-step buffer cannot give
(no PER, no n-step, no noisy nets).

    Z(s, a) = softmax(V(s) + A(s, a) - mean_a A(s, a))        over K atoms
    a*      = argmax_a E[Z_online(s', a)]                     online network
    m       = projection of r + γ z under Z_target(s', a*)    as one batched product
    loss    = KL(m ‖ Z_online(s, a)), up to a constant
"""
K: int = 51
VMIN: float = -10.0
VMAX: float = +10.0
DZ: float = (VMAX - VMIN) / (K - 1)


class Stream(nn.Module):
    def __init__(self, width: int, rows: int):
        super().__init__()
        self.rows = rows
        self.a, self.b = nn.Linear(ENCODER_FEATURE_DIM, width), nn.Linear(width, rows * K)

    def forward(self, h):
        return self.b(F.silu(self.a(h))).view(h.size(0), self.rows, K)


class QNetwork(nn.Module):
    def __init__(self, envs, width: int = 192):
        super().__init__()
        self.φ = NatureDQNEncoder()
        self.V, self.A = Stream(width, 1), Stream(width, envs.single_action_space.n)
        self.register_buffer("z", VMIN + DZ * torch.arange(K))

    def log_probs(self, x):
        h = self.φ(x)
        v, a = self.V(h), self.A(h)
        return (v + a - a.mean(1, keepdim=True)).log_softmax(-1)

    def forward(self, x):
        return torch.einsum("bak,k->ba", self.log_probs(x).exp(), self.z)


def project(p, r, d, γ, z):
    """p (B, K), r and d (B, 1): every atom's mass falls off linearly with the distance, over DZ."""
    tz = torch.clamp(r + γ * (1.0 - d) * z, VMIN, VMAX)          # (B, K)
    hat = 1.0 - (tz.unsqueeze(2) - z.view(1, 1, K)).abs() / DZ    # (B, K from, K to)
    return torch.bmm(p.unsqueeze(1), hat.clamp_(min=0.0)).squeeze(1)


class ValueAlgorithm:
    grad_clip = 10.0

    def __init__(self, envs, device, args):
        (self.device, self.args) = (device, args)
        self.q_network = QNetwork(envs).to(device)
        self.target_network = QNetwork(envs).to(device)
        self.sync(1.0)
        self.opt = optim.Adam(self.q_network.parameters(), args.learning_rate, eps=1e-2 / args.batch_size)
        self.warm = optim.lr_scheduler.LinearLR(self.opt, start_factor=0.1, total_iters=500)

    @torch.no_grad()
    def sync(self, τ):
        pairs = zip(self.target_network.parameters(), self.q_network.parameters(), strict=True)
        for θ_slow, θ in pairs:
            θ_slow.add_(θ - θ_slow, alpha=τ)

    def select_action(self, obs, epsilon=0.0):
        x = torch.tensor(obs, dtype=torch.uint8, device=self.device)
        with torch.no_grad():
            q = self.q_network(x)
        return q.argmax(-1).cpu().numpy()

    def target(self, s2, r, d):
        a2 = self.q_network(s2).argmax(-1)
        p2 = self.target_network.log_probs(s2).exp()
        p2 = torch.take_along_dim(p2, a2[:, None, None], dim=1).squeeze(1)
        return project(p2, r, d, self.args.gamma, self.q_network.z)

    def update(self, batch, global_step):
        s, a, r = batch.observations, batch.actions, batch.rewards
        s2, d = batch.next_observations, batch.dones
        with torch.no_grad():
            m = self.target(s2, r, d)
        logp = torch.take_along_dim(self.q_network.log_probs(s), a[:, :, None], dim=1).squeeze(1)
        loss = F.kl_div(logp, m, reduction="batchmean")
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q_network.parameters(), self.grad_clip)
        self.opt.step()
        self.warm.step()
        if global_step % self.args.target_network_frequency == 0:
            self.sync(self.args.tau)
        H = -(logp.detach().exp() * logp.detach()).sum(-1).mean()
        return {"kl": loss.item(), "entropy": H.item(), "lr": self.warm.get_last_lr()[0]}
