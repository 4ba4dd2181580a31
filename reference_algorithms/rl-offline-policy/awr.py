# Advantage-weighted regression in IQL's form: Peng et al., "Advantage-Weighted Regression", 2019
# (arXiv 1910.00177); Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning",
# 2021 (arXiv 2110.06169). A value network learns a high expectile of the critic's values of the
# data's actions; the policy imitates each action by its advantage over that. In IQL the critic
# learns from that value network too; here it is the task's, which asks the policy.

ALPHA = 2.0  # inverse temperature, of advantages in units of their standard deviation
EXPECTILE = 0.9
MAX_WEIGHT = 100.0


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        config = self.config
        return {
            "actor": GaussianActor(self.observation_dim, self.action_dim, config.actor_hidden_dims),
            "value": Value(self.observation_dim, 0, config.value_hidden_dims, num_ensembles=1),
        }

    def compute_actor_loss(self, networks, batch, critic):
        with torch.no_grad():
            q = critic(batch.observations, batch.actions).amin(dim=0)
        value = networks["value"](batch.observations)
        advantage = q - value
        # Overestimates weigh little: the value is pushed to the best that the data's actions give.
        weight = torch.where(advantage > 0, EXPECTILE, 1.0 - EXPECTILE)
        value_loss = (weight * advantage.square()).mean()

        scaled = advantage.detach() / (advantage.detach().std() + 1e-6)
        weight = torch.exp(ALPHA * scaled).clamp(max=MAX_WEIGHT)
        likelihood = networks["actor"](batch.observations).log_prob(batch.actions)
        actor_loss = -(weight * likelihood).mean()
        return value_loss + actor_loss, {"value_loss": value_loss, "weight": weight.mean()}

    def sample_actions(self, networks, observations, temperature):
        return networks["actor"](observations).mode
