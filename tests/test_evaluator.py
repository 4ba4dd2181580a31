"""A score is what a fresh actor does, in environments and under seeds that no guest ever sees."""

import numpy as np
import pytest

from harness.evaluation import compose
from harness.keys import evaluation_seed
from harness.layout import read_manifest
from harness.task import Task
from harness.training.continuous_control import SteppedEnvironment
from harness.training.evaluator import Evaluator
from sandbox.guest.policy import STATE_DICT
from tests.support import (
    CHEETAH,
    KEY,
    PENDULUM,
    TASK,
    accepted,
    evaluated_here,
    region,
    small_profile,
    unchecked,
)

ACT = "    def get_action(self, obs):\n        return self(obs)\n"
IN_ACTOR = (
    "        if len(obs) > 1: "  # the learner acts on one observation, an evaluation on several
)
LIMITS = {"frame_seconds": 8.0, "start_seconds": 15.0, "memory_mib": 700}


def acting(code):
    return region((ACT, ACT.replace("        return", f"{IN_ACTOR}{code}\n        return")))


def test_a_run_is_scored_by_every_episode_of_its_final_evaluation(tmp_path):
    profile = small_profile(eval_freq=20)
    record, _ = evaluated_here(accepted(region(), tmp_path), profile, tmp_path / "e")
    assert record is not None
    assert record.verdict.kind == "scored"
    assert record.final is not None
    assert len(record.final.returns) == len(record.final.lengths) == 3
    # InvertedPendulum pays 1 for every step: an independent count of the same thing.
    assert record.final.returns == tuple(float(each) for each in record.final.lengths)
    assert record.final.mean == pytest.approx(sum(record.final.lengths) / 3)
    assert [point.step for point in record.curve] == [0, 20, 40]
    assert all(len(point.returns) == 2 for point in record.curve)
    # What produced it is in the record: settings, versions, hardware, sandbox, limits.
    assert record.training.environment_settings["id"] == PENDULUM
    assert record.training.environment_settings["time_limit"] == 1000
    for origin in (record.training.provenance, record.evaluator):
        assert origin is not None
        assert {"torch", "numpy", "gymnasium", "mujoco"} <= origin.packages.keys()
        assert origin.sandbox["backend"] == "bubblewrap"
        assert origin.cpu
    assert record.training.limits["memory_bytes"] > 0


def test_the_trace_of_the_final_evaluation_replays_to_the_same_returns(tmp_path):
    profile = small_profile(CHEETAH, final_episodes=12)
    record, bench = evaluated_here(accepted(region(), tmp_path), profile, tmp_path / "e")
    assert record is not None
    assert record.final is not None
    trace = np.load(bench.trace)
    assert trace["actions"].dtype == np.float32
    begins = np.concatenate([[0], np.cumsum(trace["lengths"])])
    stepped = SteppedEnvironment(Task.load(TASK).environments[CHEETAH])
    for index, expected in enumerate(record.final.returns):
        stepped.reset(evaluation_seed(KEY, TASK, 1, CHEETAH, 42, "final", int(index)))
        for action in trace["actions"][begins[index] : begins[index + 1]]:
            stepped.step(action)
        assert stepped.episode_return == expected


def test_seeds_of_curve_and_final_are_disjoint_and_need_the_key():
    def seeds(purpose, key=KEY):
        return {
            evaluation_seed(key, TASK, 1, PENDULUM, seed, purpose, index)
            for seed in (42, 123, 456)
            for index in range(100)
        }

    assert len(seeds("curve")) == len(seeds("final")) == 300
    assert not seeds("curve") & seeds("final")
    assert not seeds("final") & seeds("final", key=KEY[::-1])


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("1 / 0", "crashed", "ZeroDivisionError"),
        ("import sys; sys.exit(0)", "exited", "status 0"),
        ("return self(obs) * float('nan')", "protocol-violation", "nan"),
        ("return self(obs)[:1]", "protocol-violation", "shape (1, 1); (2, 1)"),
        ("return torch.cat([self(obs), self(obs)])", "protocol-violation", "shape (4, 1)"),
        ("return self(obs).T", "protocol-violation", "shape (1, 2); (2, 1)"),
        ("time.sleep(60)", "timed-out", "deadline of a frame"),
        ("self.x = [torch.ones(1 << 22) for _ in range(200)]", "out-of-memory", "memory"),
    ],
)
def test_a_fault_while_acting_is_a_verdict_that_says_where(tmp_path, code, kind, words):
    profile = small_profile(limits=LIMITS)
    record, _ = evaluated_here(unchecked(acting(code)), profile, tmp_path / "e")
    assert record is not None
    assert record.verdict.kind == kind
    assert words in record.verdict.cause
    assert record.verdict.phase == "acting with the export of step 0"
    assert record.final is None


