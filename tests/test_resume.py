"""Kill the harness at any instant, run the same command again: the same numbers as unbroken."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import harness.evaluation
from harness import keys
from harness.evaluation import Busy, begin, hold
from harness.layout import LOCK, MANIFEST, RECORD, attempt_directory
from harness.manifest import ManifestDiffers, make_manifest, obey
from harness.records import Record
from harness.results.store import OtherSchema, Store, read_record
from harness.task import REPOSITORY, Task
from tests.support import (
    CHEETAH,
    PENDULUM,
    TD3,
    accepted,
    alive,
    conditions,
    descendants,
    evaluated,
    region,
    small_profile,
)

PROFILE = small_profile(PENDULUM, CHEETAH, total_timesteps=120, learning_starts=60, eval_freq=120)

DRIVER = """
import sys
from pathlib import Path
from harness.results.store import Store
from tests.support import accepted, evaluated, region
from tests.test_resume import PROFILE
store = Store(Path(sys.argv[1]))
directory, _ = evaluated(accepted(region(), store.root.parent), PROFILE, store)
"""


def numbers(record: Record) -> str:
    """Everything of a record that a resume must reproduce: no times, no dates."""
    training = record.training
    return json.dumps(
        [
            record.verdict.kind,
            None if record.final is None else [record.final.returns, record.final.lengths],
            [[point.step, point.returns, point.lengths] for point in record.curve],
            [training.steps, training.episode_returns, training.exports, training.parameters],
            training.policy_sha256,
            record.trace_sha256,
        ]
    )


def records(directory: Path) -> dict[str, Record]:
    stored = Store(directory.parents[2]).load(directory, pytest.fail)
    return {f"{record.environment}-s{record.seed}": record for record in stored.records}


def store_at(path: Path) -> Store:
    """A store with the tests' key, so that two stores can be compared."""
    path.mkdir(parents=True)
    (path / "key").write_text(bytes(range(32)).hex())
    return Store(path)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    path = tmp_path_factory.mktemp("unbroken")
    directory, _ = evaluated(accepted(region(), path), PROFILE, store_at(path / "store"))
    return records(directory)


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


MOMENTS = {
    "a manifest is there": lambda root: any(root.glob(f"*/*/*/{MANIFEST}")),
    "a learner is at work": lambda root: any(root.glob("*/*/*/runs/*/*/progress.json")),
    "a first export": lambda root: any(root.glob("*/*/*/runs/*/*/exports/*.policy")),
    "a training has ended": lambda root: any(root.glob("*/*/*/runs/*/*/training.json")),
    "a first record": lambda root: any(root.glob(f"*/*/*/runs/*/*/{RECORD}")),
}


@pytest.mark.xdist_group("unbroken")
def test_killed_at_any_moment_and_resumed_gives_the_numbers_of_an_unbroken_run(tmp_path, unbroken):
    """SIGKILL at five moments of one evaluation, one after the other, then to the end."""
    store = store_at(tmp_path / "store")
    for moment, reached in MOMENTS.items():
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(store.root)],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        )
        try:
            while not reached(store.root) and process.poll() is None:
                time.sleep(0.02)
            assert process.poll() is None, f"ended before this moment: {moment}"
        finally:
            below = descendants(process.pid)
            process.send_signal(signal.SIGKILL)
            process.wait()
        # No guest and no worker outlives a killed harness.
        wait_for(lambda below=below: not any(map(alive, below)), seconds=5)
    kept = {path: path.stat().st_mtime_ns for path in store.root.glob(f"*/*/*/runs/*/*/{RECORD}")}
    directory, _ = evaluated(accepted(region(), tmp_path), PROFILE, store)
    again = records(directory)
    assert {run: numbers(each) for run, each in again.items()} == {
        run: numbers(each) for run, each in unbroken.items()
    }
    # A record that was there was not written again.
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())
    assert all(each.attempt == 1 for each in again.values())


