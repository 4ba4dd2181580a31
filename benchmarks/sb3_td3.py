"""Stable-Baselines3's TD3, in the very environment that our own contenders step."""

from types import ModuleType
from typing import Any

from benchmarks import sb3
from benchmarks.measuring import Asked
from benchmarks.sb3 import Settings, layers, optimizers, our_args, parameters
from harness.task import Task

HIDDEN = [256, 256]


def build(task: Task, asked: Asked) -> Any:
    import numpy as np
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    from harness.training.continuous_control import make

    environment, constants = task.environments[asked.subject.environment], task.constants
    noise = np.full(environment.action_dim, constants["exploration_noise"] * environment.max_action)
    return TD3(
        "MlpPolicy",
        make(environment),
        learning_rate=constants["learning_rate"],
        buffer_size=asked.window.total,
        learning_starts=asked.window.learning_starts,
        batch_size=int(constants["batch_size"]),
        tau=constants["tau"],
        gamma=constants["gamma"],
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros_like(noise), noise),
        policy_delay=int(constants["policy_frequency"]),
        policy_kwargs={"net_arch": HIDDEN},
        seed=asked.seed,
        device="cpu",
    )


def look_up(model: Any) -> Settings:
    networks = (model.actor, model.actor_target, model.critic, model.critic_target)
    buffer = model.replay_buffer
    return {
        "actor": layers(model.actor.mu),
        "critics": [layers(each) for each in model.critic.q_networks],
        "parameters": parameters(*networks),
        **optimizers(model.actor.optimizer, model.critic.optimizer),
        "policy_delay": model.policy_delay,
        "target_policy_noise": [model.target_policy_noise, model.target_noise_clip],
        "action_noise": model.action_noise._sigma.tolist(),
        "environment": model.env.envs[0].spec.id,
        "bootstraps_at_time_limits": buffer.handle_timeout_termination,
        "next_observations_stored": not buffer.optimize_memory_usage,
        # Not held against ours: SB3 keeps what the environment gives and converts each batch.
        "stored_observations": str(buffer.observations.dtype),
    }


def ours(task: Task, asked: Asked, module: ModuleType) -> Settings:
    import torch

    environment = task.environments[asked.subject.environment]
    args = our_args(task, asked, module)
    shapes = (environment.observation_dim, environment.action_dim, environment.max_action)
    algorithm = module.OffPolicyAlgorithm(*shapes, torch.device("cpu"), args)
    networks = [each for each in vars(algorithm).values() if isinstance(each, torch.nn.Module)]
    return {
        "actor": [*layers(algorithm.actor.net), "Tanh"],  # a function there, a layer in SB3
        "critics": [layers(algorithm.qf1.net), layers(algorithm.qf2.net)],
        "parameters": parameters(*networks),
        **optimizers(algorithm.actor_optimizer, algorithm.q_optimizer),
        "policy_delay": args.policy_frequency,
        "target_policy_noise": [algorithm.POLICY_NOISE, algorithm.NOISE_CLIP],
        "action_noise": [args.exploration_noise * environment.max_action] * environment.action_dim,
        "environment": environment.id,
        "bootstraps_at_time_limits": True,
        "next_observations_stored": True,
    }


if __name__ == "__main__":
    sb3.main(sb3.Peer(build, look_up, ours))
