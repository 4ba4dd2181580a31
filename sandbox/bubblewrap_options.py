"""The options that make bubblewrap a tight sandbox, in the order in which they have to stand.

What belongs to the whole machine is kept from guests, since one of them could change it and another
read it: they see of /proc what is about processes, and of /dev four nodes and no terminals.

Two holes that the obvious list of options has are closed here. Without `--remount-ro /proc` a guest
that root started can write the machine's sysctls. And a path of the host is seen in the guest's
/proc/self/mountinfo whatever one does: nothing that must stay secret belongs into such a path.
"""

import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox import packages
from sandbox.base import GUEST_CHANNEL, GUEST_DATA, Limits, SandboxError

NOBODY = 65534
"""The guest's uid inside, where there is a user namespace."""

_DEVICES = ("null", "zero", "random", "urandom")
"""No tty: what is written to any terminal sets the times of the one node. No new terminals either,
of which the machine has a fixed number."""

_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}

_SHOWN = ("version",)
"""What is left of the files in /proc that are about the machine: what never changes."""

CPU_FACTS = "/proc/cpuinfo"
"""Shown as a copy, for the libraries that choose their code by it."""

_ENVIRONMENT = {
    "PATH": "/python/bin:/usr/bin",
    "HOME": "/tmp",
    "USER": "guest",
    "LOGNAME": "guest",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONPATH": packages.PYTHONPATH,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def namespaces(uid: int | None) -> list[str]:
    """`uid` is the guest's real one where root starts it; None asks for a user namespace."""
    options = "--unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try"
    options += " --hostname sandbox --new-session --die-with-parent --cap-drop ALL"
    if uid is None:
        options += f" --unshare-user --disable-userns --uid {NOBODY} --gid {NOBODY}"
    else:
        # For setpriv, which gives them up.
        options += " --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP"
    return options.split()


def variables(extra: Mapping[str, str]) -> Iterator[str]:
    """The guest's environment: the fixed one, then what the caller adds or overrides."""
    yield "--clearenv"
    library_path = packages.view().library_path
    for name, value in {**_ENVIRONMENT, **extra}.items():
        yield from ("--setenv", name, value)
    if library_path:
        yield from ("--setenv", "LD_LIBRARY_PATH", library_path)


def file_system(channel: Path, data: Path | None, limits: Limits, uid: int | None) -> Iterator[str]:
    """Options that build it, in order. Directories get their mode, or root alone could enter."""
    yield from _directories("/usr", "/usr/bin")
    libraries = packages.system_libraries()
    yield from _directories(*sorted({str(path.parent) for path in libraries} - {"/usr"}))
    for path in libraries:
        yield from ("--ro-bind", str(path), str(path))
    for name in ("/bin", "/lib", "/lib32", "/lib64", "/libx32"):
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", f"usr{name}", name)
        elif path.is_dir() and name != "/bin":
            yield from ("--ro-bind", name, name)
    if uid is not None:
        setpriv = _setpriv()
        yield from ("--ro-bind", setpriv, "/usr/bin/setpriv")
    yield from _directories("/etc")
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    yield from ("--proc", "/proc")
    yield from _machine_wide()
    yield from _devices()
    for scratch in ("/dev/shm", "/tmp"):
        yield from ("--size", str(limits.scratch_bytes), "--perms", "1777", "--tmpfs", scratch)
    view = packages.view()
    mounts = [*view.mounts, *packages.code()]
    parents = sorted({str(Path(mount.target).parent) for mount in mounts})
    inside = tuple(f"{mount.target}/" for mount in mounts)
    tops = [path for path in parents if not f"{path}/".startswith(inside)]
    yield from _directories("/python", "/packages", "/code", *tops)
    for mount in mounts:
        yield from ("--ro-bind", str(mount.source), mount.target)
    for mask in view.masks:
        yield from ("--perms", "0555", "--tmpfs", mask)
    for mount in view.kept:
        yield from ("--ro-bind", str(mount.source), mount.target)
    for mask in view.masks:
        yield from ("--remount-ro", mask)
    yield from _directories("/run")
    yield from ("--ro-bind", str(channel.resolve()), GUEST_CHANNEL)
    if data is not None:
        yield from ("--ro-bind", str(data.resolve()), GUEST_DATA)


def cpu_facts() -> bytes:
    """What /proc/cpuinfo says, without the clock rates, which tell how busy the machine is."""
    said = Path(CPU_FACTS).read_bytes()
    return b"".join(
        line for line in said.splitlines(keepends=True) if not line.startswith(b"cpu MHz")
    )


def _machine_wide() -> Iterator[str]:
    """Covers what is in /proc beside the processes, known to us or not."""
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit() or entry.is_symlink() or entry.name in _SHOWN:
            continue
        mode = entry.stat().st_mode
        if str(entry) == CPU_FACTS or not mode & stat.S_IROTH:
            continue
        if stat.S_ISDIR(mode):
            yield from ("--perms", "0555", "--tmpfs", str(entry), "--remount-ro", str(entry))
        else:
            # bwrap mounts it without the right to open devices, so opening it fails.
            yield from ("--ro-bind", "/dev/null", str(entry))


def _devices() -> Iterator[str]:
    yield from ("--perms", "0755", "--tmpfs", "/dev")
    for name in _DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        yield from ("--symlink", target, f"/dev/{name}")


def _directories(*names: str) -> Iterator[str]:
    for name in names:
        yield from ("--perms", "0755", "--dir", name)


def become(uid: int | None) -> list[str]:
    """The command that turns root into the guest's user and runs what follows it."""
    if uid is None:
        return []
    change = f"--reuid {uid} --regid {uid} --clear-groups"
    change += " --bounding-set -all --inh-caps -all --ambient-caps -all --"
    return ["/usr/bin/setpriv", *change.split()]


def _setpriv() -> str:
    found = shutil.which("setpriv")
    if found is None:
        raise SandboxError("setpriv is not installed")
    return str(Path(found).resolve())
