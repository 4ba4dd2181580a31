"""One evaluation in numbers, from its manifest and records, reduced once for every output."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from harness.records import Manifest, PlannedRun, Record, RunResult, VerdictKind
from harness.results import scoring
from harness.task import Model, Scale


class RecordsError(ValueError):
    """Records contradict their manifest or each other, so nothing can be scored."""


class RunSummary(Model):
    """One planned run, as it counts: by its last attempt."""

    environment: str
    heldout: bool
    seed: int
    attempt: int
    """Number of the attempt that counts; 0 where the run has not finished."""
    verdict: VerdictKind | Literal["not finished"]
    mean_return: float | None
    """Of the final evaluation, in the environment's units; None without a score."""
    z: float | None
    """Normalised, 0 without a score; None where the profile has no scale for the environment."""
    second_return: float | None
    """Of the second evaluation, in the environment's units; None where there is none."""
    memorised: bool
    """Whether more than half of the return above the floor is gone there."""
    stopped: int
    """Games of the final evaluation that were stopped at their longest, and count as they stood."""


class EnvironmentSummary(Model):
    """One environment over its seeds."""

    id: str
    heldout: bool
    scale: Scale | None
    runs: tuple[RunSummary, ...]
    """One a seed, in the manifest's order."""
    scored: int
    """Runs with a score: the n of `mean` and `std`."""
    mean: float | None
    """Mean raw return of the scored runs. Failed runs have none, so compare by `score`."""
    std: float | None
    """Sample standard deviation (ddof = 1) of those; None for fewer than two."""
    score: float | None
    """100 x the mean z over all planned seeds, failed ones as 0; None as for the summary's."""
    second_mean: float | None
    """As `mean`, of their second evaluations; None where not every one of those runs has one."""
    memorised_runs: int
    stopped_games: int
    """Over all runs, as each of them says."""


class Summary(Model):
    """One evaluation. Scores have the unit 100 = ceiling; None unless every run finished."""

    environments: tuple[EnvironmentSummary, ...]
    """In the manifest's order."""
    finished: bool
    """Whether every planned run has a record."""
    score: float | None
    why_no_score: str
    """Empty where there is one."""
    interval_low: float | None
    """95 %, over seeds; None for a single seed."""
    interval_high: float | None
    visible_score: float | None
    heldout_score: float | None
    iqm: float | None
    ranked: bool
    why_unranked: str
    """Empty where it is ranked."""
    runs_planned: int
    runs_finished: int
    runs_scored: int
    attempts: int
    """In all, counted by the attempts' own numbers: more than `runs_finished` after re-runs."""
    parameters: int | None
    """Largest count over environments, as the guests reported it."""
    steps_per_second: float | None
    """Median over the runs that trained to their end: environment steps by wall time."""
    cpu_hours: float
    """The learners' CPU time, all attempts."""
    wall_hours: float
    """Wall time of all trainings, one after the other, all attempts."""
    sandbox: str
    hardware: str
    """Every distinct machine that trained, "; " between."""
    started: str
    """UTC, ISO 8601: the first training's start; the manifest's creation where there is none."""
    date: str
    """UTC, ISO 8601: the last training's end; the manifest's creation where there is none."""

    @property
    def second_evaluations(self) -> int:
        """Runs with a second evaluation. None of them bears on any score."""
        return sum(run.second_return is not None for each in self.environments for run in each.runs)

    @property
    def memorised_runs(self) -> int:
        """Runs of these environments whose return is mostly gone in their second evaluation."""
        return sum(each.memorised_runs for each in self.environments)

    @property
    def stopped_games(self) -> int:
        """Games of these environments' final evaluations that were stopped at their longest."""
        return sum(each.stopped_games for each in self.environments)


class Costs(NamedTuple):
    """What records say of time and hardware; fields as in Summary."""

    parameters: int | None
    steps_per_second: float | None
    cpu_hours: float
    wall_hours: float
    hardware: str
    started: str
    date: str


Cell = tuple[str, int]
"""(environment, seed)."""

Run = TypeVar("Run", bound=Record | RunResult)


