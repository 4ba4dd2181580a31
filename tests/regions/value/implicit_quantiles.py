"""IQN-like: the network is asked for the value at any quantile level, drawn anew each time.

A level enters through cosines of it, which gate the encoder's features. The losses are IQN's. For
acting and for evaluations the levels are a fixed grid, so that the same picture gets the same action;
IQN draws 32 there as well.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class IQN:
    cosines: int = 64
    hidden: int = 384
    online: int = 32
    target: int = 32
    acting: int = 32
    kappa: float = 1.0


class CosineEmbedding(nn.Module):
    def __init__(self, cosines, features):
        super().__init__()
        self.register_buffer("multiples", math.pi * torch.arange(1, cosines + 1).float())
        self.fc = nn.Linear(cosines, features)

    def forward(self, levels):
        """(B, K) -> (B, K, features)."""
        return F.relu(self.fc(torch.cos(levels[..., None] * self.multiples)))


class QNetwork(nn.Module):
    def __init__(self, envs, hp=IQN()):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        self.embedding = CosineEmbedding(hp.cosines, ENCODER_FEATURE_DIM)
        self.head = nn.Sequential(
            nn.Linear(ENCODER_FEATURE_DIM, hp.hidden),
            nn.ReLU(),
            nn.Linear(hp.hidden, envs.single_action_space.n),
        )
        grid = (torch.arange(hp.acting).float() + 0.5) / hp.acting
        self.register_buffer("grid", grid, persistent=False)

    def at(self, features, levels):
        """Values of all actions at those levels: (B, 512), (B, K) -> (B, K, n)."""
        return self.head(features.unsqueeze(1) * self.embedding(levels))

    def forward(self, x):
        features = self.encoder(x)
        levels = self.grid.expand(len(features), -1)
        return self.at(features, levels).mean(dim=1)


@dataclass
class ValueAlgorithm:
    envs: object
    device: torch.device
    args: object
    hp: IQN = field(default_factory=IQN)

    def __post_init__(self):
        self.q_network = QNetwork(self.envs, self.hp).to(self.device)
        self.target_network = copy.deepcopy(self.q_network)
        self.target_network.eval()
        self.optimizer = optim.Adam(
            params=self.q_network.parameters(), lr=self.args.learning_rate, eps=3.125e-4
        )

    def select_action(self, obs, epsilon=0.0):
        with torch.inference_mode():
            values = self.q_network(torch.as_tensor(obs, device=self.device))
            return values.argmax(dim=1).cpu().numpy().astype(np.int64)

    def draw(self, batch_size, count):
        return torch.rand(batch_size, count, device=self.device)

    def update(self, batch, global_step):
        size, gamma = len(batch.observations), self.args.gamma

        with torch.no_grad():
            net = self.target_network
            features = net.encoder(batch.next_observations)
            # levels of their own for the choice, so that it is not made by what is then believed
            choice = net.at(features, self.draw(size, self.hp.acting)).mean(dim=1).argmax(dim=1)
            values = net.at(features, self.draw(size, self.hp.target))
            following = values[torch.arange(size), :, choice]  # (B, K')
            targets = batch.rewards + gamma * (1 - batch.dones) * following

        levels = self.draw(size, self.hp.online)
        values = self.q_network.at(self.q_network.encoder(batch.observations), levels)
        taken = values.gather(2, batch.actions[:, None, :].expand(-1, self.hp.online, 1))  # (B, K, 1)
        delta = targets[:, None, :] - taken  # (B, K, K')
        huber = torch.where(
            delta.abs() <= self.hp.kappa,
            delta.pow(2) / 2,
            self.hp.kappa * (delta.abs() - self.hp.kappa / 2),
        )
        below = (delta < 0).float().detach()
        loss = ((levels[..., None] - below).abs() * huber).mean(2).sum(1).mean() / self.hp.kappa

        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if global_step % self.args.target_network_frequency == 0:
            with torch.no_grad():
                for slow, fast in zip(net.parameters(), self.q_network.parameters()):
                    slow.lerp_(fast, self.args.tau)
        return {"loss": loss.item(), "value": taken.mean().item(), "target_std": targets.std().item()}
