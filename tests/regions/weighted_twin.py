# TD3 whose target is a weighted minimum: W * min(q1, q2) + (1 - W) * max(q1, q2).
W, SIGMA, CLIP = 0.75, 0.2, 0.5


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super(Actor, self).__init__()
        self.l1 = nn.Linear(obs_dim, 256)
        self.l2 = nn.Linear(256, 256)
        self.l3 = nn.Linear(256, action_dim)
        self.max_action = max_action

    def forward(self, s):
        a = F.relu(self.l1(s))
        a = F.relu(self.l2(a))
        return self.max_action * torch.tanh(self.l3(a))

    def get_action(self, s):
        return self.forward(s)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super(QNetwork, self).__init__()
        self.l1 = nn.Linear(obs_dim + action_dim, 256)
        self.l2 = nn.Linear(256, 256)
        self.l3 = nn.Linear(256, 1)

    def forward(self, s, a):
        q = F.relu(self.l1(torch.cat([s, a], 1)))
        q = F.relu(self.l2(q))
        return self.l3(q)


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.device, self.a_max = device, max_action
        self.gamma, self.tau, self.freq = args.gamma, args.tau, args.policy_frequency
        self.std = args.exploration_noise * max_action
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.pi_t = copy.deepcopy(self.actor)
        self.q1, self.q2 = (QNetwork(obs_dim, action_dim).to(device) for _ in range(2))
        self.q1_t, self.q2_t = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.opt_pi = optim.Adam(self.actor.parameters(), lr=args.learning_rate)
        self.opt_q = optim.Adam(
            list(self.q1.parameters()) + list(self.q2.parameters()), lr=args.learning_rate
        )
        self.it = 0

    def select_action(self, obs):
        s = torch.FloatTensor(obs.reshape(1, -1)).to(self.device)
        a = self.actor(s).cpu().data.numpy().flatten()
        return (a + np.random.normal(0, self.std, size=a.shape)).clip(-self.a_max, self.a_max)

    def update(self, batch):
        s, s2, a, r, d = batch
        self.it += 1
        with torch.no_grad():
            eps = (torch.randn_like(a) * SIGMA).clamp(-CLIP, CLIP) * self.a_max
            a2 = (self.pi_t(s2) + eps).clamp(-self.a_max, self.a_max)
            t1, t2 = self.q1_t(s2, a2), self.q2_t(s2, a2)
            # W = 1 is TD3, W = 0.5 the mean: in between the bias can be tuned.
            v = W * torch.min(t1, t2) + (1 - W) * torch.max(t1, t2)
            y = r.unsqueeze(1) + (1 - d.unsqueeze(1)) * self.gamma * v
        q1, q2 = self.q1(s, a), self.q2(s, a)
        loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        self.opt_q.zero_grad()
        loss.backward()
        self.opt_q.step()
        out = {"q_loss": loss.item(), "q_gap": (t1 - t2).abs().mean().item()}
        if self.it % self.freq:
            return out
        pi_loss = -self.q1(s, self.actor(s)).mean()
        self.opt_pi.zero_grad()
        pi_loss.backward()
        self.opt_pi.step()
        pairs = (self.actor, self.pi_t), (self.q1, self.q1_t), (self.q2, self.q2_t)
        for net, slow in pairs:
            for p, p_t in zip(net.parameters(), slow.parameters()):
                p_t.data.copy_(self.tau * p.data + (1 - self.tau) * p_t.data)
        return {**out, "actor_loss": pi_loss.item()}
