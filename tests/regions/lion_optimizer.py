# TD3 trained by Lion: a torch.optim.Optimizer of its own, that steps by the sign of a momentum.
from torch.optim.optimizer import Optimizer


class Lion(Optimizer):
    r"""EvoLved sIgn mOmeNtum (Chen et al., 2023).

    .. math::
        u_t = \mathrm{sign}(\beta_1 m_{t-1} + (1 - \beta_1) g_t), \quad
        \theta_t = \theta_{t-1} - \eta (u_t + \lambda \theta_{t-1}), \quad
        m_t = \beta_2 m_{t-1} + (1 - \beta_2) g_t

    One buffer a parameter, half of Adam's. Every weight moves by the same amount, so the learning
    rate has to be several times smaller, and the decay larger by the same factor.
    """

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if not 0.0 <= lr:
            raise ValueError("Invalid learning rate: {}".format(lr))
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError("Invalid beta parameter at index %d: %r" % (index, beta))
        defaults = dict(lr=lr, betas=betas, weight_decay=weight_decay)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg = state["exp_avg"]
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                direction = exp_avg.mul(beta1).add_(p.grad, alpha=1 - beta1).sign_()
                p.add_(direction, alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        nn.Module.__init__(self)
        self.pi = _mlp_factory(obs_dim, action_dim)
        self.pi[-1].weight.data *= 0.1  # sign steps saturate a tanh soon enough
        self.act_limit = max_action

    def forward(self, obs):
        return self.act_limit * torch.tanh(self.pi(obs))

    def get_action(self, obs):
        return self.forward(obs)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        nn.Module.__init__(self)
        self.q = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        q = self.q(torch.cat([obs, action], dim=-1))
        return q


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        torch.manual_seed(args.seed)
        np.random.seed(args.seed)
        self.device = device
        self.act_dim, self.act_limit = action_dim, max_action
        self.gamma, self.tau, self.policy_delay = args.gamma, args.tau, args.policy_frequency
        self.act_noise = getattr(args, "exploration_noise", 0.1)

        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.q1 = QNetwork(obs_dim, action_dim).to(device)
        self.q2 = QNetwork(obs_dim, action_dim).to(device)
        self.targ = [copy.deepcopy(net) for net in (self.actor, self.q1, self.q2)]
        for p in (p for net in self.targ for p in net.parameters()):
            p.requires_grad = False

        lr = args.learning_rate / 10
        self.pi_optimizer = Lion(self.actor.parameters(), lr=lr)
        self.q_optimizer = Lion(
            [*self.q1.parameters(), *self.q2.parameters()], lr=lr, weight_decay=1e-3
        )
        self.timer = 0

    def select_action(self, obs):
        with torch.no_grad():
            a = self.actor(torch.as_tensor(obs, dtype=torch.float32, device=self.device)[None])
        a = a.cpu().numpy()[0]
        a += self.act_noise * self.act_limit * np.random.randn(self.act_dim)
        return np.clip(a, -self.act_limit, self.act_limit)

    def compute_loss_q(self, data):
        o, o2, a, r, d = data
        pi_targ, q1_targ, q2_targ = self.targ
        q1 = self.q1(o, a)
        q2 = self.q2(o, a)
        # Bellman backup for Q functions
        with torch.no_grad():
            epsilon = torch.clamp(torch.randn_like(a) * 0.2, -0.5, 0.5) * self.act_limit
            a2 = torch.clamp(pi_targ(o2) + epsilon, -self.act_limit, self.act_limit)
            q_pi_targ = torch.min(q1_targ(o2, a2), q2_targ(o2, a2))
            backup = r[:, None] + self.gamma * (1 - d[:, None]) * q_pi_targ
        return ((q1 - backup) ** 2).mean() + ((q2 - backup) ** 2).mean(), q1

    def update(self, data):
        self.timer += 1

        def closure():
            self.q_optimizer.zero_grad()
            loss, _ = self.compute_loss_q(data)
            loss.backward()
            return loss

        loss_q = self.q_optimizer.step(closure)
        info = dict(LossQ=loss_q.item())

        if self.timer % self.policy_delay == 0:
            for p in self.q1.parameters():
                p.requires_grad = False
            loss_pi = -self.q1(data[0], self.actor(data[0])).mean()
            self.pi_optimizer.zero_grad()
            loss_pi.backward()
            self.pi_optimizer.step()
            for p in self.q1.parameters():
                p.requires_grad = True
            info["LossPi"] = loss_pi.item()
            for net, targ in zip((self.actor, self.q1, self.q2), self.targ):
                soft_update(targ, net, self.tau)
        return info
