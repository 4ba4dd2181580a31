"""NoisyNet-DQN: the last two layers have weights with learned noise, which explores by itself.

    train()  noise in the weights, drawn by `redraw`
    eval()   their means alone

The network RESTS IN EVAL MODE: it is in train mode only inside `noisy()`. So whenever it is exported,
it is exported without noise, and evaluations act by the means.
"""

from contextlib import contextmanager

SIGMA_0 = 0.5
WIDTH = 256


class NoisyLinear(nn.Module):
    """Factorised Gaussian noise (Fortunato et al.): one number an input, one an output."""

    def __init__(self, fan_in: int, fan_out: int):
        super().__init__()
        bound = 1.0 / math.sqrt(fan_in)
        self.mu_w = nn.Parameter(torch.empty(fan_out, fan_in).uniform_(-bound, bound))
        self.mu_b = nn.Parameter(torch.empty(fan_out).uniform_(-bound, bound))
        self.sigma_w = nn.Parameter(torch.full((fan_out, fan_in), SIGMA_0 * bound))
        self.sigma_b = nn.Parameter(torch.full((fan_out,), SIGMA_0 * bound))
        self.register_buffer("eps_in", torch.zeros(fan_in))
        self.register_buffer("eps_out", torch.zeros(fan_out))

    def redraw(self):
        for eps in (self.eps_in, self.eps_out):
            eps.normal_()
            eps.copy_(eps.sign() * eps.abs().sqrt())

    def forward(self, x):
        y = F.linear(x, self.mu_w, self.mu_b)
        if self.training:
            # outer(eps_out, eps_in) * sigma is never built: the input and the output are scaled
            y = y + F.linear(x * self.eps_in, self.sigma_w, self.sigma_b) * self.eps_out
        return y

    def extra_repr(self):
        return f"{self.mu_w.shape[1]}, {self.mu_w.shape[0]}"


class QNetwork(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        self.fc = NoisyLinear(ENCODER_FEATURE_DIM, WIDTH)
        self.q = NoisyLinear(WIDTH, envs.single_action_space.n)

    def redraw(self):
        self.fc.redraw()
        self.q.redraw()

    def forward(self, x):
        return self.q(F.relu(self.fc(self.encoder(x))))


@contextmanager
def noisy(*networks):
    for network in networks:
        network.train()
        network.redraw()
    try:
        yield
    finally:
        for network in networks:
            network.eval()


class ValueAlgorithm:
    def __init__(self, envs, device, args):
        self.args = args
        self.device = device
        self.q_network = QNetwork(envs).to(device).eval()
        self.target_network = QNetwork(envs).to(device).eval()
        self.target_network.load_state_dict(self.q_network.state_dict())
        self.optimizer = optim.Adam(self.q_network.parameters(), lr=args.learning_rate, eps=1.5e-4)

    def select_action(self, obs, epsilon=0.0):
        obs = torch.from_numpy(np.ascontiguousarray(obs)).to(self.device)
        with torch.no_grad(), noisy(self.q_network):
            return self.q_network(obs).argmax(dim=1).cpu().numpy()

    def update(self, batch, global_step):
        rewards, dones = batch.rewards.flatten(), batch.dones.flatten()
        with noisy(self.q_network, self.target_network):
            with torch.no_grad():
                next_q, _ = self.target_network(batch.next_observations).max(dim=1)
                td_target = rewards + self.args.gamma * next_q * (1 - dones)
            q = self.q_network(batch.observations).gather(1, batch.actions).squeeze(1)
            loss = F.huber_loss(q, td_target)
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()

        if global_step % self.args.target_network_frequency == 0:
            state = self.q_network.state_dict()
            self.target_network.load_state_dict(state)
        sigma = self.q_network.q.sigma_w.detach().abs().mean()
        return {"td_loss": loss.item(), "q_values": q.mean().item(), "sigma": sigma.item()}
