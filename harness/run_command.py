"""What `touchstone run` does: one training in this process, for a submission's own author."""

import os
import pdb
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.cli import ExitStatus
from harness.datasets.places import DEFAULT_ROOT, DatasetError, command
from harness.estimate import TooSmall, check_room
from harness.intake.refusals import Refused
from harness.intake.submission import Submission, assemble, judge, read
from harness.numerics import choose
from harness.task import TASKS, Environment, OfflineDataset, Profile, Task

PROFILE = "full"
"""Whose constants hold; only its steps are fewer."""
DEFAULT_STEPS = 20_000
DEFAULT_SEED = 42
KNOWN = ("ENV", "SEED", "STEPS", "STOCK", "DATASETS")


class BadSetting(Exception):
    """A setting that cannot be obeyed; the message says which and what to write."""


class Request(NamedTuple):
    """One run, as it was asked for."""

    task: Task
    environment: Environment
    seed: int
    steps: int
    stock: bool
    datasets_root: Path


def parse(settings: Sequence[str]) -> Request:
    """Settings as make writes them, NAME=VALUE. Raises BadSetting or TaskError."""
    given: dict[str, str] = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or name not in KNOWN:
            raise BadSetting(f"{each!r} is no setting; there are: {', '.join(KNOWN)} (NAME=VALUE)")
        given[name] = value
    if "ENV" not in given:
        raise BadSetting("say which environment: ENV=Hopper-v4")
    task, environment = _find(given["ENV"])
    if given.get("STOCK", "") not in ("", "1"):
        raise BadSetting(f"STOCK takes 1 or nothing, not {given['STOCK']!r}")
    return Request(
        task,
        environment,
        _whole_number(given, "SEED", DEFAULT_SEED, smallest=0),
        _whole_number(given, "STEPS", DEFAULT_STEPS, smallest=1),
        given.get("STOCK") == "1",
        Path(given.get("DATASETS") or os.environ.get("TOUCHSTONE_DATASETS") or DEFAULT_ROOT),
    )


def run(request: Request, path: Path, debugger: bool) -> ExitStatus:
    """Train, evaluate, and say what came of it. Exit status 4: the submission raised."""
    try:
        submission = assemble(request.task, read(path))
    except Refused as refused:
        print(refused, file=sys.stderr)
        return ExitStatus.REJECTED
    _say_what_eval_would_refuse(request.task, submission)
    # Here, because it imports torch, which takes seconds: what is wrong above is said at once.
    from harness.bare_run import BareRun, shortened

    try:
        data = _data(request)
    except DatasetError as error:
        print(f"touchstone: {error}", file=sys.stderr)
        return ExitStatus.INFRASTRUCTURE
    profile = shortened(request.task.profile(PROFILE), request.steps)
    buffer_bytes = request.environment.buffer_bytes(profile.buffer_size)
    print(_heading(request, profile, buffer_bytes), flush=True)
    try:
        check_room(buffer_bytes)
        backends = choose(request.stock)
    except (OSError, TooSmall) as error:
        print(f"touchstone: {error}", file=sys.stderr)
        return ExitStatus.INFRASTRUCTURE
    bare = BareRun(request.task, profile, request.environment, request.seed, backends, data)
    try:
        bare.train(submission.source.decode(), lambda line: print(line, flush=True))
        returns = bare.evaluate(profile.eval_episodes)
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever a submission raises is what its author is after
        traceback.print_exc()
        print(_own_line(error, submission), file=sys.stderr)
        if debugger:
            pdb.post_mortem(error.__traceback__)
        return ExitStatus.UNSCORED_RUNS
    what = "success rate in %" if data else "mean return"
    print(
        f"final policy: {what} {np.mean(returns):,.1f} over {len(returns)} episodes "
        f"(std {np.std(returns, ddof=1):,.1f}); trained in {bare.seconds:,.0f} s. "
        "Not stored, not ranked."
    )
    return ExitStatus.SCORED


def _data(request: Request) -> Path | None:
    """The rows of an offline task's data; None for another task. Raises DatasetError."""
    if not isinstance(request.environment, OfflineDataset):
        return None
    from harness.datasets.prepare import ready

    heldout = request.task.load_heldout()
    having = next(
        (
            name
            for name, profile in request.task.profiles.items()
            if request.environment.id in (*profile.environments, *heldout.profiles.get(name, ()))
        ),
        "",
    )
    make = command(request.task.name, having, request.datasets_root)
    found = ready([request.environment], request.datasets_root, make, print)
    return found[request.environment.id].path


def _find(id_: str) -> tuple[Task, Environment]:
    """The environment, visible or in its task's example of held-out ones."""
    known: dict[str, tuple[Task, Environment]] = {}
    for directory in sorted(each.parent for each in TASKS.glob("*/task.toml")):
        task = Task.load(directory.name)
        for environments in (task.environments, task.load_heldout().environments):
            known |= {each.id: (task, each) for each in environments.values()}
    if id_ not in known:
        raise BadSetting(f"no task has an environment {id_!r}; there are: {', '.join(known)}")
    return known[id_]


def _whole_number(given: dict[str, str], name: str, default: int, smallest: int) -> int:
    text = given.get(name, "").replace("_", "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < smallest:
        raise BadSetting(f"{name}={given[name]}: a whole number from {smallest} on is needed")
    return int(text)


def _say_what_eval_would_refuse(task: Task, submission: Submission) -> None:
    try:
        judge(task, submission)
    except Refused as refused:
        print(f"note: eval would refuse this submission:\n{refused}\n", file=sys.stderr)


def _own_line(error: Exception, submission: Submission) -> str:
    """Where the submission was last, in the file that was handed in."""
    from harness.bare_run import SHOWN_AS

    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if each.filename == SHOWN_AS and each.lineno]
    if not lines:
        return "nothing of this was in the submission"
    file, line = submission.where[lines[-1] - 1]
    return f"line {lines[-1]} of {SHOWN_AS} is line {line} of {file}"


def _heading(request: Request, profile: Profile, buffer_bytes: int) -> str:
    of_profile = request.task.profile(PROFILE)
    if not of_profile.buffer_size:
        return (
            f"{request.environment.id}, seed {request.seed}, {request.steps:,} gradient steps "
            f"({PROFILE}: {of_profile.total_timesteps:,}), a dataset of "
            f"{buffer_bytes / (1 << 30):.2f} GiB; outside the sandbox, unranked"
        )
    return (
        f"{request.environment.id}, seed {request.seed}, {request.steps:,} steps, the first "
        f"{profile.learning_starts:,} of them random ({PROFILE}: "
        f"{of_profile.total_timesteps:,} and {of_profile.learning_starts:,}), "
        f"a replay buffer of {buffer_bytes / (1 << 30):.2f} GiB; "
        "outside the sandbox, unranked"
    )
