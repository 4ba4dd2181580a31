"""One run in this very process, outside any sandbox: for an author who wants to look inside.

The scaffold, the environment and everything random are those of a real run, so the same seed and
the same numbers of steps train the same policy. What is missing is all that makes a score: the
submission shares a process with its environment and could change anything. So nothing that comes
of this is stored or ranked.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from numpy.typing import NDArray

from harness.guest_config import guest_config
from harness.records import Plan
from harness.task import Environment, Planned, Profile, Task
from harness.training.environments import POOL_SIZE, TrainingEpisodes, family_of
from harness.training.evaluator import Acting
from sandbox import wire
from sandbox.guest import lazy_compiler, numerics
from sandbox.guest.client import environment_of
from sandbox.guest.source import act, load_actor, load_source, seed_everything
from sandbox.wire import Frame, Kind

WARM_UP_STEPS = 1_000
"""At most so many here, whatever the profile says: the first update comes within seconds."""
EVALUATION_SEED = 1_000_000
"""Of the first evaluation episode. Public: a real evaluation's seeds are secret."""
SAY_SECONDS = 2.0
SHOWN_AS = "<source.py>"
"""A debugger takes names in such brackets as they are, and so finds their lines."""

Say = Callable[[str], None]


class BareRun:
    """One training in this process.

    Attributes, filled by `train`:
        module: the source as it was imported; None until then.
        policy: the artefact that was exported last.
        training_returns: raw return of each training episode that ended.
        logged: what `update` returned, by the step at which it was logged.
        seconds: wall time from the first step to the last.
    """

    def __init__(
        self,
        task: Task,
        profile: Profile,
        environment: Environment,
        seed: int,
        backends: Mapping[str, str],
        dataset: Path | None = None,
    ) -> None:
        """`dataset`: the rows of an offline task's data."""
        self.module: ModuleType | None = None
        self.policy = b""
        self.logged: dict[int, dict[str, float]] = {}
        self.seconds = 0.0
        self._profile = profile
        self._environment = environment
        self._seed = seed
        self._backends = backends
        self._dataset = "" if dataset is None else str(dataset)
        self._plan = Plan(
            task=task.name,
            task_version=task.version,
            profile=profile,
            environments=(Planned(environment=environment, heldout=False, scale=None),),
            budget=task.budget,
            constants=task.constants,
        )
        self._episodes = family_of(environment).training(environment, self._plan, seed)

    @property
    def training_returns(self) -> list[float]:
        return self._episodes.returns

    def train(self, source: str, say: Say) -> None:
        """Run the source to the end of its training. Raises whatever the submission raises."""
        lazy_compiler.install()
        torch.set_num_threads(1)
        numerics.install(self._backends)
        seed_everything(self._seed)
        self.module = load_source(source, SHOWN_AS)
        loopback = _Loopback(self, self._profile, self._episodes, say)
        try:
            self.module.train(environment_of(loopback, _NoClock(), self._config("learner")))
        finally:
            self._episodes.close()
        self.seconds = time.perf_counter() - loopback.began

    def evaluate(self, episodes: int) -> list[float]:
        """Raw returns of the exported policy, one an episode, from public seeds."""
        actor = _Actor(self, self._config("actor"))
        family = family_of(self._environment)
        environments = [
            family.evaluated(self._environment, second=False)
            for _ in range(min(POOL_SIZE, episodes))
        ]
        starts = family.starts("final", episodes, lambda _, index: EVALUATION_SEED + index)
        try:
            played = Acting(actor, environments, self._environment).play(starts)
        finally:
            for each in environments:
                each.close()
        return played.returns

    def _config(self, role: str) -> dict[str, object]:
        dataset = self._dataset if role == "learner" else ""
        return guest_config(
            role, self._environment, self._plan, self._seed, "", "cpu", self._backends, dataset
        )


def shortened(profile: Profile, steps: int) -> Profile:
    """The profile with that many steps, and a warm-up that is soon over."""
    content = profile.model_dump() | {
        "total_timesteps": steps,
        "learning_starts": min(profile.learning_starts, WARM_UP_STEPS, steps),
        "buffer_size": min(profile.buffer_size, steps),
        "scored_exports": (),
    }
    return Profile.model_validate(content)


class _Loopback:
    """Answers each frame of the learner's at once, as an environment host would."""

    def __init__(
        self,
        run: BareRun,
        profile: Profile,
        episodes: TrainingEpisodes,
        say: Say,
    ) -> None:
        self.began = time.perf_counter()
        self._run = run
        self._total = profile.total_timesteps
        self._episodes = episodes
        self._say = say
        self._answer = Frame(Kind.CONTINUE, b"")
        self._step = 0
        self._said = (self.began, 0)

    def send(self, kind: Kind, payload: bytes, /) -> None:
        if kind is Kind.DRAW:
            self._take(self._episodes.draw())
        elif kind is Kind.ACTION:
            self._take(self._episodes.decode(payload))
        elif kind is Kind.BUILT:
            self._say(f"built: {wire.decode_count(payload):,} parameters")
            self.began = time.perf_counter()
            self._said = (self.began, 0)
            self._answer = Frame(Kind.OBSERVATION, self._episodes.begin())
        elif kind is Kind.EXPORT:
            self._run.policy = payload
            self._answer = Frame(Kind.CONTINUE, b"")
        elif kind is Kind.METRICS:
            self._run.logged[self._step] = wire.decode_metrics(payload)
            self._say_progress()

    def receive(self) -> Frame:
        return self._answer

    def _take(self, action: NDArray[Any]) -> None:
        self._answer = Frame(Kind.TRANSITION, self._episodes.take(action))
        self._step += 1
        if self._step == self._total or time.perf_counter() - self._said[0] > SAY_SECONDS:
            self._say_progress()

    def _say_progress(self) -> None:
        now = time.perf_counter()
        then, step = self._said
        self._said = (now, self._step)
        rate = (self._step - step) / max(now - then, 1e-9)
        parts = [f"step {self._step:,} of {self._total:,}", f"{rate:,.0f} steps/s"]
        returns = self._episodes.returns
        if returns:
            last = returns[-10:]
            parts.append(
                f"mean return of the last {len(last)} episodes {sum(last) / len(last):,.1f}"
            )
        newest = max(self._run.logged, default=None)
        if newest is not None:
            parts += [f"{name} {value:.4g}" for name, value in self._run.logged[newest].items()]
        self._say("  ".join(parts))


class _Actor:
    """Asks the exported policy, loaded anew, as an actor in a sandbox would."""

    def __init__(self, run: BareRun, config: dict[str, object]) -> None:
        if run.module is None:
            raise ValueError("evaluate comes after train")
        self._guest = environment_of(_Nobody(), _NoClock(), config)
        self._module = run.module
        self._policy = load_actor(self._module, run.policy, self._guest)
        seed_everything(EVALUATION_SEED)

    def ask(self, kind: Kind, payload: bytes, expected: set[Kind]) -> Frame:
        return Frame(Kind.ACTIONS, act(self._module, self._policy, payload, self._guest))


class _NoClock:
    """Time is the author's own here."""

    def watch(self) -> None: ...

    def rest(self) -> None: ...

    def started(self) -> None: ...


class _Nobody:
    """Where building an algorithm asks its environment for something: it has no answer yet."""

    def send(self, kind: Kind, payload: bytes, /) -> None:
        raise wire.Malformed(f"{kind.name} has no place in an evaluation")

    def receive(self) -> Frame:
        raise wire.Malformed("nothing was asked")
