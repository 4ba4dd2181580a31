"""Whole runs of rl-value-atari: references train and score, the same seed gives the same bits."""

import csv
import hashlib
import time

import numpy as np
import pytest

from harness import references
from harness.bare_run import BareRun
from harness.intake.submission import accept
from harness.intake.trial import try_out
from harness.keys import evaluation_seed
from harness.numerics import TUNED
from harness.results.store import Store
from harness.task import REPOSITORY, Profile, Task
from harness.training.atari import Atari
from harness.training.evaluator import Evaluator
from tests.support import KEY, accepted, evaluated, evaluated_here, trained, unchecked

TASK = "rl-value-atari"
BREAKOUT, PONG = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"
DQN = REPOSITORY / "reference_algorithms" / TASK / "dqn.py"
REFERENCES = sorted(path.stem for path in references.algorithms(Task.load(TASK)))

ONE_PROCESS_EACH = [
    pytest.param(name, marks=pytest.mark.xdist_group(f"value {name}")) for name in REFERENCES
]


def profile(environment: str = BREAKOUT, **changes):
    """`smoke`, of one game whose games are short."""
    smoke = Task.load(TASK).profile("smoke").model_dump()
    return Profile.model_validate(smoke | {"environments": (environment,)} | changes)


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
    assert record.training.exports == (0, 1_040)
    assert [point.step for point in record.curve] == [0, 1_040]
    assert record.final is not None
    assert len(record.final.returns) == 2
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
    assert len(record.second.evaluation.returns) == 2
    assert record.second.evaluation.settings["repeat_action_probability"] == 0.25
    assert record.final.settings["repeat_action_probability"] == 0.0
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
        2,
        lambda purpose, index: evaluation_seed(KEY, TASK, 1, BREAKOUT, 42, purpose, index),
    )
    for episode, start in enumerate(starts):
        played.reset(start)
        for action in trace["actions"][begins[episode] : begins[episode + 1]]:
            _, over = played.step(action)
        assert over
        assert played.episode_return == record.final.returns[episode]


def test_smoke_scores_both_games_within_twice_the_forty_seconds_of_an_idle_machine(tmp_path):
    """`smoke`, as `make eval` runs it: two games at once, in their processes."""
    store = Store(tmp_path / "store")
    store.root.mkdir()
    store.key_file.write_text(KEY.hex())
    smoke = Task.load(TASK).profile("smoke")
    began = time.monotonic()
    directory, _ = evaluated(accept(Task.load(TASK), DQN), smoke, store, task=TASK)
    seconds = time.monotonic() - began
    records = store.load(directory, pytest.fail).records
    assert [each.verdict.kind for each in records] == ["scored", "scored"]
    assert seconds < 80  # by hand, idle, with the trial: 32; other tests run beside it here


def test_an_actor_that_fails_in_the_second_evaluation_alone_has_no_score(tmp_path):
    """Else a policy that notices sticky actions could hide what it learned by heart."""
    submission = accept(Task.load(TASK), DQN)
    small = profile(total_timesteps=40, learning_starts=30, eval_freq=40)
    score = Evaluator._score

    def fails(self, run, bench, step, artefact, purpose, count, first=0):
        if purpose == "second":
            artefact = b"M" + b"no pickle"
        return score(self, run, bench, step, artefact, purpose, count, first)

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


FINDS = (
    "import gc\n"
    "        from sandbox.guest import TrainingEnvironment\n"
    "        env = next(e for e in gc.get_objects() if isinstance(e, TrainingEnvironment))\n"
)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        # The coin is the host's: neither a step of one's own in place of chance, nor the reverse.
        ("env.step_at_random() if not env.host_draws else env.step(obs)", "where"),
        ("env._channel.send(5, b'\\xff' * 4)", "the action -1; there are 0 to 3"),
        ("env._channel.send(5, b'\\0' * 8)", "8 bytes; 4 at most"),
    ],
)
def test_a_learner_cannot_choose_who_draws_nor_send_what_is_no_action(tmp_path, call, words):
    line = "        with acting():\n            q_values"
    cheats = dqn((line, f"        {FINDS}        obs = np.array([0])\n        {call}\n{line}"))
    small = profile(total_timesteps=400, learning_starts=30, eval_freq=400)
    training, _ = trained(unchecked(cheats, TASK), small, tmp_path / "t", task=TASK)
    assert training.verdict is not None
    assert training.verdict.kind == "protocol-violation"
    assert words in training.verdict.cause


RETURNS = "        return self.head(self.encoder(x))\n"


@pytest.mark.parametrize(
    ("replacement", "rule", "words"),
    [
        ("self.head(self.encoder(x)) * float('nan')", "trial-crashed", "not finite"),
        ("self.head(self.encoder(x)).unsqueeze(2)", "bad-action", "integers (1,) are needed"),
        ("self.head(self.encoder(x)) + SHIFT[0]", "reload-differs", "the value of an action"),
    ],
)
def test_a_trial_refuses_a_policy_that_an_evaluation_could_not_ask(
    tmp_path, replacement, rule, words
):
    """Before any training, and at the shapes of all games."""
    text = dqn((RETURNS, f"        return {replacement}\n"))
    text = "SHIFT = [0.0]\n\n\n" + text.replace(
        "        self.optimizer.step()\n",
        "        self.optimizer.step()\n        SHIFT[0] += 1.0\n",
    )
    task = Task.load(TASK)
    (found,) = try_out(task, task.load_heldout(), accepted(text, tmp_path, task=TASK)).findings
    assert found.rule == rule
    assert words in found.message


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