def summarise(manifest: Manifest, records: Sequence[Run]) -> Summary:
    """Reduce an evaluation to its numbers. `records`: all attempts, in any order.

    Of each planned run the last attempt counts. A run without a record has not finished, and then
    the evaluation has no score at all, not even a partial one. A run that ended without a score
    has z = 0. Raises RecordsError for records of another evaluation, of runs that were not planned,
    for two records of one attempt, and for a plan that is no matrix of environments and seeds.
    """
    last = {key: result(run) for key, run in last_attempts(manifest, records).items()}
    environments = tuple(
        _environment(runs, manifest.scales.get(id_), last) for id_, runs in _matrix(manifest)
    )
    runs = [run for environment in environments for run in environment.runs]
    finished = len(last) == len(runs)
    why_no_score = _why_no_score(environments, len(runs) - len(last))
    score = low = high = visible = heldout = iqm = None
    if not why_no_score:
        z = _z(environments)
        score = scoring.score(z)
        iqm = scoring.interquartile_mean(z)
        ends = scoring.interval(z)
        if np.all(np.isfinite(ends)):
            low, high = (float(end) for end in ends)
        visible = _part_score([each for each in environments if not each.heldout])
        heldout = _part_score([each for each in environments if each.heldout])
    why_unranked = "; ".join(_why_unranked(manifest, environments, why_no_score))
    return Summary(
        environments=environments,
        finished=finished,
        score=score,
        why_no_score=why_no_score,
        interval_low=low,
        interval_high=high,
        visible_score=visible,
        heldout_score=heldout,
        iqm=iqm,
        ranked=not why_unranked,
        why_unranked=why_unranked,
        runs_planned=len(runs),
        runs_finished=len(last),
        runs_scored=sum(environment.scored for environment in environments),
        attempts=sum(record.attempt for record in last.values()),
        sandbox=manifest.sandbox,
        **costs(manifest, records)._asdict(),
    )


def result(run: Record | RunResult) -> RunResult:
    """What of a record enters tables."""
    if isinstance(run, RunResult):
        return run
    training, origin = run.training, run.training.provenance
    return RunResult(
        evaluation=run.evaluation,
        task=run.task,
        task_version=run.task_version,
        profile=run.profile,
        source_sha256=run.source_sha256,
        environment=run.environment,
        heldout=run.heldout,
        seed=run.seed,
        attempt=run.attempt,
        verdict=run.verdict.kind,
        mean_return=run.final.mean if run.final else None,
        second_return=run.second.evaluation.mean if run.second else None,
        memorised=bool(run.final and run.second and run.second.memorised(run.final.mean)),
        stopped=run.final.stopped if run.final else 0,
        parameters=training.parameters,
        steps=training.steps,
        trained=training.verdict is None,
        wall_seconds=training.wall_seconds,
        cpu_seconds=training.cpu_seconds,
        hardware=hardware(origin.cpu, origin.cores, origin.memory_bytes, origin.device),
        started=training.started,
        ended=training.ended,
    )


def hardware(cpu: str, cores: int, memory_bytes: int, device: str) -> str:
    """A machine in one line."""
    return f"{cpu}, {cores} cores, {memory_bytes / 2**30:.0f} GiB, {device}"


def last_attempts(manifest: Manifest, records: Sequence[Run]) -> Mapping[Cell, Run]:
    """The record that counts of each finished run. Raises RecordsError as `summarise` does."""
    planned = {(run.environment, run.seed): run.heldout for run in manifest.runs}
    attempts: set[tuple[str, int, int]] = set()
    last: dict[Cell, Run] = {}
    for record in records:
        cell = (record.environment, record.seed)
        where = f"record of {record.environment}, seed {record.seed}, attempt {record.attempt}"
        for field in ("evaluation", "task", "task_version", "profile", "source_sha256"):
            ours, its = getattr(manifest, field), getattr(record, field)
            if ours != its:
                raise RecordsError(f"{where}: its {field} is {its!r}, the manifest's is {ours!r}")
        if planned.get(cell) is not record.heldout:
            raise RecordsError(f"{where}: the manifest of {manifest.evaluation} plans no such run")
        if (*cell, record.attempt) in attempts:
            raise RecordsError(f"{where}: there are two")
        attempts.add((*cell, record.attempt))
        if cell not in last or last[cell].attempt < record.attempt:
            last[cell] = record
    return last


