"""The benchmarks: their arithmetic on made-up figures, and real, tiny measurements."""

import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import batches, made_up_data, sb3, speed, speed_report
from benchmarks.measuring import DQN, FQL, TD3, Asked, Stopwatch, Subject, Window, command_line
from harness.numerics import STOCK, TUNED
from harness.task import REPOSITORY, Task
from sandbox.guest.dataset import Dataset

STEPS = 1_000
# Steps/s by contender and round. The median of the ratios is not the ratio of the medians.
RATES = {
    "sandboxed": (100.0, 120.0, 90.0),
    "sb3": (50.0, 100.0, 60.0),
    "bare": (110.0, 120.0, 100.0),
    "stock": (80.0, 100.0, 90.0),
    "pair": (190.0, 192.0, 180.0),
}
TINY = Window(learning_starts=20, settling=8, steps=24)

needs_sb3 = pytest.mark.skipif(
    not sb3.installed(), reason=f"{' and '.join(sb3.wanted())} are not installed: {sb3.ADVICE}"
)


def measurement(name: str, number: int, rate: float, **changes: Any) -> dict[str, Any]:
    made_up: dict[str, Any] = {
        "round": number,
        "contender": name,
        "steps": STEPS,
        "seconds": STEPS / rate,
        "others_before": 0.01,
        "others_meanwhile": -0.02,
    }
    if name == "sandboxed":
        made_up |= {
            "peak_memory_bytes": 300_000_000 + number,
            "replay_buffer_bytes": 50_000_000,
            "sandbox": {"backend": "bubblewrap"},
        }
    if name == "sb3":
        made_up["version"] = "9.8.7"
    return made_up | changes


@pytest.fixture
def content() -> dict[str, Any]:
    return {
        "began": "2026-12-01T00:00:00+00:00",
        "ended": "2026-12-01T00:11:00+00:00",
        "commit": "0123456789ab",
        "task": "rl-offpolicy-continuous",
        "profile": "full",
        "environment": "HalfCheetah-v4",
        "window": {"learning_starts": 1000, "settling": 200, "steps": STEPS},
        "machine": {
            "cpu": "Abacus",
            "cores": 4,
            "cores_used": 2,
            "threads_of_one_core": False,
            "memory_bytes": 1 << 34,
            "kernel": "6.0",
            "python": "3.11",
            "packages": {"torch": "2.13.0"},
        },
        "numerics": dict(TUNED),
        "matmul_probed_now": TUNED["matmul"],
        "measurements": [
            measurement(name, number, rate)
            for name, measured in RATES.items()
            for number, rate in enumerate(measured, 1)
        ],
    }


@pytest.fixture
def atari(content: dict[str, Any]) -> dict[str, Any]:
    """The same figures as DQN's: `script` where TD3 has `pair`."""
    for each in content["measurements"]:
        if each["contender"] == "pair":
            each["contender"] = "script"
        if each["contender"] == "sb3":
            each["configuration"] = {"opencv": "6.5.4"}
        if each["contender"] in ("sandboxed", "bare", "script"):
            each["weights_sha256"] = "abc"
    return content | {"task": "rl-value-atari", "environment": "BreakoutNoFrameskip-v4"}


