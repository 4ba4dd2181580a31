# TD3+BC in ReBRAC's form: Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement
# Learning", 2021 (arXiv 2106.06860); Tarasov et al., "Revisiting the Minimalist Approach to Offline
# Reinforcement Learning", 2023 (arXiv 2305.09836). A deterministic policy is drawn to the data's
# actions and to where the critic's values are high. The task's critic has no place for ReBRAC's
# penalty on next actions, and the policy moves at every step here, not at every second one.

ALPHA = 0.3  # of the squared distance to the data's action, beside Q of mean size 1
NOISE, NOISE_CLIP = 0.2, 0.5  # of the target policy


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        hidden_dims = self.config.actor_hidden_dims
        actor = GaussianActor(self.observation_dim, self.action_dim, hidden_dims, tanh_squash=True)
        return {"actor": actor}

    def get_target_update_modules(self):
        return ["actor"]

    def compute_actor_loss(self, networks, batch, critic):
        actions = networks["actor"](batch.observations).mode
        values = critic(batch.observations, actions).mean(dim=0)
        q_loss = -values.mean() / values.detach().abs().mean()
        distance = (actions - batch.actions).square().sum(dim=1).mean()
        return q_loss + ALPHA * distance, {"q_loss": q_loss, "distance": distance}

    def sample_actions(self, networks, observations, temperature):
        actions = networks["actor"](observations).mode
        noise = torch.randn_like(actions) * NOISE
        return actions + noise.clamp(-NOISE_CLIP, NOISE_CLIP) * temperature