def test_a_policy_that_breaks_later_fails_with_the_step(tmp_path):
    """Acts well in the first batches; then its shape changes."""
    code = "self.n = getattr(self, 'n', 0) + 1"
    breaks = region(
        (
            ACT,
            ACT.replace(
                "        return",
                f"{IN_ACTOR}{code}\n        if getattr(self, 'n', 0) > 2: return self(obs)[:, :0]\n"
                "        return",
            ),
        )
    )
    record, _ = evaluated_here(accepted(breaks, tmp_path), small_profile(), tmp_path / "e")
    assert record is not None
    assert (record.verdict.kind, record.verdict.step) == ("protocol-violation", 2)


def test_acting_is_bounded_in_all_and_not_only_by_answer(tmp_path):
    profile = small_profile(limits=LIMITS | {"acting_milliseconds": 1.0}, final_episodes=2)
    slow = accepted(acting("time.sleep(0.8)"), tmp_path)
    record, _ = evaluated_here(slow, profile, tmp_path / "e")
    assert record is not None
    assert record.verdict.kind == "timed-out"
    assert record.verdict.limit == "thinking time of the evaluation"
    # Two episodes at once, of at most 1000 steps: 1000 answers of 1 ms on average.
    assert record.verdict.allowed == pytest.approx(1.0)


def test_an_artefact_can_run_code_in_its_own_sandbox_only(tmp_path):
    """`__reduce__` runs when an actor opens the artefact, and can reach nothing but that actor."""
    marker = tmp_path / "reached-the-host"
    code = f"open({str(marker)!r}, 'w')"
    bomb = f"class Bomb:\n    def __reduce__(self):\n        return (exec, ({code!r},))\n\n\n"
    armed = "        self.updates = 0\n        self.actor.bomb = Bomb()\n"
    bad = region(("        self.updates = 0\n", armed), before=bomb)
    record, _ = evaluated_here(unchecked(bad), small_profile(), tmp_path / "e")
    assert record is not None
    assert record.verdict.kind == "crashed"
    assert record.verdict.phase == "loading the export of step 0"
    assert not marker.exists()


def test_a_policy_with_a_lambda_travels_as_its_state(tmp_path):
    odd = region(
        (
            "        self.max_action = max_action\n\n    def forward",
            "        self.max_action = max_action\n        self.squash = lambda x: torch.tanh(x)\n"
            "\n    def forward",
        )
    )
    record, bench = evaluated_here(accepted(odd, tmp_path), small_profile(), tmp_path / "a")
    assert record is not None
    assert record.verdict.kind == "scored"
    assert bench.read_export(40)[:1] == STATE_DICT


def test_actions_out_of_bounds_are_clipped_before_they_are_executed(tmp_path):
    wild = acting("return self(obs) * 0 + 1e30")
    profile = small_profile(CHEETAH, final_episodes=2)
    record, bench = evaluated_here(accepted(wild, tmp_path), profile, tmp_path / "e")
    assert record is not None
    assert record.verdict.kind == "scored"
    assert np.array_equal(np.unique(np.load(bench.trace)["actions"]), [1.0])


@pytest.mark.parametrize("failing", [False, True])
def test_a_damaged_point_of_the_curve_is_scored_again(tmp_path, failing):
    """Half a file, as only a broken disk leaves it: set aside, and the same numbers made again."""
    submission = unchecked(acting("return self(obs) * float('nan')") if failing else region())
    profile = small_profile(limits=LIMITS)
    before, bench = evaluated_here(submission, profile, tmp_path / "e")
    assert before is not None
    (point,) = bench.evaluations.glob("*0000000.failed.json" if failing else "*0000000.json")
    point.write_bytes(point.read_bytes()[:50])
    manifest = read_manifest(tmp_path / "e")
    assert compose(manifest, manifest.runs[0], 1, bench) is None
    assert list(bench.evaluations.glob("*.damaged-*"))
    evaluator = Evaluator(tmp_path / "e", KEY)
    while evaluator.work():
        pass
    again = compose(manifest, manifest.runs[0], 1, bench)
    assert again is not None
    assert again.verdict.kind == before.verdict.kind
    assert [each.returns for each in again.curve] == [each.returns for each in before.curve]


def test_a_point_of_an_attempt_that_was_started_again_is_not_taken_for_the_new_ones(tmp_path):
    """The artefact changes while it is being scored: the point is thrown away."""
    submission = accepted(region(), tmp_path)
    _, bench = evaluated_here(submission, small_profile(), tmp_path / "e")
    (point,) = bench.evaluations.glob("*0000000.json")
    point.unlink()
    evaluator = Evaluator(tmp_path / "e", KEY)
    score = evaluator._score

    def replaced_meanwhile(*arguments):
        result = score(*arguments)
        bench.write_export(0, b"another")
        return result

    evaluator._score = replaced_meanwhile
    assert not evaluator.work()
    assert 0 not in bench.evaluated_steps()
    (bench.exports / "0000000000.policy").unlink()
    assert not evaluator.work()