@pytest.mark.xdist_group("unbroken")
def test_a_trained_run_is_scored_and_not_trained_again(tmp_path, unbroken):
    store = store_at(tmp_path / "store")
    directory, _ = evaluated(accepted(region(), tmp_path), PROFILE, store)
    for path in directory.glob(f"runs/*/*/{RECORD}"):
        path.unlink()
    for path in directory.glob("runs/*/*/final.json"):
        path.unlink()
    trained = {path: path.stat().st_mtime_ns for path in directory.glob("runs/*/*/training.json")}
    evaluated(accepted(region(), tmp_path), PROFILE, store)
    assert {path: path.stat().st_mtime_ns for path in trained} == trained
    assert {run: numbers(each) for run, each in records(directory).items()} == {
        run: numbers(each) for run, each in unbroken.items()
    }


def test_a_damaged_record_is_set_aside_said_and_made_again(tmp_path):
    profile = small_profile(total_timesteps=30, learning_starts=30, eval_freq=30)
    store = store_at(tmp_path / "store")
    directory, _ = evaluated(accepted(region(), tmp_path), profile, store)
    before = numbers(records(directory)[f"{PENDULUM}-s42"])
    path = attempt_directory(directory, f"{PENDULUM}-s42", 1) / RECORD
    content = path.read_bytes()
    for damaged in (
        content[: len(content) // 2],
        content.replace(b'"mean": ', b'"mean": 9', 1),
        b"",
        b"[" * 100_000,
    ):
        path.chmod(0o644)
        path.write_bytes(damaged)
        _, said = evaluated(accepted(region(), tmp_path), profile, store)
        assert any(str(path) in line and "set aside" in line for line in said)
        assert numbers(records(directory)[f"{PENDULUM}-s42"]) == before
    assert len(list(path.parent.glob(f"{RECORD}.damaged-*"))) == 4

    # A whole record of another version is nobody's to touch.
    _, _, body = path.read_text().partition("\n")
    newer = body.removesuffix("}\n").replace('"schema_version": 1', '"schema_version": 2')
    digest = hashlib.sha256(newer.encode()).hexdigest()
    path.chmod(0o644)
    path.write_text(f'{{"sha256": "{digest}", "record":\n{newer}}}\n')
    whole = path.read_bytes()
    left_out: list[str] = []
    assert list(store.evaluations("rl-offpolicy-continuous", "smoke", left_out.append)) == []
    assert "has schema 2; this harness reads 1" in left_out[0]
    with pytest.raises(OtherSchema):
        evaluated(accepted(region(), tmp_path), profile, store)
    assert path.read_bytes() == whole


def test_a_damaged_artefact_is_noticed_and_the_run_trained_again(tmp_path):
    profile = small_profile(total_timesteps=30, learning_starts=30, eval_freq=30)
    store = store_at(tmp_path / "store")
    directory, _ = evaluated(accepted(region(), tmp_path), profile, store)
    before = numbers(records(directory)[f"{PENDULUM}-s42"])
    attempt = attempt_directory(directory, f"{PENDULUM}-s42", 1)
    (attempt / RECORD).unlink()
    (artefact,) = attempt.glob("exports/*.policy")
    artefact.write_bytes(artefact.read_bytes()[:-1] + b"?")
    _, said = evaluated(accepted(region(), tmp_path), profile, store)
    assert any("not the one that was trained" in line and "set aside" in line for line in said)
    assert numbers(records(directory)[f"{PENDULUM}-s42"]) == before


def test_the_second_harness_on_an_evaluation_says_who_holds_it(tmp_path):
    with (
        hold(tmp_path / LOCK),
        pytest.raises(Busy, match=f"process {os.getpid()} on .* since 20"),
        hold(tmp_path / LOCK),
    ):
        pass
    with hold(tmp_path / LOCK):
        pass


def test_a_resume_under_other_conditions_is_refused_by_name(tmp_path):
    store = store_at(tmp_path / "store")
    submission = accepted(region(), tmp_path)
    with begin(conditions(PROFILE), submission, "test", store, print) as evaluation:
        evaluation.start()
    other = small_profile(PENDULUM, CHEETAH, total_timesteps=122, learning_starts=60, eval_freq=122)
    with (
        pytest.raises(ManifestDiffers, match=r"profile_sha256: begun with .*, now "),
        begin(conditions(other), submission, "test", store, print),
    ):
        pass


def test_packages_that_a_manifest_does_not_name_change_nothing_and_others_are_named(tmp_path):
    submission = accepted(region(), tmp_path)
    now = make_manifest(conditions(PROFILE), submission, "test", "")

    def begun_with(**packages):
        return now.model_copy(update={"packages": packages})

    versions = dict(now.packages)
    numpy = versions.pop("numpy")
    obey(begun_with(**versions), now, finished=False)
    with pytest.raises(ManifestDiffers, match=r"packages: begun with .*numpy.*0\.1.*") as told:
        obey(begun_with(**versions, numpy="0.1"), now, finished=False)
    assert numpy in str(told.value)
    assert "torch" not in str(told.value)
    obey(begun_with(**versions, numpy="0.1"), now, finished=True)
    with pytest.raises(ManifestDiffers, match="jax"):
        obey(begun_with(**now.packages, jax="1.0"), now, finished=False)


def test_a_missing_key_is_refused_and_never_made_anew(tmp_path):
    store = Store(tmp_path / "store")
    submission = accepted(region(), tmp_path)
    with begin(conditions(PROFILE), submission, "test", store, print) as evaluation:
        evaluation.start()
    assert store.key_file.stat().st_mode & 0o777 == 0o600
    assert len(keys.load_key(store.key_file)) == 32
    store.key_file.unlink()
    with (
        pytest.raises(keys.KeyMissing, match="put the file back"),
        begin(conditions(PROFILE), submission, "test", store, print),
    ):
        pass
    assert not store.key_file.exists()
    # Another key is a difference like any other.
    keys.create_key(store.key_file)
    with (
        pytest.raises(ManifestDiffers, match="key_fingerprint"),
        begin(conditions(PROFILE), submission, "test", store, print),
    ):
        pass


def test_a_failed_run_is_run_again_only_when_asked_and_the_attempts_are_counted(tmp_path):
    profile = small_profile(total_timesteps=30, learning_starts=20, eval_freq=30)
    crashes = region(("        self.updates += 1\n", "        1 / 0\n"))
    store = store_at(tmp_path / "store")
    submission = accepted(crashes, tmp_path)
    directory, _ = evaluated(submission, profile, store)
    _, said = evaluated(submission, profile, store)
    assert said == []
    with begin(conditions(profile), submission, "test", store, print) as evaluation:
        assert evaluation.finished
        assert evaluation.unscored == 1
        evaluation.rerun_unscored()
        assert not evaluation.finished
    evaluated(submission, profile, store)
    first, second = (
        read_record(attempt_directory(directory, f"{PENDULUM}-s42", attempt), pytest.fail)
        for attempt in (1, 2)
    )
    assert first is not None
    assert second is not None
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.verdict.kind == second.verdict.kind == "crashed"


@pytest.mark.xdist_group("unbroken")
def test_training_is_the_same_beside_a_second_run_and_without_evaluations(tmp_path, unbroken):
    """Evaluation never touches a learner's generators; neighbours change nothing."""
    alone = small_profile(
        CHEETAH, total_timesteps=120, learning_starts=60, eval_freq=60, eval_episodes=1
    )
    directory, _ = evaluated(
        accepted(region(), tmp_path), alone, store_at(tmp_path / "store"), workers=1
    )
    run = f"{CHEETAH}-s42"
    assert records(directory)[run].training.policy_sha256 == unbroken[run].training.policy_sha256


def test_a_broken_sandbox_is_infrastructure_retried_and_never_a_record(tmp_path, monkeypatch):
    """A machine on which no guest starts: nothing is held against the submission."""
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (empty / "bwrap").chmod(0o755)
    profile = small_profile(total_timesteps=30, learning_starts=30, eval_freq=30)
    store = store_at(tmp_path / "store")
    submission = accepted(region(), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(harness.evaluation, "RETRY_PAUSES_SECONDS", (0.0, 0.1, 0.2))
        patch.setenv("PATH", f"{empty}:{os.environ['PATH']}")
        directory, said = evaluated(submission, profile, store)
    assert sum("infrastructure, runs again" in line for line in said) == 3
    assert sum("given up: infrastructure" in line for line in said) == 1
    assert records(directory) == {}
    # The machine mended, the same command goes on.
    directory, _ = evaluated(submission, profile, store)
    assert records(directory)[f"{PENDULUM}-s42"].verdict.kind == "scored"


def test_the_reference_is_a_submission_like_any_other():
    assert TD3.is_file()
    assert Task.load("rl-offpolicy-continuous").region.max_bytes > TD3.stat().st_size