def row(text: str, begin: str) -> list[str]:
    [line] = [each for each in text.splitlines() if each.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_taken_round_by_round(content: dict[str, Any]) -> None:
    against_sb3, against_bare, *_ = speed_report.SECTIONS[TD3.task].ratios

    assert speed_report.ratios(content, against_sb3) == pytest.approx([2.0, 1.2, 1.5])
    assert row(speed_report.render(content), against_sb3.what)[1:] == [
        "≥ 1.30",
        "1.500",
        "1.200 to 2.000",
        "met, by 15.4 %",
    ]
    assert row(speed_report.render(content), against_bare.what)[1:] == [
        "≥ 0.93",
        "0.909",
        "0.900 to 1.000",
        "**NOT MET**, by 2.2 %",
    ]


def test_a_round_without_one_side_gives_no_ratio(content: dict[str, Any]) -> None:
    content["measurements"] = [
        each
        for each in content["measurements"]
        if (each["contender"], each["round"]) != ("sb3", 2) and each["contender"] != "pair"
    ]
    against_sb3, _, of_two, _ = speed_report.SECTIONS[TD3.task].ratios

    assert speed_report.ratios(content, against_sb3) == pytest.approx([2.0, 1.5])
    assert row(speed_report.render(content), of_two.what)[2] == "not measured"


def test_dqn_is_held_against_a_plain_script(atari: dict[str, Any]) -> None:
    text = speed_report.render(atari)

    assert text.startswith("<!-- Made by `python -m benchmarks.speed render --task rl-value-atari`")
    assert "DQN on BreakoutNoFrameskip-v4" in text
    assert "four frames" in text
    assert "opencv 6.5.4" in text
    # 100/190, 120/192 and 90/180; what costs the sandbox alone is shown and not judged.
    assert row(text, "in the sandbox against a plain script")[1:] == [
        "≥ 0.93",
        "0.526",
        "0.500 to 0.625",
        "**NOT MET**, by 43.4 %",
    ]
    assert row(text, "in the sandbox against the same loop")[4] == ""
    assert row(text, "DQN in a plain script")[1] == "190.0"


def test_fql_is_held_against_a_plain_script_and_no_step_is_random(atari: dict[str, Any]) -> None:
    atari["measurements"] = [each for each in atari["measurements"] if each["contender"] != "sb3"]
    window = {"learning_starts": 0, "settling": 20, "steps": STEPS}
    offline = {"task": "rl-offline-policy", "environment": "cube", "transitions": 12_345}

    text = speed_report.render(atari | offline | {"window": window})

    assert "--task rl-offline-policy` from benchmarks/speed-offline.json" in text
    assert "1,000 steps of the learning phase, after 20 to settle; 3 round(s)" in text
    assert "gradient step" in text
    assert "- Dataset: 12,345 transitions" in text
    # The median of 100/190, 120/192 and 90/180.
    assert row(text, "in the sandbox against a plain script")[1:3] == ["≥ 0.97", "0.526"]
    assert row(text, "learner's memory without its dataset")[2] == "250 MB"
    assert "Stable-Baselines3" not in text


def test_contenders_that_did_other_work_are_said(atari: dict[str, Any]) -> None:
    assert "the same network" not in speed_report.render(atari)

    for each in atari["measurements"]:
        if each["contender"] == "script":
            each["weights_sha256"] = "def"

    text = speed_report.render(atari)
    assert "**Not all of ours trained the same network" in text
    assert "bare and sandboxed; script." in text


@pytest.mark.parametrize(
    ("subject", "window", "said"),
    [
        (TD3, (1, 1, 1), ""),
        (DQN, (500, 200, 1_500), ""),
        (DQN, (500, 201, 1_500), "multiples of 4"),
        (DQN, (40, 20, 560), "epsilon"),  # a tenth of 620 is 62, and measured is from 60 on
        (DQN, (40, 24, 560), ""),
        (FQL, (0, 1, 1), ""),
    ],
)
def test_a_window_in_which_contenders_differ_is_refused(
    subject: Subject, window: tuple[int, int, int], said: str
) -> None:
    flaw = Window(*window).flaw(Task.load(subject.task).constants)

    assert said in flaw
    assert bool(flaw) == bool(said)


@pytest.mark.parametrize(
    ("measured", "target", "more", "said"),
    [
        (1.3, 1.3, True, "met, by 0.0 %"),
        (1.287, 1.3, True, "**NOT MET**, by 1.0 %"),
        (900.0, 1000.0, False, "met, by 10.0 %"),
        (1000.0, 1000.0, False, "**NOT MET**, by 0.0 %"),
    ],
)
def test_a_verdict_says_by_how_much(measured: float, target: float, more: bool, said: str) -> None:
    assert speed_report.verdict(measured, target, more_is_better=more) == said


def test_the_replay_buffer_is_not_the_learners_memory(content: dict[str, Any]) -> None:
    assert speed_report.learner_bytes(content) == [250_000_001, 250_000_002, 250_000_003]
    assert "| 250 MB | 250 to 250 | met, by 75.0 % |" in speed_report.render(content)


def test_machine_and_versions_are_named(content: dict[str, Any]) -> None:
    text = speed_report.render(content)

    for fact in ("Abacus", "commit 0123456789ab", "stable_baselines3 9.8.7", "adam: fused"):
        assert fact in text
    assert "**" not in text.replace("**NOT MET**", "")


@pytest.mark.parametrize("when", ["others_before", "others_meanwhile"])
def test_a_disturbed_measurement_is_said_loudly(content: dict[str, Any], when: str) -> None:
    assert speed_report.disturbed(content) == []

    content["measurements"][4] |= {when: 0.11}

    [said] = speed_report.disturbed(content)
    assert said.startswith("sb3 in round 2: ")
    assert "**DISTURBED: other programs ran" in speed_report.render(content)
    assert f"- {said}" in speed_report.render(content)


def test_a_stale_choice_of_backends_is_said(content: dict[str, Any]) -> None:
    content["matmul_probed_now"] = "onednn"

    assert "a fresh probe says onednn" in speed_report.render(content)


def test_two_at_once_count_while_both_are_measured() -> None:
    """The first takes a step a second from 0 to 10, the second two a second from 4 to 12."""
    first = [float(at) for at in range(11)]
    second = [4 + at / 2 for at in range(17)]

    assert speed.together([first, second]) == (6 + 12, 6.0)
    assert speed.together([first]) == (10, 10.0)
    with pytest.raises(speed.Failed):
        speed.together([first, [10.5, 11.0]])


def test_the_clock_is_read_over_the_measured_steps_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    stopwatch = Stopwatch(Window(learning_starts=3, settling=2, steps=4))
    for _ in range(8):
        stopwatch.tick()
    with pytest.raises(ValueError, match="3 steps were measured, not 4"):
        stopwatch.result()
    stopwatch.tick()

    result = stopwatch.result(more=1)

    assert capsys.readouterr().out == "ready\n"
    assert (result["steps"], len(result["times"]), result["more"]) == (4, 5, 1)


def test_offline_learning_begins_with_the_first_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    stopwatch = Stopwatch(Window(learning_starts=0, settling=2, steps=1))
    assert capsys.readouterr().out == ""
    stopwatch.tick()
    assert capsys.readouterr().out == "ready\n"
    stopwatch.tick()
    stopwatch.tick()

    assert stopwatch.result()["steps"] == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", FQL.task, "--learning-starts", "5"], "no random steps"),
        (["--learning-starts", "0"], "no random steps"),
        (["--transitions", "100"], "for an offline task"),
        (["--task", FQL.task, "--transitions", "0"], "at least 1"),
        (["--task", FQL.task, "--contenders", "sb3"], "no contender 'sb3'"),
    ],
)
def test_a_setting_that_the_task_has_not_is_refused(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["speed", *arguments])

    with pytest.raises(SystemExit):
        speed.main()
    assert said in capsys.readouterr().err


