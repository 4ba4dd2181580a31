"""The table of verdicts: what ended a run, in words that name the limit, the value and what to do.

Invariants:
- a breach that the backend measured outranks whatever the guest said or how it exited;
- `out-of-memory`, `too-many-processes` and `too-much-output` come from a measured breach alone;
- `infrastructure` is not here: it is `InfrastructureError`, raised only before a byte of the
  submission has reached a guest, or for faults of the host's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.records import Verdict, VerdictKind
from sandbox.base import Exit, LimitName
from sandbox.wire import MEBIBYTE, Failure, FailureKind, printable

LOG_TAIL_BYTES = 4_000
MAX_WORDS = 400
"""Characters of a guest's own words in a cause; all of them stand in the detail."""

ADVICE: dict[VerdictKind, str] = {
    "scored": "",
    "rejected": "Hold less: make the named modules smaller or drop one (target networks count "
    "too); the exported policy is one module (`actor` or `q_network`, by task) with all that its "
    "attributes reach.",
    "crashed": "Read the traceback: its last line of source.py, which stands beside the report, is "
    "where to look.",
    "exited": "A run ends when the harness ends it; do not exit or return from the training loop.",
    "timed-out": "The log's tail says where the guest was; make that part faster, or end its loop.",
    "out-of-memory": "Hold fewer or smaller tensors; look for lists that grow with every update.",
    "too-many-processes": "Start no processes or threads; the learner has one core.",
    "too-much-output": "Print less: metrics that `update` returns are logged anyway.",
    "protocol-violation": "Return actions of the task's shape: finite numbers (action_dim,), or "
    "integers (1,) from 0 to n - 1; and leave the environment to the training loop.",
}
"""What to do, by kind: every verdict has one."""

_BREACHES: dict[LimitName, tuple[VerdictKind, str, int, str]] = {
    "memory": ("out-of-memory", "memory", MEBIBYTE, "MiB"),
    "processes": ("too-many-processes", "processes and threads", 1, ""),
    "output": ("too-much-output", "output", MEBIBYTE, "MiB"),
}
"""Limit → verdict, its name, the unit to say it in."""


class InfrastructureError(Exception):
    """Not the submission's fault. The run has no record and is run again, three times at most."""


class GuestFault(Exception):
    """Something that the guest did or failed to do. `settle` makes it a verdict."""

    def __init__(
        self,
        kind: VerdictKind,
        cause: str,
        *,
        limit: str | None = None,
        allowed: float | None = None,
        measured: float | None = None,
        detail: str = "",
        words: Failure | None = None,
    ) -> None:
        super().__init__(cause)
        self.kind = kind
        self.cause = cause
        self.limit = limit
        self.allowed = allowed
        self.measured = measured
        self.detail = detail
        self.words = words
        """The guest's own, where it gave up by itself."""


class EvaluationFailed(Exception):
    """The evaluator has found an export of this run that cannot be scored: no need to go on."""


class Diverged(Exception):
    """Legal actions drove the simulation to infinite or undefined numbers."""


class Vanished(Exception):
    """The guest closed its socket without a word: its exit tells why."""


def too_late(limit: str, allowed: float, measured: float) -> GuestFault:
    """A deadline passed, or the thinking time is used up; both in seconds."""
    return GuestFault(
        "timed-out",
        f"{limit}: {measured:.1f} s of {allowed:.1f} s allowed",
        limit=limit,
        allowed=allowed,
        measured=measured,
    )


def policy_too_big(length: int, cap: int) -> GuestFault:
    """An exported policy over the cap that the host holds, in bytes."""
    return GuestFault(
        "rejected",
        f"the exported policy has {length:,} bytes; {cap:,} at most",
        limit="policy bytes",
        allowed=cap,
        measured=length,
    )


def failure(words: Failure) -> GuestFault:
    """A guest's own last words: told as its words, cut, and never as ours."""
    text = words.text
    said = text.replace("\n", " ").strip()[:MAX_WORDS] or "nothing"
    if words.kind is FailureKind.OVER_BUDGET:
        return GuestFault(
            "rejected",
            f"by its own count it is over its parameter budget: {said}",
            limit="parameter budget",
            words=words,
        )
    if words.kind is FailureKind.BAD_ACTION:
        return GuestFault("protocol-violation", f"by its own account, {said}", words=words)
    if words.kind is FailureKind.RELOADED_DIFFERS:
        return GuestFault("rejected", said, words=words)
    raised = _raised(text)[:MAX_WORDS] or "nothing that it names"
    return GuestFault("crashed", f"it raised {raised}", detail=text, words=words)


def _raised(traceback: str) -> str:
    """The line of a traceback that names the exception: its message may have more of them."""
    lines = traceback.strip().split("\n")
    frames = [index for index, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] + 1 :] if frames else lines
    return next((line for line in after if line and not line.startswith(" ")), lines[-1])


@contextmanager
def answerable() -> Iterator[None]:
    """Inside, a submission has arrived: any failure may be its doing, and is held against it.

    But for OSError: the host's own disk, of which a guest can fill a bounded part. An operator who
    sees a fault of the harness in a verdict appends an attempt.
    """
    try:
        yield
    except (GuestFault, Vanished, EvaluationFailed, OSError):
        raise
    except Diverged:
        raise GuestFault(
            "crashed", "its actions drove the simulation to numbers that are not finite"
        ) from None
    except Exception as error:
        raise GuestFault(
            "crashed",
            f"the harness could not go on with it: {type(error).__name__}: "
            f"{str(error)[:MAX_WORDS]}",
        ) from error


def settle(
    fault: GuestFault | Vanished, ended: Exit, phase: str, step: int | None, log: Path
) -> Verdict:
    """The verdict for a guest that is dead by now."""
    if ended.breach is not None:
        kind, limit, unit, name = _BREACHES[ended.breach.limit]
        measured, allowed = ended.breach.measured / unit, ended.breach.allowed / unit
        fault = GuestFault(
            kind,
            f"{limit}: {measured:,.0f} {name}".rstrip()
            + f" of {allowed:,.0f} {name}".rstrip()
            + f" allowed ({ended.breach.evidence})",
            limit=limit,
            allowed=allowed,
            measured=measured,
        )
    elif isinstance(fault, Vanished):
        if ended.signal is None and ended.code == 0:
            fault = GuestFault("exited", "it exited with status 0 before its work was done")
        elif ended.signal is None and ended.code is None:
            fault = GuestFault("crashed", "it closed its connection, and was ended for that")
        else:
            fault = GuestFault("crashed", f"it {ended.describe()}")
    return Verdict(
        kind=fault.kind,
        cause=fault.cause,
        advice=ADVICE[fault.kind],
        phase=phase,
        step=step,
        limit=fault.limit,
        allowed=fault.allowed,
        measured=fault.measured,
        detail=fault.detail,
        log_tail=log_tail(log),
    )


def log_tail(log: Path) -> str:
    """The end of a guest's output, escaped."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
            return printable(file.read(LOG_TAIL_BYTES).decode("utf-8", "replace"), lines=True)
    except OSError:
        return ""
