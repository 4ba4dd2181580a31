"""What the wings hand each other: manifests, run records, verdicts. Models only, no behaviour.

Training makes records, results reads them; this module is all that the two share. Every model is
frozen, and JSON in a file is exactly its dump.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from harness.task import Budget, Model, Planned, Profile, Scale

SCHEMA: Literal[1] = 1
"""Version of everything in this file; a reader refuses another one."""

VerdictKind = Literal[
    "scored",  # trained to its end, final evaluation complete
    "rejected",  # over its parameter budget, or an artefact over its cap
    "crashed",  # an exception or a signal of its own
    "exited",  # ended by itself before its training was complete
    "timed-out",  # a deadline or the thinking time
    "out-of-memory",  # on a kernel counter or a measured size
    "too-many-processes",
    "too-much-output",
    "protocol-violation",  # a frame, an action or a policy that the protocol does not allow
]
"""How a run of a submission ended. `infrastructure` is none of these: such a run has no record."""


class Verdict(Model):
    """How a run ended, with everything that a person needs to act on it."""

    kind: VerdictKind
    cause: str
    """One sentence: what happened, the limit by name and the measured value where there is one."""
    advice: str
    phase: str
    """Where: "importing the source", "training", "evaluating the export of step 5000", ..."""
    step: int | None
    """Training step (or, in an evaluation, its step) at which it happened."""
    limit: str | None = None
    allowed: float | None = None
    measured: float | None = None
    detail: str = ""
    """The guest's own account (a traceback), escaped and cut. Not trusted, never parsed."""
    log_tail: str = ""
    """The last lines of its output, escaped and cut. Not trusted, never parsed."""


class ExportMean(Model):
    """What one of several exports that count together reached."""

    step: int
    mean: FiniteFloat


class Evaluation(Model):
    """One exported policy, scored. Returns are raw sums of the environment's rewards.

    Offline, a return is 100 where the episode ended in success and 0 elsewhere: a mean is a success
    rate in percent.
    """

    step: int
    """Training steps that the policy had had; the last, where several exports count together."""
    returns: tuple[FiniteFloat, ...]
    """By episode, in the order of the episodes' seeds. All episodes, always."""
    lengths: tuple[int, ...]
    mean: FiniteFloat
    thinking_seconds: float
    """The actor's, all answers together."""
    stopped: int = 0
    """Games that the harness stopped at their longest: counted as they stood."""
    settings: Mapping[str, str | int | float | bool] = Field(default_factory=dict)
    """Of the environments that it was played in; a curve's are those of its final evaluation."""
    by_export: tuple[ExportMean, ...] = ()
    """Where several exports count together: each one's share of the episodes, in this order."""


class SecondEvaluation(Model):
    """The same policy once more, where actions learned by heart lead elsewhere.

    Tasks whose environments have no chance of their own have one; it never counts for a score.
    """

    how: str
    """What was changed: "sticky actions (0.25)"."""
    evaluation: Evaluation
    floor: float | None
    """A return worth nothing: what is kept is measured from here. None: it is not known."""

    def kept(self, first: float) -> float | None:
        """The share of a first mean that is left; None where that was worth nothing."""
        if self.floor is None or first <= self.floor:
            return None
        return (self.evaluation.mean - self.floor) / (first - self.floor)

    def memorised(self, first: float) -> bool:
        """Whether more than half of it is gone."""
        kept = self.kept(first)
        return kept is not None and kept < 0.5


class Provenance(Model):
    """What produced a record. Nothing in it comes from a guest."""

    harness_version: str
    harness_commit: str
    """Empty where the harness does not run from a git checkout; "+changes" where it was edited."""
    python: str
    packages: Mapping[str, str]
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    device: str
    sandbox: Mapping[str, str]
    """What `Sandbox.describe()` says."""
    numerics: Mapping[str, str]
    """Everything chosen once per machine that changes numbers: threads, BLAS, allocator."""


class TrainingData(Model):
    """What a policy of an offline task was trained on."""

    dataset: str
    """Stem of its file: "cube-single-play-v0"."""
    transitions: int
    sha256: str
    """Of the training file."""
    generator_seed: int | None
    """Where it was made on this machine; None: the official file."""
    episodes: int | None
    """Of the training file, where it was made on this machine."""


class Training(Model):
    """How the training of one run ended: written by its worker, before any final evaluation."""

    schema_version: Literal[1] = SCHEMA
    environment: str
    seed: int
    attempt: int
    verdict: Verdict | None
    """None: trained to the end, and the final artefact is on disk."""
    steps: int
    """Environment steps that the host executed; offline, gradient steps that it drew rows for."""
    episode_returns: tuple[float, ...]
    """Raw returns of the training episodes that ended, in order."""
    policy_sha256: str | None
    """Of the final artefact."""
    policy_bytes: int | None
    exports: tuple[int, ...]
    """Steps of the artefacts that were accepted, in order."""
    scored_sha256: Mapping[int, str] = Field(default_factory=dict)
    """Of the artefacts that count together, by step; empty where the last alone counts."""
    parameters: int | None
    """As the guest counted them: believed of honest submissions only."""
    thinking_seconds: float
    wall_seconds: float
    cpu_seconds: float
    """Of the guest."""
    peak_memory_bytes: int
    """Of the guest."""
    started: str
    """UTC, ISO 8601."""
    ended: str
    environment_settings: Mapping[str, str | int | float | bool]
    data: TrainingData | None = None
    """Where the task is offline."""
    limits: Mapping[str, float]
    provenance: Provenance


