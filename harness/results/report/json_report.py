"""`report.json`: the document of one evaluation, from which `report.md` is rendered as well."""

import json
from collections.abc import Callable, Sequence
from typing import Literal

from harness.records import (
    Evaluation,
    Manifest,
    Record,
    SecondEvaluation,
    TrainingData,
    Verdict,
)
from harness.results.submitter import (
    HeldOutRuns,
    heldout_runs,
    manifest_for_submitter,
    summary_for_submitter,
    visible_records,
)
from harness.results.summary import Summary, last_attempts, result, summarise
from harness.task import Model

REPORT_SCHEMA = 1
"""Version of `report.json`."""


class CurvePoint(Model):
    """One point of a learning curve."""

    step: int
    mean_return: float
    episodes: int


class RunReport(Model):
    """One attempt at a run, as its record tells it."""

    environment: str
    heldout: bool
    seed: int
    attempt: int
    counts: bool
    """Whether it is the run's last attempt, the one that the score uses."""
    verdict: Verdict
    mean_return: float | None
    z: float | None
    """As in the summary; None for an attempt that does not count."""
    final: Evaluation | None
    """The final evaluation, every episode's return with it."""
    second: SecondEvaluation | None
    """The same policy once more, with what was changed; None without a score, and where the task
    has no second evaluations. No score uses it."""
    kept: float | None
    """Share of the final evaluation's mean above the floor that the second one has; None without a
    second one, and where the first was worth nothing."""
    memorised: bool
    """Whether that is less than half."""
    data: TrainingData | None
    """What it was trained on, where the task is offline; returns are success rates in percent."""
    curve: tuple[CurvePoint, ...]
    """Evaluations during training, by step."""
    steps: int
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    parameters: int | None
    policy_sha256: str | None
    trace_sha256: str | None
    harness_version: str
    harness_commit: str
    record: str
    """Where the record is, relative to the evaluation's directory."""


class Report(Model):
    """Everything that a report says. For a submitter, nothing in it stems from a held-out run but
    `heldout` and the summary's scores and counts."""

    schema_version: int = REPORT_SCHEMA
    audience: Literal["operator", "submitter"]
    manifest: Manifest
    summary: Summary
    heldout: HeldOutRuns | None
    runs: tuple[RunReport, ...]
    """All attempts that ended, in the manifest's order, then by attempt."""
    patch: str = ""
    """The submission as a unified diff against the scaffold; empty where the store has none."""


def build_report(
    manifest: Manifest,
    records: Sequence[Record],
    record_path: Callable[[Record], str],
    for_submitter: bool = False,
    patch: str = "",
) -> Report:
    """The report of an evaluation. `record_path` says where a record is, relative to the
    evaluation's directory. Raises RecordsError as `summarise` does."""
    summary = summarise(manifest, records)
    counting = last_attempts(manifest, records)
    order = {(run.environment, run.seed): index for index, run in enumerate(manifest.runs)}
    z = {(run.environment, run.seed): run.z for each in summary.environments for run in each.runs}
    shown = visible_records(records) if for_submitter else records
    runs = tuple(
        _run(
            record,
            counts=counting[record.environment, record.seed] is record,
            z=z[record.environment, record.seed],
            path=record_path(record),
        )
        for record in sorted(shown, key=lambda r: (order[r.environment, r.seed], r.attempt))
    )
    return Report(
        audience="submitter" if for_submitter else "operator",
        manifest=manifest_for_submitter(manifest) if for_submitter else manifest,
        summary=summary_for_submitter(manifest, records, summary) if for_submitter else summary,
        heldout=heldout_runs(manifest, records),
        runs=runs,
        patch=patch,
    )


def to_json(report: Report) -> str:
    """The report as JSON text, ASCII only: hostile text in it cannot reach a terminal as it is."""
    content = json.loads(report.model_dump_json())
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _run(record: Record, counts: bool, z: float | None, path: str) -> RunReport:
    training, first, second = record.training, record.final, record.second
    return RunReport(
        environment=record.environment,
        heldout=record.heldout,
        seed=record.seed,
        attempt=record.attempt,
        counts=counts,
        verdict=record.verdict,
        mean_return=first.mean if first else None,
        z=z if counts else None,
        final=first,
        second=second,
        kept=second.kept(first.mean) if first and second else None,
        memorised=result(record).memorised,
        data=training.data,
        curve=tuple(
            CurvePoint(step=each.step, mean_return=each.mean, episodes=len(each.returns))
            for each in record.curve
        ),
        steps=training.steps,
        wall_seconds=training.wall_seconds,
        cpu_seconds=training.cpu_seconds,
        peak_memory_bytes=training.peak_memory_bytes,
        parameters=training.parameters,
        policy_sha256=training.policy_sha256,
        trace_sha256=record.trace_sha256,
        harness_version=training.provenance.harness_version,
        harness_commit=training.provenance.harness_commit,
        record=path,
    )
