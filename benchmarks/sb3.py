"""Stable-Baselines3 as a contender in the speed benchmark: where it is installed, how it is held.

    python -m benchmarks.sb3_td3 install       into .venv.bench, where nothing but SB3 sees it

It gets the task's numbers. What it made of them is looked up in the built model, and anything that
differs from ours ends the benchmark. A module for each algorithm says how (`Peer`).
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.measuring import Asked, Stopwatch, parse
from harness.task import REPOSITORY, Task

DIRECTORY = REPOSITORY / ".venv.bench"
"""Beside .venv, which stays as requirements.lock has it: none of SB3's own dependencies is
installed, all of them (torch, numpy, gymnasium, cloudpickle) are .venv's. OpenCV, which its Atari
wrappers need, is the one that the lock lacks."""
ADVICE = "python -m benchmarks.sb3_td3 install"

Settings = dict[str, Any]


class Peer(NamedTuple):
    """One of SB3's algorithms, as the counterpart of ours."""

    build: Callable[[Task, Asked], Any]
    """The model."""
    look_up: Callable[[Any], Settings]
    """What a built model will do."""
    ours: Callable[[Task, Asked, ModuleType], Settings]
    """The same of our algorithm, from its module, and of the scaffold. What `look_up` has and this
    has not is kept and not compared."""


def wanted() -> list[str]:
    """The requirements as pyproject.toml has them: "stable-baselines3==1.2.3" and others."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["project"]["optional-dependencies"]["benchmarks"])


def installed() -> bool:
    """Whether those very versions are there."""
    pins = [each.replace("-", "_").partition("==") for each in wanted()]
    return all((DIRECTORY / f"{name}-{version}.dist-info").is_dir() for name, _, version in pins)


def install() -> None:
    if not installed():
        options = ["-qq", "--no-deps", "--upgrade", "--target", str(DIRECTORY)]
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options]
        elsewhere = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV")
        kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
        subprocess.run([*command, *wanted()], env=kept, check=True)


def main(peer: Peer) -> None:
    """What a module of a peer does."""
    if sys.argv[1:] == ["install"]:
        install()
    else:
        print(json.dumps(train(parse(__doc__.splitlines()[0]), peer)), flush=True)


def train(asked: Asked, peer: Peer) -> dict[str, Any]:
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from harness.intake.submission import accept
    from sandbox.guest.source import load_source

    class Watching(BaseCallback):
        """SB3 calls it after each step of the environment, as ours call `tick`."""

        def _on_step(self) -> bool:
            stopwatch.tick()
            return True

    torch.set_num_threads(1)
    stopwatch = Stopwatch(asked.window)
    task = Task.load(asked.task)
    model = peer.build(task, asked)
    configuration = shared(model) | peer.look_up(model)
    module = load_source(accept(task, asked.subject.source).source.decode())
    compare(configuration, our_shared(task, asked) | peer.ours(task, asked, module))
    model.learn(asked.window.total, callback=Watching())
    learning = asked.window.total - asked.window.learning_starts
    updates = learning // cadence(task)
    if model._n_updates != updates:
        raise RuntimeError(f"SB3 made {model._n_updates} updates, not {updates}")
    return stopwatch.result(
        version=stable_baselines3.__version__, configuration=configuration, updates=updates
    )


def compare(configuration: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises RuntimeError where SB3's settings are not the expected ones."""
    different = {
        name: (configuration[name], value)
        for name, value in expected.items()
        if configuration[name] != value
    }
    if different:
        raise RuntimeError(f"SB3 is not configured as ours is (its value, ours): {different}")


def shared(model: Any) -> Settings:
    """What is looked up in the same way in all of SB3's off-policy algorithms."""
    import torch

    return {
        "scheduled_learning_rates": [model.lr_schedule(left) for left in (1.0, 0.5, 0.0)],
        "batch_size": model.batch_size,
        "gamma": model.gamma,
        "tau": model.tau,
        "train_frequency": [model.train_freq.frequency, model.train_freq.unit.value],
        "gradient_steps": model.gradient_steps,
        "learning_starts": model.learning_starts,
        "n_steps": model.n_steps,
        "environments": model.n_envs,
        "buffer_size": model.replay_buffer.buffer_size,
        "device": str(model.device),
        "threads": torch.get_num_threads(),
    }


def our_shared(task: Task, asked: Asked) -> Settings:
    constants, window = task.constants, asked.window
    return {
        "scheduled_learning_rates": [constants["learning_rate"]] * 3,
        "batch_size": constants["batch_size"],
        "gamma": constants["gamma"],
        "tau": constants["tau"],
        "train_frequency": [cadence(task), "step"],
        "gradient_steps": 1,
        "learning_starts": window.learning_starts,
        "n_steps": 1,
        "environments": 1,
        "buffer_size": window.total,
        "device": "cpu",
        "threads": 1,
    }


def cadence(task: Task) -> int:
    """Steps for each update."""
    return int(task.constants.get("train_frequency", 1))


def our_args(task: Task, asked: Asked, module: ModuleType) -> Any:
    """What our algorithm is built with."""
    window = asked.window
    return module.Args(
        seed=asked.seed,
        total_timesteps=window.total,
        learning_starts=window.learning_starts,
        buffer_size=window.total,
        eval_freq=window.total,
        eval_episodes=1,
        **task.constants,
    )


def optimizers(*each: Any) -> Settings:
    return {
        "optimizers": [type(optimizer).__name__ for optimizer in each],
        "optimizer_settings": [
            [group["lr"], *group["betas"], group["eps"], group["weight_decay"]]
            for optimizer in each
            for group in optimizer.param_groups
        ],
    }


def parameters(*networks: Any) -> int:
    return sum(each.numel() for network in networks for each in network.parameters())


def layers(network: Any) -> list[str]:
    """Of a sequence of layers, each in a few words."""
    return [_layer(each) for each in network]


def _layer(layer: Any) -> str:
    if hasattr(layer, "in_features"):
        return f"{layer.in_features}x{layer.out_features}"
    if hasattr(layer, "kernel_size"):
        sizes = (layer.kernel_size, layer.stride, layer.padding)
        return f"{layer.in_channels}x{layer.out_channels}, kernel, stride, padding {sizes}"
    return type(layer).__name__
