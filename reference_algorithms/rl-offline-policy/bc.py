# Behavioural cloning: the most likely Gaussian policy, given the data. It never asks the critic, so
# what it reaches is what the data alone are worth.


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        hidden_dims = self.config.actor_hidden_dims
        return {"actor": GaussianActor(self.observation_dim, self.action_dim, hidden_dims)}

    def compute_actor_loss(self, networks, batch, critic):
        likelihood = networks["actor"](batch.observations).log_prob(batch.actions)
        return -likelihood.mean(), {}

    def sample_actions(self, networks, observations, temperature):
        return networks["actor"](observations).mode
