"""Builds and tries a submission in a sandbox, at the shapes of every environment of its task.

What a submission's own process says of itself is a courtesy to honest ones. The bounds that hold
are held again in every run, outside of it.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from harness.guest_config import environment_config
from harness.guest_session import GuestSession, short_directory
from harness.intake.forms.proposal import Where
from harness.intake.refusals import Finding, finding
from harness.intake.submission import Submission
from harness.numerics import TUNED, variables
from harness.records import Plan, Verdict, VerdictKind
from harness.task import Environment, HeldOut, Planned, Task
from harness.verdict import GuestFault, InfrastructureError, Vanished, answerable, settle
from sandbox import wire
from sandbox.base import DEFAULT, Limits, Sandbox, SandboxError, load_backend
from sandbox.wire import MEBIBYTE, SOURCE_NAME, FailureKind, Kind

SECONDS = 60.0
"""Of thinking time, for the whole trial."""
LIMITS = Limits(
    memory_bytes=2048 * MEBIBYTE,
    processes=128,
    scratch_bytes=64 * MEBIBYTE,
    output_bytes=16 * MEBIBYTE,
)
WARM_UP_STEPS = 64
UPDATES = 4
"""Enough for two of the actor's where it is updated every second time."""
SEED = 42
DEVICE = "cpu"
_SHOWN_ATTRIBUTES = 12

_RULE_OF_VERDICT: Mapping[VerdictKind, str] = {
    "crashed": "trial-crashed",
    "exited": "trial-crashed",
    "timed-out": "trial-limits",
    "out-of-memory": "trial-limits",
    "too-many-processes": "trial-limits",
    "too-much-output": "trial-limits",
    "protocol-violation": "trial-protocol",
}
_RULE_OF_WORDS = {
    FailureKind.BAD_ACTION: "bad-action",
    FailureKind.RELOADED_DIFFERS: "reload-differs",
    FailureKind.OVER_BUDGET: "parameter-budget",
}
"""For guests that gave up by themselves and broke no limit."""
_SOURCE_LINE = re.compile(rf'File "{re.escape(SOURCE_NAME)}", line (\d{{1,7}})')


class CannotTry(Exception):
    """This machine cannot run the trial; the message says what to do."""


class Tried(NamedTuple):
    """What the submission holds at the shapes of one environment, by its own count."""

    environment: Environment
    heldout: bool
    parameters: int
    budget: int
    by_attribute: Mapping[str, int]
    """Parameters by attribute of the algorithm, the largest first."""
    policy_bytes: int
    policy_cap: int


class Trial(NamedTuple):
    """How a trial went: it was passed where there is no finding."""

    tried: tuple[Tried, ...]
    findings: tuple[Finding, ...]
    seconds: float


class Failed(NamedTuple):
    """What ended a trial, and where."""

    at: Planned | None
    """None while the source was imported."""
    verdict: Verdict
    words: wire.Failure | None
    """The guest's own."""


class Conversation(NamedTuple):
    """How it went with one guest, which was told of some of the shapes."""

    tried: list[Tried]
    failed: Failed | None
    seconds: float


def try_out(
    task: Task, heldout: HeldOut | None, submission: Submission, for_submitter: bool = False
) -> Trial:
    """Build, learn, act, export, reload and compare, at the shapes of each environment.

    `for_submitter`: held-out shapes have a guest of their own, after that of the visible ones, and
    nothing of what it says is told but whether it failed. Whatever the first one says, it cannot
    tell of what it never held. Raises CannotTry.
    """
    visible, hidden = _shapes(task, heldout)
    sandbox = load_backend(DEFAULT)
    try:
        if not for_submitter:
            return _trial(_converse(task, [*visible, *hidden], submission, sandbox), submission)
        trial = _trial(_converse(task, visible, submission, sandbox), submission)
        if hidden and not trial.findings:
            other = _trial(_converse(task, hidden, submission, sandbox), submission)
            if other.findings:
                message = "it passes at every visible shape, and fails at a held-out one"
                told = finding("held-out-shapes", submission.file, None, message)
                trial = trial._replace(findings=(told,))
    except (InfrastructureError, SandboxError) as error:
        remedies = "\n".join(map(str, sandbox.problems())) or str(error)
        raise CannotTry(f"the trial could not be made: {remedies}") from error
    return trial._replace(tried=tuple(each for each in trial.tried if not each.heldout))


def _trial(conversation: Conversation, submission: Submission) -> Trial:
    failed = conversation.failed
    findings = [
        *([] if failed is None else [_failure(failed, submission)]),
        *_over_budget(conversation.tried, submission.file),
    ]
    return Trial(tuple(conversation.tried), tuple(findings), conversation.seconds)


def _shapes(task: Task, heldout: HeldOut | None) -> tuple[list[list[Planned]], list[list[Planned]]]:
    """The environments of all profiles, by shape: a guest cannot tell more of them apart.

    Those that have a visible shape, held-out ones among them, and those that have another.
    """
    hidden = {} if heldout is None else heldout.environments
    shapes: dict[str, list[Planned]] = {}
    for held, environments in ((False, task.environments), (True, hidden)):
        for each in environments.values():
            shape = json.dumps(
                [
                    each.shapes,
                    each.constants,
                    task.budget.parameters(each),
                    task.budget.artefact_bytes(each),
                ]
            )
            planned = Planned(environment=each, heldout=held, scale=None)
            shapes.setdefault(shape, []).append(planned)
    groups = list(shapes.values())
    return (
        [same for same in groups if not same[0].heldout],
        [same for same in groups if same[0].heldout],
    )


