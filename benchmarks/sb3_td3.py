"""Stable-Baselines3's TD3 as a contender in the speed benchmark, and where it is installed.

    python -m benchmarks.sb3_td3 install       into .venv.bench, where nothing but this file sees it

It gets the very environment that our own contenders step, and the task's numbers. What it made of
them is looked up in the built model, and anything that differs from ours ends the benchmark.
"""

import json
import os
import subprocess
import sys
import tomllib
from typing import Any

from benchmarks.measuring import ENVIRONMENT, TASK, TD3_FILE, Asked, Stopwatch, parse
from harness.task import REPOSITORY, Task

DIRECTORY = REPOSITORY / ".venv.bench"
"""Beside .venv, which stays as requirements.lock has it: none of SB3's own dependencies is
installed, all of them (torch, numpy, gymnasium, cloudpickle) are .venv's."""
HIDDEN = [256, 256]
ADVICE = "python -m benchmarks.sb3_td3 install"


def wanted() -> str:
    """The requirement as pyproject.toml has it: "stable-baselines3==1.2.3"."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        [requirement] = tomllib.load(file)["project"]["optional-dependencies"]["benchmarks"]
    return str(requirement)


def installed() -> bool:
    """Whether that very version is there."""
    version = wanted().partition("==")[2]
    return (DIRECTORY / f"stable_baselines3-{version}.dist-info").is_dir()


def install() -> None:
    if not installed():
        options = ["-qq", "--no-deps", "--upgrade", "--target", str(DIRECTORY)]
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options]
        elsewhere = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV")
        kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
        subprocess.run([*command, wanted()], env=kept, check=True)


def train(asked: Asked) -> dict[str, Any]:
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise

    from harness.training.environments import make

    class Watching(BaseCallback):
        """SB3 calls it after each step of the environment, as ours call `tick`."""

        def _on_step(self) -> bool:
            stopwatch.tick()
            return True

    torch.set_num_threads(1)
    stopwatch = Stopwatch(asked.window)
    task = Task.load(TASK)
    environment, constants = task.environments[ENVIRONMENT], task.constants
    noise = np.full(environment.action_dim, constants["exploration_noise"] * environment.max_action)
    model = TD3(
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
    configuration = look_up(model)
    expected = ours(task, asked)
    different = {
        name: (configuration[name], value)
        for name, value in expected.items()
        if configuration[name] != value
    }
    if different:
        raise RuntimeError(f"SB3 is not configured as TD3 is here (its value, ours): {different}")
    model.learn(asked.window.total, callback=Watching())
    updates = asked.window.total - asked.window.learning_starts
    if model._n_updates != updates:
        raise RuntimeError(f"SB3 made {model._n_updates} updates, not {updates}")
    return stopwatch.result(
        version=stable_baselines3.__version__, configuration=configuration, updates=updates
    )


def look_up(model: Any) -> dict[str, Any]:
    """What a built model of SB3's will do."""
    import torch

    networks = (model.actor, model.actor_target, model.critic, model.critic_target)
    optimizers = (model.actor.optimizer, model.critic.optimizer)
    buffer = model.replay_buffer
    return {
        "actor": _layers(model.actor.mu),
        "critics": [_layers(each) for each in model.critic.q_networks],
        "parameters": sum(each.numel() for network in networks for each in network.parameters()),
        "optimizers": [type(each).__name__ for each in optimizers],
        "learning_rates": [group["lr"] for each in optimizers for group in each.param_groups],
        "scheduled_learning_rates": [model.lr_schedule(left) for left in (1.0, 0.5, 0.0)],
        "batch_size": model.batch_size,
        "gamma": model.gamma,
        "tau": model.tau,
        "train_frequency": [model.train_freq.frequency, model.train_freq.unit.value],
        "gradient_steps": model.gradient_steps,
        "policy_delay": model.policy_delay,
        "learning_starts": model.learning_starts,
        "target_policy_noise": [model.target_policy_noise, model.target_noise_clip],
        "action_noise": model.action_noise._sigma.tolist(),
        "n_steps": model.n_steps,
        "environments": model.n_envs,
        "environment": model.env.envs[0].spec.id,
        "bootstraps_at_time_limits": buffer.handle_timeout_termination,
        "next_observations_stored": not buffer.optimize_memory_usage,
        "buffer_size": buffer.buffer_size,
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        # Not held against ours: SB3 keeps what the environment gives and converts each batch.
        "stored_observations": str(buffer.observations.dtype),
    }


def ours(task: Task, asked: Asked) -> dict[str, Any]:
    """The same for our TD3: from the algorithm as the task's source builds it, and the scaffold."""
    import torch

    from harness.intake.submission import accept
    from sandbox.guest.source import load_source

    environment, constants = task.environments[ENVIRONMENT], task.constants
    window = asked.window
    module = load_source(accept(task, TD3_FILE).source.decode())
    args = module.Args(
        seed=asked.seed,
        total_timesteps=window.total,
        learning_starts=window.learning_starts,
        buffer_size=window.total,
        eval_freq=window.total,
        eval_episodes=1,
        **constants,
    )
    shapes = (environment.observation_dim, environment.action_dim, environment.max_action)
    algorithm = module.OffPolicyAlgorithm(*shapes, torch.device("cpu"), args)
    networks = [each for each in vars(algorithm).values() if isinstance(each, torch.nn.Module)]
    optimizers = (algorithm.actor_optimizer, algorithm.q_optimizer)
    return {
        "actor": [*_layers(algorithm.actor.net), "Tanh"],  # a function there, a layer in SB3
        "critics": [_layers(algorithm.qf1.net), _layers(algorithm.qf2.net)],
        "parameters": sum(each.numel() for network in networks for each in network.parameters()),
        "optimizers": [type(each).__name__ for each in optimizers],
        "learning_rates": [group["lr"] for each in optimizers for group in each.param_groups],
        "scheduled_learning_rates": [args.learning_rate] * 3,
        "batch_size": args.batch_size,
        "gamma": args.gamma,
        "tau": args.tau,
        "train_frequency": [1, "step"],
        "gradient_steps": 1,
        "policy_delay": args.policy_frequency,
        "learning_starts": args.learning_starts,
        "target_policy_noise": [algorithm.POLICY_NOISE, algorithm.NOISE_CLIP],
        "action_noise": [args.exploration_noise * environment.max_action] * environment.action_dim,
        "n_steps": 1,
        "environments": 1,
        "environment": environment.id,
        "bootstraps_at_time_limits": True,
        "next_observations_stored": True,
        "buffer_size": min(args.buffer_size, args.total_timesteps),
        "device": "cpu",
        "threads": 1,
    }


def _layers(network: Any) -> list[str]:
    return [
        f"{each.in_features}x{each.out_features}"
        if hasattr(each, "in_features")
        else type(each).__name__
        for each in network
    ]


def main() -> None:
    if sys.argv[1:] == ["install"]:
        install()
    else:
        print(json.dumps(train(parse(__doc__.splitlines()[0]))), flush=True)


if __name__ == "__main__":
    main()
