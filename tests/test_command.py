"""`touchstone eval` as a user meets it: what it prints, how it exits, what it refuses to begin."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from harness import machine
from harness.estimate import TooSmall, check_room, estimate
from harness.manifest import make_plan
from harness.results.publish import write_reports
from harness.results.store import Store
from harness.task import REPOSITORY, HeldOut, Task
from tests import support
from tests.support import (
    TASK,
    TD3,
    accepted,
    alive,
    conditions,
    descendants,
    evaluated,
    region,
    small_profile,
)

TOUCHSTONE = [sys.executable, "-P", "-m", "harness"]
ESCAPE = "\x1b"


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "TOUCHSTONE_STORE": str(tmp_path / "store"),
        "TOUCHSTONE_LEADERBOARD": str(tmp_path / "board"),
        **more,
    }


def touchstone(tmp_path, *arguments, **more):
    return support.touchstone(*arguments, env=environment(tmp_path, **more), cwd=tmp_path)


def test_a_smoke_evaluation_from_a_pipe_prints_plain_lines_and_exits_0(tmp_path):
    done = touchstone(tmp_path, "eval", TASK, TD3, "--profile", "smoke")
    assert done.returncode == 0, done.stderr
    assert ESCAPE not in done.stdout + done.stderr
    assert "HalfCheetah-v4-s42: scored: mean return" in done.stdout
    assert "2 of 2 runs scored" in done.stdout
    report = Path(re.search(r"report: +(.*)", done.stdout)[1])
    assert "# Touchstone: td3" in report.read_text()
    # `smoke` has no scale and no leaderboard.
    assert "no score (the profile has no scales" in done.stdout
    assert not (tmp_path / "board").exists()
    # Again: nothing is run, the same is said.
    began = time.monotonic()
    again = touchstone(tmp_path, "eval", TASK, TD3, "--profile", "smoke")
    assert again.returncode == 0
    assert again.stdout.splitlines()[-3:] == done.stdout.splitlines()[-3:]
    assert "estimate" not in again.stdout
    assert time.monotonic() - began < 15


def test_runs_without_a_score_exit_4_and_the_other_runs_go_on(tmp_path):
    """Crashes where observations are HalfCheetah's, after more updates than a trial makes."""
    weak = tmp_path / "gives up.py"
    weak.write_text(
        region(
            (
                "        self.updates += 1\n",
                "        self.updates += 1\n"
                "        assert obs.shape[1] != 17 or self.updates < 20\n",
            )
        )
    )
    done = touchstone(tmp_path, "eval", TASK, weak, "--profile", "smoke", "--name", "=1+1")
    assert done.returncode == 4, done.stderr
    assert "HalfCheetah-v4-s42: crashed: it raised AssertionError" in done.stdout
    assert "InvertedPendulum-v4-s42: scored" in done.stdout
    assert "1 of 2 runs scored" in done.stdout
    (directory,) = (tmp_path / "store" / TASK / "smoke").iterdir()
    report = (directory / "report.md").read_text()
    assert "assert obs.shape[1] != 17" in report  # the region's own line, in the traceback


def test_a_refused_submission_exits_3_with_line_rule_and_advice(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(region(before="import os\n"))
    done = touchstone(tmp_path, "eval", TASK, bad)
    assert done.returncode == 3
    assert "bad.py:1" in done.stderr
    assert "import os" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "no-such-task", TD3], "no task 'no-such-task'"),
        (["eval", TASK, TD3, "--profile", "fast"], "full, lite, quick, smoke"),
        (["eval", TASK, TD3, "--heldout", "missing.toml"], "missing.toml"),
        (["report", "nowhere"], "nowhere holds no evaluation"),
    ],
)
def test_a_mistake_in_the_command_exits_2_with_one_line(tmp_path, arguments, words):
    done = touchstone(tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            '[profiles]\nful = ["Swimmer-v4"]\n',
            "no profile 'ful'; it has: full, lite, quick, smoke",
        ),
        ('[profiles]\nquick = ["Swimmer-v4"]\n', "lists no environment for smoke"),
        ('[profiles]\nsmoke = ["Swimmer-v4"]\n', "observation_dim is (8,), the task says (9,)"),
        ('[profiles]\nsmoke = ["Swimmer-v44"]\n', "Swimmer-v44"),
    ],
)
def test_a_mistake_in_a_held_out_file_shows_before_anything_is_trained(tmp_path, own, words):
    path = tmp_path / "own.toml"
    table = (
        "observation_dim = 9\naction_dim = 2\nmax_action = 1.0\ntime_limit = 1000\n"
        "reference_parameters = 400000\nreference_policy_parameters = 70000\n"
    )
    path.write_text(
        own + "".join(f"[environments.Swimmer-v{version}]\n{table}" for version in ("4", "44"))
    )
    done = touchstone(tmp_path, "eval", TASK, TD3, "--profile", "smoke", "--heldout", path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "store").rglob("manifest.json"))


