"""Tries a submission on made-up data: does it build, act, learn, and act the same once reloaded?

The scaffold's own loop runs, against a host that is made up too, here in the guest: nothing of a
real environment is needed to find a crash that would else come after an hour of training.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch

from sandbox import wire
from sandbox.guest.client import AnyEnvironment, Clock, Line, environment_of
from sandbox.guest.frames import FrameBuffer
from sandbox.guest.made_up import MADE_UP, MadeUp
from sandbox.guest.parameters import count_by_module
from sandbox.guest.policy import STATE_DICT, export_policy
from sandbox.guest.replay import ReplayBuffer
from sandbox.guest.shapes import BadAction
from sandbox.guest.source import MODULE_NAME, act, load_actor, load_source, seed_everything
from sandbox.wire import SOURCE_NAME, Counts, Frame, Kind

CAPACITY = 1024
"""Transitions that the scaffold's buffer keeps in a trial."""
OBSERVATIONS = 16
"""On which the live and the reloaded policy are compared."""
RELATIVE, ABSOLUTE = 1e-4, 1e-5
"""Far more than rounding changes. A statistic that moves an action by less, in the few updates of a
trial, is not noticed."""


class ReloadedDiffers(Exception):
    """The exported policy does not act as the live one did; the message says by how much."""


def try_out(channel: Line, clock: Clock, module: ModuleType, config: Mapping[str, Any]) -> None:
    """Try the module on each of the environments, and send what it holds there."""
    if "METRICS_EVERY" in vars(module):
        vars(module)["METRICS_EVERY"] = 1  # every update's metrics are looked at
    for each in config["environments"]:
        seed_everything(config["seed"])
        counts = _try_one(clock, module, config["source"], each)
        channel.send(Kind.TRIED, wire.encode_counts(counts))
        clock.watch()


def _try_one(clock: Clock, module: ModuleType, source: str, config: Mapping[str, Any]) -> Counts:
    kept = _Kept()
    # Of what the scaffold imports, these two are watched: what it holds, and what it exports.
    vars(module).update(check_budget=kept.check_budget, export_policy=kept.export_policy)
    for buffer in (ReplayBuffer, FrameBuffer):
        if buffer.__name__ in vars(module):
            vars(module)[buffer.__name__] = _small(buffer)
    host = _MadeUpHost(config)
    environment = environment_of(host, clock, {**config, **host.world.config})
    try:
        with contextlib.suppress(_Over):
            module.train(environment)
        _compare(module, kept, environment, host.world, source, config["seed"])
    except BadAction as error:
        error.line = kept.line_of(error.method)
        raise
    return Counts(sum(kept.by_attribute.values()), len(kept.artefact), kept.by_attribute)


def _small(buffer: Callable[..., Any]) -> Callable[..., Any]:
    """The scaffold's, for the few transitions of a trial; the submission is told the real size."""
    return lambda capacity, *rest: buffer(min(capacity, CAPACITY), *rest)


class _Over(Exception):
    """The last policy has been exported."""


class _Kept:
    """What the scaffold handed to its two watched helpers last."""

    def __init__(self) -> None:
        self.algorithm: object = None
        self.by_attribute: dict[str, int] = {}
        self.policy = torch.nn.Module()
        self.artefact = b""

    def check_budget(self, algorithm: object, budget: int) -> int:
        """Counts alone: what is over the budget somewhere is still tried everywhere."""
        self.algorithm = algorithm
        counts = count_by_module(algorithm)
        # The largest of all checks: each of them ends a run.
        self.by_attribute = max(self.by_attribute, counts, key=lambda each: sum(each.values()))
        return sum(counts.values())

    def export_policy(self, policy: torch.nn.Module) -> bytes:
        self.policy, self.artefact = policy, export_policy(policy)
        return self.artefact

    def line_of(self, method: str) -> int:
        """Where that method of the algorithm or of the policy begins; 0 for unknown."""
        trainer = getattr(self.policy, "trainer", None)  # of an offline task
        for each in (self.algorithm, self.policy, trainer):
            function = inspect.unwrap(getattr(type(each), method, _not_there))
            code = getattr(function, "__code__", None)
            if code is not None and code.co_filename == SOURCE_NAME:
                return int(code.co_firstlineno)
        return 0


def _not_there() -> None:
    """Stands in for a method that is made in another way than by `def`."""


class _MadeUpHost:
    """Answers a learner as an environment host would, with noise for observations and rewards."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.world = MADE_UP[config["observations"]](config)
        self._exports = len(config["export_steps"])
        self._answer = Frame(Kind.CONTINUE, b"")

    def send(self, kind: Kind, payload: bytes, /) -> None:
        if kind is Kind.BUILT:
            self._answer = Frame(Kind.OBSERVATION, self.world.begin())
        elif kind is Kind.DRAW:
            self._answer = Frame(Kind.TRANSITION, self.world.step(None))
        elif kind is Kind.ACTION:
            self._answer = Frame(Kind.TRANSITION, self.world.step(payload))
        elif kind is Kind.EXPORT:
            self._exports -= 1
            self._answer = Frame(Kind.CONTINUE, b"")

    def receive(self) -> Frame:
        if self._exports == 0:
            raise _Over
        return self._answer


def _compare(
    module: ModuleType,
    kept: _Kept,
    environment: AnyEnvironment,
    world: MadeUp,
    source: str,
    seed: int,
) -> None:
    """Raises ReloadedDiffers unless the artefact acts as the policy that it was made of."""
    payload = world.observations(OBSERVATIONS)

    def ask(asked: ModuleType, policy: torch.nn.Module) -> np.ndarray:
        seed_everything(seed)
        answer = act(asked, policy, payload, environment)
        seed_everything(seed)
        return world.compared(policy, environment.observations(payload), answer)

    live = ask(module, kept.policy)
    try:
        # A fresh module, as in an actor's own process: what stands in globals is not exported.
        fresh = load_source(source)
        reloaded = ask(fresh, load_actor(fresh, kept.artefact, environment))
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise ReloadedDiffers(f"the exported policy cannot be loaded and asked: {words}") from error
    finally:
        sys.modules[MODULE_NAME] = module
    if np.allclose(live, reloaded, RELATIVE, ABSOLUTE):
        return
    if kept.artefact.startswith(STATE_DICT):
        why = "it cannot be pickled whole, so its parameters and buffers alone were exported"
    elif not np.allclose(live, ask(module, kept.policy), RELATIVE, ABSOLUTE):
        why = (
            "nor does the live one repeat itself, though numpy's and torch's generators are seeded "
            "each time: it draws from another that is not exported"
        )
    else:
        why = "module globals, class attributes and closures are not exported"
    raise ReloadedDiffers(
        "the exported policy, loaded again, acts differently from the live one: by up to "
        f"{np.abs(live - reloaded).max():.3g} in {world.difference}; {why}"
    )
