"""What several tests need: small profiles, regions that misbehave, and real runs of them."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.evaluation import begin, compose
from harness.executors.local import LocalExecutor
from harness.intake.submission import HandedIn, Submission, accept, assemble
from harness.keys import fingerprint
from harness.layout import MANIFEST, PLAN, SOURCE, attempt_directory
from harness.manifest import Conditions, make_manifest, make_plan
from harness.numerics import TUNED
from harness.records import Record, Training
from harness.results.store import Store
from harness.task import REPOSITORY, HeldOut, Profile, Task
from harness.training.evaluator import Evaluator
from harness.training.run import train
from harness.training.workbench import Workbench
from sandbox.bubblewrap import Bubblewrap

TASK = "rl-offpolicy-continuous"
TD3 = REPOSITORY / "reference_algorithms" / TASK / "td3.py"
KEY = bytes(range(32))
PYTHONPATH = {"PYTHONPATH": str(REPOSITORY)}

PENDULUM = "InvertedPendulum-v4"
CHEETAH = "HalfCheetah-v4"


def small_profile(
    *environments: str,
    task: str = TASK,
    seeds: tuple[int, ...] = (42,),
    total_timesteps: int = 40,
    learning_starts: int = 20,
    limits: dict[str, float] | None = None,
    **changes: object,
) -> Profile:
    """`smoke`, smaller: by default one environment whose first episodes are short."""
    smoke = Task.load(task).profile("smoke")
    quick_limits = {"frame_seconds": 15.0, "start_seconds": 20.0, "thinking_seconds": 60.0}
    content = smoke.model_dump() | {
        "environments": environments or (PENDULUM,),
        "seeds": seeds,
        "total_timesteps": total_timesteps,
        "learning_starts": learning_starts,
        "buffer_size": total_timesteps,
        "eval_freq": total_timesteps,
        "eval_episodes": 2,
        "final_episodes": 3,
        "limits": smoke.limits.model_dump() | quick_limits | (limits or {}),
    }
    return Profile.model_validate(content | changes)


def conditions(profile: Profile, heldout: HeldOut | None = None, task: str = TASK) -> Conditions:
    kind = "none" if heldout is None else "own"
    return Conditions(Task.load(task), profile, heldout, kind, Bubblewrap(), "cpu", TUNED)


def accepted(region: str, tmp_path: Path, task: str = TASK) -> Submission:
    """The region through the real door."""
    path = tmp_path / "handed_in.py"
    path.write_text(region)
    return accept(Task.load(task), path)


def region(*replacements: tuple[str, str], before: str = "") -> str:
    """TD3's region with pieces replaced, each of which must be there."""
    text = TD3.read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    return before + text


def unchecked(text: str, task: str = TASK) -> Submission:
    """A source that the rules of intake would refuse: what the sandbox must hold by itself."""
    return assemble(Task.load(task), HandedIn("handed_in.py", text.encode()))


def evaluated_here(
    submission: Submission,
    profile: Profile,
    directory: Path,
    task: str = TASK,
    dataset: Path | None = None,
) -> tuple[Record | None, Workbench]:
    """The first run of the profile, trained and then scored in this process."""
    present = conditions(profile, task=task)
    manifest = make_manifest(present, submission, "test", fingerprint(KEY))
    run = manifest.runs[0]
    bench = Workbench(attempt_directory(directory, run.id, 1))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / SOURCE).write_bytes(submission.source)
    (directory / PLAN).write_text(make_plan(present).model_dump_json())
    (directory / MANIFEST).write_text(manifest.model_dump_json())
    with bench.worker_lock():
        train(manifest, make_plan(present), run, 1, submission.source, Bubblewrap(), bench, dataset)
    evaluator = Evaluator(directory, KEY)
    while evaluator.work():
        pass
    return compose(manifest, run, 1, bench), bench


def trained(
    submission: Submission,
    profile: Profile,
    directory: Path,
    sandbox: Bubblewrap | None = None,
    task: str = TASK,
    dataset: Path | None = None,
) -> tuple[Training, Workbench]:
    """One real run: the first of the profile, to the end of its training."""
    present = conditions(profile, task=task)
    manifest = make_manifest(present, submission, "test", fingerprint(KEY))
    bench = Workbench(directory / "attempt-1")
    with bench.worker_lock():
        training = train(
            manifest,
            make_plan(present),
            manifest.runs[0],
            1,
            submission.source,
            sandbox or Bubblewrap(),
            bench,
            dataset,
        )
    return training, bench


def touchstone(
    *arguments: object, given: bytes | None = None, text: bool = True, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """The command as a user types it, away from any terminal; `given` comes through its stdin."""
    there = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    defaults: dict[str, Any] = {"env": os.environ | PYTHONPATH, "timeout": 110}
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness", *map(str, arguments)],
        capture_output=True,
        text=text,
        **defaults | there | options,
    )


class Lines:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def show(self, states: object) -> None:
        pass

    def say(self, line: str) -> None:
        self.said.append(line)


def evaluated(
    submission: Submission,
    profile: Profile,
    store: Store,
    name: str = "test",
    heldout: HeldOut | None = None,
    workers: int = 2,
    task: str = TASK,
) -> tuple[Path, list[str]]:
    """A whole evaluation over real processes: its directory, and what was said."""
    lines = Lines()
    with begin(
        conditions(profile, heldout, task), submission, name, store, lines.say
    ) as evaluation:
        if not evaluation.finished:
            executor = LocalExecutor(evaluation.directory, store.key_file, workers)
            evaluation.run(executor, lines)
        return evaluation.directory, lines.said


def descendants(pid: int) -> set[int]:
    """Every process below that one: workers, the evaluator, bwrap and the guests in it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = set(), [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