def test_made_up_rows_are_a_dataset_of_the_tasks_shapes(tmp_path: Path) -> None:
    task = Task.load(FQL.task)
    path = made_up_data.write(tmp_path, task, FQL.environment, 50)

    dataset = Dataset(path, 28, 5, torch.device("cpu"))
    batch = dataset.batch(np.arange(50), with_next_actions=True)
    assert [each.shape for each in batch] == [(50, 28), (50, 5), (50,), (50,), (50, 28), (50, 5)]
    assert all(0 <= each.min() < 0.2 < 0.8 < each.max() < 1 for each in batch)
    changed = made_up_data.used_by(task, FQL.environment, path)
    assert changed.environments[FQL.environment].transitions == 50
    assert changed.environments.keys() == task.environments.keys()


def test_render_reads_the_file_that_was_measured(content: dict[str, Any], tmp_path: Path) -> None:
    results = tmp_path / "speed.json"
    results.write_text(json.dumps(content))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "render", "--results", str(results)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == speed_report.render(content)


def test_sb3_is_pinned_and_no_dependency_of_the_tests() -> None:
    assert sorted(each.partition("==")[0] for each in sb3.wanted()) == [
        "opencv-python-headless",
        "stable-baselines3",
    ]
    lock = (REPOSITORY / "requirements.lock").read_text()
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        dependencies = str(tomllib.load(file)["project"]["dependencies"])
    for name in ("stable", "opencv"):
        assert name not in lock
        assert name not in dependencies


