# Averaged DQN for the price of one: the target is a running mean of the online network's weights.
#
# It moves a little in every update, over about as many as a copied target would wait for the next
# copy. The mean starts from nothing and is corrected for it, as Adam's are, so that the first
# updates do not chase the weights of the initialisation.

UPDATE_EVERY = 4


class QNetwork(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        self.out = nn.Linear(ENCODER_FEATURE_DIM, envs.single_action_space.n)

    def forward(self, x): return self.out(self.encoder(x))


class RunningMean:
    """Of a module's parameters; `module` is a copy that holds it, corrected."""

    def __init__(self, of, rate):
        self.source, self.rate, self.weight = of, rate, 0.0
        self.module = copy.deepcopy(of)
        for p in self.module.parameters():
            p.requires_grad = False

    @torch.no_grad()
    def step(self):
        # one formula for the sum and its correction: the share of the newest among all so far
        self.weight = self.weight * (1 - self.rate) + self.rate
        share = self.rate / self.weight
        for mean, new in zip(self.module.parameters(), self.source.parameters()):
            mean += share * (new - mean)
        return share

    def __call__(self, x): return self.module(x)


class ValueAlgorithm:
    def __init__(self, envs, device, args):
        period = max(1, args.target_network_frequency // UPDATE_EVERY)
        q, gamma = QNetwork(envs).to(device), args.gamma
        mean = RunningMean(q, rate=args.tau / period)
        opt = optim.Adam(q.parameters(), lr=args.learning_rate)
        self.q_network, self.mean = q, mean
        self.target_network = mean.module

        def act(obs, epsilon=0.0):
            with torch.no_grad():
                return q(torch.tensor(obs, device=device)).argmax(-1).cpu().numpy()

        def learn(batch, global_step):
            with torch.no_grad():
                best = mean(batch.next_observations).amax(1, keepdim=True)
                goal = batch.rewards + gamma * (1 - batch.dones) * best
            error = q(batch.observations).gather(1, batch.actions) - goal
            loss = (error ** 2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
            share = mean.step()
            return {"loss": loss.detach(), "goal": goal.mean(), "td": error.detach().abs().mean(), "share": share}

        self._act, self._learn = act, learn

    def select_action(self, obs, epsilon=0.0): return self._act(obs, epsilon)
    def update(self, batch, global_step): return self._learn(batch, global_step)
