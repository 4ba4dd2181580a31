"""The program of every guest: connect, receive the source, and train, act or be tried with it.

Started as `python -m sandbox.guest SOCKET`. Everything of ours, torch included, is imported before
HELLO is sent, and HELLO before a byte of the submission has arrived: a guest that fails earlier has
failed for a reason that no submission can produce.
"""

import json
import socket
import sys
import traceback
from typing import Any

import torch

from sandbox import wire
from sandbox.guest import lazy_compiler, numerics
from sandbox.guest.client import environment_of
from sandbox.guest.parameters import OverBudget
from sandbox.guest.shapes import BadAction
from sandbox.guest.source import act, load_actor, load_source, seed_everything
from sandbox.guest.trial import ReloadedDiffers, try_out
from sandbox.guest.watchdog import Watchdog
from sandbox.wire import SOURCE_NAME, FailureKind, Kind

_OWN_WORDS: dict[type[Exception], FailureKind] = {
    OverBudget: FailureKind.OVER_BUDGET,
    BadAction: FailureKind.BAD_ACTION,
    ReloadedDiffers: FailureKind.RELOADED_DIFFERS,
}
"""What our own code raises: its message says all, and a traceback nothing more."""


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
        if type(error) not in _OWN_WORDS:
            traceback.print_exc()
        channel.send(Kind.FAILURE, _last_words(error))
        sys.exit(1)


def _live(channel: wire.Channel, config: dict[str, Any], artefact: bytes) -> None:
    lazy_compiler.install()
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
    if config["role"] == "trial":
        try_out(channel, watchdog, module, config)
        return
    environment = environment_of(channel, watchdog, config)
    if config["role"] == "learner":
        module.train(environment)
        return

    policy = load_actor(module, artefact, environment)
    # Loading may have built an algorithm and drawn numbers for it.
    seed_everything(config["seed"])
    channel.send(Kind.READY)
    watchdog.started()
    watchdog.rest()
    while True:
        payload = channel.receive().payload
        watchdog.watch()
        actions = act(module, policy, payload, environment)
        watchdog.rest()
        channel.send(Kind.ACTIONS, actions)


def _last_words(error: Exception) -> bytes:
    if type(error) in _OWN_WORDS:
        return wire.encode_failure(_OWN_WORDS[type(error)], str(error), getattr(error, "line", 0))
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
    # Where the submission was last, though a library raised.
    line = next((each.lineno for each in reversed(frames) if each.filename == SOURCE_NAME), None)
    return wire.encode_failure(FailureKind.EXCEPTION, text, line or 0)


if __name__ == "__main__":
    main(sys.argv[1])
