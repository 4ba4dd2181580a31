"""What a guest is told, and what it may hold, for one environment: numbers and its own source."""

from collections.abc import Mapping

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
    dataset: str = "",
) -> dict[str, object]:
    """All that a learner or an actor is told. No name of anything.

    `dataset`: where a learner finds its file of data, if it is given one.
    """
    limits = plan.profile.limits
    config = {
        "role": role,
        "source": source,
        "numerics": dict(numerics),
        "start_seconds": limits.start_seconds,
        "frame_seconds": limits.frame_seconds,
    }
    if dataset:
        config["dataset"] = dataset
    return environment_config(environment, plan, seed, device) | config


def environment_config(
    environment: Environment, plan: Plan, seed: int, device: str
) -> dict[str, object]:
    """What a guest's `TrainingEnvironment` is made of."""
    profile = plan.profile
    warm_up = {
        "learning_starts": profile.learning_starts,
        "buffer_size": profile.buffer_size,
    }
    return {
        "seed": seed,
        "device": device,
        "parameter_budget": plan.budget.parameters(environment),
        "export_steps": profile.export_steps(),
        "constants": {
            "total_timesteps": profile.total_timesteps,
            "eval_freq": profile.eval_freq,
            "eval_episodes": profile.eval_episodes,
        }
        | (warm_up if profile.buffer_size else {})
        | dict(plan.constants)
        | environment.constants,
    } | environment.shapes


def replay_buffer_bytes(environment: Environment, plan: Plan) -> int:
    """Bytes of the scaffold's replay buffer when it is full; of an offline task's dataset."""
    return environment.buffer_bytes(min(plan.profile.buffer_size, plan.profile.total_timesteps))
