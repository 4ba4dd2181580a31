"""Manifests and records for tests, whole and valid, from the few facts that a test is about."""

from collections.abc import Mapping, Sequence

from harness.records import (
    Evaluation,
    Manifest,
    PlannedRun,
    Provenance,
    Record,
    SecondEvaluation,
    Training,
    Verdict,
    VerdictKind,
)
from harness.task import Scale


def scale(floor: float = 0.0, ceiling: float = 100.0, provisional: bool = False) -> Scale:
    return Scale(
        floor=floor,
        ceiling=ceiling,
        floor_source="random policy, 200 episodes",
        ceiling_source="td3, 10 seeds",
        provisional=provisional,
    )


def manifest(
    name: str = "td3",
    visible: Sequence[str] = ("Hopper-v4", "Ant-v4"),
    heldout: Sequence[str] = ("Secret-v4",),
    seeds: Sequence[int] = (0, 1, 2),
    **changes: object,
) -> Manifest:
    """A ranked `full` evaluation of three environments and three seeds, floors 0, ceilings 100."""
    runs = [
        PlannedRun(environment=id_, heldout=hidden, seed=seed)
        for ids, hidden in ((visible, False), (heldout, True))
        for id_ in ids
        for seed in seeds
    ]
    whole = Manifest(
        evaluation=f"{name}-0123456789ab",
        name=name,
        form="region file",
        task="rl-offpolicy-continuous",
        task_version=1,
        profile="full",
        source_sha256=(name.encode().hex() + "a" * 64)[:64],
        scaffold_sha256="b" * 64,
        profile_sha256="c" * 64,
        heldout="own",
        heldout_sha256="d" * 64,
        key_fingerprint="e" * 16,
        sandbox="bubblewrap",
        confined=True,
        ranked=True,
        ranked_reason="",
        device="cpu",
        python="3.11.9",
        packages={"torch": "2.13.0", "gymnasium": "1.4.0"},
        numerics={"threads": "1"},
        runs=tuple(runs),
        scales={id_: scale() for id_ in (*visible, *heldout)},
        created="2026-03-01T10:00:00+00:00",
    )
    return Manifest.model_validate(whole.model_dump() | changes)


def provenance(**changes: object) -> Provenance:
    whole = Provenance(
        harness_version="0.1.0",
        harness_commit="f" * 40,
        python="3.11.9",
        packages={
            "torch": "2.13.0",
            "numpy": "2.4.6",
            "gymnasium": "1.4.0",
            "mujoco": "4.0.0",
            "ale_py": "0.12.1",
        },
        cpu="EPYC 9654",
        cores=16,
        memory_bytes=64 * 2**30,
        kernel="6.8",
        device="cpu",
        sandbox={"backend": "bubblewrap"},
        numerics={"threads": "1"},
    )
    return Provenance.model_validate(whole.model_dump() | changes)


def evaluation(mean: float, step: int = 1000, episodes: int = 4, stopped: int = 0) -> Evaluation:
    """Episodes whose returns lie around `mean` and average to exactly that."""
    offsets = [1.0 if index % 2 else -1.0 for index in range(episodes)]
    return Evaluation(
        step=step,
        returns=tuple(mean + each for each in offsets),
        lengths=(100,) * episodes,
        mean=mean,
        thinking_seconds=0.5,
        stopped=stopped,
    )


def second(
    mean: float, floor: float = 0.0, how: str = "sticky actions (0.25)", stopped: int = 0
) -> SecondEvaluation:
    """For `record(..., second=...)`."""
    return SecondEvaluation(how=how, evaluation=evaluation(mean, stopped=stopped), floor=floor)


def record(
    manifest: Manifest,
    environment: str,
    seed: int,
    mean_return: float | None,
    *,
    attempt: int = 1,
    kind: VerdictKind | None = None,
    curve: Sequence[float] = (1.0, 2.0, 4.0),
    verdict: Mapping[str, object] | None = None,
    training: Mapping[str, object] | None = None,
    **changes: object,
) -> Record:
    """One attempt, `scored` with that mean return; None makes it `crashed`, or `kind`."""
    heldout = next(run.heldout for run in manifest.runs if run.environment == environment)
    ended = Verdict(
        kind=kind or ("crashed" if mean_return is None else "scored"),
        cause="it ended",
        advice="nothing",
        phase="training",
        step=None,
    )
    ended = Verdict.model_validate(ended.model_dump() | dict(verdict or {}))
    trained = Training(
        environment=environment,
        seed=seed,
        attempt=attempt,
        verdict=None if mean_return is not None else ended,
        steps=1000,
        episode_returns=(1.0, 2.0),
        policy_sha256="1" * 64,
        policy_bytes=5000,
        exports=(0, 500, 1000),
        parameters=70_000,
        thinking_seconds=8.0,
        wall_seconds=10.0,
        cpu_seconds=9.0,
        peak_memory_bytes=200 * 2**20,
        started="2026-03-01T10:00:00+00:00",
        ended="2026-03-01T11:00:00+00:00",
        environment_settings={"time_limit": 1000},
        limits={"thinking_seconds": 100.0},
        provenance=provenance(),
    )
    whole = Record(
        evaluation=manifest.evaluation,
        task=manifest.task,
        task_version=manifest.task_version,
        profile=manifest.profile,
        source_sha256=manifest.source_sha256,
        environment=environment,
        heldout=heldout,
        seed=seed,
        attempt=attempt,
        verdict=ended,
        final=None if mean_return is None else evaluation(mean_return),
        curve=tuple(evaluation(each, 500 * index) for index, each in enumerate(curve)),
        training=Training.model_validate(trained.model_dump() | dict(training or {})),
        evaluator=provenance(),
        trace_sha256="2" * 64,
        recorded="2026-11-30T13:00:00+00:00",
    )
    return Record.model_validate(whole.model_dump() | changes)


def records(
    manifest: Manifest, returns: Mapping[str, Sequence[float | None]], **changes: object
) -> list[Record]:
    """One record a run; `returns` by environment, in the order of the manifest's seeds, None for a
    failure. `changes` are `record`'s."""
    seeds = sorted({run.seed for run in manifest.runs})
    return [
        record(manifest, environment, seed, each, **changes)  # type: ignore[arg-type]
        for environment, values in returns.items()
        for seed, each in zip(seeds, values, strict=True)
    ]
