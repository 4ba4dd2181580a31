"""The speed benchmark: its arithmetic on made-up figures, and one real, tiny measurement."""

import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sb3_td3, speed, speed_report
from benchmarks.measuring import Stopwatch, Window
from harness.numerics import TUNED
from harness.task import REPOSITORY

STEPS = 1_000
# Steps/s by contender and round. The median of the ratios is not the ratio of the medians.
RATES = {
    "sandboxed": (100.0, 120.0, 90.0),
    "sb3": (50.0, 100.0, 60.0),
    "bare": (110.0, 120.0, 100.0),
    "stock": (80.0, 100.0, 90.0),
    "pair": (190.0, 192.0, 180.0),
}


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


def row(text: str, begin: str) -> list[str]:
    [line] = [each for each in text.splitlines() if each.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_taken_round_by_round(content: dict[str, Any]) -> None:
    against_sb3, against_bare, *_ = speed_report.RATIOS

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
    against_sb3, _, of_two, _ = speed_report.RATIOS

    assert speed_report.ratios(content, against_sb3) == pytest.approx([2.0, 1.5])
    assert row(speed_report.render(content), of_two.what)[2] == "not measured"


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
    assert sb3_td3.wanted().startswith("stable-baselines3==")
    assert "stable" not in (REPOSITORY / "requirements.lock").read_text()
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        assert "stable" not in str(tomllib.load(file)["project"]["dependencies"])


def test_a_sandboxed_run_is_really_measured() -> None:
    """HalfCheetah in bubblewrap, sixty steps of it measured."""
    window = Window(learning_starts=20, settling=10, steps=60)

    measured = speed.measure(speed.CONTENDERS["sandboxed"], window, TUNED)

    assert measured["steps"] == 60
    assert 0 < measured["seconds"] < measured["whole_seconds"]
    assert measured["exports"] == [0, 60, 90]  # one of them within the measured steps
    assert measured["peak_memory_bytes"] > measured["replay_buffer_bytes"] == 90 * 42 * 4
    assert measured["others_before"] >= 0
    assert "times" not in measured
