"""The command `touchstone`: a door for people. Each command is short; what it does lives elsewhere.

Exit status: 0 scored, or accepted; 2 a mistake in the command; 3 the submission is rejected; 4 some
runs have no score; 5 infrastructure (nothing is held against the submission; run the command
again); 130 interrupted (the same command goes on).
"""

import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from harness.datasets.places import DEFAULT_ROOT as DEFAULT_DATASETS
from harness.task import REPOSITORY, HeldOut, Profile, Task, TaskError

if TYPE_CHECKING:
    from harness.intake.submission import Submission

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, score and rank submitted reinforcement-learning algorithms.",
)


class ExitStatus(IntEnum):
    """What the exit status says."""

    SCORED = 0
    """Or accepted, or done: the command has nothing to complain of."""
    USAGE = 2
    REJECTED = 3
    UNSCORED_RUNS = 4
    INFRASTRUCTURE = 5
    INTERRUPTED = 130


TaskName = Annotated[str, typer.Argument(help="A directory under tasks/.")]
SubmissionPath = Annotated[
    Path,
    typer.Argument(
        help="A region file, a unified diff, a whole scaffold file or a list of edits in JSON; "
        "- for standard input."
    ),
]
TaskOption = Annotated[
    str, typer.Option("--task", help="A directory under tasks/; else told from the text.")
]
ProfileName = Annotated[str, typer.Option("--profile", help="full, lite, quick, smoke.")]
StoreRoot = Annotated[
    Path, typer.Option("--store", envvar="TOUCHSTONE_STORE", help="Where records and the key are.")
]
BoardRoot = Annotated[
    Path | None,
    typer.Option(
        "--leaderboard",
        envvar="TOUCHSTONE_LEADERBOARD",
        help="Where the CSV files go; with a store of your own, leaderboard/ in it.",
    ),
]
Held = Annotated[
    str,
    typer.Option("--heldout", help="A file of your own, or 0 for visible environments alone."),
]
DatasetsRoot = Annotated[
    Path,
    typer.Option("--datasets", envvar="TOUCHSTONE_DATASETS", help="Where offline tasks' data are."),
]
Stock = Annotated[
    bool, typer.Option("--stock", help="Numeric backends as torch and glibc come: slower.")
]
DEFAULT_STORE = REPOSITORY / "runs"
DEFAULT_BOARD = REPOSITORY / "leaderboard"


@app.command("eval")
def evaluate(
    task_name: TaskName,
    submission: SubmissionPath,
    profile_name: ProfileName = "full",
    name: Annotated[
        str, typer.Option(help="Of the submission; its file's stem if not given.")
    ] = "",
    heldout_option: Held = "",
    workers: Annotated[int, typer.Option(help="Runs at once; 0: what cores and memory allow.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before long evaluations.")] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Append an attempt to each run without a score.")
    ] = False,
    stock: Stock = False,
    store_root: StoreRoot = DEFAULT_STORE,
    board_root: BoardRoot = None,
    datasets_root: DatasetsRoot = DEFAULT_DATASETS,
) -> None:
    """Train, score, report, update the leaderboard. The same command again resumes."""
    task, heldout, kind = _load(task_name, heldout_option)
    profile = _profile(task, profile_name)
    if kind == "own" and heldout is not None and not heldout.profiles.get(profile_name):
        _stop(ExitStatus.USAGE, f"{heldout_option} lists no environment for {profile_name}")
    accepted = _accept(task, submission)
    # Imported here: a refusal above needs none of it, and takes a second less.
    from harness import evaluate_command

    request = evaluate_command.Request(
        task=task,
        profile=profile,
        heldout=heldout,
        heldout_kind=kind,
        name=name or _name(submission),
        workers=workers or None,
        yes=yes,
        rerun=rerun,
        stock=stock,
        store_root=store_root,
        board_root=_board_root(store_root, board_root),
        datasets_root=datasets_root,
        heldout_option=heldout_option,
    )
    raise SystemExit(evaluate_command.run(request, accepted))


