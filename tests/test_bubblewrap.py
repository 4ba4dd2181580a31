"""Promises of the bubblewrap backend, each tried with a real sandbox.

Most are tried three times: with control groups, with the limits held by polling, and as a normal
user (through setpriv where the tests run as root, with an interpreter that this user can reach).
"""

import errno
import functools
import inspect
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sandbox import bubblewrap, bubblewrap_options, cgroup, meter, packages, seccomp
from sandbox.base import Limits, Problem, SandboxError, load_backend
from sandbox.bubblewrap import Bubblewrap

ROOT = Path(__file__).resolve().parent.parent
IS_ROOT = os.geteuid() == 0
OTHER_USER = 65533
MIB = 1 << 20
ROOMY = Limits(1024 * MIB, 64, 64 * MIB, 64 * MIB)
MODES = ("cgroups", "polling", "normal user")

pytestmark = [
    pytest.mark.skipif(
        bool(Bubblewrap().problems()), reason=f"no sandbox here: {Bubblewrap().problems()}"
    ),
    # They measure the whole machine: never two of them at once.
    pytest.mark.xdist_group("bubblewrap"),
]


def run_here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a program in a sandbox, to its end or for so many seconds. Its source also runs alone."""
    import pathlib
    import socket
    import tempfile
    import time

    from sandbox.base import Limits
    from sandbox.bubblewrap import Bubblewrap

    with tempfile.TemporaryDirectory(prefix="a päth ") as name:
        channel = pathlib.Path(name, "channel")
        channel.mkdir()
        log = pathlib.Path(name, "log")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(channel / "socket"))
            listener.listen()
            guest = Bubblewrap(task["cgroups"]).start(
                channel, Limits(*task["limits"]), log, task["environment"], task["program"]
            )
            begun = time.monotonic()
            while guest.exit() is None and time.monotonic() - begun < task["seconds"]:
                time.sleep(0.005)
            seconds = time.monotonic() - begun
            ended = guest.kill()._asdict()
        if ended["breach"] is not None:
            ended["breach"] = ended["breach"]._asdict()
        return {**ended, "seconds": seconds, "log": log.read_bytes().decode(errors="replace")}


RUN_ALONE = (
    "import json, sys\nfrom typing import Any, Mapping\n"
    + inspect.getsource(run_here)
    + "\nprint(json.dumps(run_here(json.load(sys.stdin))))\n"
)


class Ended(NamedTuple):
    """How a guest's run went, whoever ran it."""

    code: int | None
    signal: int | None
    breach: dict[str, Any] | None
    cpu_seconds: float
    peak_memory_bytes: int
    seconds: float
    log: str

    def broke(self, limit: str) -> int:
        """What was measured, for a breach that must be of this limit."""
        assert self.breach is not None, f"no breach: {self}"
        assert self.breach["limit"] == limit, self.breach
        # The kernel refuses the charge that would pass the limit, so its peak may lie one
        # charge short: a page, or the 32 KiB that a socket's buffer takes at once.
        short = 32 * 1024 if limit == "memory" else 0
        assert self.breach["measured"] >= self.breach["allowed"] - short
        measured: int = self.breach["measured"]
        return measured


def run(
    program: str,
    mode: str = "cgroups",
    limits: Limits = ROOMY,
    seconds: float = 20,
    environment: Mapping[str, str] | None = None,
    host: tuple[str, ...] = (),
) -> Ended:
    """Run `program` in a sandbox; `host` is a command of an interpreter other than this one."""
    task = {
        "cgroups": mode != "polling",
        "limits": list(vars(limits).values()),
        "environment": dict(environment or {}),
        "program": ["-c", textwrap.dedent(program)],
        "seconds": seconds,
    }
    if mode == "normal user" and IS_ROOT:
        host = as_normal_user()
    if not host:
        return Ended(**run_here(task))
    done = subprocess.run(
        [*host, "-c", RUN_ALONE],
        input=json.dumps(task),
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return Ended(**json.loads(done.stdout))


@functools.cache
def as_normal_user() -> tuple[str, ...]:
    """A command that runs Python 3.11 or newer as a normal user. Skips where root finds none."""
    user = ("setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups")
    check = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    check += "from sandbox import packages; packages.view()"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        command = (*user, python)
        tried = subprocess.run([*command, "-B", "-c", check], capture_output=True, cwd="/")
        if tried.returncode == 0:
            return command
    pytest.skip("no interpreter that another user can run and that can read this repository")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def processes(marker: str) -> dict[int, str]:
    """Processes of this machine with the marker in their command line, and their programs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(marker.encode() in word for word in words):
                found[int(entry.name)] = words[0].decode()
    return found


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- What a guest can reach ---------------------------------------------------------------------

PROBE = r"""
import ctypes, errno, fcntl, glob, json, os, resource, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine

def call(function, *arguments):
    ctypes.set_errno(0)
    result = function(*arguments)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]

def connect():
    with socket.socket(socket.AF_UNIX) as host:
        host.connect("/run/host/socket")

def lock(command):
    with open("/code/sandbox/__init__.py") as file:
        fcntl.fcntl(file, command, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))

