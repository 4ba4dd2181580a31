# Clipped double Q-learning with two heads: the smaller of two targets, as in TD3, without an actor.
#
# Two whole networks and their targets would be twice the budget. The two heads share the encoder and
# differ in their initial weights and in their data: each row of a batch trains a head with
# probability 1/2 or both, by a mask that is drawn from a generator of the algorithm's own.

HEADS = 2
BOTH = 0.5  # how often a row trains both heads


class QNetwork(nn.Module):
    """`heads(x)` is (HEADS, B, n); called as a network, their mean (B, n)."""

    def __init__(self, envs, *, width=ENCODER_FEATURE_DIM):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        n = envs.single_action_space.n
        # all heads in one tensor: a batched product is one call
        self.weight = nn.Parameter(torch.randn(HEADS, width, n) / width ** 0.5)
        self.bias = nn.Parameter(torch.zeros(HEADS, 1, n))

    def heads(self, x):
        features = self.encoder(x).expand(HEADS, -1, -1)
        return torch.baddbmm(self.bias, features, self.weight)

    def forward(self, x):
        return self.heads(x).mean(dim=0)


class ValueAlgorithm:

    def __init__(self, envs, device, args):
        self.args = args
        self.device = device
        self.networks = nn.ModuleDict()
        self.networks["online"] = QNetwork(envs)
        self.networks["target"] = copy.deepcopy(self.networks["online"])
        self.networks.to(device)
        self.networks["target"].requires_grad_(False)
        decayed = [p for p in self.q_network.parameters() if p.dim() > 1]
        others = [p for p in self.q_network.parameters() if p.dim() <= 1]
        self.optimizer = optim.AdamW(
            [
                {"params": decayed, "weight_decay": 1e-5},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=args.learning_rate,
            amsgrad=True,
        )
        self.generator = torch.Generator().manual_seed(1)
        self.lr_0 = args.learning_rate

    @property
    def q_network(self):
        return self.networks["online"]

    @property
    def target_network(self):
        return self.networks["target"]

    def select_action(self, obs, epsilon=0.0):
        obs = torch.tensor(np.asarray(obs), device=self.device)
        with torch.no_grad():
            return self.q_network(obs).argmax(dim=-1).cpu().numpy()

    def anneal(self, global_step):
        lr = linear_schedule(self.lr_0, self.lr_0 / 4, 4_000_000, global_step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def mask(self, rows):
        """1 where a head learns from a row: (HEADS, B), at least one of them for every row."""
        one = torch.randint(HEADS, (rows,), generator=self.generator)
        both = torch.rand(rows, generator=self.generator) < BOTH
        mask = torch.stack([(one == head) | both for head in range(HEADS)])
        return mask.float().to(self.device)

    def update(self, batch, global_step):
        lr = self.anneal(global_step)
        reward, done = batch.rewards.squeeze(-1), batch.dones.squeeze(-1)

        with torch.no_grad():
            # chosen by the online mean, valued by the more careful of the two target heads
            choice = self.q_network(batch.next_observations).argmax(dim=1)
            values = self.target_network.heads(batch.next_observations).amin(dim=0)
            values = values[range(len(choice)), choice]
            target = reward + self.args.gamma * torch.where(done.bool(), 0.0, values)

        index = batch.actions.T.unsqueeze(-1).expand(HEADS, -1, -1)  # (HEADS, B, 1)
        q = self.q_network.heads(batch.observations).gather(2, index).squeeze(-1)
        mask = self.mask(len(target))
        loss = (mask * F.mse_loss(q, target.expand_as(q), reduction="none")).sum() / mask.sum()

        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        if global_step % self.args.target_network_frequency == 0:
            torch._foreach_lerp_(
                list(self.target_network.parameters()),
                [p.detach() for p in self.q_network.parameters()],
                self.args.tau,
            )

        return {
            "loss": loss.item(),
            "q_mean": q.mean().item(),
            "disagreement": (q[0] - q[1]).abs().mean().item(),
            "learning_rate": lr,
        }
