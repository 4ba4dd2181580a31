"""Which way to step an Atari game is the fastest, and do they show the same frames?

    python -m benchmarks.atari_steps           measures (a minute), writes atari_steps.json here
    python -m benchmarks.atari_steps render    prints Markdown from that file

One game, one thread, the same random actions: the emulator called directly as a run does it,
ale-py's vector environment with one game in it, and gymnasium's wrapper (which needs the OpenCV
that `python -m benchmarks.sb3_td3 install` brings). They take turns; what counts is CPU time.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import cores
from benchmarks.sb3 import DIRECTORY
from benchmarks.speed_report import machine_lines, table

RESULTS = Path(__file__).with_name("atari_steps.json")
GAMES = {
    "BreakoutNoFrameskip-v4": "breakout",
    "PongNoFrameskip-v4": "pong",
    "BeamRiderNoFrameskip-v4": "beam_rider",
    "SeaquestNoFrameskip-v4": "seaquest",
}
TURNS, STEPS = 7, 300
FIRE = 1

Step = Callable[[int], tuple[Any, float, bool]]
"""An action to the newest frame, the raw reward, whether the game is over; a new one follows."""


class Way(NamedTuple):
    """One way of stepping a game."""

    name: str
    step: Step


def direct(id_: str) -> Step:
    """As training and evaluations do it."""
    from harness.task import Task
    from harness.training.atari import Game, Start

    task = Task.load("rl-value-atari")
    game = Game({**task.environments, **task.load_heldout().environments}[id_], sticky=False)
    game.begin(Start(0, 0))

    def step(action: int) -> tuple[Any, float, bool]:
        frame, reward = game.step(action)
        over = game.over
        if over:
            game.begin(Start(0, 0))
        return frame, reward, over

    return step


def vector(id_: str) -> Step:
    """ale-py's vector environment, in C++."""
    import numpy as np
    from ale_py.vector_env import AtariVectorEnv

    made = AtariVectorEnv(
        GAMES[id_], 1, noop_max=0, use_fire_reset=False, reward_clipping=False, num_threads=1
    )

    def begin() -> None:
        made.reset(seed=0)
        made.step(np.array([FIRE]))

    def step(action: int) -> tuple[Any, float, bool]:
        obs, reward, over, _, _ = made.step(np.array([action]))
        if over[0]:
            begin()
        return obs[0, -1], float(reward[0]), bool(over[0])

    begin()
    return step


def wrapped(id_: str) -> Step:
    """gymnasium's wrapper, over OpenCV."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    made = gymnasium.wrappers.AtariPreprocessing(gymnasium.make(id_), noop_max=0)

    def begin() -> None:
        made.reset(seed=0)
        made.step(FIRE)

    def step(action: int) -> tuple[Any, float, bool]:
        obs, reward, over, _, _ = made.step(action)
        if over:
            begin()
        return obs, float(reward), bool(over)

    begin()
    return step


def measure(id_: str) -> dict[str, Any]:
    """CPU milliseconds a step of each way, and what differs from the direct one."""
    import numpy as np

    ways = [Way("direct", direct(id_)), Way("vector", vector(id_)), Way("wrapped", wrapped(id_))]
    taken: dict[str, list[float]] = {each.name: [] for each in ways}
    apart = {each.name: {"pixels": 0, "most": 0, "rewards": 0, "ends": 0} for each in ways[1:]}
    seen_pixels = 0
    for turn in range(TURNS):
        actions = np.random.default_rng(turn).integers(4, size=STEPS).tolist()
        seen = {}
        for way in ways[turn % 3 :] + ways[: turn % 3]:
            began = time.process_time()
            seen[way.name] = [way.step(action) for action in actions]
            taken[way.name].append(1e3 * (time.process_time() - began) / STEPS)
        for name, counts in apart.items():
            for ours, theirs in zip(seen["direct"], seen[name], strict=True):
                if not ours[2]:  # what a game shows as it ends is nobody's observation
                    difference = np.abs(ours[0].astype(int) - theirs[0].astype(int))
                    counts["pixels"] += int((difference > 0).sum())
                    counts["most"] = max(counts["most"], int(difference.max()))
                counts["rewards"] += ours[1] != theirs[1]
                counts["ends"] += ours[2] != theirs[2]
        seen_pixels += sum(each[0].size for each in seen["direct"])
    return {"milliseconds": taken, "apart": apart, "pixels": seen_pixels}


def render(content: dict[str, Any]) -> str:
    return "\n".join(_lines(content)) + "\n"


def _lines(content: dict[str, Any]) -> Iterator[str]:
    rows = []
    for id_, measured in content["games"].items():
        times = measured["milliseconds"]
        for name, values in times.items():
            ratio = median(a / b for a, b in zip(values, times["direct"], strict=True))
            apart = measured["apart"].get(name)
            rows.append(
                [
                    id_,
                    name,
                    f"{median(values):.3f}",
                    f"{ratio:.2f}",
                    "" if apart is None else f"{1e6 * apart['pixels'] / measured['pixels']:.1f}",
                    "" if apart is None else str(apart["most"]),
                    "" if apart is None else f"{apart['rewards']} and {apart['ends']}",
                ]
            )
    yield from table(
        [
            "game",
            "way",
            "CPU ms a step",
            "against direct",
            "pixels of a million that differ",
            "by at most",
            "rewards and ends that differ",
        ],
        rows,
    )
    yield f"- Measured: {content['began']} to {content['ended']}"
    yield from machine_lines(content["machine"], {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("measure", "render"), default="measure")
    given = parser.parse_args()
    if given.command == "measure":
        # numpy has read its number of threads by the time that it is imported.
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
        sys.path.append(str(DIRECTORY))
        began = datetime.now(UTC).isoformat(timespec="seconds")
        games = {id_: measure(id_) for id_ in GAMES}
        content = {
            "began": began,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": cores.facts(),
            "games": games,
        }
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    print(render(json.loads(RESULTS.read_text())), end="")


if __name__ == "__main__":
    main()