def lock_by_garbage_in_the_upper_half():
    with open("/code/sandbox/__init__.py") as file:
        data = ctypes.create_string_buffer(struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        number = {"x86_64": 72}.get(machine, 25)
        ctypes.set_errno(0)
        got = libc.syscall(ctypes.c_long(number), ctypes.c_long(file.fileno()),
                           ctypes.c_long((1 << 32) | fcntl.F_SETLK), data)
        if got < 0:
            raise OSError(ctypes.get_errno(), "")

def flock():
    with open("/code/sandbox/__init__.py") as file:
        fcntl.flock(file, fcntl.LOCK_SH)

def writable(top):
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
    return [path for path in paths if not os.path.islink(path)
            and attempt(lambda: os.close(os.open(path, os.O_WRONLY))) == "done"]

def makeable(folder):
    return attempt(lambda: os.close(os.open(folder + "/x", os.O_CREAT | os.O_WRONLY)))

def readable(pattern):
    text = b""
    for path in glob.glob(pattern):
        try:
            text += open(path, "rb").read()
        except OSError:
            pass
    return text.decode(errors="replace")

CLONE_NEWUSER = 0x10000000
new = {name: getattr(socket, name) for name in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_VSOCK",
                                                "AF_PACKET", "AF_ALG")}
numbers = {"io_uring_setup": 425, "clone3": 435, "cachestat": 451, "open_tree": 428}
if machine == "x86_64":
    numbers.update(memfd_create=319, bpf=321, userfaultfd=323, process_vm_readv=310, keyctl=250,
                   inotify_init1=294, shmget=29, personality=135, perf_event_open=298,
                   memfd_secret=447, open_by_handle_at=304, mq_open=240, fanotify_init=300)
descriptors = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)]
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "sockets": {name: attempt(lambda: socket.socket(family, socket.SOCK_RAW if name == "AF_PACKET"
                              else socket.SOCK_DGRAM)) for name, family in new.items()},
    "unix socket": attempt(lambda: socket.socket(socket.AF_UNIX)),
    "socketpair": attempt(socket.socketpair),
    "connect": attempt(connect),
    "interfaces": os.listdir("/sys/class/net") if os.path.exists("/sys") else [],
    "calls": {name: call(libc.syscall, number, 0, 0, 0, 0, 0, 0)
              for name, number in numbers.items()},
    "ptrace": call(libc.ptrace, 0, 0, 0, 0),
    "unshare": call(libc.unshare, CLONE_NEWUSER),
    "clone": call(libc.syscall, {"x86_64": 56}.get(machine, 220), CLONE_NEWUSER | 17, 0, 0, 0, 0),
    "mount": call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
    "umount": call(libc.umount2, b"/proc", 0),
    "chroot": attempt(lambda: os.chroot("/tmp")),
    "affinity": attempt(lambda: os.sched_setaffinity(0, {0})),
    "flock": attempt(flock),
    "record lock": attempt(lambda: lock(fcntl.F_SETLK)),
    "open file description lock": attempt(lambda: lock(fcntl.F_OFD_SETLK)),
    "record lock, upper half set": attempt(lock_by_garbage_in_the_upper_half),
    "lease": attempt(lambda: fcntl.fcntl(os.open("/tmp/l", os.O_CREAT), fcntl.F_SETLEASE, 0)),
    "directory watch": attempt(lambda: fcntl.fcntl(os.open("/code", 0), fcntl.F_NOTIFY, 1)),
    "terminal": attempt(lambda: fcntl.ioctl(0, 0x5412, b"x")),
    "writable": writable("/proc/sys") + writable("/code") + writable("/etc"),
    "made": {f: makeable(f) for f in ("/", "/code", "/dev", "/etc", "/packages", "/proc", "/python",
             "/python/lib", "/run", "/run/host", "/usr", "/tmp", "/dev/shm")},
    "read-write open of pid 1": attempt(lambda: open("/proc/1/mem", "r+b")),
    "environments": readable("/proc/*/environ"),
    "environment": dict(os.environ),
    "processes": sorted(int(p) for p in os.listdir("/proc") if p.isdigit()),
    "descriptors": descriptors,
    "uid": os.getuid(), "groups": os.getgroups(), "status": status,
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "hostname": os.uname().nodename,
    "passwd": open("/etc/passwd").read(),
    "root": sorted(os.listdir("/")),
    "cwd": os.getcwd(), "path": sys.path,
}))
"""

SECRET = "the-operators-secret-key"


@pytest.fixture(scope="module", params=("root or whoever runs the tests", "normal user"))
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a guest that tries everything reports, in each of two modes."""
    os.environ["TOUCHSTONE_SECRET"] = SECRET
    try:
        ended = run(PROBE, request.param, environment={"OMP_NUM_THREADS": "3"})
    finally:
        del os.environ["TOUCHSTONE_SECRET"]
    assert ended.code == 0, ended
    report: dict[str, Any] = json.loads(ended.log)
    return report


def test_a_guest_has_no_network_not_even_a_socket(seen: dict[str, Any]) -> None:
    assert set(seen["sockets"].values()) == {"EPERM"}
    assert seen["interfaces"] == []


def test_a_guest_can_connect_to_its_host_and_make_socket_pairs(seen: dict[str, Any]) -> None:
    assert (seen["connect"], seen["unix socket"], seen["socketpair"]) == ("done", "done", "done")


