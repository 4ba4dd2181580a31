class QNetwork(nn.Module):
    """The distribution of the return, for each action: 200 quantiles, all equally likely."""

    QUANTILES = 200

    def __init__(self, envs):
        super().__init__()
        self.actions = envs.single_action_space.n
        self.encoder = NatureDQNEncoder()
        self.head = nn.Linear(ENCODER_FEATURE_DIM, self.actions * self.QUANTILES)

    def quantiles(self, x):
        """(B, n, 200), in no order that anything holds them to."""
        return self.head(self.encoder(x)).view(-1, self.actions, self.QUANTILES)

    def forward(self, x):
        """Expected returns, (B, n)."""
        return self.quantiles(x).mean(dim=2)


def quantile_huber_loss(quantiles, targets, midpoints, kappa=1.0):
    """Pulls quantile i to where a share midpoints[i] of the targets lies below it.

    The error of each quantile to each target: half its square up to kappa, linear beyond. A target
    above its quantile weighs midpoints[i], a target below it 1 - midpoints[i]. The loss is the mean
    over the targets, the sum over the quantiles, and the mean over the batch: equation 10 and
    algorithm 1 of Dabney et al. 2018, arXiv 1710.10044.

    quantiles (B, N); targets (B, M); midpoints (N,), between 0 and 1 -> a scalar.
    """
    estimates, wanted = torch.broadcast_tensors(quantiles.unsqueeze(2), targets.unsqueeze(1))
    huber = F.huber_loss(estimates, wanted, reduction="none", delta=kappa)
    share = midpoints.unsqueeze(1)
    weights = torch.where(wanted < estimates, 1 - share, share)
    return (weights * huber).mean(dim=2).sum(dim=1).mean()


class ValueAlgorithm:
    """QR-DQN (Dabney et al. 2018, arXiv 1710.10044), with the Huber loss: the paper's QR-DQN-1.

    Against DQN: quantiles of the return in place of its expectation, and quantile regression in
    place of the squared error. Actions are chosen by expectation.

    Against the paper: a learning rate of 1e-4 instead of 5e-5, and a target network that is copied
    more often.
    """

    def __init__(self, envs, device, args):
        self.args = args
        self.device = device
        self.q_network = QNetwork(envs).to(device)
        self.target_network = copy.deepcopy(self.q_network)
        count = QNetwork.QUANTILES
        self.midpoints = (torch.arange(count, device=device) + 0.5) / count  # (2i - 1) / 2N
        self.optimizer = adam(
            self.q_network.parameters(), lr=args.learning_rate, eps=0.01 / args.batch_size
        )

    def select_action(self, obs, epsilon=0.0):
        with acting():
            q_values = self.q_network(torch.as_tensor(obs, device=self.device))
        return q_values.argmax(dim=1).cpu().numpy()

    def update(self, batch, global_step):
        rows = torch.arange(len(batch.actions), device=self.device)
        with torch.no_grad():
            following = self.target_network.quantiles(batch.next_observations)
            next_actions = following.mean(dim=2).argmax(dim=1)
            bootstrap = self.args.gamma * (1 - batch.dones) * following[rows, next_actions]
            targets = batch.rewards + bootstrap

        quantiles = self.q_network.quantiles(batch.observations)[rows, batch.actions.squeeze(1)]
        loss = quantile_huber_loss(quantiles, targets, self.midpoints)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        if global_step % self.args.target_network_frequency == 0:
            soft_update(self.target_network, self.q_network, self.args.tau)
        return {"loss": loss.item(), "q_values": quantiles.mean().item()}
