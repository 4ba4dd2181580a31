"""Do the tuned numeric backends change what an algorithm reaches? Ten paired seeds tell.

    python -m benchmarks.equivalence train [--references sac] [--environments Reacher-v4] [--jobs 2]
    python -m benchmarks.equivalence report

`train` trains each reference in the `quick` profile, in a process of its own, once with every
backend as torch and glibc come (STOCK=1) and once with all of them tuned, oneDNN's matrix products
included whether or not they are faster here. A finished run is a line of equivalence.csv; the same
command again goes on with what is missing.

`report` prints the pairs' mean difference in units of the profile's scale (100 = floor to ceiling),
its 90 % interval, and the bound: the smallest margin at which two one-sided t tests at 5 % call the
two equivalent (Schuirmann 1987): the interval's end that is farther from 0. It is read off, not set
beforehand: whether it is small enough is for the reader to say.
"""

import argparse
import csv
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import numpy as np
import pandas as pd
from scipy import stats

from harness.numerics import STOCK, TUNED, variables
from harness.task import REPOSITORY, Task

TASK = "rl-offpolicy-continuous"
PROFILE = "quick"
REFERENCES = ("ddpg", "td3", "sac")
SEEDS = (42, 123, 456, 1, 2, 3, 4, 5, 6, 7)
BACKENDS = {"stock": dict(STOCK), "tuned": {**TUNED, "matmul": "onednn"}}
RESULTS = Path(__file__).with_name("equivalence.csv")
COLUMNS = ("reference", "environment", "seed", "backends", "mean_return", "episodes", "steps")


def train(references: list[str], environments: list[str], jobs: int) -> None:
    """Train what has no line yet, `jobs` at once."""
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[name] for name in COLUMNS[:4]) for row in csv.DictReader(file)}
    else:
        RESULTS.write_text(",".join(COLUMNS) + "\n")
    lock = Lock()

    def one(cell: tuple[str, str, str, str]) -> None:
        trained = subprocess.run(
            ["nice", sys.executable, "-m", "benchmarks.equivalence", "one", *cell],
            cwd=REPOSITORY,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | variables(BACKENDS[cell[3]]),
            check=True,
            capture_output=True,
            text=True,
        )
        with lock, RESULTS.open("a") as file:
            file.write(trained.stdout.splitlines()[-1] + "\n")
        print(trained.stdout.splitlines()[-1], flush=True)

    cells = [
        (reference, environment, str(seed), backends)
        for environment in environments
        for seed in SEEDS
        for reference in references
        for backends in BACKENDS
    ]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, (cell for cell in cells if cell not in done)))


def one(reference: str, environment: str, seed: int, backends: str) -> None:
    """Train one cell in this process and print its line."""
    from harness.bare_run import BareRun
    from harness.intake.submission import accept

    task = Task.load(TASK)
    profile = task.profile(PROFILE)
    known = {**task.environments, **task.load_heldout().environments}
    path = REPOSITORY / "reference_algorithms" / TASK / f"{reference}.py"
    run = BareRun(task, profile, known[environment], seed, BACKENDS[backends])
    run.train(accept(task, path).source.decode(), lambda line: None)
    returns = run.evaluate(profile.final_episodes)
    row = (reference, environment, seed, backends, repr(float(np.mean(returns))))
    print(",".join(map(str, (*row, len(returns), profile.total_timesteps))))


def report() -> pd.DataFrame:
    """A line for each reference and environment whose pairs are complete."""
    task = Task.load(TASK)
    scales = {**task.profile(PROFILE).scales, **task.load_heldout().scales[PROFILE]}
    table = pd.read_csv(RESULTS).pivot_table(
        index=["environment", "reference", "seed"], columns="backends", values="mean_return"
    )
    lines = []
    for (environment, reference), pairs in table.dropna().groupby(level=[0, 1]):
        scale = scales[environment]
        z = (pairs - scale.floor) / (scale.ceiling - scale.floor) * 100
        difference = z["tuned"] - z["stock"]
        count = len(difference)
        mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(count)
        half = stats.t.ppf(0.95, count - 1) * error
        lines.append(
            {
                "environment": environment,
                "reference": reference,
                "pairs": count,
                "stock": pairs["stock"].mean(),
                "tuned": pairs["tuned"].mean(),
                "difference": mean,
                "low": mean - half,
                "high": mean + half,
                "bound": max(abs(mean - half), abs(mean + half)),
                "std over seeds": z["stock"].std(ddof=1),
            }
        )
    return pd.DataFrame(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--references", nargs="+", choices=REFERENCES, default=REFERENCES)
    training.add_argument("--environments", nargs="+", default=["Reacher-v4"])
    training.add_argument("--jobs", type=int, default=2)
    cell = commands.add_parser("one")
    for name in COLUMNS[:4]:
        cell.add_argument(name)
    commands.add_parser("report")
    given = parser.parse_args()
    if given.command == "train":
        train(given.references, given.environments, given.jobs)
    elif given.command == "one":
        one(given.reference, given.environment, int(given.seed), given.backends)
    else:
        print(report().to_string(index=False, float_format=lambda value: f"{value:.2f}"))


if __name__ == "__main__":
    main()
