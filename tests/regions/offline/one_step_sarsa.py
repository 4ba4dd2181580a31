"""One-step RL (Brandfonbrener et al. 2021) with penalties on next actions, as in ReBRAC.

A small Q of our own is the value of the data's policy (SARSA: the next action is the data's own), and
says where the task's critic may be trusted. There is one optimizer and one learning rate for all of
it, so what would be settings of an optimizer stands in the loss: the gradient of the policy is
clipped on its way back, the small Q learns at twice the speed, and decay is a term.
"""


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """The same value, `factor` times the gradient."""
    return factor * x + (1.0 - factor) * x.detach()


class PolicyTrainer:
    WARM_UP, ALPHA, DECAY, CLIP = 1_000, 1.0, 1e-5, 10.0

    def __init__(self, observation_dim, action_dim, config):
        self.sizes = observation_dim, action_dim
        self.config = config
        self.register_calls = 0
        self.metrics: dict[str, float] = {}

    def create_policy_networks(self):
        observation_dim, action_dim = self.sizes
        actor = GaussianActor(
            observation_dim,
            action_dim,
            self.config.actor_hidden_dims,
            state_dependent_std=True,
            tanh_squash=True,
            layer_norm=True,
        )
        sarsa = Value(observation_dim, action_dim, [d // 4 for d in self.config.value_hidden_dims])
        return {"actor": actor, "sarsa": sarsa}

    def needs_next_actions(self):
        return True

    def get_target_update_modules(self):
        yield "actor"

    def compute_actor_loss(self, networks, batch, critic):
        self.register_calls += 1
        sarsa, actor = networks["sarsa"], networks["actor"]

        with torch.no_grad():
            following = sarsa(batch.next_observations, batch.next_actions).amin(0)
            distance = (actor(batch.next_observations).mode - batch.next_actions).pow(2).sum(1)
            wanted = batch.rewards + self.config.discount * batch.masks * (following - 0.01 * distance)
        own = sarsa(batch.observations, batch.actions)
        sarsa_loss = scaled(F.smooth_l1_loss(own, wanted.expand_as(own)), 2.0)

        actions = actor(batch.observations).rsample()
        if actions.requires_grad:
            actions.register_hook(lambda g: g * (self.CLIP / (g.norm() + 1e-6)).clamp(max=1.0))
        q = torch.minimum(critic(batch.observations, actions).mean(0), own.detach().amax(0) + 1.0)
        ramp = min(1.0, self.register_calls / self.WARM_UP)
        imitation = (actions - batch.actions).pow(2).sum(1).mean()
        decay = sum(p.pow(2).sum() for p in actor.parameters() if p.ndim > 1)
        loss = imitation * self.ALPHA - ramp * q.mean() / q.detach().abs().mean().clamp(min=1e-3)
        self.metrics = {"imitation": float(imitation), "ramp": ramp, "sarsa": float(own.mean())}
        return loss + sarsa_loss + self.DECAY * decay, self.metrics

    def sample_actions(self, networks, observations, temperature):
        return networks["actor"](observations, temperature).sample()
