"""Our own contenders in the speed benchmark: a learner in the sandbox, and the loop without one.

Started by `benchmarks.speed`. In both, the environment is stepped in this very process, so that a
subclass of what steps it is all that measuring takes. The harness itself runs as it stands.
"""

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from benchmarks import made_up_data
from benchmarks.measuring import PROFILE, Asked, Stopwatch, parse, weights_sha256
from harness import bare_run
from harness.guest_config import replay_buffer_bytes
from harness.intake.submission import Submission, accept
from harness.keys import fingerprint
from harness.manifest import Conditions, make_manifest, make_plan
from harness.records import Plan
from harness.task import Profile, Task
from harness.training.run import train
from harness.training.workbench import Workbench
from sandbox.bubblewrap import Bubblewrap
from sandbox.guest.policy import load_policy
from sandbox.guest.source import load_source

NO_KEY = bytes(32)
"""Evaluation seeds come from a key, and nothing is evaluated."""


def sandboxed(asked: Asked, task: Task, submission: Submission) -> dict[str, Any]:
    """A worker of an evaluation, with its learner in a real sandbox and its artefacts on disk."""
    stopwatch = timed(asked)
    profile, sandbox = _profile(task, asked), Bubblewrap()
    conditions = Conditions(task, profile, None, "none", sandbox, "cpu", asked.numerics)
    manifest = make_manifest(conditions, submission, "speed", fingerprint(NO_KEY))
    plan = make_plan(conditions)
    with tempfile.TemporaryDirectory(prefix="speed-") as directory:
        bench = Workbench(Path(directory) / "attempt-1")
        with bench.worker_lock():
            run, source = manifest.runs[0], submission.source
            training = train(manifest, plan, run, 1, source, sandbox, bench, asked.dataset)
        if training.verdict is not None:
            raise RuntimeError(f"the training ended early: {training.verdict}")
        artefact = bench.read_export(asked.window.total)
    load_source(submission.source.decode())  # the artefact names its classes
    return stopwatch.result(
        exports=list(training.exports),
        episodes=len(training.episode_returns),
        peak_memory_bytes=training.peak_memory_bytes,
        replay_buffer_bytes=_buffer_bytes(asked, plan),
        guest_cpu_seconds=training.cpu_seconds,
        sandbox=dict(training.provenance.sandbox),
        weights_sha256=_weights(artefact),
    )


def bare(asked: Asked, task: Task, submission: Submission) -> dict[str, Any]:
    """`touchstone run`: learner and environment in this one process."""
    stopwatch = timed(asked)
    environment = task.environments[asked.subject.environment]
    run = bare_run.BareRun(
        task, _profile(task, asked), environment, asked.seed, asked.numerics, asked.dataset
    )
    run.train(submission.source.decode(), lambda line: None)
    return stopwatch.result(episodes=len(run.training_returns), weights_sha256=_weights(run.policy))


def timed(asked: Asked) -> Stopwatch:
    """Reads the clock after each step of whatever trains in this process from here on."""
    stopwatch = Stopwatch(asked.window)
    name, episodes = asked.subject.episodes
    module = importlib.import_module(name)

    class Timed(getattr(module, episodes)):  # type: ignore[misc]
        def take(self, action: NDArray[Any]) -> bytes:
            transition: bytes = super().take(action)
            stopwatch.tick()
            return transition

    setattr(module, episodes, Timed)
    return stopwatch


def _profile(task: Task, asked: Asked) -> Profile:
    """`full` with fewer steps. One export lies in the measured ones, half-way.

    That is more often than in `full`.
    """
    window, full = asked.window, task.profile(PROFILE)
    content = full.model_dump() | {
        "environments": (asked.subject.environment,),
        "seeds": (asked.seed,),
        "total_timesteps": window.total,
        "learning_starts": window.learning_starts,
        "buffer_size": window.total if full.buffer_size else 0,
        "eval_freq": window.first + window.steps // 2,
        "scored_exports": (),
    }
    return Profile.model_validate(content)


def _buffer_bytes(asked: Asked, plan: Plan) -> int:
    """Of the learner's peak. An offline task's file is in the page cache before a learner starts,
    so what the learner maps of it is not in its peak."""
    if asked.dataset is not None:
        return 0
    # As many transitions as there are steps: the buffer is full when the last one is over.
    return replay_buffer_bytes(plan.planned(asked.subject.environment).environment, plan)


def _weights(artefact: bytes) -> str:
    def build() -> torch.nn.Module:
        raise ValueError("the policy was exported as a state dict, not as a module")

    return weights_sha256(load_policy(artefact, build, torch.device("cpu")))


def main() -> None:
    asked = parse(__doc__.splitlines()[0])
    contender = {"sandboxed": sandboxed, "bare": bare}[asked.contender]
    task = Task.load(asked.task)
    if asked.dataset is not None:
        task = made_up_data.used_by(task, asked.subject.environment, asked.dataset)
    print(json.dumps(contender(asked, task, accept(task, asked.subject.source))), flush=True)


if __name__ == "__main__":
    main()
