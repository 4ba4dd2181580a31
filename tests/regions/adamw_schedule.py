"""SAC with AdamW (weights alone decay), a warm-up and cosine schedule, and clipped gradients."""

import itertools
from dataclasses import dataclass, field
from typing import Dict, List


@dataclass
class TrainConfig:
    weight_decay: float = 1e-4
    max_grad_norm: float = 10.0
    warmup_updates: int = 1_000
    final_lr_ratio: float = 0.1
    init_temperature: float = 0.2
    betas: List[float] = field(default_factory=lambda: [0.9, 0.99])


def param_groups(*modules: nn.Module, weight_decay: float) -> List[dict]:
    """Matrices decay, biases do not."""
    params = list(itertools.chain.from_iterable(m.parameters() for m in modules))
    return [
        {"params": [p for p in params if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]


class Actor(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int, max_action: float):
        super().__init__()
        self.mean_and_log_std = _mlp_factory(obs_dim, action_dim * 2)
        self.max_action = max_action

    def forward(self, obs: torch.Tensor, deterministic: bool = False):
        mean, log_std = self.mean_and_log_std(obs).chunk(2, dim=-1)
        std = torch.exp(torch.clip(log_std, -10, 2))
        dist = torch.distributions.Normal(mean, std)
        raw = mean if deterministic else dist.rsample()
        action = torch.tanh(raw)
        log_prob = dist.log_prob(raw) - torch.log(self.max_action * (1 - action**2) + 1e-6)
        return action * self.max_action, log_prob.sum(dim=-1)

    def get_action(self, obs: torch.Tensor) -> torch.Tensor:
        action, _ = self.forward(obs, deterministic=True)
        return action


class QNetwork(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int):
        super().__init__()
        self.q = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.q(torch.cat([obs, action], dim=-1))


class Trainer:
    """An optimizer with its schedule and its clipping: `trainer.step(loss)`."""

    def __init__(self, groups, lr: float, total: int, cfg: TrainConfig):
        self.optimizer = optim.AdamW(groups, lr=lr, betas=tuple(cfg.betas))
        self.scheduler = optim.lr_scheduler.LambdaLR(
            self.optimizer, lr_lambda=lambda k: self.factor(k, total, cfg)
        )
        self.max_grad_norm = cfg.max_grad_norm

    @staticmethod
    def factor(k: int, total: int, cfg: TrainConfig) -> float:
        if k < cfg.warmup_updates:
            return (k + 1) / cfg.warmup_updates
        progress = min(1.0, (k - cfg.warmup_updates) / max(1, total - cfg.warmup_updates))
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return cfg.final_lr_ratio + (1 - cfg.final_lr_ratio) * cosine

    def step(self, loss: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss.backward()
        params = [p for g in self.optimizer.param_groups for p in g["params"]]
        norm = nn.utils.clip_grad_norm_(params, self.max_grad_norm)
        self.optimizer.step()
        self.scheduler.step()
        return float(norm)


class OffPolicyAlgorithm:
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.cfg = cfg = TrainConfig()
        self.gamma = args.gamma
        self.tau = args.tau
        self.device = device
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.qf1 = QNetwork(obs_dim, action_dim).to(device)
        self.qf2 = QNetwork(obs_dim, action_dim).to(device)
        self.qf1_target = copy.deepcopy(self.qf1).eval().requires_grad_(False)
        self.qf2_target = copy.deepcopy(self.qf2).eval().requires_grad_(False)
        self.log_alpha = torch.nn.Parameter(
            torch.tensor([math.log(cfg.init_temperature)], device=device)
        )
        self.target_entropy = -float(action_dim)
        total = args.total_timesteps - args.learning_starts
        decay = cfg.weight_decay
        lr = args.learning_rate
        self.q_trainer = Trainer(
            param_groups(self.qf1, self.qf2, weight_decay=decay), lr, total, cfg
        )
        self.pi_trainer = Trainer(param_groups(self.actor, weight_decay=decay), lr, total, cfg)
        self.alpha_optimizer = optim.Adam([self.log_alpha], lr=lr)

    @torch.no_grad()
    def select_action(self, obs: np.ndarray) -> np.ndarray:
        obs = torch.tensor(obs, device=self.device, dtype=torch.float32).unsqueeze(0)
        action, _ = self.actor(obs)
        return action.squeeze(0).cpu().numpy()

    def update(self, batch) -> Dict[str, float]:
        obs, next_obs, actions, rewards, dones = batch
        alpha = self.log_alpha.exp().item()

        with torch.no_grad():
            next_actions, next_log_prob = self.actor(next_obs)
            next_q = torch.min(
                self.qf1_target(next_obs, next_actions), self.qf2_target(next_obs, next_actions)
            ).squeeze(-1)
            td_target = rewards + self.gamma * (1.0 - dones) * (next_q - alpha * next_log_prob)
        q1 = self.qf1(obs, actions).squeeze(-1)
        q2 = self.qf2(obs, actions).squeeze(-1)
        q_loss = F.mse_loss(q1, td_target) + F.mse_loss(q2, td_target)
        q_norm = self.q_trainer.step(q_loss)

        pi, log_prob = self.actor(obs)
        q_pi = torch.min(self.qf1(obs, pi), self.qf2(obs, pi)).squeeze(-1)
        pi_norm = self.pi_trainer.step((alpha * log_prob - q_pi).mean())

        alpha_loss = -(self.log_alpha * (log_prob + self.target_entropy).detach()).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()

        soft_update(self.qf1_target, self.qf1, self.tau)
        soft_update(self.qf2_target, self.qf2, self.tau)
        return {
            "q_loss": q_loss.item(),
            "q_grad_norm": q_norm,
            "pi_grad_norm": pi_norm,
            "lr": self.q_trainer.scheduler.get_last_lr()[0],
            "alpha": alpha,
        }
