"""The Makefile as a door: a hostile value runs nothing and reaches the harness as it stands."""

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
TASK = "rl-offpolicy-continuous"

# Each runs the program `canary` where one of make, the shell or the harness takes it for more than
# a name. None holds a slash, so that each can be the name of a file.
HOSTILE = [
    "`canary`.patch",
    "$(canary).patch",
    "$(shell canary).patch",
    "'$(shell canary)'.patch",
    "'; canary; '.patch",
    "'\"; canary; \"'.patch",
    "a & canary; canary | canary > b.patch",
    "$$(canary)${IFS}$(eval X:=$(shell canary)).patch",
    "--help",
    "-f canary.patch",
    "ünï ,)(}{ çødé #x \\.patch",
]
COMBINED = "'; canary; '`canary`$(canary)$(shell canary)"
SETTINGS = ["TASK", "SUB", "PROFILE", "NAME", "HELDOUT", "WORKERS", "STORE", "PYTHON", "TESTS"]


class Door:
    """Runs make as a user would, with a program `canary` on the PATH that leaves a trace."""

    def __init__(self, directory: Path) -> None:
        self.trace = directory / "canary-ran"
        programs = directory / "programs"
        programs.mkdir()
        canary = programs / "canary"
        canary.write_text(f"#!/bin/sh\n: >'{self.trace}'\n")
        canary.chmod(0o755)
        # A make that runs these tests has put its own flags there.
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "NAME")
        } | {"PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}

    def make(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=REPOSITORY,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def test_the_canary_sings_when_it_is_run(door: Door) -> None:
    subprocess.run(["sh", "-c", "canary"], env=door.environment, check=True)

    assert door.trace.exists()


def test_make_alone_prints_help_with_an_example(door: Door) -> None:
    done = door.make()

    assert done.returncode == 0
    assert done.stderr == ""
    assert f"make eval TASK={TASK} SUB=" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("target", "given", "missing"),
    [
        ("eval", {"SUB": "x"}, "TASK"),
        ("eval", {"TASK": TASK}, "SUB"),
        ("validate", {"TASK": TASK, "SUB": ""}, "SUB"),
        ("new", {"TASK": TASK}, "NAME"),
        ("source", {"TASK": TASK}, "SUB"),
        ("diff", {}, "SUB"),
        ("leaderboard", {}, "TASK"),
        ("run", {"SUB": "x"}, "ENV"),
        ("references", {}, "TASK"),
        ("export", {"TASK": TASK}, "CURVES"),
    ],
)
def test_a_missing_setting_gets_one_line_that_names_it(
    door: Door, target: str, given: dict[str, str], missing: str
) -> None:
    done = door.make(target, *(f"{name}={value}" for name, value in given.items()))

    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert f"make {target} needs {missing}=" in line
    assert "for example" in line


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_name_reaches_the_harness_and_runs_nothing(
    door: Door, tmp_path: Path, name: str
) -> None:
    submission = tmp_path / name
    submission.write_text("This is no submission.\n")

    done = door.make("validate", f"TASK={TASK}", f"SUB={submission}")

    assert not door.trace.exists()
    assert "make: *** [Makefile:" in done.stderr.splitlines()[-1]
    assert "Error 3" in done.stderr.splitlines()[-1]  # rejected, so the file was read
    assert str(submission) in done.stdout + done.stderr


@pytest.mark.parametrize("value", HOSTILE)
def test_no_setting_of_eval_runs_what_its_value_says(door: Door, value: str) -> None:
    settings = [name for name in SETTINGS if name not in ("WORKERS", "PYTHON", "TESTS")]

    done = door.make("eval", *(f"{name}={value}" for name in settings))

    assert not door.trace.exists()
    assert "touchstone: no task" in done.stderr


@pytest.mark.parametrize(
    ("target", "setting"),
    [
        ("eval", "PROFIL=smoke"),
        ("eval", "FOR_SUBMITTER=1"),
        ("validate", "PROFILE=quick"),
        ("source", "JSON=1"),
    ],
)
def test_a_setting_that_the_target_does_not_read_starts_nothing(
    door: Door, target: str, setting: str
) -> None:
    done = door.make(target, f"TASK={TASK}", "SUB=x", setting)

    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"make {target} has no setting {setting.partition('=')[0]};" in line
    assert "it has: PYTHON TASK SUB" in line


def test_what_belongs_to_make_itself_is_let_through(door: Door) -> None:
    done = door.make("validate", f"TASK={TASK}", "SUB=x", "SHELL=/bin/bash", "-j2")

    assert "error[file-unreadable]" in done.stderr


def test_a_board_for_submitters_is_one(door: Door) -> None:
    assert (
        " --for-submitter -- " in door.make("-n", "leaderboard", "TASK=x", "FOR_SUBMITTER=1").stdout
    )


def test_a_profile_with_a_dash_is_no_option(door: Door) -> None:
    done = door.make("eval", f"TASK={TASK}", "SUB=--help", "PROFILE=--help")

    assert "touchstone: no profile '--help'" in done.stderr
    assert "Error 2" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["NAME", "STORE"])
