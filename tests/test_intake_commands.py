"""`source`, `diff`, `new`, `rules` and standard input, as a user meets them."""

import json
import resource
import shutil
import subprocess
import sys
import time

import pytest

from harness import intake_commands
from harness.intake.rules import rulebook
from harness.intake.rules.table import RULES
from harness.intake.submission import accept
from harness.intake_commands import Mistake, new
from harness.task import REPOSITORY, Task
from tests import support
from tests.support import TASK, TD3, region

TASK_ = Task.load(TASK)
EXAMPLE = REPOSITORY / "submissions/examples/weighted_twin.patch"


def touchstone(*arguments, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """In bytes: what is printed may be a submission."""
    return support.touchstone(*arguments, given=given, text=False)


def least(times: int, status: int, *arguments) -> tuple[float, float]:
    """Wall and CPU seconds, the least of several runs of a command."""
    measured = []
    for _ in range(times):
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        assert touchstone(*arguments).returncode == status
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        measured.append((time.monotonic() - began, used))
    wall, cpu = (min(each) for each in zip(*measured, strict=True))
    return wall, cpu


def test_source_prints_what_would_be_run_byte_for_byte():
    for path in (TD3, EXAMPLE):
        done = touchstone("source", path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == accept(TASK_, path).source


def test_every_form_has_the_same_patch_which_is_a_submission_too(tmp_path):
    whole = tmp_path / "whole.py"
    whole.write_bytes(accept(TASK_, TD3).source)
    edits = tmp_path / "edits.json"
    edits.write_text(edits_of(TD3.read_text()))
    printed = {touchstone("diff", path).stdout for path in (TD3, whole, edits)}
    (patch,) = printed
    assert patch.startswith(f"--- a/tasks/{TASK}/scaffold.py\n+++ b/tasks/".encode())
    again = tmp_path / "again.patch"
    again.write_bytes(patch)
    assert touchstone("diff", again).stdout == patch
    assert accept(TASK_, again).sha256 == accept(TASK_, TD3).sha256


def test_the_printed_patch_applies_with_git_in_a_checkout(tmp_path):
    scaffold = tmp_path / "tasks" / TASK / "scaffold.py"
    scaffold.parent.mkdir(parents=True)
    scaffold.write_bytes(TASK_.scaffold)
    patch = touchstone("diff", TD3).stdout
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, check=True)
    assert scaffold.read_bytes() == accept(TASK_, TD3).source


def test_a_submission_comes_through_standard_input_as_well():
    content = EXAMPLE.read_bytes()
    assert touchstone("source", "-", given=content).stdout == accept(TASK_, EXAMPLE).source
    done = touchstone("validate", TASK, "-", given=b"import os\n" + TD3.read_bytes())
    assert done.returncode == 3
    assert b"--> <stdin>:1\n" in done.stderr
    done = touchstone("validate", TASK, "-", given=b"x" * (300 << 10))
    assert b"error[file-size]" in done.stderr


def test_nothing_of_a_files_name_reaches_a_terminal_as_it_is(tmp_path):
    edits = edits_of(TD3.read_text().replace("\n", "\r\n"))
    for name in ("a\x1b[31mRED\x1b]0;title\x07\n.json", "bad\udcff.json", "\u202eevil.json"):
        path = tmp_path / name
        path.write_text(edits)
        done = touchstone("validate", TASK, path)
        assert done.returncode == 0, done.stderr
        assert b"edit 1: Line ends were CRLF" in done.stdout
        shown = (done.stdout + done.stderr).decode()
        assert all(each.isprintable() for each in shown.replace("\n", "")), shown


def edits_of(content: str) -> str:
    """A list of one edit, which replaces the whole region."""
    first, last = TASK_.region.first_line, TASK_.region.last_line
    edit = {"op": "replace", "filename": "scaffold.py", "start_line": first, "end_line": last}
    return json.dumps([edit | {"content": content}])


def test_what_is_refused_is_not_printed(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(region(before="import os\n"))
    for command in ("source", "diff"):
        done = touchstone(command, path)
        assert done.returncode == 3
        assert done.stdout == b""
        assert b"error[import]" in done.stderr


def test_a_new_submission_is_the_placeholder_and_overwrites_nothing(tmp_path):
    path = new(TASK_, "mine", tmp_path)
    assert path == tmp_path / "mine.py"
    assert path.read_text() in TASK_.scaffold.decode()
    path.write_text("precious")
    with pytest.raises(Mistake, match="is there already"):
        new(TASK_, "mine.py", tmp_path)
    assert path.read_text() == "precious"
    for bad in ("", "../x", "a/b", ".hidden", "-x", "a b", "x" * 80, "é", "a\n"):
        with pytest.raises(Mistake, match="cannot be a file's name"):
            new(TASK_, bad, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.py"]


def test_an_unchanged_placeholder_is_refused_as_such(tmp_path):
    done = touchstone("validate", TASK, new(TASK_, "mine", tmp_path))
    assert done.returncode == 3
    assert b"error[nothing-changed]" in done.stderr


def test_rules_prints_the_rulebook_for_people_and_for_programs():
    shown = touchstone("rules").stdout.decode()
    assert shown == rulebook.to_text()
    for id_ in RULES:
        assert id_ in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert touchstone("rules", "--json").stdout.decode() == rulebook.to_json()


def test_a_refusal_of_the_text_comes_at_once(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(region(before="import os\n"))
    # 0.3 s of either on an idle core of an AMD EPYC; CPU time whoever runs beside it.
    assert least(5, 3, "validate", TASK, path)[1] < 0.5


def test_a_refusal_of_the_text_imports_neither_torch_nor_numpy_nor_an_environment(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(region(before="import os\n"))
    program = (
        "import sys\nfrom harness.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as ended: assert ended.code == 3, ended.code\n"
        "print({'torch', 'numpy', 'gymnasium', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "validate", TASK, path],
        env=support.PYTHONPATH,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "set()", done.stdout + done.stderr


def test_acceptance_comes_in_seconds():
    # 2.4 to 2.9 s on two idle cores of an AMD EPYC, beside another test twice that.
    assert least(3, 0, "validate", TASK, EXAMPLE)[0] < 8


def test_a_task_that_the_text_does_not_tell_is_asked_for(tmp_path, monkeypatch):
    for name in ("one", "two"):
        shutil.copytree(TASK_.directory, tmp_path / name)
    monkeypatch.setattr(intake_commands, "TASKS", tmp_path)
    with pytest.raises(Mistake, match=r"which task is .*td3.py for\? Say --task NAME; .*one, two"):
        intake_commands.source(TD3, "")
    done = touchstone("source", TD3, "--task", "no-such-task")
    assert done.returncode == 2
    assert b"no task 'no-such-task'" in done.stderr