def test_dangerous_system_calls_are_refused(seen: dict[str, Any]) -> None:
    calls = seen["calls"]
    assert calls.pop("clone3") == "ENOSYS"  # so that the C library falls back to clone
    assert set(calls.values()) == {"EPERM"}, calls
    for name in ("ptrace", "unshare", "clone", "mount", "umount", "chroot", "affinity", "terminal"):
        assert seen[name] == "EPERM", name


def test_guests_cannot_signal_each_other_through_files_that_both_read(seen: dict[str, Any]) -> None:
    for name in ("flock", "record lock", "open file description lock", "lease", "directory watch"):
        assert seen[name] == "EPERM", name
    # The kernel looks at the lower 32 bits of the command alone.
    assert seen["record lock, upper half set"] == "EPERM"


def test_nothing_is_writable_but_scratch(seen: dict[str, Any]) -> None:
    assert seen["writable"] == []
    made = {folder for folder, result in seen["made"].items() if result == "done"}
    assert made == {"/tmp", "/dev/shm"}
    assert seen["read-write open of pid 1"] in ("EROFS", "EACCES")


def test_the_hosts_environment_shows_nowhere(seen: dict[str, Any]) -> None:
    assert SECRET not in seen["environments"]
    assert "PYTEST" not in seen["environments"]
    expected = {"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "PYTHONPATH", "PWD"}
    expected |= {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED"}
    expected |= {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(seen["environment"]) - {"LD_LIBRARY_PATH"} == expected
    assert seen["environment"]["OMP_NUM_THREADS"] == "3"  # what the caller adds, wins
    assert seen["environment"]["PYTHONHASHSEED"] == "0"


def test_a_guest_sees_no_other_process_and_inherits_no_descriptor(seen: dict[str, Any]) -> None:
    assert seen["processes"] == [1, 2]
    assert set(seen["descriptors"]) == {"0", "1", "2"}


def test_a_guest_has_no_rights(seen: dict[str, Any]) -> None:
    status = {name: value.split() for name, value in seen["status"].items()}
    assert seen["uid"] != 0
    assert seen["groups"] in ([], [seen["uid"]])
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind][0], 16) == 0, kind
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]
    assert seen["core"] == [0, 0]
    assert seen["oom"] == "1000"


def test_names_of_the_host_show_nowhere(seen: dict[str, Any]) -> None:
    assert seen["hostname"] == "sandbox"
    assert seen["passwd"].startswith("guest:x:")
    assert seen["cwd"] == "/tmp"
    assert not set(seen["root"]) & {"home", "root", "work", "var", "sys", "mnt"}
    assert all(entry.startswith(("/code", "/packages", "/python")) for entry in seen["path"][1:])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the machine code is for x86_64")
def test_calls_of_another_architecture_end_the_guest() -> None:
    ended = run(
        """
        import ctypes, mmap
        code = b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"  # mov eax, 20 (getpid); int 0x80; ret
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
        """
    )
    # SIGSEGV where the kernel has no 32-bit calls at all.
    assert ended.signal in (signal.SIGSYS, signal.SIGSEGV)
    assert ended.log == ""


def test_the_profile_compiles_to_a_whole_number_of_instructions() -> None:
    assert len(seccomp.program()) % 8 == 0
    assert len(seccomp.program()) > 100 * 8


# --- What all guests share ----------------------------------------------------------------------

