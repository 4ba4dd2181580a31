"""Runs an accepted source as a module of its own, and loads and asks the policies that it made."""

import linecache
import random
import sys
from types import ModuleType

import numpy as np
import torch

from sandbox.guest.client import AnyEnvironment
from sandbox.guest.policy import load_policy
from sandbox.wire import SOURCE_NAME

MODULE_NAME = "submission"
"""Pickled policies name their classes by this module, in the learner and in the actor."""


def load_source(source: str, name: str = SOURCE_NAME) -> ModuleType:
    """Run the source; tracebacks can show its lines."""
    # On LF alone, as Python's parser and intake do: `splitlines` knows eight other line ends.
    lines = [f"{line}\n" for line in source.split("\n")]
    linecache.cache[name] = (len(source), None, lines, name)
    module = ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    exec(compile(source, name, "exec"), vars(module))
    return module


def load_actor(module: ModuleType, artefact: bytes, environment: AnyEnvironment) -> torch.nn.Module:
    """The policy of an artefact that this very source exported."""

    def build() -> torch.nn.Module:
        algorithm = module.build(environment)
        return getattr(algorithm, environment.policy)  # type: ignore[no-any-return]

    return load_policy(artefact, build, torch.device(environment.device))


def act(
    module: ModuleType, policy: torch.nn.Module, payload: bytes, environment: AnyEnvironment
) -> bytes:
    """The policy's actions, one row for each of the observations of an evaluator's frame."""
    observations = environment.observations(payload)
    return environment.answer(module.act(policy, observations), len(observations))


def seed_everything(seed: int) -> None:
    """Seed the three global generators that submissions draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
