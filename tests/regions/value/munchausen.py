"""Munchausen DQN: the log-policy of the action that was taken is added to its reward.

Soft policies over Q with temperature TEMPERATURE; both of them come from the target network, so that
the online one is asked once. The log-policy is clipped from below: the rare action costs 1 at most,
before ALPHA. Exploration is left to the loop, greedy in Q, which is greedy in the soft policy too.
"""

ALPHA = 0.9
TEMPERATURE = 0.03
LOWEST = -1.0


def soft_log_policy(q):
    """temperature * log pi, (B, n), without ever taking the logarithm of a small number."""
    v = q.max(dim=1, keepdim=True)[0]
    shifted = q - v
    return shifted - TEMPERATURE * torch.logsumexp(shifted / TEMPERATURE, dim=1, keepdim=True)


class QNetwork(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.network = nn.Sequential(
            NatureDQNEncoder(),
            nn.Linear(ENCODER_FEATURE_DIM, int(envs.single_action_space.n)),
        )

    def forward(self, x):
        return self.network(x)


class ValueAlgorithm:
    def __init__(self, envs, device, args):
        self.device = device
        self.args = args
        self.q_network = QNetwork(envs).to(device)
        self.target_network = QNetwork(envs).to(device)
        self.target_network.load_state_dict(self.q_network.state_dict())
        self.optimizer = optim.Adam(self.q_network.parameters(), lr=args.learning_rate, eps=1e-5)

    def select_action(self, obs, epsilon=0.0):
        with torch.no_grad():
            q_values = self.q_network(torch.Tensor(obs).to(self.device))
        return torch.argmax(q_values, dim=1).cpu().numpy()

    def soft_target(self, data):
        log_policy = soft_log_policy(self.target_network(data.observations))
        bonus = log_policy.gather(1, data.actions).clamp(LOWEST, 0.0).squeeze(1)
        next_q = self.target_network(data.next_observations)
        next_log_policy = soft_log_policy(next_q)
        policy = (next_log_policy / TEMPERATURE).exp()
        soft_value = (policy * (next_q - next_log_policy)).sum(dim=1)
        reward = data.rewards.flatten() + ALPHA * bonus
        target = reward + self.args.gamma * soft_value * (1 - data.dones.flatten())
        return target, bonus

    def update(self, batch, global_step):
        with torch.no_grad():
            td_target, bonus = self.soft_target(batch)
        old_val = self.q_network(batch.observations).gather(1, batch.actions).squeeze()
        loss = F.smooth_l1_loss(old_val, td_target)

        # optimize the model
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        # update target network
        if global_step % self.args.target_network_frequency == 0:
            for target_param, param in zip(
                self.target_network.parameters(), self.q_network.parameters()
            ):
                target_param.data.copy_(
                    self.args.tau * param.data + (1.0 - self.args.tau) * target_param.data
                )
        return {
            "losses/td_loss": loss.item(),
            "losses/q_values": old_val.mean().item(),
            "losses/munchausen_bonus": bonus.mean().item(),
        }
