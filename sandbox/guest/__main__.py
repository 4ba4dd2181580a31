"""The first program of every guest: connect, receive the source, and train or act with it.

Started as `python -m sandbox.guest SOCKET`. Everything of ours, torch included, is imported before
HELLO is sent, and HELLO before a byte of the submission has arrived: a guest that fails earlier has
failed for a reason that no submission can produce.
"""

import json
import linecache
import random
import socket
import sys
import traceback
from types import ModuleType
from typing import Any

import numpy as np
import torch

from sandbox import wire
from sandbox.guest import numerics
from sandbox.guest.client import TrainingEnvironment
from sandbox.guest.parameters import OverBudget
from sandbox.guest.policy import load_policy
from sandbox.guest.shapes import WrongShape, checked_shape
from sandbox.guest.watchdog import Watchdog
from sandbox.wire import FailureKind, Kind

SOURCE_NAME = "submission.py"
MODULE_NAME = "submission"


def main(path: str) -> None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    channel = wire.Channel(connection, wire.HOST_CAPS)
    channel.send(Kind.HELLO)
    config = json.loads(channel.receive().payload)
    artefact = channel.receive().payload if config["role"] == "actor" else b""
    try:
        _live(channel, config, artefact)
    except (wire.Closed, wire.Late):
        return  # The host has what it needs, or is gone.
    except Exception as error:  # noqa: BLE001 - the guest's last words, whatever ended it
        traceback.print_exc()
        channel.send(Kind.FAILURE, _last_words(error))
        sys.exit(1)


def _live(channel: wire.Channel, config: dict[str, Any], artefact: bytes) -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    numerics.install(config["numerics"])
    if config["device"] == "cuda":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True

    watchdog = Watchdog(config["start_seconds"], config["frame_seconds"])
    watchdog.watch()
    seed_everything(config["seed"])
    module = load_source(config["source"])
    channel.send(Kind.IMPORTED)
    watchdog.watch()
    environment = TrainingEnvironment(channel, watchdog, config)
    if config["role"] == "learner":
        module.train(environment)
        return

    def build() -> torch.nn.Module:
        return module.build(environment).actor  # type: ignore[no-any-return]

    policy = load_policy(artefact, build, torch.device(config["device"]))
    # Loading may have built an algorithm and drawn numbers for it.
    seed_everything(config["seed"])
    channel.send(Kind.READY)
    watchdog.started()
    watchdog.rest()
    shape = (config["observation_dim"], config["action_dim"])
    while True:
        payload = channel.receive().payload
        watchdog.watch()
        actions = answer(module, policy, payload, *shape, config["device"])
        watchdog.rest()
        channel.send(Kind.ACTIONS, actions)


def answer(
    module: ModuleType,
    policy: torch.nn.Module,
    payload: bytes,
    observation_dim: int,
    action_dim: int,
    device: str,
) -> bytes:
    """The policy's actions, float32 (B, A), for the observations (B, O) of an evaluator's frame."""
    observations = np.frombuffer(payload, dtype=np.float32).reshape(-1, observation_dim)
    tensor = torch.from_numpy(observations.copy()).to(device)
    shape = (len(observations), action_dim)
    return checked_shape("get_action", module.act(policy, tensor), shape).tobytes()


def load_source(source: str, name: str = SOURCE_NAME) -> ModuleType:
    """Run the accepted source as a module of its own, whose lines tracebacks can show."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = ModuleType(MODULE_NAME)
    # Pickled policies name their classes by this module, in the learner and in the actor.
    sys.modules[MODULE_NAME] = module
    exec(compile(source, name, "exec"), vars(module))
    return module


def seed_everything(seed: int) -> None:
    """Seed the three global generators that submissions draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _last_words(error: Exception) -> bytes:
    if isinstance(error, OverBudget):
        return wire.encode_failure(FailureKind.OVER_BUDGET, str(error))
    if isinstance(error, WrongShape):
        return wire.encode_failure(FailureKind.WRONG_SHAPE, str(error))
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if "/sandbox/guest/" not in each.filename
    ]
    text = "".join(
        [
            "Traceback (most recent call last):\n",
            *traceback.format_list(frames),
            *traceback.format_exception_only(error),
        ]
    )
    return wire.encode_failure(FailureKind.EXCEPTION, text)


if __name__ == "__main__":
    main(sys.argv[1])
