"""Reference runs that come with a task: written from a store, and read as evaluations of a board.

`tasks/<task>/reference_runs/<profile>.csv` has one line a run, with the raw return and everything
that produced it. Scores are not in it: they follow from the scales that are frozen in the task.
"""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, FiniteFloat, ValidationError
from rich.table import Table
from rich.text import Text

from harness.layout import read_plan
from harness.machine import PACKAGES
from harness.manifest import plan_of, profile_hash, run_hash, why_unranked
from harness.records import Manifest, PlannedRun, Record, RunResult, VerdictKind
from harness.results.store import Stored
from harness.results.summary import hardware, last_attempts, result
from harness.task import REPOSITORY, HeldOut, Model, Planned, Profile, Task, TaskError, plan

Say = Callable[[str], None]
Line = TypeVar("Line", bound=Model)
Value = TypeVar("Value")
Maybe = Annotated[Value | None, BeforeValidator(lambda value: None if value == "" else value)]
"""An empty cell is no value."""


class Published(Model):
    """A number from somebody else's publication: for orientation, never ranked."""

    algorithm: str
    environment: str
    """With the version that it was made with."""
    mean: FiniteFloat
    std: Maybe[FiniteFloat]
    seeds: int
    steps: int
    protocol: Literal["evaluation", "training", "best evaluation"]
    """Returns of separate evaluation episodes, of training episodes with their exploration, or the
    highest evaluation of a training. Only the first is what a final evaluation here measures."""
    library: str
    source: str
    note: str


class ShippedRun(Model):
    """One line of the file: a run of a reference algorithm, by its last attempt."""

    algorithm: str
    environment: str
    heldout: bool
    seed: int
    attempt: int
    verdict: VerdictKind
    mean_return: Maybe[FiniteFloat]
    """Raw, of the final evaluation; empty without a score."""
    std_return: Maybe[FiniteFloat]
    """Sample standard deviation of that evaluation's episodes."""
    episodes: int
    second_return: Maybe[FiniteFloat] = None
    """Raw, of the second evaluation; empty without one. Files that are older than these lack this
    column and the next two."""
    memorised: bool = False
    """Whether more than half of the return above the floor of that time is gone there."""
    stopped: int = 0
    """Games of the final evaluation that were stopped at their longest."""
    steps: int
    trained: bool
    parameters: Maybe[int]
    wall_seconds: float
    cpu_seconds: float
    thinking_seconds: float
    """Of training: the learner's alone."""
    peak_memory_bytes: int
    started: str
    ended: str
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    device: str
    sandbox: str
    python: str
    torch: str
    numpy: str
    gymnasium: str
    mujoco: str
    ale_py: str = ""
    """Empty in lines that are older than its being noted; so is the next."""
    ogbench: str = ""
    dataset_sha256: str = ""
    """Of the training file of an offline task."""
    numerics: str
    """Backends, "name=value; ..."."""
    harness_commit: str
    evaluation: str
    source_sha256: str
    run_sha256: str
    """Of the task's numbers that fix the run (`manifest.run_hash`): another edition of the profile
    has another, and does not take this line."""


def algorithms(task: Task) -> list[Path]:
    """The region files of the task's references, by name."""
    return sorted((REPOSITORY / "reference_algorithms" / task.name).glob("*.py"))


def runs_file(task: Task, profile: Profile) -> Path:
    """Where a profile's reference runs are."""
    return task.directory / "reference_runs" / f"{profile.name}.csv"


