"""What `validate`, `source`, `diff` and `new` do: the judgement of a submission, and its texts."""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import ExitStatus
from harness.intake.forms.canonical import canonical_patch
from harness.intake.forms.proposal import Scaffold
from harness.intake.refusals import Finding, Refused
from harness.intake.submission import HandedIn, Submission, assemble, judge, read
from harness.task import REPOSITORY, TASKS, HeldOut, Task

if TYPE_CHECKING:
    from harness.intake.trial import Trial, Tried

SUBMISSIONS = REPOSITORY / "submissions"
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})(?:\.py)?")


class Mistake(Exception):
    """A command that cannot be obeyed; the message says why and what to do."""


def validate(
    task: Task,
    heldout: HeldOut | None,
    path: Path,
    for_submitter: bool,
    as_json: bool,
) -> ExitStatus:
    """The whole judgement: form, rules, and a trial in a sandbox."""
    judged = _Judged()
    try:
        judged.submission = assemble(task, read(path))
        judged.submission = judge(task, judged.submission)
        # Here: a refusal above needs none of it, and is said at once.
        from harness.intake.trial import CannotTry, try_out

        try:
            judged.trial = try_out(task, heldout, judged.submission, for_submitter)
        except CannotTry as error:
            print(f"touchstone: {error}", file=sys.stderr)
            return ExitStatus.INFRASTRUCTURE
        judged.findings = judged.trial.findings
    except Refused as refused:
        judged.findings, judged.more = refused.findings, refused.more
    print(judged.to_json()) if as_json else judged.show()
    return ExitStatus.REJECTED if judged.refused else ExitStatus.SCORED


def source(path: Path, task_name: str) -> bytes:
    """The accepted source. Raises Refused or Mistake."""
    return _accepted(path, task_name)[1].source


def patch(path: Path, task_name: str) -> bytes:
    """The canonical patch of the accepted source. Raises Refused or Mistake."""
    task, accepted = _accepted(path, task_name)
    return canonical_patch(accepted.source, task)


def new(task: Task, name: str, directory: Path = SUBMISSIONS) -> Path:
    """A region file to start from, where none of that name is yet. Raises Mistake."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise Mistake(
            f"{name!r} cannot be a file's name here: letters, digits, '_' and '-', 64 at most"
        )
    path = directory / f"{match[1]}.py"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(Scaffold.of(task).region)
    except FileExistsError:
        raise Mistake(f"{path} is there already; choose another name") from None
    except OSError as error:
        raise Mistake(f"cannot write {path}: {error.strerror}") from error
    return path


def _table(trial: "Trial") -> str:
    """What the submission holds, environment by environment."""
    rows: list[tuple[str, ...]] = [
        ("environment", "parameters", "budget", "policy bytes", "cap", "")
    ]
    for each in trial.tried:
        numbers = (each.parameters, each.budget, each.policy_bytes, each.policy_cap)
        name = f"{each.environment.id}{' (held-out)' if each.heldout else ''}"
        over = each.parameters > each.budget or each.policy_bytes > each.policy_cap
        rows.append((name, *(f"{number:,}" for number in numbers), "  over" if over else ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]).rstrip()
        for name, *numbers in rows
    )


def _attributes(tried: "Tried") -> str:
    holds = ", ".join(f"{name} {count:,}" for name, count in tried.by_attribute.items())
    return f"parameters at {tried.environment.id}, by attribute: {holds}"


@dataclasses.dataclass
class _Judged:
    """How far a submission came."""

    submission: Submission | None = None
    trial: "Trial | None" = None
    findings: Sequence[Finding] = ()
    more: int = 0

    @property
    def refused(self) -> bool:
        return any(not each.is_warning for each in self.findings)

    def show(self) -> None:
        submission, trial = self.submission, self.trial
        if submission is not None:
            print(f"read as a {submission.form}")
            for note in submission.notes:
                print(f"note: {note}")
            for warning in submission.warnings:
                print(f"{warning.render()}\n", file=sys.stderr)
        if trial is not None and trial.tried:
            print(_table(trial))
        if self.refused:
            print(Refused(self.findings, self.more), file=sys.stderr)
        elif submission is not None and trial is not None:
            print(
                f"{_attributes(trial.tried[0])}\n"
                f"accepted: built, trained, exported and reloaded in {trial.seconds:.1f} s\n"
                f"source {submission.sha256}"
            )

    def to_json(self) -> str:
        """For programs: pure ASCII, whatever the submission holds."""
        submission, trial = self.submission, self.trial
        return json.dumps(
            {
                "accepted": not self.refused,
                "form": submission and submission.form,
                "source_sha256": submission and submission.sha256,
                "notes": list(submission.notes) if submission else [],
                "warnings": [_finding(each) for each in submission.warnings] if submission else [],
                "findings": [_finding(each) for each in self.findings],
                "findings_left_out": self.more,
                "trial": trial
                and {
                    "seconds": round(trial.seconds, 3),
                    "environments": [_environment(each) for each in trial.tried],
                },
            },
            indent=1,
        )


def _finding(found: Finding) -> dict[str, object]:
    return dataclasses.asdict(found) | {"level": "warning" if found.is_warning else "error"}


def _environment(tried: "Tried") -> dict[str, object]:
    return {
        "environment": tried.environment.id,
        "heldout": tried.heldout,
        "parameters": tried.parameters,
        "parameter_budget": tried.budget,
        "parameters_by_attribute": dict(tried.by_attribute),
        "policy_bytes": tried.policy_bytes,
        "policy_bytes_cap": tried.policy_cap,
    }


def _accepted(path: Path, task_name: str) -> tuple[Task, Submission]:
    handed_in = read(path)
    task = Task.load(task_name or _task_of(handed_in), TASKS)
    return task, judge(task, assemble(task, handed_in))


def _task_of(handed_in: HandedIn) -> str:
    """The task whose path or classes the text names most often. Raises Mistake on a tie."""
    text = handed_in.content.decode("utf-8", "replace")
    named: dict[str, int] = {}
    for each in sorted(path.parent.name for path in TASKS.glob("*/task.toml")):
        words = [
            f"tasks/{each}/",
            *(f"class {name}" for name in Task.load(each, TASKS).region.classes),
        ]
        named[each] = sum(text.count(word) for word in words)
    most = [name for name, count in named.items() if count == max(named.values())]
    if len(most) > 1:
        raise Mistake(
            f"which task is {handed_in.file} for? Say --task NAME; there are: {', '.join(named)}"
        )
    return most[0]
