"""What an evaluation will take on this machine: workers, time, memory, disk; before it begins."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from harness import machine
from harness.guest_config import replay_buffer_bytes
from harness.records import Plan
from harness.training.environments import POOL_SIZE

LEARNER_BYTES = 700 << 20
"""A learner beside its replay buffer: 0.25 GiB measured for TD3, 1.05 x its networks, and room."""
WORKER_BYTES = 200 << 20
"""An environment host, with numpy, gymnasium and MuJoCo: 80 MiB measured."""
EVALUATOR_BYTES = 900 << 20
"""An evaluator with its pool, and one actor: 0.4 GiB measured."""
DISK_RESERVE_BYTES = 1 << 30

PROBE_REFERENCE_SECONDS = 0.111
"""What `_probe` took on the machine whose steps/s stand in task.toml (2-core AMD EPYC, idle)."""

_PROBE = """
import json, time
import numpy as np
generator = np.random.default_rng(0)
left, right = generator.random((2, 256, 256), dtype=np.float32)
times = []
for _ in range(5):
    began = time.perf_counter()
    for _ in range(300):
        left @ right
    times.append(time.perf_counter() - began)
print(json.dumps(min(times)))
"""


class TooSmall(Exception):
    """This machine cannot hold the evaluation; the message says what is missing and how much."""


class Estimate(NamedTuple):
    """In seconds and bytes."""

    workers: int
    seconds: float
    memory_bytes: int
    """Of everything that runs at once."""
    buffer_bytes: int
    """Of the largest replay buffer, one run's, when it is full; of the largest dataset, offline."""
    disk_bytes: int


def estimate(plan: Plan, runs: int, workers: int | None, store: Path) -> Estimate:
    """What it takes. `workers` None: as many as cores and memory allow.

    Raises TooSmall where memory or disk will not do.
    """
    largest = max(replay_buffer_bytes(each.environment, plan) for each in plan.environments)
    each = learner_bytes(largest) + WORKER_BYTES
    available = machine.available_memory_bytes()
    evaluator = EVALUATOR_BYTES + POOL_SIZE * max(
        each.environment.evaluation_bytes for each in plan.environments
    )
    fitting = (available - evaluator) // each
    if workers is None:
        workers = max(1, min(machine.cores(), fitting, runs))
    needed = workers * each + evaluator
    if needed > available:
        raise TooSmall(
            f"{workers} run(s) at once need {_gib(needed)} of memory (the replay buffer or "
            f"dataset alone is {_gib(largest)} each); {_gib(available)} are available. "
            + (
                "Use fewer workers (WORKERS=1)."
                if workers > 1
                else "Free some, or use PROFILE=quick."
            )
        )
    disk = runs * _disk_bytes_per_run(plan)
    free = shutil.disk_usage(_existing(store)).free
    if disk + DISK_RESERVE_BYTES > free:
        raise TooSmall(
            f"it writes up to {_gib(disk)} to {store} and leaves {_gib(DISK_RESERVE_BYTES)} free; "
            f"there are {_gib(free)}. Free some, or keep results elsewhere (STORE=directory)."
        )
    profile, slower = plan.profile, _probe() / PROBE_REFERENCE_SECONDS
    rounds = -(-runs // workers)
    training = profile.total_timesteps / profile.steps_per_second
    seconds = rounds * slower * (training + profile.evaluation_seconds)
    return Estimate(workers, seconds, needed, largest, disk)


def learner_bytes(buffer_bytes: int) -> int:
    """A learner with a replay buffer of that size."""
    return LEARNER_BYTES + buffer_bytes


def check_room(buffer_bytes: int) -> None:
    """Raises TooSmall where this machine cannot hold one learner with such a replay buffer."""
    needed, available = learner_bytes(buffer_bytes), machine.available_memory_bytes()
    if needed > available:
        raise TooSmall(
            f"the run needs {_gib(needed)} of memory (the replay buffer or dataset alone is "
            f"{_gib(buffer_bytes)}); {_gib(available)} are available. Free some, or make fewer "
            "steps (STEPS=...)."
        )


def _disk_bytes_per_run(plan: Plan) -> int:
    """Artefacts wait on disk for the evaluator; the last one and the trace stay."""
    profile = plan.profile
    artefact = max(plan.budget.artefact_bytes(each.environment) for each in plan.environments)
    episodes = profile.final_episodes * len(profile.final_steps())
    trace = max(
        episodes * each.environment.time_limit * each.environment.action_bytes
        for each in plan.environments
    )
    return len(profile.export_steps()) * artefact + trace


def _probe() -> float:
    """Seconds of a fixed amount of single-threaded arithmetic, the kind that learners do most."""
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROBE],
        env=os.environ | one,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return float(json.loads(done.stdout))


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
