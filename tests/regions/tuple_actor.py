# SAC in the manner of CleanRL: get_action returns (action, log_prob, mean), and evaluation samples.

# ---------------------------------------------------------------------------- networks
class QNetwork(nn.Module):
    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.fc = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, x, a):
        x = torch.cat([x, a], 1)
        return self.fc(x)


import math

LOG_STD_MAX = 2
LOG_STD_MIN = -5


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim, 256)
        self.fc2 = nn.Linear(256, 256)
        self.fc_mean = nn.Linear(256, action_dim)
        self.fc_logstd = nn.Linear(256, action_dim)
        # action rescaling
        self.register_buffer("action_scale", torch.tensor([max_action] * action_dim))
        self.register_buffer("action_bias", torch.zeros(action_dim, dtype=torch.float32))

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        mean = self.fc_mean(x)
        log_std = self.fc_logstd(x)
        log_std = torch.tanh(log_std)
        # From SpinUp / Denis Yarats
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        return mean, log_std

    def get_action(self, x):
        mean, log_std = self(x)
        std = log_std.exp()
        normal = torch.distributions.Normal(mean, std)
        x_t = normal.rsample()  # for reparameterization trick (mean + std * N(0,1))
        y_t = torch.tanh(x_t)
        action = y_t * self.action_scale + self.action_bias
        log_prob = normal.log_prob(x_t)
        # Enforcing Action Bound
        log_prob -= torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        log_prob = log_prob.sum(1, keepdim=True)
        mean = torch.tanh(mean) * self.action_scale + self.action_bias
        return action, log_prob, mean


# ---------------------------------------------------------------------------- algorithm
class OffPolicyAlgorithm:
    """The entropy goal is counted from the uniform policy's, so that it follows max_action."""

    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.device = device
        self.args = args
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.qf1 = QNetwork(obs_dim, action_dim).to(device)
        self.qf2 = QNetwork(obs_dim, action_dim).to(device)
        self.qf1_target = QNetwork(obs_dim, action_dim).to(device)
        self.qf2_target = QNetwork(obs_dim, action_dim).to(device)
        self.qf1_target.load_state_dict(self.qf1.state_dict())
        self.qf2_target.load_state_dict(self.qf2.state_dict())
        self.q_optimizer = optim.Adam(
            list(self.qf1.parameters()) + list(self.qf2.parameters()), lr=1e-3
        )
        self.actor_optimizer = optim.Adam(list(self.actor.parameters()), lr=args.learning_rate)
        # 1.69 nats per dimension below a uniform action: SAC's -action_dim where max_action is 1
        uniform = action_dim * math.log(2 * max_action)
        self.target_entropy = uniform - 1.69 * action_dim
        self.log_alpha = torch.zeros(1, requires_grad=True, device=device)
        self.alpha = self.log_alpha.exp().item()
        self.a_optimizer = optim.Adam([self.log_alpha], lr=1e-3)
        self.global_step = 0

    def select_action(self, obs):
        actions, _, _ = self.actor.get_action(torch.Tensor(obs[None]).to(self.device))
        return actions.detach().cpu().numpy()[0]

    def update(self, batch):
        obs, next_obs, actions, rewards, dones = batch
        self.global_step += 1
        with torch.no_grad():
            next_state_actions, next_state_log_pi, _ = self.actor.get_action(next_obs)
            qf1_next_target = self.qf1_target(next_obs, next_state_actions)
            qf2_next_target = self.qf2_target(next_obs, next_state_actions)
            min_qf_next_target = (
                torch.min(qf1_next_target, qf2_next_target) - self.alpha * next_state_log_pi
            )
            next_q_value = rewards.flatten() + (
                1 - dones.flatten()
            ) * self.args.gamma * min_qf_next_target.view(-1)

        qf1_a_values = self.qf1(obs, actions).view(-1)
        qf2_a_values = self.qf2(obs, actions).view(-1)
        qf1_loss = F.mse_loss(qf1_a_values, next_q_value)
        qf2_loss = F.mse_loss(qf2_a_values, next_q_value)
        qf_loss = qf1_loss + qf2_loss

        # optimize the model
        self.q_optimizer.zero_grad()
        qf_loss.backward()
        self.q_optimizer.step()
        logs = {
            "losses/qf1_values": qf1_a_values.mean().item(),
            "losses/qf2_values": qf2_a_values.mean().item(),
            "losses/qf_loss": qf_loss.item() / 2.0,
            "losses/alpha": self.alpha,
        }

        if self.global_step % self.args.policy_frequency == 0:  # TD 3 Delayed update support
            for _ in range(self.args.policy_frequency):
                pi, log_pi, _ = self.actor.get_action(obs)
                min_qf_pi = torch.min(self.qf1(obs, pi), self.qf2(obs, pi))
                actor_loss = ((self.alpha * log_pi) - min_qf_pi).mean()

                self.actor_optimizer.zero_grad()
                actor_loss.backward()
                self.actor_optimizer.step()

                with torch.no_grad():
                    _, log_pi, _ = self.actor.get_action(obs)
                alpha_loss = (-self.log_alpha.exp() * (log_pi + self.target_entropy)).mean()

                self.a_optimizer.zero_grad()
                alpha_loss.backward()
                self.a_optimizer.step()
                self.alpha = self.log_alpha.exp().item()
            logs["losses/actor_loss"] = actor_loss.item()

        soft_update(self.qf1_target, self.qf1, self.args.tau)
        soft_update(self.qf2_target, self.qf2, self.args.tau)
        return logs
