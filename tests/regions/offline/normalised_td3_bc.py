# TD3+BC with observations normalised, which the paper calls its most important detail. The statistics
# are not known beforehand here: they are a running mean and variance, kept as buffers of a network of
# their own, so that they travel with the policy. (In a network with a slow copy they would be the
# copy's, from the start.)


class RunningNorm(nn.Module):
    def __init__(self, n: int, eps: float = 1e-3):
        super().__init__()
        self.eps = eps
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("m2", torch.ones(n))
        self.register_buffer("count", torch.tensor(1.0))

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> None:
        """Chan's parallel form of Welford's algorithm."""
        n = x.shape[0]
        delta = x.mean(0) - self.mean
        total = self.count + n
        self.mean += delta * n / total
        self.m2 += x.var(0, unbiased=False) * n + delta**2 * self.count * n / total
        self.count.copy_(total)

    def forward(self, x):
        return (x - self.mean) / (self.m2 / self.count + self.eps).sqrt()


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config
        self.it = 0

    def create_policy_networks(self):
        dims = (*self.config.actor_hidden_dims, self.action_dim)
        return {
            "norm": RunningNorm(self.observation_dim),
            "actor": nn.Sequential(MLP(self.observation_dim, dims, layer_norm=True), nn.Tanh()),
        }

    def get_target_update_modules(self):
        return ("actor",)

    def compute_actor_loss(self, networks, batch, critic):
        self.it += 1
        if self.it <= 10_000:
            networks["norm"].update(batch.observations)
        state = networks["norm"](batch.observations)
        pi = networks["actor"](state)
        bc_loss = ((pi - batch.actions) ** 2).mean()
        if self.it % 2:  # TD3's delayed policy updates: between them, imitation alone
            return bc_loss, {"bc_loss": bc_loss.item()}
        Q = critic(batch.observations, pi)[0]
        lmbda = 2.5 / Q.abs().mean().detach()
        actor_loss = -lmbda * Q.mean() + bc_loss
        return actor_loss, {"bc_loss": bc_loss.item(), "lmbda": lmbda.item()}

    def sample_actions(self, networks, observations, temperature):
        pi = networks["actor"](networks["norm"](observations))
        noise = (0.2 * torch.randn_like(pi)).clamp(-0.5, 0.5)
        return pi + temperature * noise
