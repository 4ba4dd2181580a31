"""What comes with a task: reference runs, published numbers, scales that follow from them."""

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from harness import evaluate_command, references
from harness.cli import ExitStatus
from harness.intake.submission import Submission, accept
from harness.layout import PLAN
from harness.manifest import plan_of, profile_hash
from harness.records import Manifest, Record
from harness.results.leaderboard import Current, build_board
from harness.results.publish import write_leaderboard
from harness.results.store import Store, Stored
from harness.results.summary import summarise
from harness.task import TASKS, Profile, Scale, Task, TaskError, plan
from tests.builders import evaluation, provenance, record, second
from tests.support import TASK

TASK_NAMES = sorted(each.parent.name for each in TASKS.glob("*/task.toml"))
SHIPPED = [
    (name, profile)
    for name in TASK_NAMES
    for profile in Task.load(name).profiles
    if references.runs_file(Task.load(name), Task.load(name).profile(profile)).exists()
]


def quiet(line: str) -> None:
    raise AssertionError(line)


def scales(task: Task, profile: Profile) -> dict[str, Scale]:
    return {
        each.environment.id: each.scale
        for each in plan(task, profile, task.load_heldout())
        if each.scale is not None
    }


def current(task: Task, profile: Profile) -> Current:
    heldout = task.load_heldout()
    return Current(
        task.name,
        task.version,
        profile.name,
        profile_hash(task, profile),
        heldout.digest(profile.name),
    )


def returns(task: Task, profile: Profile) -> dict[str, dict[str, list[float]]]:
    """Raw returns by environment and algorithm."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in references.read(task, profile):
        if run.mean_return is not None:
            found[run.environment][run.algorithm].append(run.mean_return)
    return found


@pytest.mark.parametrize(("name", "profile"), SHIPPED)
def test_every_shipped_run_is_of_a_present_reference_and_of_the_present_profile(
    name: str, profile: str
) -> None:
    """Whoever edits a reference, the scaffold or the profile's numbers has them evaluated anew."""
    task = Task.load(name)
    sources = {path.stem: accept(task, path).sha256 for path in references.algorithms(task)}

    for run in references.read(task, task.profile(profile)):
        assert run.source_sha256 == sources[run.algorithm], run.algorithm
    references.evaluations(task, task.profile(profile), quiet)  # says what it leaves out


def test_the_quick_board_of_a_fresh_clone_shows_three_references_with_intervals(
    tmp_path: Path,
) -> None:
    task = Task.load(TASK)
    quick = task.profile("quick")
    shipped = references.evaluations(task, quick, quiet)

    board, path = write_leaderboard(
        Store(tmp_path / "store"), current(task, quick), tmp_path, quiet, shipped=shipped
    )

    assert sorted(row.manifest.name for row in board.rows) == ["ddpg", "sac", "td3"]
    assert not board.left_out
    for row in board.rows:
        assert row.shipped
        assert row.summary.runs_scored == row.summary.runs_planned == 6
        assert row.summary.interval_low is not None
        assert row.summary.interval_low < row.summary.score < row.summary.interval_high
    assert set(pd.read_csv(path)["origin"]) == {"shipped"}


def test_what_the_references_reach_in_quick_lies_over_the_floors() -> None:
    task = Task.load(TASK)
    quick = task.profile("quick")
    frozen = scales(task, quick)

    for environment, by_algorithm in returns(task, quick).items():
        for algorithm in ("td3", "sac"):
            assert np.mean(by_algorithm[algorithm]) > frozen[environment].floor, environment


@pytest.mark.parametrize("name", TASK_NAMES)
def test_a_frozen_ceiling_is_the_best_references_mean_and_clears_its_floor(name: str) -> None:
    task = Task.load(name)
    checked = 0
    for profile in task.profiles.values():
        for environment, scale in scales(task, profile).items():
            if scale.provisional:
                continue
            by_algorithm = returns(task, profile)[environment]
            best = max(by_algorithm, key=lambda each: float(np.mean(by_algorithm[each])))
            mean, spread = np.mean(by_algorithm[best]), np.std(by_algorithm[best], ddof=1)
            assert round(float(mean), 2) == scale.ceiling, (profile.name, environment)
            assert best.upper() in scale.ceiling_source
            assert scale.ceiling - scale.floor > spread, (profile.name, environment)
            checked += 1
    assert checked