SHARED = r"""
import ctypes, errno, fcntl, glob, json, mmap, os, resource, socket

libc = ctypes.CDLL(None, use_errno=True)
file = os.open("/code/sandbox/__init__.py", os.O_RDONLY)
page = mmap.mmap(file, 0, prot=mmap.PROT_READ)
word = ctypes.create_string_buffer(64)
UPPER = 1 << 32

def attempt(action):
    try:
        return "done", action()
    except OSError as error:
        return errno.errorcode[error.errno], None

def call(number, *arguments):
    ctypes.set_errno(0)
    got = libc.syscall(*(a if isinstance(a, ctypes.Array) else ctypes.c_long(a)
                         for a in (number, *arguments)))
    return "done" if got >= 0 else errno.errorcode[ctypes.get_errno()]

address = 0
for line in open("/proc/self/maps"):
    if line.endswith("/sandbox/__init__.py\n"):
        address = int(line.split("-")[0], 16)
calls = {"cachestat": call(451, file, word, word, 0)}
if os.uname().machine == "x86_64":
    calls |= {
        "fadvise64": call(221, file, 0, 0, 4), "readahead": call(187, file, 0, 4096),
        "mincore": call(27, address, 4096, word), "preadv2": call(327, file, word, 0, 0, 0, 8),
        "pwritev2": call(328, 1, word, 0, 0, 0, 8), "io_setup": call(206, 1, word),
        "io_submit": call(209, 0, 0, 0), "io_getevents": call(208, 0, 0, 0, 0, 0),
        "io_pgetevents": call(333, 0, 0, 0, 0, 0, 0), "io_destroy": call(207, 0),
        "io_cancel": call(210, 0, 0, 0), "sync": call(162), "syncfs": call(306, file),
        "sysinfo": call(99, word), "statfs": call(137, word, word),
        "fstatfs": call(138, file, word),
        "vmsplice": call(278, 1, 0, 0, 0),
        "move_pages": call(279, 0, 1, word, 0, word, 0), "utime": call(132, 0, 0),
        "process_madvise": call(440, 0, 0, 0, 0, 0), "quotactl": call(179, 0, 0, 0, 0),
        "swapon": call(167, word, 0), "swapoff": call(168, word),
    }
    for advice in (20, 21, 22, 23, UPPER | 21):
        calls[f"madvise {advice}"] = call(28, address, 4096, advice)
    for hint in (1035, 1036, 1037, 1038, UPPER | 1036):
        calls[f"fcntl {hint}"] = call(72, file, hint, word)
a, b = socket.socketpair()
for option in (7, 8, 32, 33):
    calls[f"setsockopt {option}"] = attempt(
        lambda: a.setsockopt(socket.SOL_SOCKET, option, 1 << 20))[0]
a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
touched = [path for path in glob.glob("/dev/*") if attempt(lambda: os.utime(path))[0] == "done"]
touched += [fd for fd in (0, 1, 2) if attempt(lambda: os.utime(fd))[0] == "done"]
told = {}
for folder, folders, names in os.walk("/proc"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit() and name not in
                      ("self", "thread-self", "net")]
    for name in names:
        path = os.path.join(folder, name)
        if attempt(lambda: open(path, "rb").read(1))[0] == "done":
            told[path] = True
print(json.dumps({
    "calls": calls, "touched": touched, "told": sorted(told),
    "sysctls": os.listdir("/proc/sys"), "pressure": os.path.exists("/proc/pressure/cpu"),
    "devices": sorted(os.listdir("/dev")),
    "rates": [line for line in open("/proc/cpuinfo") if "MHz" in line],
    "processors": [os.cpu_count(), sum(line.startswith("processor") for line in
                                       open("/proc/cpuinfo"))],
    "works": [open("/dev/null", "w").write("x"), open("/dev/zero", "rb").read(2).hex(),
              len(open("/dev/urandom", "rb").read(3))],
    "limits": [resource.getrlimit(limit) for limit in
               (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, 12)],
    "covered": [path for path in ("/packages/torch/include", "/packages/torch/test",
                "/packages/numpy/tests", "/python/lib/python3.11/test", "/usr/lib/python3",
                "/usr/lib/gcc") if os.path.exists(path) and os.listdir(path)],
}))
"""