def costs(manifest: Manifest, records: Sequence[Run]) -> Costs:
    """Time and hardware of all attempts in `records`."""
    results = [result(each) for each in records]
    parameters = [each.parameters for each in results if each.parameters is not None]
    speeds = [
        each.steps / each.wall_seconds for each in results if each.trained and each.wall_seconds > 0
    ]
    machines = {each.hardware for each in results}
    return Costs(
        parameters=max(parameters, default=None),
        steps_per_second=float(np.median(speeds)) if speeds else None,
        cpu_hours=sum(each.cpu_seconds for each in results) / 3600,
        wall_hours=sum(each.wall_seconds for each in results) / 3600,
        hardware="; ".join(sorted(machines)),
        started=min((each.started for each in results), default=manifest.created),
        date=max((each.ended for each in results), default=manifest.created),
    )


def _matrix(manifest: Manifest) -> list[tuple[str, list[PlannedRun]]]:
    """The planned runs by environment; every environment must have the same seeds, once each."""
    rows: dict[str, list[PlannedRun]] = {}
    for run in manifest.runs:
        rows.setdefault(run.environment, []).append(run)
    seeds = {tuple(sorted(run.seed for run in runs)) for runs in rows.values()}
    if len(seeds) != 1 or any(len(set(each)) != len(each) for each in seeds):
        raise RecordsError(f"{manifest.evaluation}: its runs are no matrix of environments x seeds")
    return list(rows.items())


def _environment(
    planned: Sequence[PlannedRun], scale: Scale | None, last: Mapping[Cell, RunResult]
) -> EnvironmentSummary:
    runs = tuple(_run(each, scale, last.get((each.environment, each.seed))) for each in planned)
    returns = [run.mean_return for run in runs if run.mean_return is not None]
    again = [run.second_return for run in runs if run.second_return is not None]
    complete = all(run.attempt for run in runs)
    z = [run.z for run in runs if run.z is not None]
    return EnvironmentSummary(
        id=planned[0].environment,
        heldout=planned[0].heldout,
        scale=scale,
        runs=runs,
        scored=len(returns),
        mean=float(np.mean(returns)) if returns and complete else None,
        std=float(np.std(returns, ddof=1)) if len(returns) > 1 and complete else None,
        score=scoring.score([z]) if scale and complete else None,
        second_mean=float(np.mean(again)) if 0 < len(again) == len(returns) and complete else None,
        memorised_runs=sum(run.memorised for run in runs),
        stopped_games=sum(run.stopped for run in runs),
    )


def _run(planned: PlannedRun, scale: Scale | None, ended: RunResult | None) -> RunSummary:
    mean = ended.mean_return if ended else None
    z = None
    if scale:
        z = float(scoring.normalise(np.nan if mean is None else mean, scale.floor, scale.ceiling))
    return RunSummary(
        environment=planned.environment,
        heldout=planned.heldout,
        seed=planned.seed,
        attempt=ended.attempt if ended else 0,
        verdict=ended.verdict if ended else "not finished",
        mean_return=mean,
        z=z,
        second_return=ended.second_return if ended else None,
        memorised=bool(ended and ended.memorised),
        stopped=ended.stopped if ended else 0,
    )


def _z(environments: Sequence[EnvironmentSummary]) -> scoring.Array:
    """(environments, seeds); only called where every environment has a scale."""
    return np.array([[run.z for run in each.runs] for each in environments], dtype=np.float64)


def _part_score(environments: Sequence[EnvironmentSummary]) -> float | None:
    return scoring.score(_z(environments)) if environments else None


def _why_no_score(environments: Sequence[EnvironmentSummary], missing: int) -> str:
    if missing:
        planned = sum(len(each.runs) for each in environments)
        return f"{missing} of {planned} runs have not finished"
    if all(each.scale is None for each in environments):
        return "the profile has no scales to normalise by"
    bare = [each.id for each in environments if each.scale is None]
    return f"no scale to normalise by for {', '.join(bare)}" if bare else ""


def _why_unranked(
    manifest: Manifest, environments: Sequence[EnvironmentSummary], why_no_score: str
) -> list[str]:
    reasons = [] if manifest.ranked else [manifest.ranked_reason or "its manifest says so"]
    if manifest.ranked:
        provisional = [each.id for each in environments if each.scale and each.scale.provisional]
        if provisional:
            reasons.append(f"provisional ceiling for {', '.join(provisional)}")
        if not manifest.confined:
            reasons.append("it ran without a sandbox")
    return [*reasons, why_no_score] if why_no_score else reasons