def test_a_provisional_ceiling_is_a_published_number_and_its_board_is_not_ranked() -> None:
    task = Task.load(TASK)
    full = task.profile("full")
    numbers = {(each.environment, round(each.mean, 2)) for each in references.published(task, full)}

    for environment, scale in scales(task, full).items():
        assert scale.provisional
        assert (environment, scale.ceiling) in numbers
    assert full.ranked  # but for those ceilings
    [row] = build_board(
        current(task, full), [_evaluation(task, full, "mine", mean_return=1000.0)]
    ).rows
    assert row.rank is None
    assert "provisional" in row.why_unranked


def test_published_numbers_say_how_they_were_measured() -> None:
    task = Task.load(TASK)
    protocols = defaultdict(set)
    for line in references.published(task, task.profile("full")):
        assert line.source
        protocols[line.protocol].add(line.source.split(",")[0])

    # CleanRL publishes returns of training, MLS-Bench evaluations: never in one column.
    assert {"MLS-Bench"} <= protocols["evaluation"]
    assert protocols["training"] == {"CleanRL at fe8d8a03"}
    assert references.published(task, task.profile("quick")) == []


def test_published_numbers_of_games_are_shown_with_the_digits_that_tell_them_apart() -> None:
    task = Task.load("rl-value-atari")
    full = task.profile("full")
    shown = plan(task, full, task.load_heldout())
    console = Console(file=io.StringIO(), width=160)

    console.print(references.published_table(task, references.published(task, full), shown))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    pong = {row[2]: row[3:6] for row in rows if row and row[0] == "PongNoFrameskip-v4"}
    assert pong["qr_dqn"] == ["20.9", "0.0577", "3"]
    assert ["SeaquestNoFrameskip-v4", "evaluation", "qr_dqn", "9,027"] in [row[:4] for row in rows]
    # Sticky actions are another environment.
    assert "sticky" not in text


# --- writing and reading --------------------------------------------------------------------------


def _evaluation(
    task: Task, profile: Profile, name: str, mean_return: float, **changes: object
) -> tuple[object, list[Record]]:
    """An evaluation of this operator's, under the present conditions."""
    manifest = _manifest(task, profile, name, **changes)
    return manifest, [
        record(manifest, run.environment, run.seed, mean_return) for run in manifest.runs
    ]


