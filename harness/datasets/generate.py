"""Makes the two files of a dataset on this machine, in the layout of the official ones.

What a file holds follows from the generator's numbers in the task's table, to the bit: every
episode has a seed of its own, so neither their order nor the number of processes matters. The
processes that play them use the arithmetic of a CPU with AVX2, whatever more theirs has. (Another
build of MuJoCo, numpy or the C library may round differently all the same.)
"""

import contextlib
import functools
import json
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from harness import machine
from harness.datasets import checksums
from harness.datasets.demonstrations import ROWS, Demonstrator, Episode, demonstrator, seconds
from harness.datasets.places import DatasetError, Part, Say, Show, files
from harness.datasets.writing import alone, replacing
from harness.processes import die_with_parent
from harness.task import Generator, OfflineDataset

VERSION = 1
"""Of what is made from the same numbers."""
PROVENANCE = "provenance"
"""The array in a file that was made here which says what it is; OGBench's loader passes it over."""

_ARITHMETIC = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Read when numpy and OpenBLAS are imported: AVX-512's sines and products round otherwise."""
_PROCESS_BYTES = 500 << 20
"""One that plays: 475 MiB measured with a robot arm, imports included."""

_STREAMS = {Part.TRAINING: 0, Part.VALIDATION: 1}


def provenance(environment: OfflineDataset, part: Part) -> str:
    """What a file says that was made for this environment: no other dataset's says the same."""
    assert environment.generator is not None
    said = {"dataset": environment.dataset, "part": part, "version": VERSION}
    return json.dumps(said | {"generator": environment.generator.model_dump()})


def generate(
    environment: OfflineDataset, root: Path, say: Say, show: Show, workers: int = 0
) -> None:
    """Make those of an environment's two files that are not there.

    `workers`: processes that play episodes at once; 0: what cores and memory allow; 1: none, this
    one plays them itself, with the arithmetic that it has.
    Raises DatasetError where no scripted policy makes this dataset, or a process was killed.
    """
    wanted = files(environment, root)
    for part, path in wanted.parts():
        if path.exists():
            continue
        with alone(path, say):
            if not path.exists():
                _make(environment, part, path, show, workers)
                checksums.keep(path, checksums.sha256_of(path))


def duration(environment: OfflineDataset, root: Path) -> float:
    """Roughly the seconds that `generate` would take. Raises DatasetError as it does."""
    made = environment.generator
    assert made is not None
    missing = [part for part, path in files(environment, root).parts() if not path.exists()]
    episodes = sum(_episodes(made, part) for part in missing)
    return episodes * seconds(environment.dataset) / min(_processes(), max(episodes, 1))


def _make(environment: OfflineDataset, part: Part, path: Path, show: Show, workers: int) -> None:
    made = environment.generator
    assert made is not None
    count = _episodes(made, part)
    seeds = [
        np.random.SeedSequence(made.seed, spawn_key=(_STREAMS[part], index))
        for index in range(count)
    ]
    episodes: list[Episode] = []
    for episode in _played(environment.dataset, seeds, workers):
        episodes.append(episode)
        show(f"{environment.dataset}, {part}: {len(episodes)} of {count} episodes")
    columns = Episode(*(np.concatenate(each) for each in zip(*episodes, strict=True)))
    terminals = np.zeros(len(columns.actions), dtype=bool)
    terminals[ROWS - 1 :: ROWS] = True
    arrays: dict[str, Any] = columns._asdict() | {
        "terminals": terminals,
        PROVENANCE: np.array(provenance(environment, part)),
    }
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # not compressed: the bytes would depend on the build of zlib


def _played(
    dataset: str, seeds: Sequence[np.random.SeedSequence], workers: int
) -> Iterator[Episode]:
    if workers == 1:
        yield from (_play(dataset, seed) for seed in seeds)
        return
    # Spawned: a fork of a process with threads (BLAS has some) may hang.
    pool = ProcessPoolExecutor(
        min(workers or _processes(), len(seeds)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_become_worker,
        initargs=(os.getpid(),),
    )
    try:
        with _environment(_ARITHMETIC):  # in which they are started
            episodes = pool.map(functools.partial(_play, dataset), seeds)
        yield from episodes
    except BrokenProcessPool as error:
        raise DatasetError(
            f"{dataset}: a process that made it was killed (was there enough memory?); the same "
            "command tries again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """For what is started in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _become_worker(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle


@functools.cache
def _demonstrator(dataset: str) -> Demonstrator:
    return demonstrator(dataset)


def _play(dataset: str, seed: np.random.SeedSequence) -> Episode:
    return _demonstrator(dataset).episode(seed)


def _episodes(made: Generator, part: Part) -> int:
    return made.episodes if part is Part.TRAINING else made.validation_episodes


def _processes() -> int:
    return max(1, min(machine.cores(), machine.available_memory_bytes() // _PROCESS_BYTES))
