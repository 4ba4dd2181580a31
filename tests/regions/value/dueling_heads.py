"""Dueling heads over one encoder, trained as double DQN with a Huber loss and clipped gradients."""

# ===================== HYPERPARAMETERS (mine, the rest is in args) =====================
HIDDEN = 256            # of each head: two of 512 would be over the budget with few actions
MAX_GRAD_NORM = 10.0
# the encoder has two heads' gradients, and is slowed down by as much
ENCODER_GRADIENT = 1.0 / math.sqrt(2.0)


def init_layer(layer, gain=math.sqrt(2)):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Head(nn.Sequential):
    def __init__(self, n_out):
        super(Head, self).__init__(
            init_layer(nn.Linear(ENCODER_FEATURE_DIM, HIDDEN)),
            nn.ReLU(),
            init_layer(nn.Linear(HIDDEN, n_out), gain=0.01),
        )


class QNetwork(nn.Module):
    def __init__(self, envs):
        super(QNetwork, self).__init__()
        self.encoder = NatureDQNEncoder()
        self.value = Head(1)
        self.advantage = Head(envs.single_action_space.n)

    def forward(self, x):
        h = self.encoder(x)
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient * ENCODER_GRADIENT)
        a = self.advantage(h)
        # Wang et al. subtract the mean, so that V and A are told apart
        return self.value(h) + (a - a.mean(dim=1, keepdim=True))


class ValueAlgorithm(object):
    def __init__(self, envs, device, args):
        self.envs = envs
        self.device = device
        self.gamma = args.gamma
        self.tau = args.tau
        self.target_network_frequency = args.target_network_frequency
        self.q_network = QNetwork(envs).to(device)
        self.target_network = QNetwork(envs).to(device)
        self.hard_update()
        self.optimizer = optim.Adam(self.q_network.parameters(), lr=args.learning_rate)
        self.loss_fn = nn.SmoothL1Loss()

    def hard_update(self):
        self.target_network.load_state_dict(self.q_network.state_dict())

    def select_action(self, obs, epsilon=0.0):
        if random.random() < epsilon:
            n = self.envs.single_action_space.n
            return np.array([random.randrange(n) for _ in range(len(obs))])
        with torch.no_grad():
            q = self.q_network(torch.as_tensor(obs).to(self.device))
        return q.max(dim=1)[1].cpu().numpy()

    def update(self, batch, global_step):
        s, s_next = batch.observations, batch.next_observations
        a, r, d = batch.actions.long(), batch.rewards.view(-1), batch.dones.view(-1)
        assert len(s) == len(r)

        with torch.no_grad():
            a_next = self.q_network(s_next).argmax(dim=1)
            q_next = self.target_network(s_next).gather(1, a_next.unsqueeze(1)).view(-1)
            y = r + self.gamma * (1 - d) * q_next

        q = self.q_network(s)
        q_a = q.gather(1, a).view(-1)
        loss = self.loss_fn(q_a, y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q_network.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()

        if global_step % self.target_network_frequency == 0:
            if self.tau == 1.0:
                self.hard_update()
            else:
                for p, q_ in zip(self.target_network.parameters(), self.q_network.parameters()):
                    p.data.mul_(1 - self.tau).add_(q_.data, alpha=self.tau)
        return dict(loss=loss.item(), q=q_a.mean().item(), gap=(q.max(1)[0] - q.mean(1)).mean().item())