@app.command()
def validate(
    task_name: TaskName,
    submission: SubmissionPath,
    heldout_option: Held = "",
    for_submitter: Annotated[
        bool, typer.Option("--for-submitter", help="Say nothing of held-out environments.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say whether a submission would be accepted, and if not, which line breaks which rule.

    Its form, the rules on its text, and a trial in a sandbox: built, trained a little, exported and
    reloaded on made-up data, at the shapes of every environment.
    """
    task, heldout, _ = _load(task_name, heldout_option)
    from harness import intake_commands

    raise SystemExit(intake_commands.validate(task, heldout, submission, for_submitter, as_json))


@app.command()
def source(submission: SubmissionPath, task_name: TaskOption = "") -> None:
    """Print the accepted source: the scaffold with the submission's region."""
    from harness import intake_commands

    _print_text(intake_commands.source, submission, task_name)


@app.command()
def diff(submission: SubmissionPath, task_name: TaskOption = "") -> None:
    """Print the submission as a patch, the same for every form that says the same."""
    from harness import intake_commands

    _print_text(intake_commands.patch, submission, task_name)


@app.command()
def new(
    task_name: TaskName,
    name: Annotated[str, typer.Argument(help="Of your algorithm: submissions/NAME.py.")],
) -> None:
    """Write a region file to start from."""
    task, _, _ = _load(task_name, "0")
    from harness import intake_commands

    try:
        path = intake_commands.new(task, name)
    except intake_commands.Mistake as error:
        _stop(ExitStatus.USAGE, str(error))
    print(
        f"{path} is the scaffold's placeholder: fill it in.\n"
        f"What it must define: {task.directory / 'description.md'}\n"
        f"Then: make validate TASK={task.name} SUB={path.relative_to(REPOSITORY)}"
    )


@app.command()
def rules(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Print every rule, why it is there and what to do; and the names and sizes that they know."""
    from harness.intake.rules import rulebook

    print(rulebook.to_json() if as_json else rulebook.to_text(), end="")


@app.command()
def datasets(
    task_name: TaskName,
    profile_name: ProfileName = "full",
    heldout_option: Held = "",
    datasets_root: DatasetsRoot = DEFAULT_DATASETS,
) -> None:
    """Have an offline task's data in place: made here or fetched, checked, prepared, described."""
    task, heldout, _ = _load(task_name, heldout_option)
    profile = _profile(task, profile_name)
    from harness import datasets_command

    raise SystemExit(datasets_command.run(task, profile, heldout, heldout_option, datasets_root))


@app.command("references")
def evaluate_references(
    task_name: TaskName,
    profile_name: ProfileName = "full",
    workers: Annotated[int, typer.Option(help="Runs at once; 0: what cores and memory allow.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before long evaluations.")] = False,
    ship: Annotated[
        bool, typer.Option("--ship", help="Write the runs into the task's reference_runs/.")
    ] = False,
    heldout_option: Held = "",
    stock: Stock = False,
    store_root: StoreRoot = DEFAULT_STORE,
    board_root: BoardRoot = None,
    datasets_root: DatasetsRoot = DEFAULT_DATASETS,
) -> None:
    """Evaluate every reference algorithm of a task. The same command again resumes."""
    task, heldout, kind = _load(task_name, heldout_option)
    from harness import evaluate_command

    if ship and (stock or heldout_option):
        _stop(ExitStatus.USAGE, "--ship takes tuned runs on the repository's own held-out list")
    request = evaluate_command.Request(
        task=task,
        profile=_profile(task, profile_name),
        heldout=heldout,
        heldout_kind=kind,
        name="",
        workers=workers or None,
        yes=yes,
        rerun=False,
        stock=stock,
        store_root=store_root,
        board_root=_board_root(store_root, board_root),
        datasets_root=datasets_root,
        heldout_option=heldout_option,
    )
    raise SystemExit(evaluate_command.run_references(request, ship))


@app.command("run")
def run_here(
    submission: SubmissionPath,
    settings: Annotated[
        list[str],
        typer.Argument(
            help="ENV=Hopper-v4 SEED=42 STEPS=20000 STOCK=1 DATASETS=directory; ENV is needed."
        ),
    ],
    debugger: Annotated[
        bool, typer.Option("--pdb", help="Open pdb where an exception was raised.")
    ] = False,
) -> None:
    """Train one run in this process, OUTSIDE the sandbox: to look inside your own submission.

    It runs with your rights, so give it nothing that you have not read. Source rules are not
    applied (print, breakpoint and the like work), and nothing is stored or ranked.
    """
    from harness import run_command
    from harness.intake.text import STANDARD_INPUT

    if debugger and submission == STANDARD_INPUT:
        _stop(ExitStatus.USAGE, "--pdb needs the terminal: give the submission as a file")
    try:
        request = run_command.parse(settings)
    except (run_command.BadSetting, TaskError) as error:
        _stop(ExitStatus.USAGE, str(error))
    raise SystemExit(run_command.run(request, submission, debugger))


@app.command()
def leaderboard(
    task_name: TaskName,
    profile_name: ProfileName = "full",
    heldout_option: Held = "",
    for_submitter: Annotated[
        bool, typer.Option("--for-submitter", help="Without anything of held-out runs.")
    ] = False,
    store_root: StoreRoot = DEFAULT_STORE,
    board_root: BoardRoot = None,
) -> None:
    """Rebuild a leaderboard from the store and show it."""
    task, heldout, kind = _load(task_name, heldout_option)
    from harness import evaluate_command

    try:
        evaluate_command.show_leaderboard(
            task,
            _profile(task, profile_name),
            heldout if kind == "own" else None,
            store_root,
            _board_root(store_root, board_root),
            for_submitter,
        )
    except TaskError as error:
        _stop(ExitStatus.USAGE, str(error))


@app.command()
def export(
    task_name: TaskName,
    curves: Annotated[Path, typer.Option("--curves", help="The file: .parquet or .csv.")],
    profile_name: ProfileName = "full",
    for_submitter: Annotated[
        bool, typer.Option("--for-submitter", help="Without anything of held-out runs.")
    ] = False,
    store_root: StoreRoot = DEFAULT_STORE,
) -> None:
    """Write the learning curves of all evaluations to one file, for pandas and the like."""
    task, _, _ = _load(task_name, "0")
    profile = _profile(task, profile_name)
    from harness.results.curves import CannotExport, write_curves
    from harness.results.store import Store

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    store = Store(store_root.absolute())
    try:
        done = write_curves(store, task.name, profile.name, curves, say, for_submitter)
    except (CannotExport, OSError) as error:
        _stop(ExitStatus.USAGE, str(error))
    if not done.points:
        visible = " visible" if for_submitter else ""
        say(f"no{visible} run of {task.name}, {profile.name}, in {store.root} has a curve: no rows")
    heldout = "; held-out runs are among them" if done.heldout else ""
    print(f"submissions: {done.submissions}; runs: {done.runs}; points: {done.points}{heldout}")
    print(curves)


@app.command()
def report(
    evaluation: Annotated[Path, typer.Argument(help="An evaluation's directory in the store.")],
    for_submitter: Annotated[
        bool, typer.Option("--for-submitter", help="Without anything of held-out runs.")
    ] = False,
) -> None:
    """Write an evaluation's report again."""
    from pydantic import ValidationError

    from harness.results.publish import write_reports
    from harness.results.store import Store

    try:
        stored = Store(evaluation.parent).load(
            evaluation, lambda line: print(line, file=sys.stderr)
        )
    except (OSError, ValidationError) as error:
        _stop(ExitStatus.USAGE, f"{evaluation} holds no evaluation: {error}")
    print(write_reports(stored, for_submitter).markdown)


def _board_root(store_root: Path, board_root: Path | None) -> Path:
    """A board shows one store: another store does not overwrite the boards of the default one."""
    if board_root is not None:
        return board_root
    return DEFAULT_BOARD if store_root == DEFAULT_STORE else store_root / "leaderboard"


def _name(submission: Path) -> str:
    from harness.intake.text import STANDARD_INPUT

    return "stdin" if submission == STANDARD_INPUT else submission.stem or "submission"


def _print_text(text: Callable[[Path, str], bytes], submission: Path, task_name: str) -> None:
    from harness.intake.refusals import Refused
    from harness.intake_commands import Mistake

    try:
        printed = text(submission, task_name)
    except (Mistake, TaskError) as error:
        _stop(ExitStatus.USAGE, str(error))
    except Refused as refused:
        print(refused, file=sys.stderr)
        raise SystemExit(ExitStatus.REJECTED) from None
    sys.stdout.buffer.write(printed)


def _load(
    task_name: str, heldout_option: str
) -> tuple[Task, HeldOut | None, Literal["none", "example", "own"]]:
    try:
        task = Task.load(task_name)
        if heldout_option == "0":
            return task, None, "none"
        if heldout_option:
            return task, task.load_heldout(Path(heldout_option)), "own"
        return task, task.load_heldout(), "example"
    except TaskError as error:
        _stop(ExitStatus.USAGE, str(error))


def _profile(task: Task, name: str) -> Profile:
    try:
        return task.profile(name)
    except TaskError as error:
        _stop(ExitStatus.USAGE, str(error))


def _accept(task: Task, path: Path) -> "Submission":
    from harness.intake.refusals import Refused
    from harness.intake.submission import accept

    try:
        return accept(task, path)
    except Refused as refused:
        print(refused, file=sys.stderr)
        raise SystemExit(ExitStatus.REJECTED) from None


def _stop(status: ExitStatus, message: str) -> NoReturn:
    print(f"touchstone: {message}", file=sys.stderr)
    raise SystemExit(status)


def main() -> None:
    """Entry point of the console script."""
    app()
