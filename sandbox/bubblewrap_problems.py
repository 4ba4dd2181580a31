"""Why bubblewrap cannot confine guests on this machine, each reason with one line of remedy."""

import contextlib
import functools
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sandbox import packages, seccomp
from sandbox.base import Problem, SandboxError

OLDEST_VERSION = (0, 8)
"""The first with --disable-userns and --size."""

_PROBE_SECONDS = 5.0

# A namespace of each kind that guests get, a new /proc, and nothing else.
_PROBE = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
    *("--ro-bind", "/", "/", "--proc", "/proc"),
)

# Where a system keeps normal users from making user namespaces: file, forbidding value, remedy.
_USER_NAMESPACE_SYSCTLS = (
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
)


def problems() -> list[Problem]:
    found = [*_missing_programs(), *seccomp.problems(), *_unreadable_files()]
    # The probe would say the same again, less clearly.
    return found or list(_refused_by_the_kernel())


@functools.cache
def version() -> tuple[int, ...]:
    """Of bwrap, as it says. Raises SandboxError where it does not run."""
    try:
        said = subprocess.run(
            ["bwrap", "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"bwrap does not run: {error}") from error
    return tuple(int(part) for part in re.findall(r"\d+", said))


def _missing_programs() -> Iterator[Problem]:
    if shutil.which("bwrap") is None:
        yield Problem("bwrap is not installed", _install("bubblewrap"))
    elif version() < OLDEST_VERSION:
        yield Problem(
            f"bubblewrap {_dotted(version())} is too old",
            f"install bubblewrap {_dotted(OLDEST_VERSION)} or newer (Debian 12, Ubuntu 24.04)",
        )
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        yield Problem(
            "setpriv is not installed; it turns root into the guest's user",
            _install("util-linux"),
        )


def _unreadable_files() -> Iterator[Problem]:
    """Root can mount everything, and yet its guests are other users."""
    if os.geteuid() != 0:
        return
    for mount in (*packages.view().mounts, *packages.code()):
        mode = mount.source.stat().st_mode
        needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        if mode & needed != needed:
            yield Problem(
                f"guests are users of their own and cannot read {mount.source}",
                f"chmod -R o+rX {shlex.quote(str(mount.source))}",
            )


def _refused_by_the_kernel() -> Iterator[Problem]:
    """Make the namespaces that a guest gets, and see."""
    options = _PROBE if os.geteuid() == 0 else [*_PROBE, "--unshare-user", "--disable-userns"]
    try:
        probe = subprocess.run(
            ["bwrap", *options, "--", "/bin/true"],
            capture_output=True,
            text=True,
            env={},
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Problem(f"bwrap does not run: {error}", "run bwrap --version by hand")
        return
    if probe.returncode == 0:
        return
    what = f"bwrap fails here ({probe.stderr.strip()})"
    if os.geteuid() != 0:
        for name, forbidding, assignment in _USER_NAMESPACE_SYSCTLS:
            with contextlib.suppress(OSError):
                if Path("/proc/sys", name).read_text().strip() == forbidding:
                    yield Problem(
                        f"user namespaces are off for normal users ({name.replace('/', '.')})",
                        f"sudo sysctl -w {assignment}",
                    )
                    return
    if _in_container():
        yield Problem(
            f"{what}: a container's default profile forbids namespaces",
            "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined",
        )
        return
    yield Problem(what, "run as root, or on a machine that permits namespaces")


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def _install(package: str) -> str:
    command = f"apt-get install -y {package}"
    return command if os.geteuid() == 0 else f"sudo {command}"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