def write(task: Task, profile: Profile, evaluations: Iterable[Stored]) -> Path:
    """Write the finished runs of those evaluations of references; returns the file.

    Evaluations of another source than the references' present ones are the caller's to leave out.
    """
    lines = [
        _line(stored, record)
        for stored in sorted(evaluations, key=lambda each: each.manifest.name)
        for record in last_attempts(stored.manifest, stored.records).values()
    ]
    path = runs_file(task, profile)
    path.parent.mkdir(exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ShippedRun.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(each.model_dump() for each in lines)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def read(task: Task, profile: Profile) -> list[ShippedRun]:
    """The lines of a profile's file; none where there is no file. Raises TaskError."""
    return _read(runs_file(task, profile), ShippedRun)


def published(task: Task, profile: Profile) -> list[Published]:
    """What others have published for as many steps as the profile's. Raises TaskError."""
    lines = _read(task.directory / "published.csv", Published)
    return [line for line in lines if line.steps == profile.total_timesteps]


def evaluations(task: Task, profile: Profile, say: Say) -> list[tuple[Manifest, list[RunResult]]]:
    """The shipped runs as evaluations under the task as it is now, one for each algorithm.

    They were made with the example's held-out environments. Lines of another edition of the profile
    are left out, and that is said.
    """
    heldout = task.load_heldout()
    environments = plan(task, profile, heldout)
    present = plan_of(task, profile, environments)
    current = {each.environment.id: run_hash(present, each.environment) for each in environments}
    grouped: dict[tuple[str, str], list[ShippedRun]] = defaultdict(list)
    stale = 0
    for run in read(task, profile):
        if current.get(run.environment) == run.run_sha256 and run.seed in profile.seeds:
            grouped[run.evaluation, run.source_sha256].append(run)
        else:
            stale += 1
    if stale:
        say(f"{runs_file(task, profile)}: {stale} runs of another edition are left out")
    return [
        (
            _manifest(task, profile, heldout, runs),
            [_result(task, profile, run) for run in runs],
        )
        for runs in grouped.values()
    ]


def published_table(task: Task, lines: Sequence[Published], shown: Sequence[Planned]) -> Table:
    """The published numbers of those environments, apart from the board.

    Nothing of it compares with a score here, and a protocol's numbers only among themselves.
    """
    ids = [each.environment.id for each in shown]
    rows = sorted(
        (line for line in lines if line.environment in ids),
        key=lambda line: (ids.index(line.environment), line.protocol, line.algorithm),
    )
    sources = list(dict.fromkeys(line.source for line in rows))
    captions = [
        "evaluation: episodes apart from training, as here; training: with exploration",
        *(f"[{number}] {source}" for number, source in enumerate(sources, 1)),
        f"all {len(lines)}, other versions of the environments too: {task.name}/published.csv",
    ]
    table = Table(
        title="published elsewhere: for orientation, never ranked",
        caption=Text("\n".join(captions)),
    )
    for name in ("environment", "protocol", "algorithm", "mean", "std", "seeds", "source"):
        table.add_column(name, justify="right" if name in ("mean", "std", "seeds") else "left")
    for line in rows:
        table.add_row(
            line.environment,
            line.protocol,
            line.algorithm,
            _amount(line.mean),
            "-" if line.std is None else _amount(line.std),
            str(line.seeds),
            Text(f"[{sources.index(line.source) + 1}]"),
        )
    return table


def _amount(value: float) -> str:
    """Pong's returns are within 21, and their spread within one."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _read(path: Path, kind: type[Line]) -> list[Line]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{path}: {error}") from error
    read = []
    for number, line in enumerate(lines, 2):
        try:
            read.append(kind.model_validate(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise TaskError(f"{path}, line {number}: {where}: {first['msg']}") from error
    return read


def _manifest(task: Task, profile: Profile, heldout: HeldOut, runs: list[ShippedRun]) -> Manifest:
    """What the evaluation of those runs is, under the task as it is now."""
    first = runs[0]
    environments = plan(task, profile, heldout)
    held = any(each.heldout for each in environments)
    unranked = why_unranked(profile, first.sandbox, True, False, environments)
    return Manifest(
        evaluation=first.evaluation,
        name=first.algorithm,
        form="region file",
        task=task.name,
        task_version=task.version,
        profile=profile.name,
        source_sha256=first.source_sha256,
        scaffold_sha256=hashlib.sha256(task.scaffold).hexdigest(),
        profile_sha256=profile_hash(task, profile),
        heldout="example" if held else "none",
        heldout_sha256=heldout.digest(profile.name),
        key_fingerprint="",
        sandbox=first.sandbox,
        confined=True,
        ranked=not unranked,
        ranked_reason=unranked,
        device=first.device,
        python=first.python,
        packages={name: each for name in PACKAGES if (each := getattr(first, name))},
        numerics=dict(each.partition("=")[::2] for each in first.numerics.split("; ")),
        runs=tuple(
            PlannedRun(environment=each.environment.id, heldout=each.heldout, seed=seed)
            for each in environments
            for seed in profile.seeds
        ),
        scales={each.environment.id: each.scale for each in environments if each.scale},
        datasets={run.environment: run.dataset_sha256 for run in runs if run.dataset_sha256},
        created=min(run.started for run in runs),
    )


def _result(task: Task, profile: Profile, run: ShippedRun) -> RunResult:
    return RunResult(
        task=task.name,
        task_version=task.version,
        profile=profile.name,
        hardware=hardware(run.cpu, run.cores, run.memory_bytes, run.device),
        **run.model_dump(include=set(RunResult.model_fields) & set(ShippedRun.model_fields)),
    )


def _line(stored: Stored, record: Record) -> ShippedRun:
    training, origin = record.training, record.training.provenance
    final, told = record.final, result(record)
    # What the run was made under, which need not be the task's present numbers.
    made_under = read_plan(stored.directory)
    environment = made_under.planned(record.environment).environment
    return ShippedRun(
        algorithm=stored.manifest.name,
        environment=record.environment,
        heldout=record.heldout,
        seed=record.seed,
        attempt=record.attempt,
        verdict=record.verdict.kind,
        mean_return=told.mean_return,
        std_return=float(np.std(final.returns, ddof=1)) if final else None,
        episodes=len(final.returns) if final else 0,
        second_return=told.second_return,
        memorised=told.memorised,
        stopped=told.stopped,
        steps=training.steps,
        trained=training.verdict is None,
        parameters=training.parameters,
        wall_seconds=round(training.wall_seconds, 1),
        cpu_seconds=round(training.cpu_seconds, 1),
        thinking_seconds=round(training.thinking_seconds, 1),
        peak_memory_bytes=training.peak_memory_bytes,
        started=training.started,
        ended=training.ended,
        cpu=origin.cpu,
        cores=origin.cores,
        memory_bytes=origin.memory_bytes,
        kernel=origin.kernel,
        device=origin.device,
        sandbox=stored.manifest.sandbox,
        python=origin.python,
        **_versions(origin.packages),
        dataset_sha256=training.data.sha256 if training.data else "",
        numerics="; ".join(f"{name}={value}" for name, value in origin.numerics.items()),
        harness_commit=origin.harness_commit,
        evaluation=record.evaluation,
        source_sha256=record.source_sha256,
        run_sha256=run_hash(made_under, environment),
    )


def _versions(packages: Mapping[str, str]) -> dict[str, Any]:
    return {name: packages[name] for name in PACKAGES if name in packages}