def _manifest(task: Task, profile: Profile, name: str, **changes: object):
    from tests.builders import manifest

    now = current(task, profile)
    environments = plan(task, profile, task.load_heldout())
    return manifest(
        name,
        visible=[each.environment.id for each in environments if not each.heldout],
        heldout=[each.environment.id for each in environments if each.heldout],
        seeds=profile.seeds,
        profile=profile.name,
        profile_sha256=now.profile_sha256,
        heldout_sha256=now.heldout_sha256,
        scales={id_: each.model_dump() for id_, each in scales(task, profile).items()},
        **changes,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Task:
    """The task in a directory of its own, without reference runs."""
    directory = tmp_path / TASK
    directory.mkdir()
    for name in ("task.toml", "scaffold.py", "heldout.toml"):
        (directory / name).write_bytes((TASKS / TASK / name).read_bytes())
    return Task.load(TASK, tmp_path)


def test_runs_are_written_and_read_as_the_evaluation_that_they_were(copied: Task) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = [record(manifest, run.environment, run.seed, 12.5) for run in manifest.runs]
    runs[0] = record(manifest, runs[0].environment, runs[0].seed, None)  # crashed: no return

    path = references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    [(again, results)] = references.evaluations(copied, quick, quiet)

    assert path == copied.directory / "reference_runs" / "quick.csv"
    [own] = build_board(current(copied, quick), [(manifest, runs)]).rows
    [shipped] = build_board(current(copied, quick), [], shipped=[(again, results)]).rows
    assert shipped.summary == own.summary.model_copy(
        update={"ranked": False, "why_unranked": shipped.summary.why_unranked}
    )
    assert shipped.why_unranked == "the profile quick is never ranked"
    assert (again.name, again.source_sha256) == ("td3", manifest.source_sha256)


def test_a_second_evaluation_its_flag_and_stopped_games_are_shipped_with_a_run(
    copied: Task,
) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = [record(manifest, run.environment, run.seed, 12.5) for run in manifest.runs]
    first = {"final": evaluation(12.5, stopped=3), "second": second(1.5)}
    runs[0] = record(manifest, runs[0].environment, runs[0].seed, 12.5, **first)
    runs[1] = record(manifest, runs[1].environment, runs[1].seed, 12.5, second=second(-2.5))

    path = references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    [shipped] = references.evaluations(copied, quick, quiet)

    assert summarise(*shipped).environments == summarise(manifest, runs).environments
    assert summarise(*shipped).memorised_runs == 2
    lines = list(csv.DictReader(path.open()))
    columns = ("second_return", "memorised", "stopped")
    assert [[line[name] for name in columns] for line in lines[:3]] == [
        ["1.5", "True", "3"],
        ["-2.5", "True", "0"],
        ["", "False", "0"],
    ]


def test_a_file_that_is_older_than_second_evaluations_is_still_read(copied: Task) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = [record(manifest, run.environment, run.seed, 12.5) for run in manifest.runs]
    path = references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    [(_, now)] = references.evaluations(copied, quick, quiet)
    newer = ["second_return", "memorised", "stopped", "ale_py"]
    pd.read_csv(path).drop(columns=newer).to_csv(path, index=False)

    [(manifest, before)] = references.evaluations(copied, quick, quiet)

    assert before == now
    # What was not noted is not said to have been there.
    assert dict(manifest.packages) == {
        "torch": "2.13.0",
        "numpy": "2.4.6",
        "gymnasium": "1.4.0",
        "mujoco": "4.0.0",
    }


def test_the_version_of_the_emulator_is_shipped_where_a_record_has_it(copied: Task) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = [record(manifest, run.environment, run.seed, 1.0) for run in manifest.runs]
    references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    [(new, _)] = references.evaluations(copied, quick, quiet)
    packages = provenance().model_dump()["packages"]
    del packages["ale_py"]
    older = provenance(packages=packages).model_dump()
    runs = [
        record(manifest, run.environment, run.seed, 1.0, training={"provenance": older})
        for run in manifest.runs
    ]
    references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    [(old, _)] = references.evaluations(copied, quick, quiet)

    assert new.packages["ale_py"] == "0.12.1"
    assert "ale_py" not in old.packages


def stored(task: Task, profile: Profile, manifest: Manifest, runs: Sequence[Record]) -> Stored:
    """As it lies in a store, made under the task's present numbers."""
    directory = task.directory / "stored"
    directory.mkdir(exist_ok=True)
    frozen = plan_of(task, profile, plan(task, profile, task.load_heldout()))
    (directory / PLAN).write_text(frozen.model_dump_json())
    return Stored(directory, manifest, tuple(runs))


def test_runs_of_another_edition_of_the_profile_are_left_out_and_said(copied: Task) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = tuple(record(manifest, run.environment, run.seed, 1.0) for run in manifest.runs)
    references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    longer = quick.model_copy(update={"total_timesteps": 13_000})
    said: list[str] = []

    assert references.evaluations(copied, longer, said.append) == []

    [line] = said
    assert "6 runs of another edition are left out" in line


def test_runs_are_stamped_with_what_they_were_made_under_and_not_with_what_holds_now(
    copied: Task,
) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = [record(manifest, run.environment, run.seed, 1.0) for run in manifest.runs]
    longer = quick.model_copy(update={"total_timesteps": 13_000})
    said: list[str] = []

    references.write(copied, longer, [stored(copied, quick, manifest, runs)])

    assert references.evaluations(copied, longer, said.append) == []
    assert said
    assert references.evaluations(copied, quick, quiet)


def test_new_scales_do_not_make_runs_stale(copied: Task) -> None:
    """Ceilings are frozen from these very runs."""
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = tuple(record(manifest, run.environment, run.seed, 1.0) for run in manifest.runs)
    references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    raised = {
        id_: each.model_copy(update={"ceiling": each.ceiling + 1})
        for id_, each in quick.scales.items()
    }

    [(again, _)] = references.evaluations(
        copied, quick.model_copy(update={"scales": raised}), quiet
    )

    assert again.scales["Reacher-v4"].ceiling == quick.scales["Reacher-v4"].ceiling + 1


def test_a_damaged_line_is_named(copied: Task) -> None:
    quick = copied.profile("quick")
    manifest = _manifest(copied, quick, "td3")
    runs = tuple(record(manifest, run.environment, run.seed, 1.0) for run in manifest.runs)
    path = references.write(copied, quick, [stored(copied, quick, manifest, runs)])
    lines = list(csv.DictReader(path.open()))
    lines[2]["mean_return"] = "nan"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)

    with pytest.raises(TaskError, match=r"quick\.csv, line 4: mean_return: .*finite"):
        references.evaluations(copied, quick, quiet)