@pytest.fixture(scope="module", params=("root or whoever runs the tests", "normal user"))
def shared(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a guest finds that it could leave there, or see change, for another one."""
    nodes = [Path("/dev", name) for name in ("null", "zero", "random", "urandom", "tty")]
    before = [node.stat().st_mtime_ns for node in nodes]
    ended = run(SHARED, request.param)
    assert ended.code == 0, ended
    report: dict[str, Any] = json.loads(ended.log)
    assert [node.stat().st_mtime_ns for node in nodes] == before
    return report


def test_no_call_marks_probes_or_evicts_what_all_guests_share(shared: dict[str, Any]) -> None:
    assert {name: got for name, got in shared["calls"].items() if got != "EPERM"} == {}
    assert shared["touched"] == []


def test_a_guest_is_told_of_processes_and_not_of_the_machine(shared: dict[str, Any]) -> None:
    assert shared["told"] == ["/proc/cpuinfo", "/proc/mounts", "/proc/version"]
    assert (shared["sysctls"], shared["pressure"], shared["rates"]) == ([], False, [])
    cores, processors = shared["processors"]
    assert cores >= 1
    assert processors == Path("/proc/cpuinfo").read_text().count("processor\t:")


def test_a_guests_devices_are_four_nodes_and_no_terminal(shared: dict[str, Any]) -> None:
    links = {"fd", "stdin", "stdout", "stderr"}
    assert set(shared["devices"]) == {"null", "zero", "random", "urandom", "shm"} | links
    assert shared["works"] == [1, "0000", 3]


def test_a_guest_has_few_open_files_and_no_locked_memory(shared: dict[str, Any]) -> None:
    assert shared["limits"] == [[256, 256], [0, 0], [0, 0]]


def test_what_no_guest_imports_is_covered(shared: dict[str, Any]) -> None:
    assert shared["covered"] == []


# --- What a guest can import --------------------------------------------------------------------


def test_torch_and_numpy_work_and_nothing_else_is_there_to_train_on() -> None:
    pytest.importorskip("torch")
    ended = run(
        """
        import importlib, torch, numpy, sys
        from torch.utils.data import DataLoader
        weights = torch.zeros(3, requires_grad=True)
        for batch in DataLoader(torch.ones(8, 3), batch_size=4, num_workers=1):
            (batch @ weights - 1).square().mean().backward()
        print(numpy.linalg.norm(weights.grad.numpy()) > 0)
        unwanted = "gymnasium mujoco ale_py ogbench pip pandas pydantic scipy pytest harness"
        sys.path += ["/usr/lib/python3/dist-packages", "/python/lib/python3.11/site-packages"]
        for name in unwanted.split():
            try:
                importlib.import_module(name)
                print(name)
            except ImportError:
                pass
        """
    )
    assert (ended.code, ended.log) == (0, "True\n")


def test_the_guests_own_code_is_there_and_the_hosts_is_not() -> None:
    ended = run("import sandbox, os; print(sorted(os.listdir('/code/sandbox')))")
    assert ended.code == 0
    there = set(json.loads(ended.log.replace("'", '"')))
    assert there == {"__init__.py", "wire.py", "pixels.py", "rows.py", "guest"}


def test_the_systems_own_python_and_a_venv_in_a_strange_place_serve_as_well(tmp_path: Path) -> None:
    venv = tmp_path / "a vénv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    hosts = [str(venv / "bin" / "python")]
    if shutil.which("/usr/bin/python3"):
        hosts.append("/usr/bin/python3")
    for host in hosts:
        ended = run("import ssl, sqlite3, ctypes; print('fine')", host=(host,))
        assert (ended.code, ended.log) == (0, "fine\n"), host


# --- Limits -------------------------------------------------------------------------------------

TIGHT = Limits(200 * MIB, 16, 1024 * MIB, 1 * MIB, 1000)


def test_a_private_memory_bomb_is_ended_for_memory(mode: str) -> None:
    ended = run(
        """
        hoard = []
        while True:
            hoard.append(b"x" * (1 << 20))
        """,
        mode,
        TIGHT,
    )
    measured = ended.broke("memory")
    assert ended.signal == signal.SIGKILL
    assert 200 * MIB - (1 << 16) <= measured <= ended.peak_memory_bytes + (1 << 16)


def test_a_memory_bomb_in_children_is_ended_for_memory(mode: str) -> None:
    ended = run(
        """
        import os, time
        for _ in range(4):
            if os.fork() == 0:
                hoard = bytes(os.urandom(1 << 20)) * 80  # 80 MiB each: under the limit alone
                time.sleep(60)
        time.sleep(60)
        """,
        mode,
        TIGHT,
    )
    ended.broke("memory")


def test_a_memory_bomb_in_shared_files_is_ended_for_memory(mode: str) -> None:
    ended = run(
        """
        import time
        with open("/dev/shm/bomb", "wb") as file:
            for _ in range(400):
                file.write(bytes(1 << 20))
        time.sleep(60)
        """,
        mode,
        TIGHT,
    )
    ended.broke("memory")


def test_memory_that_forks_share_counts_once(mode: str) -> None:
    ended = run(
        """
        import os, time
        shared = b"x" * (120 << 20)
        for number in range(5):
            if os.fork() == 0:
                time.sleep(0.3 + number * 0.02)
                os._exit(0)
        time.sleep(0.5)
        """,
        mode,
        TIGHT,
    )
    assert (ended.code, ended.breach) == (0, None)


def test_a_bomb_whose_main_process_ends_well_is_still_told_as_memory() -> None:
    ended = run(
        """
        import os
        child = os.fork()
        if child == 0:
            hoard = []
            while True:
                hoard.append(b"x" * (1 << 20))
        os.waitpid(child, 0)
        """,
        limits=TIGHT,
    )
    ended.broke("memory")


def test_a_fork_bomb_is_ended_for_processes_and_the_host_stays_responsive(mode: str) -> None:
    begun = time.monotonic()
    ended = run(
        """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """,
        mode,
        TIGHT,
    )
    assert ended.broke("processes") > 16
    assert ended.seconds < 3
    subprocess.run(["true"], check=True)
    assert time.monotonic() - begun < 6


def test_a_thread_bomb_is_ended_for_processes(mode: str) -> None:
    ended = run(
        """
        import threading, time
        while True:
            threading.Thread(target=time.sleep, args=(60,)).start()
        """,
        mode,
        TIGHT,
    )
    assert ended.broke("processes") > 16


def test_as_many_processes_as_allowed_are_no_breach(mode: str) -> None:
    ended = run(
        """
        import threading, time
        threads = [threading.Thread(target=time.sleep, args=(0.3,)) for _ in range(15)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        mode,
        TIGHT,
    )
    assert (ended.code, ended.breach) == (0, None)


def test_an_output_flood_is_ended_and_the_log_kept_to_its_cap(mode: str) -> None:
    ended = run(
        """
        import os
        while True:
            os.write(1, b"o" * 50000)
            os.write(2, b"o" * 50000)
        """,
        mode,
        TIGHT,
    )
    assert MIB < ended.broke("output") < 2 * MIB
    assert ended.log == "o" * 1000 + "\n[output beyond 1000 bytes is not kept]\n"


def test_full_scratch_is_an_error_inside(mode: str) -> None:
    ended = run(
        """
        import errno
        for folder in ("/tmp", "/dev/shm"):
            written = 0
            try:
                with open(folder + "/fill", "wb", buffering=0) as file:
                    while True:
                        written += file.write(bytes(1 << 20))
            except OSError as error:
                print(errno.errorcode[error.errno], written)
        """,
        mode,
        Limits(1024 * MIB, 16, 8 * MIB, MIB),
    )
    assert ended.code == 0
    assert ended.breach is None
    full = f"{errno.errorcode[errno.ENOSPC]} {8 * MIB}\n"
    assert ended.log == 2 * full


def test_many_small_files_count_as_memory(mode: str) -> None:
    ended = run(
        """
        import os
        for number in range(600_000):
            os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
        """,
        mode,
        Limits(60 * MIB, 16, 1024 * MIB, MIB),
    )
    ended.broke("memory")


SOCKETS = """
import os, socket, time
def fill():
    kept = []
    try:
        while True:
            pair = socket.socketpair()
            kept += pair
            for each in pair:
                each.setblocking(False)
                try:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                except PermissionError:
                    pass
                try:
                    while True: each.send(bytes(65536))
                except BlockingIOError:
                    pass
    except OSError:
        time.sleep(10)
for _ in range(3):
    if os.fork() == 0: fill()
fill()
"""


def test_what_sockets_hold_counts_as_memory(mode: str) -> None:
    ended = run(SOCKETS, mode, Limits(200 * MIB, 16, 64 * MIB, MIB))
    ended.broke("memory")


def test_what_closed_clients_sent_to_a_backlog_counts_as_memory(mode: str) -> None:
    ended = run(
        """
        import socket, time
        server = socket.socket(socket.AF_UNIX)
        server.bind("/tmp/socket")
        server.listen(4096)
        for _ in range(2000):
            with socket.socket(socket.AF_UNIX) as client:
                client.setblocking(False)
                client.connect("/tmp/socket")
                try:
                    while True: client.send(bytes(65536))
                except BlockingIOError:
                    pass
        time.sleep(10)
        """,
        mode,
        Limits(200 * MIB, 16, 64 * MIB, MIB),
    )
    ended.broke("memory")


# --- What a guest says of itself ------------------------------------------------------------------

STRANGE_NAMES = (b"\xff\xfe", b"\rRssAnon: x", b"\nThreads: x", b"a) S 1 x (b", b"\x85Threads: 0")


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_no_name_of_a_process_blinds_the_meter(mode: str, name: bytes) -> None:
    ended = run(
        f"""
        import ctypes, os, time
        ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)
        if os.fork() == 0:
            os._exit(0)  # a zombie, which has no lines of its own for memory
        hoard = bytearray(b"x") * (50 << 20)
        while time.process_time() < 0.3: pass
        time.sleep(0.2)
        raise SystemExit(7)
        """,
        mode,
    )
    assert (ended.code, ended.signal, ended.breach) == (7, None, None)
    assert ended.peak_memory_bytes > 50 * MIB
    assert ended.cpu_seconds > 0.2
    assert "lost track" not in ended.log


def test_no_name_of_a_process_hides_its_memory(mode: str) -> None:
    ended = run(
        """
        import ctypes
        ctypes.CDLL(None).prctl(15, b"x\\nRssAnon: 0", 0, 0, 0)
        hoard = []
        while True:
            hoard.append(b"x" * (1 << 20))
        """,
        mode,
        TIGHT,
    )
    ended.broke("memory")


def test_a_name_in_the_place_of_a_dead_launcher_keeps_no_guest_from_starting() -> None:
    strange = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0); "
    strange += "print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", strange], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        assert cgroup._launcher(other.pid).startswith(cgroup.PREFIX)
        other.kill()


