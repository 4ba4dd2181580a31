"""Which numeric backends an evaluation uses: measured once a machine, then fixed by its manifest.

They change how fast the same algorithm runs, and how its numbers are rounded. So a new evaluation
chooses them, its manifest names them, and whoever works on it later obeys the manifest, on whatever
machine. What a guest does with them stands in `sandbox/guest/numerics.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from harness.files import write_durably
from harness.machine import cpu_features, cpu_model
from harness.task import REPOSITORY

Matmul = Literal["torch", "onednn"]

STOCK: Mapping[str, str] = {
    "threads": "1",
    "matmul": "torch",
    "adam": "torch's default",
    "soft_update": "one tensor after the other",
    "acting": "no_grad",
    "convolutions": "contiguous",
    "malloc": "glibc's default",
}
"""Everything as torch and glibc come: `STOCK=1`."""

TUNED: Mapping[str, str] = {
    "threads": "1",
    "matmul": "torch",
    "adam": "fused",
    "soft_update": "foreach",
    "acting": "inference mode",
    "convolutions": "channels_last",
    "malloc": "keeps freed memory",
}
"""What evaluations use, with oneDNN for the matrix products where that is faster."""

ONEDNN_GAIN = 1.1
"""How much faster oneDNN must be to be used: less is within a probe's noise.

Probes of one CPU without AVX-512 said 0.92 to 1.07; with AVX-512, 1.8 to 2.1 was measured.
"""

PROBE_VERSION = 1
"""Raised when the probe comes to measure something else: answers that were kept are then stale."""

_MALLOC = {
    # The largest that glibc accepts: tensors of a batch are not mapped anew for every update.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}

_PROBE_SECONDS = 300.0


def choose(stock: bool) -> dict[str, str]:
    """The backends of a new evaluation on this machine. Raises OSError where the probe fails."""
    if stock:
        return dict(STOCK)
    return {**TUNED, "matmul": faster_matmul(_cache_directory())}


def variables(numerics: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a guest that uses those backends."""
    return dict(_MALLOC) if numerics.get("malloc") == TUNED["malloc"] else {}


def faster_matmul(cache: Path) -> Matmul:
    """The faster backend for matrix products, from `cache` where this machine was probed before."""
    subject = {
        "probe": PROBE_VERSION,
        "cpu": cpu_model(),
        "features": cpu_features(),
        "torch": version("torch"),
    }
    path = cache / "matmul.json"
    try:
        kept = json.loads(path.read_text())
        if kept["subject"] == subject and kept["faster"] in ("torch", "onednn"):
            faster: Matmul = kept["faster"]
            return faster
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # none yet, another machine's, or damaged
    seconds = _probe()
    faster = "onednn" if seconds["onednn"] * ONEDNN_GAIN < seconds["torch"] else "torch"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        content = {"subject": subject, "faster": faster, "seconds": seconds}
        write_durably(path, json.dumps(content, indent=1).encode())
    except OSError as error:
        print(f"touchstone: the probe of this machine cannot be kept: {error}", file=sys.stderr)
    return faster


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never raises
    return Path(base) / "touchstone"


def _probe() -> dict[str, float]:
    """Seconds by backend, measured in a process of its own, with one thread. Raises OSError."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "harness.matmul_probe"],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PROBE_SECONDS,
        )
        measured = json.loads(done.stdout)
        return {backend: float(measured[backend]) for backend in ("torch", "onednn")}
    except subprocess.CalledProcessError as error:
        raise OSError(f"the probe of matrix products failed: {error.stderr[-500:]}") from error
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise OSError(f"the probe of matrix products failed: {error}") from error
