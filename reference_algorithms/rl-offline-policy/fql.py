# FQL: Park, Li and Levine, "Flow Q-Learning", 2025 (arXiv 2502.02538). A flow imitates the data; a
# policy of one step is held close to what the flow would do, and drawn to where the critic's values
# are high. The critic is the task's own, which is FQL's: twin Q functions, the target network's
# minimum or mean, at an action of the one-step policy.

FLOW_STEPS = 10  # of Euler's method, from noise at time 0 to an action at time 1


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        sizes = (self.observation_dim, self.action_dim, self.config.actor_hidden_dims)
        return {
            "flow": VectorFieldActor(*sizes, times=True),
            "one_step": VectorFieldActor(*sizes, times=False),
        }

    def compute_actor_loss(self, networks, batch, critic):
        # The flow learns the velocities that carry noise to the data's actions in straight lines.
        noise = torch.randn_like(batch.actions)
        times = torch.rand_like(batch.actions[:, :1])
        between = (1.0 - times) * noise + times * batch.actions
        velocities = networks["flow"](batch.observations, between, times)
        flow_loss = F.mse_loss(velocities, batch.actions - noise)

        # The one-step policy learns where the flow carries noise to, and what the critic values.
        noise = torch.randn_like(batch.actions)
        with torch.no_grad():
            carried = self.follow_flow(networks["flow"], batch.observations, noise)
        actions = networks["one_step"](batch.observations, noise)
        distill_loss = F.mse_loss(actions, carried)
        values = critic(batch.observations, actions.clamp(-1.0, 1.0)).mean(dim=0)
        q_loss = -values.mean()
        if self.config.normalize_q_loss:
            q_loss = q_loss / values.detach().abs().mean()

        loss = flow_loss + self.config.alpha * distill_loss + q_loss
        return loss, {"flow_loss": flow_loss, "distill_loss": distill_loss, "q_loss": q_loss}

    def follow_flow(self, flow, observations, actions):
        for step in range(FLOW_STEPS):
            times = torch.full_like(actions[:, :1], step / FLOW_STEPS)
            actions = actions + flow(observations, actions, times) / FLOW_STEPS
        return actions.clamp(-1.0, 1.0)

    def sample_actions(self, networks, observations, temperature):
        # Fresh noise when the policy is judged, too: FQL has no temperature.
        noise = torch.randn(len(observations), self.action_dim, device=observations.device)
        return networks["one_step"](observations, noise)
