"""Submissions as they are handed in: whole algorithms in many styles are accepted, train and score.

Each file in `tests/regions` is one region, written like those that people and coding agents send to
a benchmark of off-policy control; those in `tests/regions/value`, of control from pixels. They are
data: nothing imports them but a sandbox.
"""

import csv
import math
from itertools import cycle
from pathlib import Path

import pytest

from harness.intake.refusals import Refused
from harness.intake.submission import accept
from harness.intake.trial import try_out
from harness.task import Task
from tests.support import (
    CHEETAH,
    PENDULUM,
    TASK,
    accepted,
    evaluated_here,
    small_profile,
    trained,
)

REGIONS = sorted((Path(__file__).parent / "regions").glob("*.py"))
VALUE = "rl-value-atari"
VALUE_REGIONS = sorted((Path(__file__).parent / "regions" / "value").glob("*.py"))
LOGGED = 1000
"""The first step whose metrics are logged."""
BEFORE, AFTER = 49, 11
"""Updates before it, and with it and after. The one that is logged is the 50th: a turn of the
actor, for those whose actor has every second one."""
ENVIRONMENTS = dict(zip(REGIONS, cycle((CHEETAH, PENDULUM)), strict=False))
"""One of smoke's two for each: both would take twice as long."""


def text_of(name, *replacements):
    text = next(path for path in REGIONS if path.stem == name).read_text()
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_there_are_many_of_them_and_each_says_what_it_is():
    assert len(REGIONS) >= 16
    assert len(VALUE_REGIONS) >= 8
    for path in (*REGIONS, *VALUE_REGIONS):
        assert path.read_text().startswith(("# ", '"""')), path.name
        assert path.stat().st_size < 8192, path.name


ALL = [*((TASK, path) for path in REGIONS), *((VALUE, path) for path in VALUE_REGIONS)]
SHARE = {TASK: 0.55, VALUE: 0.45}
"""Of the largest reference's parameters, at least: an algorithm is found whole. DQN alone, whose
size a region may have, is 0.48 of QR-DQN at 18 actions."""


@pytest.mark.parametrize(("name", "path"), ALL, ids=[f"{path.stem}" for _, path in ALL])
def test_it_is_accepted_without_a_finding_and_as_it_was_written(name, path):
    task = Task.load(name)
    submission = accept(task, path)
    assert submission.warnings == ()
    assert submission.notes == ()
    assert submission.region == path.read_bytes()
    trial = try_out(task, task.load_heldout(), submission)
    assert trial.findings == ()
    for each in trial.tried:
        least = SHARE[name] * each.environment.reference_parameters
        assert least < each.parameters <= each.budget
        assert 0 < each.policy_bytes <= each.policy_cap


@pytest.mark.parametrize("path", REGIONS, ids=lambda path: path.stem)
def test_it_trains_and_is_scored(path, tmp_path):
    """Smoke with a longer warm-up: its updates pass the step whose metrics are logged."""
    task = Task.load(TASK)
    environment = ENVIRONMENTS[path]
    profile = small_profile(
        environment,
        total_timesteps=LOGGED + AFTER,
        learning_starts=LOGGED - BEFORE,
        eval_episodes=1,
        final_episodes=2,
    )
    record, bench = evaluated_here(accept(task, path), profile, tmp_path)
    assert record is not None
    assert record.verdict.kind == "scored", record.verdict
    assert record.final is not None
    assert len(record.final.returns) == 2
    assert all(map(math.isfinite, record.final.returns))
    assert record.training.steps == LOGGED + AFTER
    assert record.training.exports == (0, LOGGED + AFTER)
    budget = task.budget.parameters(task.environments[environment])
    assert record.training.parameters is not None
    assert 60_000 < record.training.parameters <= budget
    with bench.metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["step"] for row in rows} == {str(LOGGED + 1)}
    assert len(rows) >= 2
    assert all(math.isfinite(float(row["value"])) for row in rows)
    assert "is left out" not in bench.learner_log.read_text()


@pytest.mark.parametrize("path", VALUE_REGIONS, ids=lambda path: path.stem)
def test_one_from_pixels_trains_and_is_scored(path, tmp_path):
    """Updates pass the step whose metrics are logged and whose target network is new."""
    game = "BreakoutNoFrameskip-v4"
    profile = small_profile(
        game,
        task=VALUE,
        total_timesteps=LOGGED + 8,
        learning_starts=LOGGED - 20,
        eval_episodes=1,
        final_episodes=2,
    )
    record, bench = evaluated_here(accept(Task.load(VALUE), path), profile, tmp_path, task=VALUE)
    assert record is not None
    assert record.verdict.kind == "scored", record.verdict
    assert record.training.exports == (0, LOGGED + 8)
    assert record.final is not None
    assert record.second is not None
    for each in (record.final, record.second.evaluation):
        assert len(each.returns) == 2
    with bench.metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["step"] for row in rows} == {str(LOGGED + 1)}
    assert all(math.isfinite(float(row["value"])) for row in rows)
    assert "is left out" not in bench.learner_log.read_text()


def test_a_third_pair_of_critics_is_over_the_budget_and_named(tmp_path):
    third = text_of(
        "soft_minimum",
        (
            "QNetwork(obs_dim, action_dim) for _ in range(2)",
            "QNetwork(obs_dim, action_dim) for _ in range(3)",
        ),
    )
    training, _ = trained(accepted(third, tmp_path), small_profile(), tmp_path / "bench")
    assert training.verdict is not None
    assert training.verdict.kind == "rejected"
    assert "critics_target " in training.verdict.cause + training.verdict.detail
    assert training.steps == 0


def test_a_number_that_another_script_has_is_a_crash_with_its_line(tmp_path):
    """CleanRL's TD3 has `args.policy_noise`; here there is none."""
    line = "            eps = (torch.randn_like(a) * SIGMA).clamp(-CLIP, CLIP) * self.a_max\n"
    wrong = text_of(
        "weighted_twin",
        ("        self.it = 0\n", "        self.it, self.args = 0, args\n"),
        (line, line.replace("SIGMA", "self.args.policy_noise")),
    )
    training, _ = trained(accepted(wrong, tmp_path), small_profile(), tmp_path / "bench")
    verdict = training.verdict
    assert verdict is not None
    assert (verdict.kind, verdict.phase, verdict.step) == ("crashed", "training", 21)
    assert "'Args' object has no attribute 'policy_noise'" in verdict.cause
    assert "torch.randn_like(a) * self.args.policy_noise" in verdict.detail


def test_an_import_of_gymnasium_is_refused_with_its_line(tmp_path):
    imported = "import gymnasium as gym\n"
    wrong = text_of(
        "cosine_noise", ("from dataclasses import", imported + "from dataclasses import")
    )
    with pytest.raises(Refused) as caught:
        accepted(wrong, tmp_path)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.text) == ("import", imported.rstrip())
    assert finding.line == 1 + wrong[: wrong.index(imported)].count("\n")
