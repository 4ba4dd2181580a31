"""What a guest is told, and what it may hold, for one environment: numbers and its own source."""

from collections.abc import Mapping

import numpy as np

from harness.records import Plan
from harness.task import Environment


def guest_config(
    role: str,
    environment: Environment,
    plan: Plan,
    seed: int,
    source: str,
    device: str,
    numerics: Mapping[str, str],
) -> dict[str, object]:
    """All that a guest is told. No name of anything."""
    profile = plan.profile
    return {
        "role": role,
        "source": source,
        "seed": seed,
        "device": device,
        "numerics": dict(numerics),
        "observation_dim": environment.observation_dim,
        "action_dim": environment.action_dim,
        "max_action": float(np.float32(environment.max_action)),
        "parameter_budget": plan.budget.parameters(environment),
        "export_steps": profile.export_steps(),
        "start_seconds": profile.limits.start_seconds,
        "frame_seconds": profile.limits.frame_seconds,
        "constants": {
            "total_timesteps": profile.total_timesteps,
            "learning_starts": profile.learning_starts,
            "buffer_size": profile.buffer_size,
            "eval_freq": profile.eval_freq,
            "eval_episodes": profile.eval_episodes,
        }
        | dict(plan.constants),
    }


def replay_buffer_bytes(environment: Environment, plan: Plan) -> int:
    """Bytes of the scaffold's replay buffer when it is full: float32 rows."""
    capacity = min(plan.profile.buffer_size, plan.profile.total_timesteps)
    row = 2 * environment.observation_dim + environment.action_dim + 2
    return capacity * row * 4
