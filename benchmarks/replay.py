"""What a million transitions of pixels take: memory, and the time of a batch of 32 from them.

    python -m benchmarks.replay           measures (a minute, 7.3 GB), writes benchmarks/replay.json
    python -m benchmarks.replay render    prints Markdown from that file

The buffer is the learner's own, filled step by step until it has gone round once, with random
frames and a lost life every hundred steps. A batch is all that an update asks for: 32 stacks of
four frames, the 32 that followed, actions, rewards, dones. Nothing lies between two batches.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks import cores
from benchmarks.speed_report import disturbance, machine_lines, table, verdict
from harness import machine
from harness.numerics import TUNED, variables
from sandbox import pixels

RESULTS = Path(__file__).with_name("replay.json")
TRANSITIONS = 1_000_000
BATCHES = 5_000
BATCH_SIZE = 32
TARGET_SECONDS = 0.2e-3
EPISODE_STEPS = 100
DIFFERENT_FRAMES = 64
SPARE_BYTES = 2 << 30
"""Of the machine's memory, which a benchmark leaves to others."""


def fill_and_sample(transitions: int, batches: int) -> dict[str, Any]:
    """In a process of its own: bytes that filling the buffer took, seconds of each batch."""
    import numpy as np
    import torch

    from sandbox.guest import FrameBuffer

    torch.set_num_threads(1)
    generator = np.random.default_rng(1)
    shape = (DIFFERENT_FRAMES, pixels.SIDE, pixels.SIDE)
    frames = generator.integers(256, size=shape, dtype=np.uint8)
    before = cores.resident_bytes()
    buffer = FrameBuffer(transitions, 1, torch.device("cpu"))
    buffer.begin(frames[0])
    began = time.perf_counter()
    for step in range(1, pixels.frame_slots(transitions) + 1):
        lost = step % EPISODE_STEPS == 0
        buffer.add(step % 4, 1.0, lost, frames[step % DIFFERENT_FRAMES])
        if lost:
            buffer.begin(frames[0])
    filling_seconds = time.perf_counter() - began
    taken = cores.resident_bytes() - before
    seconds = []
    for _ in range(batches):
        began = time.perf_counter()
        batch = buffer.sample(BATCH_SIZE)
        seconds.append(time.perf_counter() - began)
    assert batch.next_observations.shape == (BATCH_SIZE, pixels.STACK, pixels.SIDE, pixels.SIDE)
    return {
        "transitions": len(buffer),
        "resident_bytes": taken,
        "filling_seconds": filling_seconds,
        "seconds": seconds,
    }


def measure(transitions: int, batches: int) -> dict[str, Any]:
    """The content of the file."""
    wanted, free = pixels.buffer_bytes(transitions), machine.available_memory_bytes()
    if wanted + SPARE_BYTES > free:
        sys.exit(f"benchmarks.replay: {_gigabytes(wanted)} and some spare of {_gigabytes(free)}")
    began = datetime.now(UTC).isoformat(timespec="seconds")
    cores.use_two()
    asked = map(str, (transitions, batches))
    measured = cores.measured_alone("benchmarks.replay", *asked, variables=variables(TUNED))
    seconds = measured.pop("seconds")
    cuts = quantiles(seconds, n=20)
    return {
        "began": began,
        "commit": machine.harness_commit(),
        "machine": cores.facts(),
        "malloc": TUNED["malloc"],
        "batch_size": BATCH_SIZE,
        "batches": len(seconds),
        **measured,
        "buffer_bytes": wanted,
        "bytes_per_transition": wanted / transitions,
        "median_seconds": median(seconds),
        "seconds_of_19_in_20": cuts[-1],
    }


def render(content: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    middle, most = content["median_seconds"] * 1e3, content["seconds_of_19_in_20"] * 1e3
    lines = [
        "<!-- Made by `python -m benchmarks.replay render` from benchmarks/replay.json. -->",
        "",
        f"A replay buffer of {content['transitions']:,} transitions, full; {content['batches']:,}"
        f" batches of {content['batch_size']} stacks and their successors.",
        "",
        *disturbance(content),
        *table(
            ("", "wanted", "measured", "verdict"),
            [
                (
                    "a batch, median",
                    f"< {TARGET_SECONDS * 1e3:.1f} ms",
                    f"{middle:.3f} ms",
                    verdict(content["median_seconds"], TARGET_SECONDS, more_is_better=False),
                ),
                ("19 of 20 batches, at most", "", f"{most:.3f} ms", ""),
                ("bytes a transition", "", f"{content['bytes_per_transition']:,.0f}", ""),
                ("the buffer", "", _gigabytes(content["buffer_bytes"]), ""),
                ("memory that filling took", "", _gigabytes(content["resident_bytes"]), ""),
            ],
        ),
        f"- Measured: {content['began']}, commit {content['commit'] or '?'}",
        *machine_lines(content["machine"], {}),
        f"- malloc: {content['malloc']}",
    ]
    return "\n".join(lines) + "\n"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.2f} GB"


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(fill_and_sample(*map(int, sys.argv[2:]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("measure", "render"), default="measure")
    parser.add_argument("--transitions", type=int, default=TRANSITIONS)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.command == "measure":
        content = measure(given.transitions, given.batches)
        given.results.write_text(json.dumps(content, indent=1) + "\n")
    print(render(json.loads(given.results.read_text())), end="")


if __name__ == "__main__":
    main()