# --- on a board -----------------------------------------------------------------------------------


def test_what_the_operator_has_evaluated_stands_in_place_of_what_was_shipped() -> None:
    task = Task.load(TASK)
    quick = task.profile("quick")
    shipped = references.evaluations(task, quick, quiet)
    td3 = next(manifest for manifest, _ in shipped if manifest.name == "td3")
    evaluation = {"evaluation": td3.evaluation, "source_sha256": td3.source_sha256}
    manifest, records = _evaluation(task, quick, "td3", 50.0, **evaluation)

    rows = build_board(current(task, quick), [(manifest, records)], shipped=shipped).rows
    begun = build_board(current(task, quick), [(manifest, records[1:])], shipped=shipped)

    assert sorted((row.manifest.name, row.shipped) for row in rows) == [
        ("ddpg", True),
        ("sac", True),
        ("td3", False),
    ]
    # Until it is finished, the shipped one stays.
    assert sorted(row.manifest.name for row in begun.rows if row.shipped) == ["ddpg", "sac", "td3"]
    assert "1 of 6 runs have not finished" in begun.left_out[0]


def test_a_copy_of_a_reference_under_another_name_displaces_nothing_and_is_called_a_copy() -> None:
    task = Task.load(TASK)
    quick = task.profile("quick").model_copy(update={"ranked": True})
    shipped = references.evaluations(task, quick, quiet)
    td3 = next(manifest for manifest, _ in shipped if manifest.name == "td3")
    later = {"source_sha256": td3.source_sha256, "created": "2099-01-01T00:00:00+00:00"}
    own = _evaluation(task, quick, "mine", 50.0, **later)

    rows = build_board(current(task, quick), [own], shipped=shipped).rows

    assert {row.manifest.name for row in rows if row.rank} == {"ddpg", "sac", "td3"}
    [copy] = [row for row in rows if not row.shipped]
    assert copy.why_unranked.startswith(f"same source as {td3.evaluation}")


def test_a_submitters_board_shows_no_held_out_environment_of_a_shipped_run() -> None:
    from harness.results.leaderboard import to_csv

    task = Task.load(TASK)
    quick = task.profile("quick")
    [hidden] = task.load_heldout().profiles["quick"]
    shipped = references.evaluations(task, quick, quiet)

    whole = to_csv(build_board(current(task, quick), [], shipped=shipped))
    shown = to_csv(build_board(current(task, quick), [], for_submitter=True, shipped=shipped))

    assert f"{hidden} mean" in whole
    assert hidden not in shown.replace(f"InvertedDouble{hidden.removeprefix('Inverted')}", "")


def test_another_held_out_list_in_force_leaves_shipped_runs_unranked_and_says_why() -> None:
    task = Task.load(TASK)
    quick = task.profile("quick")
    other = current(task, quick)._replace(heldout_sha256="9" * 64)

    rows = build_board(other, [], shipped=references.evaluations(task, quick, quiet)).rows

    assert all("other held-out environments" in row.why_unranked for row in rows)


# --- making them ----------------------------------------------------------------------------------


def _request(task: Task, store: Path) -> evaluate_command.Request:
    return evaluate_command.Request(
        task=task,
        profile=task.profile("quick"),
        heldout=task.load_heldout(),
        heldout_kind="example",
        name="",
        workers=None,
        yes=True,
        rerun=False,
        stock=False,
        store_root=store,
        board_root=store,
    )


def test_references_evaluates_each_algorithm_under_its_name_and_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(request: evaluate_command.Request, accepted: Submission) -> ExitStatus:
        asked.append((request.name, accepted.form))
        return ExitStatus.UNSCORED_RUNS if request.name == "ddpg" else ExitStatus.SCORED

    monkeypatch.setattr(evaluate_command, "run", run)

    status = evaluate_command.run_references(_request(Task.load(TASK), tmp_path), ship=False)

    assert asked == [(name, "region file") for name in ("ddpg", "sac", "td3")]
    assert status is ExitStatus.UNSCORED_RUNS


def test_references_stops_where_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(request: evaluate_command.Request, accepted: Submission) -> ExitStatus:
        asked.append(request.name)
        return ExitStatus.INTERRUPTED

    monkeypatch.setattr(evaluate_command, "run", run)

    status = evaluate_command.run_references(_request(Task.load(TASK), tmp_path), ship=True)

    assert (asked, status) == (["ddpg"], ExitStatus.INTERRUPTED)