def test_a_setting_of_sb3s_that_is_not_ours_ends_the_benchmark() -> None:
    configuration = {"batch_size": 32, "device": "cpu", "opencv": "not ours to have"}

    sb3.compare(configuration, {"batch_size": 32, "device": "cpu"})
    with pytest.raises(RuntimeError, match=r"\{'batch_size': \(32, 64\)\}"):
        sb3.compare(configuration, {"batch_size": 64, "device": "cpu"})


def test_a_sandboxed_run_is_really_measured() -> None:
    """HalfCheetah in bubblewrap, sixty steps of it measured."""
    window = Window(learning_starts=20, settling=10, steps=60)

    measured = speed.measure(speed.BENCHMARKS[TD3.task], "sandboxed", window, TUNED)

    assert measured["steps"] == 60
    assert 0 < measured["seconds"] < measured["whole_seconds"]
    assert measured["exports"] == [0, 60, 90]  # one of them within the measured steps
    assert measured["peak_memory_bytes"] > measured["replay_buffer_bytes"] == 90 * 42 * 4
    assert measured["others_before"] >= 0
    assert "times" not in measured


def test_sandbox_bare_loop_and_plain_script_train_the_same_network() -> None:
    """Breakout: so long random steps that games end, then eleven updates."""
    window = Window(learning_starts=600, settling=8, steps=36)

    sandboxed, bare, script = (
        speed.measure(speed.BENCHMARKS[DQN.task], name, window, TUNED)
        for name in ("sandboxed", "bare", "script")
    )

    assert sandboxed["steps"] == bare["steps"] == script["steps"] == 36
    assert sandboxed["exports"] == [0, 626, 644]
    assert sandboxed["episodes"] == bare["episodes"] > 0
    assert script["loss"] > 0
    assert sandboxed["weights_sha256"] == bare["weights_sha256"] == script["weights_sha256"]
    # 644 transitions and the 19 spare frames and 5 more that they are given, of 7,074 bytes each.
    assert sandboxed["replay_buffer_bytes"] == (644 + 19 + 5) * 7_074


def test_offline_sandbox_bare_loop_and_plain_script_train_the_same_network(tmp_path: Path) -> None:
    """Six gradient steps at the sizes of `full`, four of them measured."""
    benchmark = speed.made_up(speed.BENCHMARKS[FQL.task]._replace(transitions=900), tmp_path)
    window = Window(learning_starts=0, settling=2, steps=4)

    sandboxed, bare, script = (
        speed.measure(benchmark, name, window, TUNED) for name in ("sandboxed", "bare", "script")
    )

    assert sandboxed["steps"] == bare["steps"] == script["steps"] == 4
    assert sandboxed["exports"] == [0, 4, 6]  # one of them within the measured steps
    assert sandboxed["weights_sha256"] == bare["weights_sha256"] == script["weights_sha256"]
    # Networks, gradients and Adam's two averages, of 4.9 million parameters; the file is apart.
    assert sandboxed["peak_memory_bytes"] > 4 * 4 * 4_000_000
    assert sandboxed["replay_buffer_bytes"] == 0


@needs_sb3
@pytest.mark.parametrize(("subject", "updates"), [(TD3, 32), (DQN, 8)], ids=["TD3", "DQN"])
def test_sb3_is_really_measured(subject: Subject, updates: int) -> None:
    """Its settings have been compared by then."""
    measured = speed.measure(speed.BENCHMARKS[subject.task], "sb3", TINY, TUNED)

    assert (measured["steps"], measured["updates"]) == (24, updates)
    assert measured["configuration"]["threads"] == 1


