"""What lies around an offline task's gradient steps: batches of its data, and its environments.

    python -m benchmarks.batches           measures (2 minutes, 2 GB), writes batches.json here
    python -m benchmarks.batches render    prints Markdown from that file

Batches: FQL makes gradient steps at the sizes of `full`, from a mapped file of a million made-up
rows. A batch is drawn as a host draws it and gathered as a learner gathers it.

Environments: those that an evaluation keeps are made one by one, and then play random actions, in
turns.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks import cores, made_up_data
from benchmarks.measuring import FQL, PROFILE
from benchmarks.speed_report import MEGABYTE, disturbance, listed, machine_lines, table, verdict
from harness import machine
from harness.numerics import choose, variables
from harness.task import Task, plan

RESULTS = Path(__file__).with_name("batches.json")
TRANSITIONS, STEPS, SETTLING = 1_000_000, 200, 4
ENVIRONMENTS, EPISODE_STEPS = 10, 199
"""As many as an evaluation keeps (`POOL_SIZE` there), and a step less than an episode has."""
TARGET_SHARE = 0.05
SEED = 1


def make_steps(dataset: str, steps: int, numerics: Mapping[str, str]) -> dict[str, Any]:
    """In a process of its own: the parts of each step. Every other batch has next actions."""
    import torch

    from harness.guest_config import environment_config
    from harness.intake.submission import accept
    from harness.manifest import plan_of
    from harness.training.environments import family_of
    from sandbox.guest import DatasetEnvironment
    from sandbox.guest.numerics import install
    from sandbox.guest.source import load_source, seed_everything

    torch.set_num_threads(1)
    install(numerics)
    seed_everything(SEED)
    task = made_up_data.used_by(Task.load(FQL.task), FQL.environment, Path(dataset))
    environment, profile = task.environments[FQL.environment], task.profile(PROFILE)
    numbers = plan_of(task, profile, plan(task, profile, None))
    config = environment_config(environment, numbers, SEED, "cpu") | {"dataset": dataset}
    guest = DatasetEnvironment(None, None, config)  # neither a host nor a clock is needed
    learner = load_source(accept(task, FQL.source).source.decode()).build(guest)
    rows, data = family_of(environment).training(environment, numbers, SEED), guest.dataset()

    seconds: dict[str, list[float]] = {"batch": [], "batch_with_next_actions": [], "update": []}
    for step in range(SETTLING + steps):
        with_next_actions = step % 2 == 1
        began = time.perf_counter()
        batch = data.batch(rows.draw(), with_next_actions)
        sampled = time.perf_counter()
        learner.update(batch)
        updated = time.perf_counter()
        if step >= SETTLING:
            name = "batch_with_next_actions" if with_next_actions else "batch"
            seconds[name].append(sampled - began)
            seconds["update"].append(updated - sampled)
    return {
        "transitions": len(data),
        "batch_size": len(batch.rewards),
        "seconds": {name: summary(each) for name, each in seconds.items()},
    }


def play(environments: int, steps: int) -> dict[str, Any]:
    """In a process of its own: what each environment takes until it is there, and then to play."""
    import numpy as np

    from harness.training.environments import family_of
    from harness.training.evaluator import Pool

    environment = Task.load(FQL.task).environments[FQL.environment]
    family_of(environment)  # imports what every task imports
    pool, generator = Pool(), np.random.default_rng(SEED)
    making: list[float] = []
    memory: list[int] = []
    for count in range(1, environments + 1):
        before, began = cores.resident_bytes(), time.perf_counter()
        kept = pool.take(environment, False, count)
        making.append(time.perf_counter() - began)
        memory.append(cores.resident_bytes() - before)

    seconds: dict[str, list[float]] = {"reset": [], "step": []}
    for seed, each in enumerate(kept):
        began = time.perf_counter()
        each.reset(seed)
        seconds["reset"].append(time.perf_counter() - began)
    for _ in range(steps):
        for each in kept:
            action = generator.uniform(-1, 1, environment.action_dim).astype(np.float32)
            began = time.perf_counter()
            each.step(action)
            seconds["step"].append(time.perf_counter() - began)
    return {
        "making_seconds": making,
        "memory_bytes": memory,
        "seconds": {name: summary(each) for name, each in seconds.items()},
    }


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Of one thing that was done so many times."""
    return {
        "times": len(seconds),
        "median": median(seconds),
        "of_19_in_20": quantiles(seconds, n=20)[-1],
    }


