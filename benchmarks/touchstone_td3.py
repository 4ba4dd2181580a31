"""Our own contenders in the speed benchmark: TD3 in the sandbox, and the same loop without one.

Started by `benchmarks.speed`. In both, the environment is stepped in this very process, so that a
subclass of what steps it is all that measuring takes. The harness itself runs as it stands.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from benchmarks.measuring import ENVIRONMENT, PROFILE, TASK, TD3_FILE, Asked, Stopwatch, parse
from harness import bare_run
from harness.guest_config import replay_buffer_bytes
from harness.intake.submission import Submission, accept
from harness.keys import fingerprint
from harness.manifest import Conditions, make_manifest, make_plan
from harness.task import Profile, Task
from harness.training import environment_host
from harness.training.episodes import TrainingEpisodes
from harness.training.run import train
from harness.training.workbench import Workbench
from sandbox.bubblewrap import Bubblewrap
from sandbox.wire import Transition

NO_KEY = bytes(32)
"""Evaluation seeds come from a key, and nothing is evaluated."""


def sandboxed(asked: Asked, task: Task, submission: Submission) -> dict[str, Any]:
    """A worker of an evaluation, with its learner in a real sandbox and its artefacts on disk."""
    stopwatch = Stopwatch(asked.window)
    environment_host.TrainingEpisodes = timed(stopwatch)  # type: ignore[misc]
    profile, sandbox = _profile(task, asked), Bubblewrap()
    conditions = Conditions(task, profile, None, "none", sandbox, "cpu", asked.numerics)
    manifest = make_manifest(conditions, submission, "speed", fingerprint(NO_KEY))
    plan = make_plan(conditions)
    with tempfile.TemporaryDirectory(prefix="speed-") as directory:
        bench = Workbench(Path(directory) / "attempt-1")
        with bench.worker_lock():
            training = train(manifest, plan, manifest.runs[0], 1, submission.source, sandbox, bench)
    if training.verdict is not None:
        raise RuntimeError(f"the training ended early: {training.verdict}")
    return stopwatch.result(
        exports=list(training.exports),
        episodes=len(training.episode_returns),
        peak_memory_bytes=training.peak_memory_bytes,
        # As many transitions as there are steps: the buffer is full when the last one is over.
        replay_buffer_bytes=replay_buffer_bytes(task.environments[ENVIRONMENT], plan),
        guest_cpu_seconds=training.cpu_seconds,
        sandbox=dict(training.provenance.sandbox),
    )


def bare(asked: Asked, task: Task, submission: Submission) -> dict[str, Any]:
    """`touchstone run`: learner and environment in this one process."""
    stopwatch = Stopwatch(asked.window)
    bare_run.TrainingEpisodes = timed(stopwatch)  # type: ignore[misc]
    environment = task.environments[ENVIRONMENT]
    run = bare_run.BareRun(task, _profile(task, asked), environment, asked.seed, asked.numerics)
    run.train(submission.source.decode(), lambda line: None)
    return stopwatch.result(episodes=len(run.training_returns))


def timed(stopwatch: Stopwatch) -> type[TrainingEpisodes]:
    """What both step their environment with, and the clock read after each step."""

    class Timed(TrainingEpisodes):
        def take(self, action: NDArray[Any]) -> Transition:
            transition = super().take(action)
            stopwatch.tick()
            return transition

    return Timed


def _profile(task: Task, asked: Asked) -> Profile:
    """`full` with fewer steps. One export lies in the measured ones, half-way.

    That is more often than in `full`, once in 10,000 steps.
    """
    window = asked.window
    content = task.profile(PROFILE).model_dump() | {
        "environments": (ENVIRONMENT,),
        "seeds": (asked.seed,),
        "total_timesteps": window.total,
        "learning_starts": window.learning_starts,
        "buffer_size": window.total,
        "eval_freq": window.first + window.steps // 2,
    }
    return Profile.model_validate(content)


def main() -> None:
    asked = parse(__doc__.splitlines()[0])
    contender = {"sandboxed": sandboxed, "bare": bare}[asked.contender]
    task = Task.load(TASK)
    print(json.dumps(contender(asked, task, accept(task, TD3_FILE))), flush=True)


if __name__ == "__main__":
    main()