@needs_sb3
def test_an_sb3_that_was_built_otherwise_does_not_train() -> None:
    altered = """
from benchmarks import sb3, sb3_dqn

def build(task, asked):
    model = sb3_dqn.build(task, asked)
    model.target_update_interval += 1
    return model

sb3.main(sb3.Peer(build, sb3_dqn.look_up, sb3_dqn.ours))
"""
    asked = Asked("sb3", DQN.task, TINY, 1, STOCK)
    done = subprocess.run(
        [sys.executable, "-P", "-c", altered, *command_line(asked)],
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{sb3.DIRECTORY}"},
        capture_output=True,
        text=True,
    )

    assert done.returncode != 0
    assert done.stdout == ""
    assert "{'target_network_frequency': (1001, 1000)}" in done.stderr


def test_a_full_replay_buffer_is_really_sampled(tmp_path: Path) -> None:
    results = tmp_path / "replay.json"
    command = [sys.executable, "-m", "benchmarks.replay", "--results", str(results)]
    done = subprocess.run(
        [*command, "--transitions", "2000", "--batches", "50"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(results.read_text())

    assert (measured["transitions"], measured["batches"], measured["batch_size"]) == (2000, 50, 32)
    # Of each slot a frame, its age, whether it leads on, action, reward, done; 3 % and 5 spare.
    assert measured["buffer_bytes"] == 2_065 * (7_056 + 1 + 1 + 8 + 4 + 4)
    assert measured["resident_bytes"] == pytest.approx(measured["buffer_bytes"], rel=0.1)
    assert 0 < measured["median_seconds"] <= measured["seconds_of_19_in_20"]
    assert row(done.stdout, "bytes a transition")[2] == "7,304"


def test_batches_and_environments_of_an_offline_task_are_really_measured(tmp_path: Path) -> None:
    results = tmp_path / "batches.json"
    command = [sys.executable, "-m", "benchmarks.batches", "--results", str(results)]
    counts = ["--transitions", "900", "--steps", "6", "--environments", "2", "--episode-steps", "3"]
    done = subprocess.run(
        [*command, *counts], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    measured = json.loads(results.read_text())

    seconds = measured["batches"]["seconds"] | measured["environments"]["seconds"]
    assert {name: each["times"] for name, each in seconds.items()} == {
        "batch": 3,
        "batch_with_next_actions": 3,
        "update": 6,
        "reset": 2,
        "step": 6,
    }
    assert (measured["batches"]["transitions"], measured["batches"]["batch_size"]) == (900, 256)
    assert all(0 < each["median"] <= each["of_19_in_20"] for each in seconds.values())
    making, memory = (measured["environments"][name] for name in ("making_seconds", "memory_bytes"))
    assert len(making) == len(memory) == 2
    assert memory[1] > 50_000_000  # the meshes of an arm

    # What it comes to, from figures that are easier to read.
    times = {"times": 1, "of_19_in_20": 1.0}
    for name, median in (("batch", 0.010), ("batch_with_next_actions", 0.001), ("update", 0.090)):
        measured["batches"]["seconds"][name] = times | {"median": median}
    measured["environments"]["making_seconds"] = [5.0, 1.0, 2.0]
    measured["environments"]["memory_bytes"] = [400_000_000, 150_000_000, 170_000_000]
    text = batches.render(measured)
    assert row(text, "a batch")[3:] == ["10.00 %", "< 5 %", "**NOT MET**, by 100.0 %"]
    assert row(text, "with next actions")[3:] == ["1.10 %", "< 5 %", "met, by 78.0 %"]
    assert row(text, "made in")[1:] == ["8.00 s", "5.00 s", "1.50 s"]
    assert row(text, "memory")[1:] == ["720 MB", "400 MB", "160 MB"]
    assert row(done.stdout, "the gradient step")[1].endswith(" ms")
