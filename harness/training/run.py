"""One run from start to verdict: a worker process for one environment and one seed.

Started by an executor as `python -m harness.training.run EVALUATION RUN ATTEMPT PARENT`. It carries
no state: everything comes from the evaluation's directory, and everything goes there. Exit status 0
says that `training.json` is written, whatever the verdict; anything else is an infrastructure
failure, with its reason on stderr.
"""

import hashlib
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.datasets.places import DatasetError
from harness.datasets.prepare import verify
from harness.guest_config import replay_buffer_bytes
from harness.guest_session import GuestSession
from harness.layout import attempt_directory, dataset_of, read_manifest, read_plan, read_source
from harness.machine import provenance
from harness.numerics import variables
from harness.processes import die_with_parent
from harness.records import Manifest, Plan, PlannedRun, Training, TrainingData, Verdict
from harness.task import Environment, OfflineDataset
from harness.training.environment_host import EnvironmentHost
from harness.training.workbench import Workbench
from harness.verdict import (
    EvaluationFailed,
    GuestFault,
    InfrastructureError,
    Vanished,
    answerable,
    settle,
)
from sandbox import wire
from sandbox.base import Exit, Limits, Sandbox, SandboxError, load_backend
from sandbox.wire import MEBIBYTE

EXIT_INFRASTRUCTURE = 70
"""sysexits.h's EX_SOFTWARE."""


def train(
    manifest: Manifest,
    plan: Plan,
    run: PlannedRun,
    attempt: int,
    source: bytes,
    sandbox: Sandbox,
    bench: Workbench,
    dataset: Path | None = None,
) -> Training:
    """Train one run and write its `training.json`. The caller holds the bench's lock.

    `dataset`: the file that the learner of an offline task maps.
    Raises InfrastructureError, and then has written nothing.
    """
    environment = plan.planned(run.environment).environment
    if dataset is None and isinstance(environment, OfflineDataset):
        raise InfrastructureError("nobody has said where its dataset lies")
    limits = guest_limits(plan, replay_buffer_bytes(environment, plan))
    time_limits = plan.profile.limits
    artefact_cap = plan.budget.artefact_bytes(environment)
    started, began = datetime.now(UTC), time.monotonic()
    origin = provenance(sandbox.describe(), manifest.device, manifest.numerics)
    bench.clear()

    def ended(verdict: Verdict | None, artefact: bytes | None, used: Exit | None) -> Training:
        usage = used or session.usage()
        return Training(
            environment=run.environment,
            seed=run.seed,
            attempt=attempt,
            verdict=verdict,
            steps=host.step,
            episode_returns=tuple(host.episode_returns),
            policy_sha256=None if artefact is None else hashlib.sha256(artefact).hexdigest(),
            policy_bytes=None if artefact is None else len(artefact),
            exports=tuple(host.exports),
            scored_sha256={} if artefact is None else _digests(bench, plan.profile.scored_exports),
            parameters=host.parameters,
            thinking_seconds=session.thinking_seconds,
            wall_seconds=time.monotonic() - began,
            cpu_seconds=usage.cpu_seconds,
            peak_memory_bytes=usage.peak_memory_bytes,
            started=started.isoformat(timespec="seconds"),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            environment_settings=host.settings,
            data=_data(manifest, environment),
            limits={
                "memory_bytes": limits.memory_bytes,
                "processes": limits.processes,
                "scratch_bytes": limits.scratch_bytes,
                "output_bytes": limits.output_bytes,
                "thinking_seconds": time_limits.thinking_seconds,
                "frame_seconds": time_limits.frame_seconds,
                "start_seconds": time_limits.start_seconds,
                "artefact_bytes": artefact_cap,
                "parameters": plan.budget.parameters(environment),
            },
            provenance=origin,
        )

    with GuestSession(
        sandbox,
        limits,
        bench.learner_log,
        variables(manifest.numerics),
        wire.learner_caps(environment.action_bytes, artefact_cap),
        time_limits.frame_seconds,
        time_limits.thinking_seconds,
        dataset,
    ) as session:
        host = EnvironmentHost(
            session, environment, plan, run.seed, source.decode(), manifest, bench
        )
        try:
            with answerable():
                artefact = host.serve()
        except (GuestFault, Vanished) as fault:
            used = session.end_after(fault)
            step = host.step if host.phase == "training" else None
            verdict = settle(fault, used, host.phase, step, bench.learner_log)
            training = ended(verdict, None, used)
        except EvaluationFailed:
            used = session.end()
            failed = [each.verdict for each in bench.read_curve().values() if each.verdict]
            if not failed:
                raise InfrastructureError("the evaluation that failed is damaged") from None
            training = ended(failed[0], None, used)
        else:
            # The bytes are in: from here on how the learner exits no longer counts.
            training = ended(None, artefact, None)
        bench.write_training(training)
    return training


def _digests(bench: Workbench, steps: Sequence[int]) -> dict[int, str]:
    return {step: hashlib.sha256(bench.read_export(step)).hexdigest() for step in steps}


def _data(manifest: Manifest, environment: Environment) -> TrainingData | None:
    """What it was trained on, for its record."""
    if not isinstance(environment, OfflineDataset):
        return None
    made = environment.generator
    return TrainingData(
        dataset=environment.dataset,
        transitions=environment.transitions,
        sha256=manifest.datasets.get(environment.id, ""),
        generator_seed=None if made is None else made.seed,
        episodes=None if made is None else made.episodes,
    )


def guest_limits(plan: Plan, buffer_bytes: int) -> Limits:
    """The sandbox's limits for a guest that holds a replay buffer of that size."""
    limits = plan.profile.limits
    return Limits(
        memory_bytes=limits.memory_mib * MEBIBYTE + buffer_bytes,
        processes=limits.processes,
        scratch_bytes=limits.scratch_mib * MEBIBYTE,
        output_bytes=limits.output_mib * MEBIBYTE,
    )


def main(evaluation: Path, run_id: str, attempt: int) -> int:
    """Do one run in this process; the exit status of the worker."""
    manifest, plan = read_manifest(evaluation), read_plan(evaluation)
    run = next(each for each in manifest.runs if each.id == run_id)
    dataset = dataset_of(evaluation, run.environment)
    bench = Workbench(attempt_directory(evaluation, run_id, attempt))
    try:
        if dataset is not None:
            verify(dataset)
        with bench.worker_lock():
            train(
                manifest,
                plan,
                run,
                attempt,
                read_source(evaluation, manifest),
                load_backend(manifest.sandbox),
                bench,
                dataset,
            )
    except (InfrastructureError, SandboxError, DatasetError, OSError, ValueError) as error:
        print(f"{run_id}: {error}", file=sys.stderr)
        return EXIT_INFRASTRUCTURE
    return 0


if __name__ == "__main__":
    die_with_parent(int(sys.argv[4]))
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
