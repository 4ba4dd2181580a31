"""Turns seccomp.json, which Docker reads as it is, into the BPF program that bubblewrap wants.

The profile allows by default and names what is refused, each entry with its reason under "comment".
It names no architecture on purpose: calls of any but the machine's own kill the process.
"""

import ctypes
import errno
import functools
import json
import os
from pathlib import Path
from typing import Any

from sandbox.base import Problem, SandboxError

PROFILE = Path(__file__).with_name("seccomp.json")

LIBRARY_NAME = "libseccomp.so.2"
MISSING = Problem(
    what=f"{LIBRARY_NAME} is not installed; it compiles the list of refused system calls",
    remedy="apt-get install -y libseccomp2",
)

# From seccomp.h of libseccomp 2.5.
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000
_BAD_ARCHITECTURE_ACTION = 2  # the attribute SCMP_FLTATR_ACT_BADARCH
_UNKNOWN_CALL = -1
_COMPARE = {"SCMP_CMP_NE": 1, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}

# Calls that the kernel may know and an older libseccomp does not. Their numbers are the same on
# every architecture (all calls since 424 are).
_NUMBERS = {
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "process_mrelease": 448,
    "cachestat": 451,
    "statmount": 457,
    "listmount": 458,
    "open_tree_attr": 467,
}


class _Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def problems() -> list[Problem]:
    """Empty where the profile can be compiled."""
    try:
        ctypes.CDLL(LIBRARY_NAME)
    except OSError:
        return [MISSING]
    return []


@functools.cache
def program(profile: Path = PROFILE) -> bytes:
    """The profile as an array of struct sock_filter for this machine's architecture.

    Raises SandboxError where libseccomp is missing or refuses a rule.
    """
    library = _load()
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise SandboxError("libseccomp could not start a filter")
    try:
        _check(
            library.seccomp_attr_set(context, _BAD_ARCHITECTURE_ACTION, _KILL_PROCESS),
            "the rule for other architectures",
        )
        for entry in json.loads(profile.read_bytes())["syscalls"]:
            for name in entry["names"]:
                _refuse(library, context, name, entry)
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY_NAME)
    except OSError as error:
        raise SandboxError(f"{MISSING.what}: {MISSING.remedy}") from error
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_release.restype = None
    library.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def _refuse(library: ctypes.CDLL, context: int, name: str, entry: dict[str, Any]) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN_CALL:
        number = _NUMBERS.get(name, _UNKNOWN_CALL)
    if number < 0:
        return  # a call that this architecture does not have
    if entry["action"] != "SCMP_ACT_ERRNO":
        raise SandboxError(f"{PROFILE.name}: action {entry['action']} of {name} is not known here")
    comparisons = [
        _Comparison(test["index"], _COMPARE[test["op"]], test["value"], test["valueTwo"])
        for test in entry.get("args", [])
    ]
    _check(
        library.seccomp_rule_add_array(
            context,
            _ERRNO | entry.get("errnoRet", errno.EPERM),
            number,
            len(comparisons),
            (_Comparison * len(comparisons))(*comparisons),
        ),
        f"the rule for {name}",
    )


def _export(library: ctypes.CDLL, context: int) -> bytes:
    with os.fdopen(os.memfd_create("seccomp"), "r+b") as file:
        _check(library.seccomp_export_bpf(context, file.fileno()), "the finished filter")
        file.seek(0)
        return file.read()


def _check(result: int, what: str) -> None:
    if result < 0:
        raise SandboxError(f"libseccomp refuses {what}: {os.strerror(-result)}")
