class QNetwork(nn.Module):
    """The distribution of the return, for each action: probabilities of 51 fixed atoms."""

    ATOMS = 51
    V_MIN, V_MAX = -10.0, 10.0  # the first atom and the last

    def __init__(self, envs):
        super().__init__()
        self.actions = envs.single_action_space.n
        self.encoder = NatureDQNEncoder()
        self.head = nn.Linear(ENCODER_FEATURE_DIM, self.actions * self.ATOMS)
        self.register_buffer("atoms", torch.linspace(self.V_MIN, self.V_MAX, self.ATOMS))

    def logits(self, x):
        """(B, n, 51), of which softmax makes the probabilities."""
        return self.head(self.encoder(x)).view(-1, self.actions, self.ATOMS)

    def forward(self, x):
        """Expected returns, (B, n)."""
        return self.logits(x).softmax(dim=2) @ self.atoms


def project(probabilities, rewards, dones, gamma, atoms):
    """The distribution of reward + gamma * next return, brought back onto the atoms.

    Each atom's mass moves to where the reward and the discount take it, at most to the first or to
    the last atom, and is shared there between the two atoms around it: the nearer one gets more.
    Equation 7 of Bellemare et al. 2017, arXiv 1707.06887.

    probabilities (B, N) of the next return; rewards and dones (B, 1); atoms (N,), evenly spaced
    -> (B, N).
    """
    last = len(atoms) - 1
    spacing = (atoms[-1] - atoms[0]) / last
    moved = rewards + gamma * (1 - dones) * atoms
    position = ((moved - atoms[0]) / spacing).clamp(0, last)  # in units of atoms, from the first
    below = position.floor()
    share_above = position - below  # 0 on an atom: all of the mass is then that atom's
    index = below.long()
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, index, probabilities * (1 - share_above))
    projected.scatter_add_(1, (index + 1).clamp(max=last), probabilities * share_above)
    return projected


class ValueAlgorithm:
    """C51, or categorical DQN (Bellemare et al. 2017, arXiv 1707.06887).

    Against DQN: a distribution of returns in place of their expectation, and the cross-entropy to
    the projected distribution in place of the squared error. Actions are chosen by expectation.

    Against the paper: a learning rate of 1e-4 instead of 2.5e-4, and a target network that is
    copied more often.
    """

    def __init__(self, envs, device, args):
        self.args = args
        self.device = device
        self.q_network = QNetwork(envs).to(device)
        self.target_network = copy.deepcopy(self.q_network)
        self.optimizer = adam(
            self.q_network.parameters(), lr=args.learning_rate, eps=0.01 / args.batch_size
        )

    def select_action(self, obs, epsilon=0.0):
        with acting():
            q_values = self.q_network(torch.as_tensor(obs, device=self.device))
        return q_values.argmax(dim=1).cpu().numpy()

    def update(self, batch, global_step):
        atoms = self.q_network.atoms
        rows = torch.arange(len(batch.actions), device=self.device)
        with torch.no_grad():
            following = self.target_network.logits(batch.next_observations).softmax(dim=2)
            next_actions = (following @ atoms).argmax(dim=1)
            target = project(
                following[rows, next_actions], batch.rewards, batch.dones, self.args.gamma, atoms
            )

        logits = self.q_network.logits(batch.observations)[rows, batch.actions.squeeze(1)]
        loss = F.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        if global_step % self.args.target_network_frequency == 0:
            soft_update(self.target_network, self.q_network, self.args.tau)
        q_values = logits.detach().softmax(dim=1) @ atoms
        return {"loss": loss.item(), "q_values": q_values.mean().item()}
