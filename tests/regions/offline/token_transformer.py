"""A transformer over pieces of the observation, with dropout, trained by TD3+BC's loss.

Four numbers of the observation are one token; what is missing from the last one is zero. One more
token, learned, is read out. Dropout is left on for the critic's targets and off in evaluations, which
is what the loop's train/eval mode does anyway.
"""

PIECE = 4
WEIGHT_OF_DATA = 2.5


class Actor(nn.Module):
    def __init__(self, observation_dim, action_dim, width, depth, dropout):
        super().__init__()
        self.tokens = -(-observation_dim // PIECE)
        self.missing = self.tokens * PIECE - observation_dim
        self.embed = nn.Linear(PIECE, width)
        self.positions = nn.Parameter(0.02 * torch.randn(self.tokens + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=dropout, activation="gelu",
            batch_first=True, norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, action_dim)
        nn.init.uniform_(self.head.weight, -1e-3, 1e-3)

    def forward(self, obs):
        pieces = F.pad(obs, (0, self.missing)).unflatten(-1, (self.tokens, PIECE))
        x = F.pad(self.embed(pieces), (0, 0, 0, 1)) + self.positions
        return self.head(self.norm(self.encoder(x)[:, -1])).tanh()


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        dims = self.config.actor_hidden_dims
        actor = Actor(self.observation_dim, self.action_dim, dims[0] // 8, len(dims), dropout=0.1)
        return {"actor": actor}

    def get_target_update_modules(self):
        return {"actor"}

    def compute_actor_loss(self, networks, batch, critic):
        pi = networks["actor"](batch.observations)
        q = critic(batch.observations, pi)[0]
        lmbda = WEIGHT_OF_DATA / q.abs().mean().detach()
        mse = F.mse_loss(pi, batch.actions)
        return mse - lmbda * q.mean(), {"mse": mse, "lambda": lmbda}

    def sample_actions(self, networks, observations, temperature):
        return networks["actor"](observations)
