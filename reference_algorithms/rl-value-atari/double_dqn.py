class QNetwork(nn.Module):
    """Q(s, .): the Nature encoder and one linear layer."""

    def __init__(self, envs):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        self.head = nn.Linear(ENCODER_FEATURE_DIM, envs.single_action_space.n)

    def forward(self, x):
        return self.head(self.encoder(x))


class ValueAlgorithm:
    """Double DQN (van Hasselt et al. 2016, arXiv 1509.06461).

    One change to DQN: the online network chooses the next action and the target network values it,
    so that an error which makes an action look good does not enter the target a second time.

    Against the paper: what differs in DQN (Adam instead of RMSProp, the plain squared error instead
    of its clipped gradient, epsilon down to 0.01), and a target network that is copied more often.
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
            next_observations = to_floats(batch.next_observations)  # once: two networks see them
            next_actions = self.q_network(next_observations).argmax(dim=1, keepdim=True)
            next_q = self.target_network(next_observations).gather(1, next_actions)
            target = batch.rewards + self.args.gamma * (1 - batch.dones) * next_q

        q_values = self.q_network(batch.observations).gather(1, batch.actions)
        loss = F.mse_loss(q_values, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        if global_step % self.args.target_network_frequency == 0:
            soft_update(self.target_network, self.q_network, self.args.tau)
        return {"loss": loss.item(), "q_values": q_values.mean().item()}
