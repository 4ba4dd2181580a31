"""Whole runs of rl-value-atari: references train and score, the same seed gives the same bits."""

import csv
import hashlib

import numpy as np
import pytest

from harness import references
from harness.bare_run import BareRun
from harness.intake.submission import accept
from harness.keys import evaluation_seed
from harness.numerics import TUNED
from harness.records import Evaluation, SecondEvaluation
from harness.task import REPOSITORY, Task
from harness.training.atari import Atari
from harness.training.evaluator import Evaluator
from tests.support import KEY, accepted, evaluated_here, small_profile, trained

TASK = "rl-value-atari"
BREAKOUT, PONG = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"
DQN = REPOSITORY / "reference_algorithms" / TASK / "dqn.py"
REFERENCES = sorted(path.stem for path in references.algorithms(Task.load(TASK)))

ONE_PROCESS_EACH = [
    pytest.param(name, marks=pytest.mark.xdist_group(f"value {name}")) for name in REFERENCES
]


def profile(environment: str = BREAKOUT, **changes):
    """Breakout's games are short. Some twenty updates, one of them with a new target network."""
    values = {"total_timesteps": 1_060, "learning_starts": 980, "eval_freq": 1_060} | changes
    return small_profile(environment, task=TASK, eval_episodes=2, final_episodes=3, **values)


def dqn(*replacements: tuple[str, str]) -> str:
    text = DQN.read_text()
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Each reference's run, made once for the tests that look at it."""
    made = {}

    def run(name):
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            path = REPOSITORY / "reference_algorithms" / TASK / f"{name}.py"
            submission = accept(Task.load(TASK), path)
            made[name] = evaluated_here(submission, profile(), directory, task=TASK)
        return made[name]

    return run


def test_there_are_four_references():
    assert REFERENCES == ["c51", "double_dqn", "dqn", "qr_dqn"]


@pytest.mark.parametrize("name", ONE_PROCESS_EACH)
def test_each_reference_trains_and_is_scored(name, alone):
    record, bench = alone(name)
    assert record is not None
    assert record.verdict.kind == "scored", record.verdict
    assert record.training.exports == (0, 1_060)
    assert [point.step for point in record.curve] == [0, 1_060]
    assert record.final is not None
    assert len(record.final.returns) == 3
    assert record.final.stopped == 0
    with bench.metrics.open(newline="") as file:
        logged = {row["name"]: float(row["value"]) for row in csv.DictReader(file)}
    assert logged.keys() == {"loss", "q_values"}
    assert all(np.isfinite(list(logged.values())))


@pytest.mark.parametrize("name", ONE_PROCESS_EACH)
def test_the_same_seed_trains_the_same_bytes_in_the_sandbox_and_outside(name, alone):
    record, _ = alone(name)
    task = Task.load(TASK)
    bare = BareRun(task, profile(), task.environments[BREAKOUT], 42, TUNED)
    path = REPOSITORY / "reference_algorithms" / TASK / f"{name}.py"
    bare.train(accept(task, path).source.decode(), lambda line: None)
    assert hashlib.sha256(bare.policy).hexdigest() == record.training.policy_sha256
    assert tuple(bare.training_returns) == record.training.episode_returns


@pytest.mark.xdist_group("value dqn")
def test_the_same_manifest_and_key_give_the_same_curve_bit_for_bit(alone, tmp_path):
    first, _ = alone("dqn")
    again, _ = evaluated_here(accept(Task.load(TASK), DQN), profile(), tmp_path, task=TASK)

    def outcome(record):
        scores = [*record.curve, record.final, record.second.evaluation]
        return [(each.step, each.returns, each.lengths) for each in scores], record.trace_sha256

    assert outcome(first) == outcome(again)


@pytest.mark.xdist_group("value dqn")
def test_settings_and_versions_are_in_the_record(alone):
    record, _ = alone("dqn")
    settings = record.training.environment_settings
    assert settings["id"] == BREAKOUT
    assert settings["repeat_action_probability"] == 0.0
    assert settings["fire_after_lost_life"] is True
    assert settings["steps_limit"] == 27_000
    assert record.training.provenance.packages["ale_py"]
    assert record.training.provenance.numerics["convolutions"] == "channels_last"


@pytest.mark.xdist_group("value dqn")
def test_a_second_evaluation_with_sticky_actions_stands_beside_the_final_one(alone):
    record, _ = alone("dqn")
    assert record.second is not None
    assert record.second.how == "sticky actions (0.25)"
    assert record.second.floor == Task.load(TASK).environments[BREAKOUT].floor
    assert len(record.second.evaluation.returns) == 3
    assert record.second.evaluation.lengths != record.final.lengths