def _converse(
    task: Task, shapes: Sequence[Sequence[Planned]], submission: Submission, sandbox: Sandbox
) -> Conversation:
    """One guest, which tries one shape after the other, to the end or to what ends it."""
    began = time.monotonic()
    tried: list[Tried] = []
    failed: Failed | None = None
    at: Planned | None = None
    directory = short_directory()
    log = directory / "log"
    try:
        with GuestSession(
            sandbox, LIMITS, log, variables(TUNED), wire.TRIAL_CAPS, SECONDS, SECONDS
        ) as session:
            session.restart_clock(SECONDS, "thinking time of the trial")
            try:
                with answerable():
                    session.configure(_config(task, shapes, submission))
                    session.await_({Kind.IMPORTED}, SECONDS)
                    for same in shapes:
                        at = same[0]
                        counts = _decoded(session.await_({Kind.TRIED}, SECONDS))
                        tried += [_tried(task, each, counts) for each in same]
            except (GuestFault, Vanished) as fault:
                verdict = settle(fault, session.end_after(fault), "trial", None, log)
                words = fault.words if isinstance(fault, GuestFault) else None
                failed = Failed(at, verdict, words)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Conversation(tried, failed, time.monotonic() - began)


def _decoded(frame: wire.Frame) -> wire.Counts:
    try:
        return wire.decode_counts(frame.payload)
    except wire.Malformed as error:
        raise GuestFault("protocol-violation", f"it {error}") from error


def _config(
    task: Task, shapes: Sequence[Sequence[Planned]], submission: Submission
) -> dict[str, object]:
    """What the guest is told. The constants are those of the profile that task.toml lists first,
    the real benchmark."""
    every = int(task.constants.get("train_frequency", 1))
    profile = next(iter(task.profiles.values()))
    constants = dict(task.constants)
    warm_up = 0
    if profile.buffer_size:
        constants["learning_starts"] = warm_up = WARM_UP_STEPS
    if "target_network_frequency" in constants:
        constants["target_network_frequency"] = 2 * every  # what comes seldom is tried too
    plan = Plan(
        task=task.name,
        task_version=task.version,
        profile=profile,
        environments=tuple(same[0] for same in shapes),
        budget=task.budget,
        constants=constants,
    )
    return {
        "role": "trial",
        "source": submission.source.decode(),
        "seed": SEED,
        "device": DEVICE,
        "numerics": dict(TUNED),
        "start_seconds": SECONDS,
        "frame_seconds": SECONDS,
        "environments": [
            environment_config(each.environment, plan, SEED, DEVICE)
            | {"export_steps": (0, warm_up + UPDATES * every)}
            for each in plan.environments
        ],
    }


def _tried(task: Task, at: Planned, counts: wire.Counts) -> Tried:
    return Tried(
        at.environment,
        at.heldout,
        counts.parameters,
        task.budget.parameters(at.environment),
        counts.by_attribute,
        counts.policy_bytes,
        task.budget.artefact_bytes(at.environment),
    )


def _failure(failed: Failed, submission: Submission) -> Finding:
    at, verdict, words = failed
    rule, cause = _RULE_OF_VERDICT.get(verdict.kind, "trial-crashed"), verdict.cause
    if words is not None and rule != "trial-limits" and words.kind in _RULE_OF_WORDS:
        rule, cause = _RULE_OF_WORDS[words.kind], words.text
    place = "when it is imported" if at is None else f"at the shapes of {at.environment.id}"
    line = words.line if words else 0
    where = _handed_in(submission, line)
    return finding(
        rule,
        where.file if where else submission.file,
        where.line if where else None,
        f"{place}: {cause}",
        text=submission.source.decode().split("\n")[line - 1] if where else "",
        detail=_with_own_lines(verdict.detail or verdict.log_tail, submission),
    )


def _handed_in(submission: Submission, line: int) -> Where | None:
    """Where a line of the source (1-based) was handed in; None where there is no such line."""
    return submission.where[line - 1] if 0 < line <= len(submission.where) else None


def _with_own_lines(traceback: str, submission: Submission) -> str:
    """A traceback that names the lines of the file that was handed in."""

    def own(found: re.Match[str]) -> str:
        where = _handed_in(submission, int(found[1]))
        return f'File "{where.file}", line {where.line}' if where else found[0]

    return _SOURCE_LINE.sub(own, traceback)


def _over_budget(tried: Sequence[Tried], file: str) -> Iterator[Finding]:
    bounds: tuple[tuple[str, Callable[[Tried], float], Callable[[Tried], str]], ...] = (
        ("parameter-budget", lambda each: each.parameters / each.budget, _say_parameters),
        ("policy-bytes", lambda each: each.policy_bytes / each.policy_cap, _say_bytes),
    )
    for rule, share, say in bounds:
        over = [each for each in tried if share(each) > 1]
        if over:
            yield finding(rule, file, None, say(max(over, key=share)))


def _say_parameters(over: Tried) -> str:
    holds = list(over.by_attribute.items())[:_SHOWN_ATTRIBUTES]
    return (
        f"{over.parameters:,} parameters at the shapes of {over.environment.id}, "
        f"{over.parameters - over.budget:,} over the budget of {over.budget:,}; by attribute of "
        f"the algorithm: {', '.join(f'{name} {count:,}' for name, count in holds)}"
    )


def _say_bytes(over: Tried) -> str:
    return (
        f"the exported policy has {over.policy_bytes:,} bytes at the shapes of "
        f"{over.environment.id}; {over.policy_cap:,} at most"
    )
