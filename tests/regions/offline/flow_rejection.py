# A flow imitates the data, and nothing else: it never leaves them. What makes it better than the data
# is rejection sampling, as in IDQL and "SfBC": N candidates, the best of them is executed. The critic
# is not at hand when the policy is judged, so a scorer of one network is distilled from it; it is
# asked for the order of candidates alone, so it learns values relative to what the flow proposes.

from typing import Dict, Tuple

Tensor = torch.Tensor

NUM_CANDIDATES: int = 8
EULER_STEPS: int = 5
HUBER: float = 1.0


class PolicyTrainer:
    """Flow matching + distilled scorer + argmax over candidates."""

    def __init__(self, observation_dim: int, action_dim: int, config: Config) -> None:
        self.observation_dim, self.action_dim, self.config = observation_dim, action_dim, config

    def create_policy_networks(self) -> Dict[str, nn.Module]:
        return {
            "flow": VectorFieldActor(
                self.observation_dim,
                self.action_dim,
                self.config.actor_hidden_dims,
                layer_norm=False,
            ),
            "scorer": Value(
                self.observation_dim,
                self.action_dim,
                self.config.value_hidden_dims,
                num_ensembles=1,
            ),
        }

    def compute_actor_loss(self, networks, batch, critic) -> Tuple[Tensor, Dict[str, Tensor]]:
        obs, act = batch.observations, batch.actions
        x0 = torch.randn_like(act)
        # Logit-normal times: most of the learning where noise and data are mixed.
        t = torch.sigmoid(torch.randn(act.shape[0], 1, device=act.device))
        xt = torch.lerp(x0, act, t)
        v = networks["flow"](obs, xt, t)
        flow_loss = (v - (act - x0)).pow(2).sum(-1).mean()

        # Distil at the data's action, and at one between it and noise, so that bad ones look bad.
        with torch.no_grad():
            other = torch.lerp(act, x0.clamp(-1, 1), torch.rand_like(t))
            both_obs, both_act = torch.cat([obs, obs]), torch.cat([act, other])
            q = critic(both_obs, both_act).min(dim=0).values
            scale = q.abs().mean().clamp_min(1e-3)
        score = networks["scorer"](both_obs, both_act)
        score_loss = F.huber_loss(score, q / scale, delta=HUBER)
        return flow_loss + score_loss, dict(flow=flow_loss, score=score_loss, scale=scale)

    def sample_actions(self, networks, observations: Tensor, temperature: float) -> Tensor:
        n = 1 if temperature > 0 else NUM_CANDIDATES
        B = observations.shape[0]
        obs = observations.repeat_interleave(n, dim=0)
        x = torch.randn(B * n, self.action_dim, device=obs.device)
        dt = 1.0 / EULER_STEPS
        for i in range(EULER_STEPS):
            x = x + dt * networks["flow"](obs, x, torch.full((B * n, 1), i * dt, device=x.device))
        x = x.clamp(-1, 1)
        if n == 1:
            return x
        best = networks["scorer"](obs, x).view(B, n).argmax(dim=1)
        return x.view(B, n, -1)[torch.arange(B, device=x.device), best]