@pytest.mark.xdist_group("value dqn")
def test_the_trace_of_the_final_evaluation_replays_to_the_same_returns(alone):
    record, bench = alone("dqn")
    trace = np.load(bench.trace)
    assert trace["actions"].shape == (sum(record.final.lengths),)
    game = Task.load(TASK).environments[BREAKOUT]
    begins = np.concatenate([[0], np.cumsum(trace["lengths"])])
    played = Atari().evaluated(game, second=False)
    starts = Atari().starts(
        "final",
        3,
        lambda purpose, index: evaluation_seed(KEY, TASK, 1, BREAKOUT, 42, purpose, index),
    )
    for episode, start in enumerate(starts):
        played.reset(start)
        for action in trace["actions"][begins[episode] : begins[episode + 1]]:
            _, over = played.step(action)
        assert over
        assert played.episode_return == record.final.returns[episode]


def test_an_actor_that_fails_in_the_second_evaluation_alone_has_no_score(tmp_path):
    """Else a policy that notices sticky actions could hide what it learned by heart."""
    submission = accept(Task.load(TASK), DQN)
    small = profile(total_timesteps=40, learning_starts=30, eval_freq=40)
    score = Evaluator._score

    def fails(self, run, bench, step, artefact, purpose, count):
        if purpose == "second":
            artefact = b"M" + b"no pickle"
        return score(self, run, bench, step, artefact, purpose, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluator, "_score", fails)
        record, bench = evaluated_here(submission, small, tmp_path, task=TASK)
    assert record is not None
    assert record.verdict.kind == "crashed"
    assert record.final is None
    assert record.second is None
    assert not bench.trace.exists()


def test_values_that_are_not_finite_end_an_evaluation_with_a_verdict(tmp_path):
    nan = (
        "        return self.head(self.encoder(x))\n",
        "        return self.head(self.encoder(x)) * (float('nan') if len(x) > 1 else 1.0)\n",
    )
    small = profile(total_timesteps=40, learning_starts=30, eval_freq=40)
    text = dqn(nan)
    record, _ = evaluated_here(
        accepted(text, tmp_path, task=TASK), small, tmp_path / "e", task=TASK
    )
    assert record is not None
    assert record.verdict.kind == "crashed"
    assert "q_network gave values that are not finite" in record.verdict.cause


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("q_values.argmax(dim=1).cpu().numpy() + 4", "the action"),
        ("q_values.cpu().numpy()", "float32 (1, 4); integers (1,) are needed"),
        ("int(q_values.argmax())", "int64 (); integers (1,) are needed"),
    ],
)
def test_an_action_that_is_none_is_a_verdict_in_words(tmp_path, returned, words):
    text = dqn(
        ("        return q_values.argmax(dim=1).cpu().numpy()\n", f"        return {returned}\n")
    )
    small = profile(total_timesteps=400, learning_starts=30, eval_freq=400)
    training, _ = trained(accepted(text, tmp_path, task=TASK), small, tmp_path / "t", task=TASK)
    assert training.verdict is not None
    assert training.verdict.kind == "protocol-violation"
    assert words in training.verdict.cause


def test_a_target_network_counts_and_the_budget_is_one_verdict_for_all_games(tmp_path):
    """Three copies of QR-DQN's largest network are over at every number of actions."""
    third = (
        "        self.target_network = copy.deepcopy(self.q_network)\n",
        "        self.target_network = copy.deepcopy(self.q_network)\n"
        "        self.averaged = copy.deepcopy(self.q_network)\n",
    )
    small = profile(total_timesteps=40, learning_starts=30, eval_freq=40)
    training, _ = trained(
        accepted(dqn(third), tmp_path, task=TASK), small, tmp_path / "t", task=TASK
    )
    assert training.verdict is not None
    assert training.verdict.kind == "rejected"
    assert "averaged" in training.verdict.cause
    assert training.steps == 0


def test_kept_is_measured_from_the_floor():
    evaluation = Evaluation(step=1, returns=(-3.0,), lengths=(1,), mean=-3.0, thinking_seconds=0.0)
    second = SecondEvaluation(how="sticky", evaluation=evaluation, floor=-21.0)
    assert second.kept(10.0) == pytest.approx(18 / 31)
    assert not second.memorised(10.0)
    assert second.memorised(21.0)
    assert second.kept(-21.0) is None