def test_a_value_with_a_dash_is_no_option(door: Door, name: str) -> None:
    done = door.make("eval", f"TASK={TASK}", "SUB=--help", f"{name}=--help")

    assert "cannot read the file" in done.stderr
    assert "--> --help" in done.stderr
    assert "Error 3" in done.stderr.splitlines()[-1]


def test_the_number_of_workers_is_a_number(door: Door) -> None:
    done = door.make("eval", f"TASK={TASK}", "SUB=x", f"WORKERS={COMBINED}")

    assert not door.trace.exists()
    assert "--workers" in done.stderr
    assert "Error 2" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("help", SETTINGS),
        ("validate", ["TASK", "SUB", "HELDOUT"]),
        ("new", ["TASK", "NAME"]),
        ("source", ["TASK", "SUB"]),
        ("diff", ["TASK", "SUB"]),
        ("leaderboard", ["TASK", "PROFILE", "HELDOUT", "STORE"]),
        ("run", ["SUB", "ENV", "SEED", "STEPS", "STOCK"]),
        ("references", ["TASK", "PROFILE", "STORE"]),
        ("export", ["TASK", "CURVES", "PROFILE", "STORE"]),
        ("test", ["TESTS", "JOBS"]),
        ("setup", ["PYTHON"]),
    ],
)
def test_no_other_target_runs_what_a_value_says(door: Door, target: str, named: list[str]) -> None:
    done = door.make(target, *(f"{name}={COMBINED}" for name in named))

    assert not door.trace.exists()
    assert (done.returncode == 0) == (target == "help")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("eval", "YES"),
        ("eval", "RERUN"),
        ("eval", "STOCK"),
        ("references", "SHIP"),
        ("run", "PDB"),
        ("export", "FOR_SUBMITTER"),
        ("leaderboard", "FOR_SUBMITTER"),
        ("validate", "FOR_SUBMITTER"),
        ("validate", "JSON"),
        ("rules", "JSON"),
    ],
)
def test_a_switch_takes_one_or_nothing(door: Door, target: str, name: str) -> None:
    needed = {
        "run": ["SUB=x", "ENV=x"],
        "references": ["TASK=x"],
        "export": ["TASK=x", "CURVES=x.csv"],
        "leaderboard": ["TASK=x"],
        "rules": [],
    }

    done = door.make(target, *needed.get(target, ["TASK=x", "SUB=x"]), f"{name}=$(shell canary)")

    assert not door.trace.exists()
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert f"{name} takes 1 or nothing" in done.stderr


def test_a_newline_in_a_value_ends_no_command(door: Door) -> None:
    door.make("-i", "validate", f"TASK={TASK}", "SUB=a'\ncanary\n'")
    door.make("-i", "validate", f"TASK={TASK}", "SUB=a\ncanary\nb")

    assert not door.trace.exists()


def test_settings_are_not_taken_from_the_environment(door: Door) -> None:
    """WSL sets NAME, other programs set the like; and what is there is not expanded either."""
    done = door.make("validate", f"TASK={TASK}", SUB="$(shell canary)", NAME="`canary`")

    assert not door.trace.exists()
    assert "needs SUB=" in done.stderr
    assert door.make("setup", PYTHON="no-such-python").returncode == 0
