class QNetwork(nn.Module):
    """Q(s, .): the Nature encoder and one linear layer."""

    def __init__(self, envs):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        self.head = nn.Linear(ENCODER_FEATURE_DIM, envs.single_action_space.n)

    def forward(self, x):
        return self.head(self.encoder(x))


class ValueAlgorithm:
    """DQN (Mnih et al. 2015, Nature 518, 529-533), with the hyperparameters of CleanRL's script.

    Against the paper: Adam instead of RMSProp, the plain squared error instead of its clipped
    gradient, the target network renewed every 1,000 steps, and epsilon down to 0.01.
    """

    def __init__(self, envs, device, args):
        self.args = args
        self.device = device
        self.q_network = QNetwork(envs).to(device)
        self.target_network = copy.deepcopy(self.q_network)
        self.optimizer = adam(self.q_network.parameters(), lr=args.learning_rate)

    def select_action(self, obs, epsilon=0.0):
        with acting():
            q_values = self.q_network(torch.as_tensor(obs, device=self.device))
        return q_values.argmax(dim=1).cpu().numpy()

    def update(self, batch, global_step):
        with torch.no_grad():
            next_q = self.target_network(batch.next_observations).max(dim=1).values
            target = batch.rewards.flatten() + self.args.gamma * next_q * (
                1 - batch.dones.flatten()
            )

        q_values = self.q_network(batch.observations).gather(1, batch.actions).squeeze(1)
        loss = F.mse_loss(q_values, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        if global_step % self.args.target_network_frequency == 0:
            soft_update(self.target_network, self.q_network, self.args.tau)
        return {"loss": loss.item(), "q_values": q_values.mean().item()}