class Record(Model):
    """One run, ended: the unit that every number of a report leads to. Immutable once written."""

    schema_version: Literal[1] = SCHEMA
    evaluation: str
    """Id of the evaluation that it belongs to."""
    task: str
    task_version: int
    profile: str
    source_sha256: str
    environment: str
    heldout: bool
    seed: int
    attempt: int
    """1 for the first; an operator's re-run appends the next."""
    verdict: Verdict
    final: Evaluation | None
    """Present exactly where the verdict is `scored`."""
    second: SecondEvaluation | None = None
    """Beside `final`, where the task has one."""
    curve: tuple[Evaluation, ...]
    training: Training
    evaluator: Provenance | None
    """What scored it; None where nothing was evaluated."""
    trace_sha256: str | None
    """Of the trace of the final evaluation."""
    recorded: str
    """When all of this was complete: UTC, ISO 8601."""

    @model_validator(mode="after")
    def _scored_by_a_final_evaluation(self) -> Self:
        if (self.final is not None) != (self.verdict.kind == "scored"):
            raise ValueError("a run has a final evaluation exactly where its verdict is scored")
        return self


class RunResult(Model):
    """A record without its episodes, curve and logs: all that tables are made of."""

    evaluation: str
    task: str
    task_version: int
    profile: str
    source_sha256: str
    environment: str
    heldout: bool
    seed: int
    attempt: int
    verdict: VerdictKind
    mean_return: FiniteFloat | None
    """Of the final evaluation; None without a score."""
    second_return: FiniteFloat | None = None
    """Of the second evaluation, where the task has one."""
    memorised: bool = False
    """More than half of the return is gone in the second evaluation."""
    stopped: int = 0
    """Games of the final evaluation that were stopped at their longest."""
    parameters: int | None
    """As the guest counted them: believed of honest submissions only."""
    steps: int
    trained: bool
    """Whether training came to its end."""
    wall_seconds: float
    cpu_seconds: float
    """Of training; the guest's."""
    hardware: str
    """One line: CPU, cores, memory, device."""
    started: str
    ended: str
    """Of training: UTC, ISO 8601."""


class PlannedRun(Model):
    """One cell of an evaluation's matrix."""

    environment: str
    heldout: bool
    seed: int

    @property
    def id(self) -> str:
        """Directory name and label: "Hopper-v4-s42"."""
        return f"{self.environment}-s{self.seed}"


class Manifest(Model):
    """What an evaluation is, fixed at its first start. A resume obeys it or refuses."""

    schema_version: Literal[1] = SCHEMA
    evaluation: str
    """`<name>-<first 12 digits of the identity's hash>`: its directory's name."""
    name: str
    """The submission's, as leaderboards show it."""
    form: str
    """How it was handed in: "region file", "unified diff", "whole file", "list of edits"."""
    task: str
    task_version: int
    profile: str
    source_sha256: str
    """Of the accepted source: the submission's identity."""
    scaffold_sha256: str
    profile_sha256: str
    heldout: Literal["none", "example", "own"]
    """No held-out environments, the repository's own list, or the operator's."""
    heldout_sha256: str | None
    key_fingerprint: str
    sandbox: str
    confined: bool
    ranked: bool
    """Profile, sandbox, held-out runs and scales all allow it."""
    ranked_reason: str
    """Why not, where it is not."""
    device: str
    python: str
    packages: Mapping[str, str]
    numerics: Mapping[str, str]
    runs: tuple[PlannedRun, ...]
    """The denominator of the score."""
    scales: Mapping[str, Scale]
    """By environment id; empty for a profile without scales."""
    datasets: Mapping[str, str] = Field(default_factory=dict)
    """SHA-256 of the training file of each environment of an offline task, by its id."""
    created: str
    """UTC, ISO 8601."""


class Plan(Model):
    """All that a worker or an evaluator needs to know of the task, frozen beside the manifest."""

    task: str
    task_version: int
    profile: Profile
    environments: tuple[Planned, ...]
    budget: Budget
    constants: Mapping[str, int | float]

    def planned(self, environment: str) -> Planned:
        """The environment of that id. Raises KeyError."""
        for each in self.environments:
            if each.environment.id == environment:
                return each
        raise KeyError(environment)


class Progress(Model):
    """Where a run is, for whoever watches. Replaced twice a second, never resumed from."""

    phase: str
    step: int
    total: int
    steps_per_second: float
    """Over the last few seconds."""
    last_return: float | None
    """Of the last training episode that ended."""
    updated: float
    """Unix time."""


class Scored(Model):
    """What an evaluator says of one artefact: an evaluation, or the verdict of its actor."""

    evaluation: Evaluation | None
    verdict: Verdict | None
    second: SecondEvaluation | None = None
    """Of a final evaluation, where the task has one."""
    trace_sha256: str | None = None
    provenance: Provenance