def test_a_store_that_cannot_be_written_exits_5_with_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = touchstone(tmp_path, "eval", TASK, TD3, "--store", tmp_path / "file" / "store")
    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 1
    assert "Not a directory" in done.stderr


def test_an_interrupt_ends_everything_and_says_how_to_go_on(tmp_path):
    process = subprocess.Popen(
        [*TOUCHSTONE, "eval", TASK, str(TD3), "--profile", "smoke"],
        env=environment(tmp_path),
        # A shell ignores it for what it starts in the background, these tests for one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "store").rglob("progress.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stderr == "touchstone: interrupted; the same command goes on from here\n"
    assert below
    assert not any(map(alive, below))


def test_a_store_of_ones_own_does_not_touch_the_boards_of_another(tmp_path):
    from harness.cli import DEFAULT_BOARD, DEFAULT_STORE, _board_root

    assert _board_root(DEFAULT_STORE, None) == DEFAULT_BOARD
    assert _board_root(tmp_path, None) == tmp_path / "leaderboard"
    assert _board_root(tmp_path, DEFAULT_BOARD) == DEFAULT_BOARD


def test_a_machine_that_cannot_confine_guests_exits_5_and_says_what_to_do(tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    done = touchstone(tmp_path, "eval", TASK, TD3, "--profile", "smoke", PATH=str(empty))
    assert done.returncode == 5
    assert "bwrap is not installed" in done.stderr
    assert "apt-get install -y bubblewrap" in done.stderr


def test_held_out_runs_are_made_and_a_submitters_report_has_nothing_of_them(tmp_path):
    """A list of one's own: its environment is run, and known to the operator alone."""
    task = Task.load(TASK)
    own = HeldOut(
        profiles={"smoke": ("Reacher-v4",)},
        environments={"Reacher-v4": task.environments["Reacher-v4"]},
    )
    store = Store(tmp_path / "store")
    profile = small_profile(total_timesteps=30, learning_starts=30)
    directory, said = evaluated(accepted(region(), tmp_path), profile, store, heldout=own)
    assert any(line.startswith("Reacher-v4-s42: scored") for line in said)
    stored = store.load(directory, pytest.fail)
    assert stored.manifest.heldout == "own"
    assert [record.heldout for record in stored.records] == [False, True]
    assert "Reacher" in write_reports(stored).markdown.read_text()
    for path in write_reports(stored, for_submitter=True)[1:]:
        text = path.read_text()
        assert "Reacher" not in text
        assert "InvertedPendulum" in text


def test_a_long_temporary_directory_spaces_and_unicode_do_no_harm(tmp_path):
    """A Unix socket's path has 107 bytes at most: it must not depend on any of these."""
    deep = tmp_path / ("Größe é 大 " * 8) / ("x" * 120)
    deep.mkdir(parents=True)
    source = deep / "näme with 'quotes' & $(touch hit).py"
    source.write_text(TD3.read_text())
    done = touchstone(deep, "eval", TASK, source, "--profile", "smoke", TMPDIR=str(deep))
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("hit"))


def test_on_a_terminal_a_table_moves_and_a_long_profile_asks_first(tmp_path):
    """`full` takes core-days: the estimate comes first, and without a yes nothing is begun."""
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        [*TOUCHSTONE, "eval", TASK, str(TD3), "--name", "\x1b]0;owned\x07"],
        env=environment(tmp_path, TERM="xterm", COLUMNS="100"),
        cwd=tmp_path,
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
    )
    os.close(secondary)
    shown = b""
    deadline = time.monotonic() + 60
    while b"Start?" not in shown and time.monotonic() < deadline:
        if select.select([primary], [], [], 0.5)[0]:
            shown += os.read(primary, 4096)
    os.write(primary, b"n\n")
    process.wait(timeout=30)
    os.close(primary)
    text = shown.decode()
    assert "15 runs" in text
    assert re.search(r"estimate for this machine: [\d.]+ (h|days), ", text)
    assert "GiB of memory" in text
    assert "\x1b]0;" not in text
    assert process.returncode == 2
    # No leaves nothing but the store's key.
    assert [each.name for each in (tmp_path / "store").rglob("*") if each.is_file()] == ["key"]


