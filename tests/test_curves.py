"""`touchstone export`: one row a point, all runs apart, nothing held out for a submitter."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pandas as pd
import pytest

from harness import cli
from harness.layout import MANIFEST, RECORD, attempt_directory
from harness.records import Manifest, PlannedRun, Record
from harness.results.curves import COLUMNS, labels
from harness.results.leaderboard import Current, build_board, to_csv
from harness.results.store import Stored, write_record
from harness.task import REPOSITORY
from tests.builders import manifest, record

TASK = "rl-offpolicy-continuous"
AS_TEXT = {"submission": "str", "environment": "str"}


def small(name: str = "td3", **changes: object) -> Manifest:
    """Two visible runs and two held-out ones."""
    return manifest(name, visible=("Hopper-v4",), seeds=(0, 1), **changes)


def runs(m: Manifest, **changes: object) -> list[Record]:
    """One scored record of each run; curves 1, 2, 4 at steps 0, 500, 1000."""
    return [record(m, run.environment, run.seed, 50.0, **changes) for run in m.runs]


def put(store: Path, m: Manifest, records: Sequence[Record]) -> Path:
    directory = store / m.task / m.profile / m.evaluation
    directory.mkdir(parents=True)
    (directory / MANIFEST).write_text(m.model_dump_json())
    for each in records:
        run = PlannedRun(environment=each.environment, heldout=each.heldout, seed=each.seed)
        attempt = attempt_directory(directory, run.id, each.attempt)
        attempt.mkdir(parents=True)
        write_record(attempt, each)
    return directory


def export(store: Path, curves: Path, *options: str) -> None:
    """The command, in this process."""
    arguments = ["export", TASK, "--curves", str(curves), "--store", str(store), *options]
    cli.app(arguments, standalone_mode=False)


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A make that runs these tests has put its own flags there.
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAG"))
    }
    return subprocess.run(
        ["make", *arguments], cwd=REPOSITORY, env=clean, capture_output=True, text=True
    )


def read(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path, dtype=AS_TEXT, keep_default_na=False)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_row_for_each_point_with_types_and_all_digits(tmp_path, capsys, suffix):
    m = small()
    odd = [0.1 + 0.2, -1e-17, 12345678.901234567]
    put(tmp_path / "store", m, [record(m, "Hopper-v4", 0, 50.0, curve=odd), *runs(m)[1:]])
    path = tmp_path / f"curves{suffix}"

    export(tmp_path / "store", path)

    frame = read(path)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS
    assert list(frame) == ["submission", "environment", "seed", "step", "return"]
    assert list(frame["submission"].unique()) == ["td3"]
    assert list(frame["environment"]) == ["Hopper-v4"] * 6 + ["Secret-v4"] * 6
    assert list(frame["seed"]) == [0, 0, 0, 1, 1, 1] * 2
    assert list(frame["step"]) == [0, 500, 1000] * 4
    assert list(frame["return"]) == odd + [1.0, 2.0, 4.0] * 3
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "submissions: 1; runs: 4; points: 12; held-out runs are among them",
        str(path),
    ]
    assert said.err == ""
    assert [each.name for each in tmp_path.iterdir() if "curves" in each.name] == [path.name]


def test_a_file_that_is_there_is_replaced(tmp_path):
    m = small()
    put(tmp_path / "store", m, runs(m))
    path = tmp_path / "curves.CSV"
    path.write_text("of another day\n" * 1000)

    export(tmp_path / "store", path)

    assert path.read_text().splitlines()[0] == "submission,environment,seed,step,return"
    assert len(path.read_text().splitlines()) == 13


def test_the_last_attempt_counts_and_failed_and_finished_runs_of_a_part_are_there(tmp_path):
    """Of four runs: one with two attempts, a failed one, one being repeated, one not begun."""
    m = small()
    directory = put(
        tmp_path / "store",
        m,
        [
            record(m, "Hopper-v4", 0, 50.0, attempt=1, curve=[90.0]),
            record(m, "Hopper-v4", 0, 50.0, attempt=2, curve=[7.0, 8.0]),
            record(m, "Hopper-v4", 1, None, curve=[3.0], kind="out-of-memory"),
            record(m, "Secret-v4", 0, None, curve=[5.0]),
        ],
    )
    attempt_directory(directory, "Secret-v4-s0", 2).mkdir()
    path = tmp_path / "curves.parquet"

    export(tmp_path / "store", path)

    frame = read(path)
    assert list(frame["seed"]) == [0, 0, 1]
    assert list(frame["return"]) == [7.0, 8.0, 3.0]
    assert set(frame["environment"]) == {"Hopper-v4"}


def test_evaluations_of_one_name_are_kept_apart_by_their_ids(tmp_path):
    ids = ["td3-000000000001", "td3-000000000002"]
    for id_ in ids:
        m = small(evaluation=id_, source_sha256=id_[-1] * 64)
        put(tmp_path / "store", m, runs(m, curve=[float(id_[-1])]))
    other = small("sac")
    put(tmp_path / "store", other, runs(other))
    path = tmp_path / "curves.parquet"

    export(tmp_path / "store", path)

    frame = read(path)
    assert list(frame["submission"].unique()) == ["sac", *ids]
    assert [set(frame[frame["submission"] == id_]["return"]) for id_ in ids] == [{1.0}, {2.0}]
    assert not frame.duplicated(["submission", "environment", "seed", "step"]).any()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("td3", "td3\u200b"),  # looks the same
        ("td3", " td3\n"),
        ("x" * 80 + "a", "x" * 80 + "b"),  # too long to show where they differ
        ("=1", "'=1"),  # the same in a spreadsheet
        ("", "\x1b[31m"),
    ],
)
def test_names_that_are_shown_alike_are_one_name(first, second):
    stored = [
        Stored(Path(f"id-{number}"), small(name), ()) for number, name in enumerate([first, second])
    ]

    assert labels(stored) == ["id-0", "id-1"]


def test_no_name_passes_for_the_id_of_another():
    stored = [
        Stored(Path("td3-1"), small("td3"), ()),
        Stored(Path("td3-2"), small("td3"), ()),
        Stored(Path("td3-1-3"), small("td3-1"), ()),
    ]

    assert labels(stored) == ["td3-1", "td3-2", "td3-1-3"]


def test_a_name_is_the_one_on_the_leaderboard(tmp_path):
    m = small("a  b" + "c" * 90)
    board = build_board(Current(TASK, 1, "full", "c" * 64, "d" * 64), [(m, runs(m))])
    put(tmp_path / "store", m, runs(m))
    export(tmp_path / "store", tmp_path / "curves.csv")

    assert set(read(tmp_path / "curves.csv")["submission"]) == {
        to_csv(board).splitlines()[1].split(",")[1]
    }


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_submitter_gets_nothing_held_out(tmp_path, capsys, suffix):
    """Nor where another evaluation shows openly what this one holds out."""
    hidden = small()
    put(tmp_path / "store", hidden, runs(hidden, curve=[123.25]))
    shown = small("sac", heldout=("Hidden-v4",))
    directory = put(tmp_path / "store", shown, runs(shown, curve=[5.0]))
    open_ = manifest("open", visible=("Secret-v4",), heldout=(), seeds=(0,))
    put(tmp_path / "store", open_, runs(open_, curve=[6.0]))
    (attempt_directory(directory, "Hidden-v4-s0", 1) / RECORD).chmod(0o644)
    (attempt_directory(directory, "Hidden-v4-s0", 1) / RECORD).write_text("half a fi")
    path = tmp_path / f"curves{suffix}"

    export(tmp_path / "store", path, "--for-submitter")

    frame = read(path)
    seen = set(zip(frame["submission"], frame["environment"], strict=True))
    assert seen == {("td3", "Hopper-v4"), ("sac", "Hopper-v4"), ("open", "Secret-v4")}
    assert set(frame[frame["environment"] == "Secret-v4"]["return"]) == {6.0}
    assert b"Hidden" not in path.read_bytes()
    said = capsys.readouterr()
    assert "held-out" not in said.out
    assert "some records cannot be read" in said.err
    assert "Hidden" not in said.out + said.err


def test_records_that_contradict_their_manifest_are_left_out_and_said(tmp_path, capsys):
    m, strange = small(), small("sac")
    put(tmp_path / "store", m, runs(m))
    put(tmp_path / "store", strange, [record(strange, "Secret-v4", 0, 1.0, heldout=False)])

    export(tmp_path / "store", tmp_path / "curves.csv")
    said = capsys.readouterr().err
    export(tmp_path / "store", tmp_path / "curves.csv", "--for-submitter")
    said_to_submitter = capsys.readouterr().err

    assert set(read(tmp_path / "curves.csv")["submission"]) == {"td3"}
    assert "left out: sac-0123456789ab: record of Secret-v4" in said
    assert said_to_submitter == "left out: sac-0123456789ab: its records contradict its manifest\n"


def test_a_hostile_name_is_text_in_a_spreadsheet_and_itself_in_parquet(tmp_path):
    name = "=cmd|' /C calc'!A0\r\n\"x\",\x1b[31m\u202e1"
    m = small(name, evaluation="cmd-0123456789ab")
    put(tmp_path / "store", m, runs(m))

    export(tmp_path / "store", tmp_path / "curves.csv")
    export(tmp_path / "store", tmp_path / "curves.parquet")

    assert set(read(tmp_path / "curves.parquet")["submission"]) == {"=cmd|' /C calc'!A0 \"x\",1"}
    lines = (tmp_path / "curves.csv").read_text().splitlines()
    assert len(lines) == 13
    assert all(line.startswith("\"'=cmd|") for line in lines[1:])
    assert len(read(tmp_path / "curves.csv")) == 12


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("left", ["no evaluation", "no run with a point", "held-out runs"])
def test_without_a_row_there_are_columns_and_a_remark(tmp_path, capsys, suffix, left):
    store = tmp_path / "store"
    store.mkdir()
    if left != "no evaluation":
        m = small()
        records = runs(m) if left == "held-out runs" else runs(m, curve=[])
        put(store, m, [each for each in records if each.heldout or left != "held-out runs"])
    path = tmp_path / f"curves{suffix}"

    export(store, path, "--for-submitter")

    frame = read(path)
    assert list(frame) == list(COLUMNS)
    assert len(frame) == 0
    if suffix == ".parquet":
        assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS
        assert b"Secret" not in path.read_bytes()
    assert "no visible run of rl-offpolicy-continuous, full, in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("curves.xlsx", "must end in .parquet or .csv"),
        ("curves", "must end in .parquet or .csv"),
        (".csv", "must end in .parquet or .csv"),
        ("curves.csv.gz", "must end in .parquet or .csv"),
        ("nowhere/curves.csv", "there is no directory"),
        ("directory.csv", "is a directory"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_one_line(tmp_path, capsys, name, words):
    (tmp_path / "directory.csv").mkdir()

    with pytest.raises(SystemExit) as stopped:
        export(tmp_path, tmp_path / name)

    assert stopped.value.code == cli.ExitStatus.USAGE
    assert words in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["directory.csv"]


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--store", "/nowhere"], "there is no store /nowhere"), (["--profile", "fast"], "smoke")],
)
def test_a_store_or_profile_that_is_not_there_is_an_error(tmp_path, capsys, options, words):
    with pytest.raises(SystemExit) as stopped:
        export(tmp_path, tmp_path / "curves.csv", *options)

    assert stopped.value.code == cli.ExitStatus.USAGE
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_other_command_waits_for_pandas():
    program = (
        "import sys, harness.cli, harness.results.curves, harness.results.publish;"
        "sys.exit(bool({'pandas', 'pyarrow'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([f"TASK={TASK}"], "make export needs CURVES="),
        ([f"TASK={TASK}", "CURVES=a.csv", "FOR_SUBMITTER=yes"], "FOR_SUBMITTER takes 1 or nothing"),
    ],
)
def test_make_says_what_is_missing_or_wrong(settings, words):
    done = make("export", *settings)

    assert done.returncode == 2
    assert words in done.stderr


def test_make_hands_on_what_it_was_given():
    hostile = "'; date; '`date`$(date)$(shell date).csv"

    done = make("-n", "export", f"TASK={TASK}", f"CURVES={hostile}", "STORE=a b", "FOR_SUBMITTER=1")

    assert shlex.split(done.stdout.replace("\\\n", ""))[1:] == [
        *("exec", ".venv/bin/touchstone", "export", "--store=a b", "--for-submitter"),
        *(f"--curves={hostile}", "--", TASK),
    ]


def test_the_example_of_the_docs_plots_means_and_bands(tmp_path, monkeypatch):
    """Its very lines, on a file that the command wrote; only matplotlib is a stub."""
    store = tmp_path / "store"
    m = manifest("td3", visible=("Hopper-v4", "Ant-v4"), heldout=(), seeds=(0, 1))
    put(store, m, [*runs(m, curve=[1.0, 2.0])[:3], record(m, "Ant-v4", 1, 5.0, curve=[3.0, 8.0])])
    export(store, tmp_path / "curves.parquet")
    panels = {"Hopper-v4": MagicMock(), "Ant-v4": MagicMock()}
    pyplot = MagicMock()
    backend = SimpleNamespace(__name__="stub_of_matplotlib", plot=MagicMock())
    pyplot.figure.return_value.subplot_mosaic.side_effect = lambda rows: panels
    monkeypatch.setitem(sys.modules, "matplotlib", SimpleNamespace(pyplot=pyplot))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", (REPOSITORY / "docs/curves.md").read_text(), re.M | re.S
    )

    with contextlib.chdir(tmp_path), pd.option_context("plotting.backend", backend.__name__):
        exec(compile(example, "docs/curves.md", "exec"), {})

    pyplot.figure.return_value.subplot_mosaic.assert_called_once_with([["Hopper-v4", "Ant-v4"]])
    drawn = {call.kwargs["title"]: call for call in backend.plot.call_args_list}
    assert list(drawn) == ["Ant-v4", "Hopper-v4"]
    assert drawn["Ant-v4"].kwargs["ax"] is panels["Ant-v4"]
    assert drawn["Ant-v4"].kwargs["label"] == "td3"
    assert drawn["Ant-v4"].args[0].to_dict() == {0: 2.0, 500: 5.0}
    steps, low, high = panels["Ant-v4"].fill_between.call_args.args
    assert (list(steps), list(low), list(high)) == ([0, 500], [1.0, 2.0], [3.0, 8.0])
    pyplot.savefig.assert_called_once()