# --- Ends ---------------------------------------------------------------------------------------


def test_exit_status_and_signal_are_told(mode: str) -> None:
    assert run("raise SystemExit(7)", mode)[:3] == (7, None, None)
    ended = run("import os; os.kill(os.getpid(), 11)", mode)
    assert ended[:3] == (None, signal.SIGSEGV, None)


def test_cpu_time_is_counted_children_included(mode: str) -> None:
    ended = run(
        """
        import os, time
        child = os.fork()
        while time.process_time() < 0.3: pass
        if child: os.waitpid(child, 0)
        """,
        mode,
    )
    # 0.6 s were used; polling misses what follows its last look.
    assert 0.4 < ended.cpu_seconds < 2


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "channel"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        yield folder


SLEEP = "import time; print('up'); time.sleep(60)"
SILENT_SLEEP = "import time; time.sleep(60)"

# Four daemons that ignore what can be ignored, and a main process that waits.
DAEMONS = """
import os, signal, time
for number in range(1, 65):
    if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        time.sleep(600)
time.sleep({main})
"""


@pytest.mark.parametrize("cgroups", [True, False])
def test_daemons_that_ignore_signals_die_on_kill(
    tmp_path: Path, channel: Path, cgroups: bool
) -> None:
    marker = f"marker-{uuid.uuid4()}"
    program = ("-c", DAEMONS.format(main=600), marker)
    guest = Bubblewrap(cgroups).start(channel, ROOMY, tmp_path / "log", {}, program)
    pythons = [packages.INTERPRETER] * 5

    def all_up() -> bool:
        return sorted(processes(marker).values())[:5] == pythons or sum(
            name == packages.INTERPRETER for name in processes(marker).values()
        ) == len(pythons)

    assert until(all_up, 5)
    assert guest.exit() is None
    begun = time.monotonic()
    ended = guest.kill()
    assert time.monotonic() - begun < 1
    assert processes(marker) == {}
    assert (ended.signal, ended.breach) == (signal.SIGKILL, None)
    assert guest.kill() == guest.exit() == ended  # again, harmlessly


def test_daemons_die_with_the_main_process(tmp_path: Path, channel: Path) -> None:
    marker = f"marker-{uuid.uuid4()}"
    program = ("-c", DAEMONS.format(main=0.1), marker)
    guest = Bubblewrap().start(channel, ROOMY, tmp_path / "log", {}, program)
    assert until(lambda: guest.exit() is not None, 5)
    assert processes(marker) == {}
    assert guest.kill().code == 0