def test_without_a_terminal_a_long_profile_needs_a_yes_in_the_command(tmp_path):
    done = touchstone(tmp_path, "eval", TASK, TD3, "--profile", "full")
    assert done.returncode == 2
    assert "estimate for this machine" in done.stdout
    assert "say YES=1" in done.stdout
    assert "not started" in done.stderr
    assert [each.name for each in (tmp_path / "store").rglob("*") if each.is_file()] == ["key"]


def test_more_than_the_machine_has_is_refused_with_figures(tmp_path, monkeypatch):
    full = make_plan(conditions(Task.load(TASK).profile("full"), Task.load(TASK).load_heldout()))
    humanoid = 1_000_000 * (2 * 376 + 17 + 2) * 4
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 4 << 30)
    with pytest.raises(TooSmall, match=f"{humanoid / (1 << 30):.1f} GiB each"):
        estimate(full, 15, None, tmp_path)
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 64 << 30)
    with pytest.raises(TooSmall, match="WORKERS=1"):
        estimate(full, 15, 100, tmp_path)
    fits = estimate(full, 15, 2, tmp_path)
    assert fits.workers == 2
    assert fits.memory_bytes > 2 * humanoid
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("", (), {"free": 1 << 20}))
    with pytest.raises(TooSmall, match="STORE="):
        estimate(full, 15, 2, tmp_path)


def test_a_run_outside_the_sandbox_is_refused_before_its_replay_buffer_is_allocated(monkeypatch):
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 6 << 30)
    check_room(4 << 30)
    with pytest.raises(
        TooSmall, match=r"replay buffer or dataset alone is 6\.8 GiB\); 6\.0 GiB are available"
    ):
        check_room(7_286_255_370)


def test_the_leaderboard_of_a_profile_with_a_table_is_read_back_by_pandas(tmp_path):
    """A real evaluation of a small profile, published as the command does it."""
    from harness.evaluate_command import Request, _publish  # the command's own last step
    from harness.evaluation import begin

    profile = small_profile(table=True, seeds=(1, 2), total_timesteps=30, learning_starts=30)
    store = Store(tmp_path / "store")
    submission = accepted(region(), tmp_path)
    evaluated(submission, profile, store, name="@SUM(A1)")
    request = Request(
        Task.load(TASK),
        profile,
        None,
        "none",
        "@SUM(A1)",
        None,
        True,
        False,
        False,
        store.root,
        tmp_path / "board",
    )
    from rich.console import Console

    with begin(conditions(profile), submission, "@SUM(A1)", store, print) as evaluation:
        _publish(request, evaluation, store, Console(), [])
        record = store.load(evaluation.directory, print).records[0]
    frame = pd.read_csv(tmp_path / "board" / f"{TASK}.smoke.csv")
    assert list(frame["name"]) == ["'@SUM(A1)"]
    assert frame["runs_scored"][0] == frame["runs_planned"][0] == 2
    assert frame["parameters"][0] == record.training.parameters
    assert frame["source_sha256"][0] == submission.sha256
