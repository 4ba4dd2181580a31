"""What this machine is: the facts that stand in manifests and records beside every number."""

import contextlib
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.records import Provenance
from harness.task import REPOSITORY

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "ale_py", "ogbench")
"""Those that change numbers; a manifest holds their versions."""


def harness_version() -> str:
    """The installed version; empty for a checkout that was never installed."""
    return _installed("touchstone-rl")


def harness_commit() -> str:
    """Commit of the checkout, with "+changes" where it was edited; empty outside of git."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + (
            "+changes" if _git("status", "--porcelain", "--", "harness", "sandbox", "tasks") else ""
        )
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return ""


def package_versions() -> dict[str, str]:
    """Versions of those of `PACKAGES` that are there (a task may do without one), from their
    metadata alone: nothing is imported."""
    return {name: found for name in PACKAGES if (found := _installed(name))}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def cpu_model() -> str:
    """As the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def cpu_features() -> str:
    """A digest of the kernel's list of CPU features: virtual machines share a vague model name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            flags = " ".join(sorted(line.split(":", 1)[1].split()))
            return hashlib.sha256(flags.encode()).hexdigest()[:12]
    return ""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_memory_bytes() -> int:
    """Memory that new processes can have: the kernel's estimate, or what a container leaves."""
    available = memory_bytes()
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return min([available, *_left_in_cgroups()])


def _left_in_cgroups() -> Iterator[int]:
    """What the memory limits of our own cgroup (v2, then v1) leave, where there are any."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such cgroup, or the limit is "max"
            yield int(Path(limit).read_text()) - int(Path(used).read_text())


def provenance(sandbox: Mapping[str, str], device: str, numerics: Mapping[str, str]) -> Provenance:
    """Everything that a record says about what produced it."""
    return Provenance(
        harness_version=harness_version(),
        harness_commit=harness_commit(),
        python=platform.python_version(),
        packages=package_versions(),
        cpu=cpu_model(),
        cores=cores(),
        memory_bytes=memory_bytes(),
        kernel=platform.release(),
        device=device,
        sandbox=dict(sandbox),
        numerics=dict(numerics),
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(REPOSITORY), *arguments],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return done.stdout.strip()
