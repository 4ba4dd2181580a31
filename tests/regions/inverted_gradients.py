"""Straight-through clipping: a linear actor head, clipped, with inverted gradients at the bounds.

A tanh head saturates: once it sits at a bound, its gradient is gone. Here the head is linear and
clipped to the bounds. Clipping has no gradient outside either, so a custom Function passes it
through and scales it by the room that is left in the direction of the step (Hausknecht and Stone,
2016). Beyond a bound the room is negative: the head is pulled back.
"""


class ClipWithInvertedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(-bound, bound)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        bound = ctx.bound
        # the optimizer steps against the gradient: a negative one means that x grows
        room = torch.where(grad_output < 0, bound - x, x + bound) / (2 * bound)
        return grad_output * room, None


clip = ClipWithInvertedGradient.apply


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, action_dim)
        self.net[-1].weight.data.mul_(0.1)
        self.max_action = max_action

    def forward(self, obs):
        return clip(self.net(obs), self.max_action)

    def get_action(self, obs):
        return self.forward(obs)


class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], 1))


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.args, self.device, self.max_action = args, device, max_action
        self.actor, self.actor_target = self._pair(Actor(obs_dim, action_dim, max_action))
        self.qf1, self.qf1_target = self._pair(QNetwork(obs_dim, action_dim))
        self.qf2, self.qf2_target = self._pair(QNetwork(obs_dim, action_dim))
        self.actor_optimizer = adam(self.actor.parameters(), lr=args.learning_rate)
        self.q_optimizer = adam(
            [p for qf in (self.qf1, self.qf2) for p in qf.parameters()], lr=args.learning_rate
        )
        self.turn = 0

    def _pair(self, module):
        module = module.to(self.device)
        target = copy.deepcopy(module)
        target.requires_grad_(False)
        return module, target

    def perturbed(self, actions, std, limit=None):
        noise = torch.randn_like(actions) * std
        if limit is not None:
            noise = torch.clamp(noise, -limit, limit)
        return torch.clamp(actions + noise * self.max_action, -self.max_action, self.max_action)

    def select_action(self, obs):
        with torch.no_grad():
            obs = torch.as_tensor(obs, dtype=torch.float32, device=self.device).reshape(1, -1)
            action = self.perturbed(self.actor(obs), self.args.exploration_noise)
        return action.cpu().numpy().reshape(-1)

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.turn += 1

        with torch.no_grad():
            next_actions = self.perturbed(self.actor_target(next_obs), 0.2, limit=0.5)
            next_q = torch.min(
                self.qf1_target(next_obs, next_actions),
                self.qf2_target(next_obs, next_actions),
            )
            target = rewards[:, None] + self.args.gamma * (1 - dones)[:, None] * next_q

        q_loss = sum(F.mse_loss(qf(obs, actions), target) for qf in (self.qf1, self.qf2))
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()
        metrics = {"q_loss": q_loss.item(), "target": target.mean().item()}

        if self.turn % self.args.policy_frequency == 0:
            proposal = self.actor(obs)
            q = self.qf1(obs, proposal)
            # a Q of thousands would move a head without saturation by leaps: normalised as in TD3+BC
            actor_loss = -(q / q.detach().abs().mean().clamp(min=1e-3)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward(inputs=list(self.actor.parameters()))
            self.actor_optimizer.step()
            at_bound = (proposal.detach().abs() >= self.max_action).float().mean()
            metrics.update(actor_loss=actor_loss.item(), at_bound=at_bound.item())
            soft_update(self.actor_target, self.actor, self.args.tau)
            soft_update(self.qf1_target, self.qf1, self.args.tau)
            soft_update(self.qf2_target, self.qf2, self.args.tau)
        return metrics