def test_usage_can_be_asked_while_the_guest_runs(tmp_path: Path, channel: Path) -> None:
    busy = "hoard = b'x' * (50 << 20)\nwhile True: pass"
    for cgroups in (True, False):
        guest = Bubblewrap(cgroups).start(channel, ROOMY, tmp_path / "log", {}, ("-c", busy))
        assert until(lambda guest=guest: guest.usage().cpu_seconds > 0.2, 5)  # type: ignore[misc]
        assert guest.usage().peak_memory_bytes > 50 * MIB
        ended = guest.kill()
        assert guest.usage() == (ended.cpu_seconds, ended.peak_memory_bytes)


@pytest.mark.parametrize("place", ["breach", "cpu_seconds"])
def test_a_watcher_that_fails_ends_the_guest_and_says_why_in_the_log(
    tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    marker = f"marker-{uuid.uuid4()}"
    # In its last measurement too, which is where cpu_seconds is asked for.
    monkeypatch.setattr(meter.PollingMeter, place, lambda self: int("what a guest made up"))
    program = ("-c", "print('up', flush=True)\n" + DAEMONS.format(main=0.5), marker)
    guest = Bubblewrap(False).start(channel, ROOMY, tmp_path / "log", {}, program)
    assert until(lambda: guest.exit() is not None, 5)
    assert processes(marker) == {}
    ended = guest.kill()
    assert (ended.code, ended.signal, ended.breach) == (None, signal.SIGKILL, None)
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.startswith("[the sandbox lost track of this guest")
    assert "what a guest made up" in last


def test_a_log_that_cannot_be_written_is_the_hosts_fault(
    tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ("-c", "import time\nwhile True: print('x', flush=True); time.sleep(0.01)")
    log = tmp_path / "log"
    log.symlink_to("/dev/full")
    guest = Bubblewrap().start(channel, ROOMY, log, {}, program)
    assert until(lambda: not guest._watcher.is_alive(), 5)  # type: ignore[attr-defined]
    with pytest.raises(SandboxError, match="No space"):
        guest.kill()


def test_a_guest_that_sent_its_output_to_the_host_ends_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "channel"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        program = """
import array, socket
host = socket.socket(socket.AF_UNIX)
host.connect("/run/host/socket")
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))
host.sendmsg([b"x"], [rights])
print("sent", flush=True)
"""
        guest = Bubblewrap().start(folder, ROOMY, tmp_path / "log", {}, ("-c", program))
        connection, _ = listener.accept()
        with connection:  # not read, so that the pipe's other end stays open in it
            assert until(lambda: guest.exit() is not None, 5)
            assert guest.kill().code == 0
    assert (tmp_path / "log").read_text() == "sent\n"


HOST = """
import pathlib, sys, time
from sandbox.base import Limits
from sandbox.bubblewrap import Bubblewrap
folder = pathlib.Path(sys.argv[1])
limits = Limits(1 << 30, 64, 1 << 20, 1 << 20)
program = ("-c", sys.argv[3], sys.argv[2])
guest = Bubblewrap().start(folder / "channel", limits, folder / "log", {}, program)
print("started", flush=True)
time.sleep(60)
"""


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def groups_of(pid: int) -> list[Path]:
    # Unlike rglob, walk does not mind a directory that goes away meanwhile.
    names = re.compile(rf"{cgroup.PREFIX}-\d+-{pid}-\d+-\d+")
    folders = (Path(folder) for folder, _, _ in os.walk("/sys/fs/cgroup"))
    return [folder for folder in folders if names.fullmatch(folder.name)]


def test_no_guest_survives_the_hosts_sigkill_and_its_groups_are_removed_later(
    tmp_path: Path, channel: Path
) -> None:
    marker = f"marker-{uuid.uuid4()}"
    with subprocess.Popen(
        [sys.executable, "-c", HOST, tmp_path, marker, DAEMONS.format(main=600)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"started\n"
        assert len(processes(marker)) > 1
        host.kill()
        host.wait()
        assert until(lambda: processes(marker) == {}, 2), processes(marker)
    assert run("pass").code == 0
    assert groups_of(host.pid) == []


def test_groups_of_living_launchers_stay(tmp_path: Path, channel: Path) -> None:
    if cgroup.describe() is None:
        pytest.skip("no writable cgroup here")
    guest = Bubblewrap().start(channel, ROOMY, tmp_path / "log", {}, ("-c", SLEEP))
    made = groups_of(os.getpid())
    assert made
    assert run("pass", host=(sys.executable,)).code == 0
    assert set(groups_of(os.getpid())) == set(made)
    guest.kill()
    assert groups_of(os.getpid()) == []


def test_no_guest_starts_for_a_host_that_was_killed_while_it_started_one(
    tmp_path: Path, channel: Path
) -> None:
    marker = f"marker-{uuid.uuid4()}"
    # Killed at the gate: bwrap waits, and its inner process is not tied to the outer one yet.
    wait = "lambda pid: (print('started', flush=True), time.sleep(60))"
    at_the_gate = HOST.replace(
        "guest = ", f"import sandbox.bubblewrap as module\nmodule._restrain = {wait}\nguest = "
    )
    with subprocess.Popen(
        [sys.executable, "-c", at_the_gate, tmp_path, marker, SILENT_SLEEP],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"started\n"
        assert until(lambda: "bwrap" in "".join(processes(marker).values()), 5)
        host.kill()
        host.wait()
        assert until(lambda: processes(marker) == {}, 2), processes(marker)


def test_a_sandbox_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "INTERPRETER", "/nowhere/python3")
    descriptors = open_descriptors()
    with pytest.raises(SandboxError, match="/nowhere/python3"):
        Bubblewrap().start(channel, ROOMY, tmp_path / "log", {}, ("-c", SLEEP))
    assert groups_of(os.getpid()) == []
    assert open_descriptors() == descriptors


def test_a_start_that_fails_at_the_gate_leaves_no_process(
    tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    marker = f"marker-{uuid.uuid4()}"
    monkeypatch.setattr(bubblewrap, "_restrain", fail)
    begun = time.monotonic()
    with pytest.raises(SandboxError, match="no room"):
        Bubblewrap().start(channel, ROOMY, tmp_path / "log", {}, ("-c", SILENT_SLEEP, marker))
    assert time.monotonic() - begun < 2
    assert processes(marker) == {}
    assert groups_of(os.getpid()) == []


def test_a_finished_guest_leaves_no_descriptor_and_no_group(tmp_path: Path, channel: Path) -> None:
    descriptors = open_descriptors()
    Bubblewrap().start(channel, ROOMY, tmp_path / "log", {}, ("-c", SLEEP)).kill()
    assert open_descriptors() == descriptors
    assert groups_of(os.getpid()) == []


@pytest.mark.skipif(not IS_ROOT, reason="needs root to give each guest a uid")
def test_each_guest_of_root_is_a_user_of_its_own_and_owns_its_channel_alone(
    tmp_path: Path, channel: Path
) -> None:
    marker = f"marker-{uuid.uuid4()}"
    program = ("-c", SLEEP, marker)
    seen = []
    for _ in range(2):
        guest = Bubblewrap().start(channel, ROOMY, tmp_path / "log", {}, program)
        [pid] = [pid for pid, name in processes(marker).items() if name == packages.INTERPRETER]
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        [uids] = [line.split()[1:] for line in status if line.startswith("Uid:")]
        assert len(set(uids)) == 1  # real, effective, saved, file system
        uid = int(uids[0])
        for path, mode in ((channel, 0o40700), (channel / "socket", None)):
            assert path.stat().st_uid == uid
            assert mode in (None, path.stat().st_mode)
        seen.append(uid)
        guest.kill()
    assert 0 not in seen
    assert seen[0] != seen[1]


# --- What is said about this machine ------------------------------------------------------------


def test_the_backend_is_found_by_name_and_describes_itself() -> None:
    facts = load_backend("bubblewrap").describe()
    assert facts["backend"] == "bubblewrap"
    assert all(isinstance(value, str) for value in facts.values())


def test_a_missing_program_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = Bubblewrap().problems()
    sudo = "" if IS_ROOT else "sudo "
    assert Problem("bwrap is not installed", f"{sudo}apt-get install -y bubblewrap") in found


def test_a_missing_library_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "LIBRARY_NAME", "libnowhere.so.2")
    [problem] = Bubblewrap().problems()
    assert "libseccomp2" in problem.remedy


def test_user_namespaces_that_are_off_are_told_by_the_name_of_their_switch() -> None:
    if not IS_ROOT:
        pytest.skip("needs root to switch them off in a user namespace of its own")
    # Inside a user namespace of its own the switch can be set without a change to the machine.
    program = f"""
import ctypes, os
ready, ready_end = os.pipe()
mapped, mapped_end = os.pipe()
child = os.fork()
if child:
    os.read(ready, 1)
    for kind in ("uid", "gid"):
        open(f"/proc/{{child}}/{{kind}}_map", "w").write("0 0 65534")
    os.write(mapped_end, b"1")
    os.waitpid(child, 0)
else:
    if ctypes.CDLL(None).unshare(0x10000000):
        os._exit(1)
    os.write(ready_end, b"1")
    os.read(mapped, 1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
    from sandbox.bubblewrap import Bubblewrap
    os.setresgid({OTHER_USER}, {OTHER_USER}, {OTHER_USER})
    os.setresuid({OTHER_USER}, {OTHER_USER}, {OTHER_USER})
    print(Bubblewrap().problems())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
    )
    if not done.stdout:
        pytest.skip(f"cannot make a user namespace for this test: {done.stderr.strip()[-200:]}")
    assert "sudo sysctl -w user.max_user_namespaces=10000" in done.stdout


@pytest.mark.skipif(not IS_ROOT, reason="a normal user's guests have the rights of that user")
def test_files_that_guests_cannot_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private package"
    private.mkdir(mode=0o700)
    mounts = [packages.Mount(private, "/packages/private")]
    monkeypatch.setattr(packages, "code", lambda: mounts)
    [problem] = Bubblewrap().problems()
    assert problem.remedy == f"chmod -R o+rX '{private}'"


def test_a_nul_byte_in_a_variable_is_refused(tmp_path: Path, channel: Path) -> None:
    with pytest.raises(SandboxError, match="NUL"):
        Bubblewrap().start(channel, ROOMY, tmp_path / "log", {"A": "x\0--bind"}, ("-c", SLEEP))


def test_options_that_must_come_last_come_last() -> None:
    listed = list(bubblewrap_options.file_system(Path("/tmp"), None, ROOMY, None))
    assert listed.index("/proc") < listed.index("/tmp") < listed.index("/code")