def measure(transitions: int, steps: int, environments: int, episode_steps: int) -> dict[str, Any]:
    """The content of the file."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    numerics, task = choose(stock=False), Task.load(FQL.task)
    cores.use_two()

    def alone(*asked: Any, variables: Mapping[str, str]) -> dict[str, Any]:
        return cores.measured_alone("benchmarks.batches", *map(str, asked), variables=variables)

    with tempfile.TemporaryDirectory(prefix="batches-") as directory:
        dataset = made_up_data.write(Path(directory), task, FQL.environment, transitions)
        asked = (dataset, steps, json.dumps(numerics))
        batches = alone("batches", *asked, variables=variables(numerics))
    played = alone("environments", environments, episode_steps, variables={})
    return {
        "began": began,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.harness_commit(),
        "environment": FQL.environment,
        "profile": PROFILE,
        "machine": cores.facts(),
        "numerics": numerics,
        "batches": batches,
        "environments": played,
    }


def render(content: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    batches, environments = content["batches"], content["environments"]
    yield "<!-- Made by `python -m benchmarks.batches render` from benchmarks/batches.json. -->"
    yield ""
    yield (
        f"Batches of {batches['batch_size']} from {batches['transitions']:,} transitions in the"
        f" shapes of {content['environment']}, drawn and gathered before each gradient step of FQL"
        f" (the constants of `{content['profile']}`, one thread)."
    )
    yield ""
    yield from disturbance(batches)
    update = batches["seconds"]["update"]
    rows = []
    for name, what in (("batch", "a batch"), ("batch_with_next_actions", "with next actions")):
        taken = batches["seconds"][name]
        share = taken["median"] / (taken["median"] + update["median"])
        judged = verdict(share, TARGET_SHARE, more_is_better=False)
        wanted = f"< {100 * TARGET_SHARE:.0f} %"
        rows.append((what, *_times(taken), f"{100 * share:.2f} %", wanted, judged))
    rows.append(("the gradient step that follows", *_times(update), "", "", ""))
    yield from table(
        ("", "median", "19 of 20, at most", "share of both", "wanted", "verdict"), rows
    )
    making, memory = environments["making_seconds"], environments["memory_bytes"]
    yield (
        f"{len(making)} environments of {content['environment']}, as an evaluation keeps them, made"
        " one after the other, with the resident memory that the process gained. The first one's"
        " figures hold what is imported for it, too."
    )
    yield ""
    yield from disturbance(environments)
    yield from table(
        ("", "all", "the first", "each other one"),
        [
            ("made in", *(f"{each:.2f} s" for each in _parts(making))),
            ("memory", *(f"{each / MEGABYTE:,.0f} MB" for each in _parts(memory))),
        ],
    )
    yield from table(
        ("", "median", "19 of 20, at most"),
        [(f"a {name}", *_times(each)) for name, each in environments["seconds"].items()],
    )
    yield f"- Measured: {content['began']} to {content['ended']}, commit {content['commit'] or '?'}"
    yield from machine_lines(content["machine"], {})
    yield f"- Numeric backends: {listed(content['numerics'])}"


def _parts(each: Sequence[float]) -> tuple[float, float, float]:
    """Of all, of the first, and of each other one on average."""
    return sum(each), each[0], sum(each[1:]) / len(each[1:])


def _times(taken: Mapping[str, float]) -> tuple[str, str]:
    return f"{taken['median'] * 1e3:.3f} ms", f"{taken['of_19_in_20'] * 1e3:.3f} ms"


def child(what: str, *asked: str) -> dict[str, Any]:
    """What `measure` asks a process of its own for."""
    if what == "environments":
        return play(*map(int, asked))
    dataset, steps, numerics = asked
    return make_steps(dataset, int(steps), json.loads(numerics))


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("measure", "render"), default="measure")
    parser.add_argument("--transitions", type=int, default=TRANSITIONS)
    parser.add_argument("--steps", type=int, default=STEPS, help="of FQL; 4 at least")
    parser.add_argument("--environments", type=int, default=ENVIRONMENTS, help="2 at least")
    parser.add_argument("--episode-steps", type=int, default=EPISODE_STEPS, help="of each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.command == "measure":
        counts = (given.transitions, given.steps, given.environments, given.episode_steps)
        if any(each < least for each, least in zip(counts, (1, 4, 2, 1), strict=True)):
            parser.error("too few to measure")
        content = measure(*counts)
        given.results.write_text(json.dumps(content, indent=1) + "\n")
    print(render(json.loads(given.results.read_text())), end="")


if __name__ == "__main__":
    main()
