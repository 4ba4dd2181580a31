"""Whatever a submission does, its run ends within its limits, with a cause that a person can use.

Real sandboxes, a real environment, the real protocol. Sources that intake would refuse are given to
the sandbox all the same: it is the boundary.
"""

import pytest

from sandbox.bubblewrap import Bubblewrap
from tests.support import accepted, region, small_profile, trained, unchecked

UPDATE = "        self.updates += 1\n"
ACT = "    def get_action(self, obs):\n        return self(obs)\n"
SELECT = "    def select_action(self, obs):\n"
CONSTRUCT = "        self.args = args\n"
HANG = "while True: pass\n"
LIMITS = {"frame_seconds": 3.0, "start_seconds": 5.0, "memory_mib": 700, "output_mib": 2}


def ends(tmp_path, submission, **limits):
    profile = small_profile(limits=LIMITS | limits)
    training, bench = trained(submission, profile, tmp_path / "bench")
    verdict = training.verdict
    if verdict is not None:
        assert verdict.advice or verdict.kind == "scored"
        assert verdict.cause
    assert bench.read_training() == training
    return training


def test_an_honest_submission_is_trained_to_the_end(tmp_path):
    profile = small_profile(eval_freq=15)
    training, _ = trained(accepted(region(), tmp_path), profile, tmp_path / "bench")
    assert training.verdict is None
    assert training.steps == 40
    assert training.exports == (0, 15, 30, 40)
    # InvertedPendulum has 4 observations and 1 action: two actors and four critics of TD3.
    actor = 4 * 256 + 256 + 256 * 256 + 256 + 256 * 1 + 1
    critic = 5 * 256 + 256 + 256 * 256 + 256 + 256 * 1 + 1
    assert training.parameters == 2 * actor + 4 * critic
    assert training.cpu_seconds > 0.5
    assert training.peak_memory_bytes > 100 << 20


@pytest.mark.parametrize(
    ("where", "submission", "phase", "step"),
    [
        ("import", region(before="1 / 0\n"), "importing the source", None),
        (
            "constructor",
            region((CONSTRUCT, CONSTRUCT + "        1 / 0\n")),
            "constructing the algorithm",
            None,
        ),
        ("update", region((UPDATE, UPDATE + "        1 / (3 - self.updates)\n")), "training", 23),
        ("select", region((SELECT, SELECT + "        1 / 0\n")), "training", 20),
    ],
)
def test_a_crash_is_told_with_its_line(tmp_path, where, submission, phase, step):
    verdict = ends(tmp_path, accepted(submission, tmp_path)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.phase, verdict.step) == ("crashed", phase, step)
    assert "ZeroDivisionError" in verdict.cause
    assert "source.py" in verdict.detail
    assert "1 / " in verdict.detail  # the line itself, not only its number
    assert "ZeroDivisionError" in verdict.log_tail


@pytest.mark.parametrize(
    ("submission", "phase", "step", "allowed"),
    [
        (region(before=HANG), "importing the source", None, 5.0),
        (
            region((CONSTRUCT, CONSTRUCT + "        " + HANG)),
            "constructing the algorithm",
            None,
            5.0,
        ),
        (region((UPDATE, UPDATE + "        " + HANG)), "training", 21, 3.0),
        (region((SELECT, SELECT + "        " + HANG)), "training", 20, 3.0),
    ],
    ids=["import", "constructor", "update", "select"],
)
def test_a_hang_is_ended_at_its_deadline_and_the_log_shows_where(
    tmp_path, submission, phase, step, allowed
):
    training = ends(tmp_path, accepted(submission, tmp_path))
    verdict = training.verdict
    assert verdict is not None
    assert (verdict.kind, verdict.phase, verdict.step) == ("timed-out", phase, step)
    assert verdict.limit == "deadline of a frame"
    assert verdict.allowed == allowed
    assert verdict.measured is not None
    assert allowed <= verdict.measured < allowed + 2
    assert "while True: pass" in verdict.log_tail


def test_thinking_time_is_bounded_in_all(tmp_path):
    slow = region((UPDATE, "        time.sleep(0.5)\n" + UPDATE))
    verdict = ends(tmp_path, accepted(slow, tmp_path), thinking_seconds=6.0).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.limit) == ("timed-out", "thinking time of the run")
    assert verdict.measured == pytest.approx(6.0, abs=1.0)


def test_too_much_memory_is_measured(tmp_path):
    bomb = region(
        (UPDATE, UPDATE + "        self.kept = [torch.ones(1 << 22) for _ in range(200)]\n")
    )
    verdict = ends(tmp_path, accepted(bomb, tmp_path)).verdict
    assert verdict is not None
    assert verdict.kind == "out-of-memory"
    # 700 MiB and the buffer of 40 transitions.
    assert verdict.allowed == pytest.approx(700, abs=1)
    assert verdict.measured is not None
    assert verdict.measured > 600


@pytest.mark.parametrize("cgroups", [True, False])
def test_a_fork_bomb_meets_the_limit_of_processes(tmp_path, cgroups):
    """Also where the limit is polled, on a machine that the bomb keeps busy."""
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    training, _ = trained(
        unchecked(region(before=bomb)),
        small_profile(limits=LIMITS),
        tmp_path / "bench",
        Bubblewrap(cgroups=cgroups),
    )
    verdict = training.verdict
    assert verdict is not None
    assert verdict.kind == "too-many-processes"
    assert verdict.allowed == 128


@pytest.mark.parametrize("how", ["import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_an_early_exit_is_no_end(tmp_path, how):
    leaves = region((UPDATE, UPDATE + f"        {how}\n"))
    verdict = ends(tmp_path, unchecked(leaves)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.step) == ("exited", 21)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("import os; os._exit(137)", "exited with status 137"),
        ("import os; os._exit(125)", "exited with status 125"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_a_pretended_failure_of_the_machine_is_its_own(tmp_path, how, words):
    """Never out-of-memory, never infrastructure: those need facts that it cannot make."""
    verdict = ends(tmp_path, unchecked(region((UPDATE, UPDATE + f"        {how}\n")))).verdict
    assert verdict is not None
    assert verdict.kind == "crashed"
    assert words in verdict.cause


@pytest.mark.parametrize(
    ("value", "words"), [("float('nan')", "nan"), ("float('inf')", "inf"), ("-1e39", "-inf")]
)
def test_an_action_that_is_not_finite_ends_the_run_at_its_step(tmp_path, value, words):
    bad = region((SELECT, SELECT + f"        return np.array([{value}])\n"))
    verdict = ends(tmp_path, accepted(bad, tmp_path)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.step) == ("protocol-violation", 20)
    assert words in verdict.cause


@pytest.mark.parametrize("shape", ["2", "(1, 1)", "()", "0"])
def test_an_action_of_another_shape_ends_the_run_by_name(tmp_path, shape):
    """Also where the number of bytes would be right: the pendulum has one action."""
    bad = region((SELECT, SELECT + f"        return np.zeros({shape})\n"))
    verdict = ends(tmp_path, accepted(bad, tmp_path)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.step) == ("protocol-violation", 20)
    assert "select_action returned shape" in verdict.cause
    assert "(1,) is needed" in verdict.cause


def test_a_flood_of_output_is_ended_and_the_log_keeps_its_start(tmp_path):
    flood = region((UPDATE, UPDATE + "        while True: print('x' * 10_000)\n"))
    training, bench = trained(
        accepted(flood, tmp_path), small_profile(limits=LIMITS), tmp_path / "bench"
    )
    assert training.verdict is not None
    assert training.verdict.kind == "too-much-output"
    assert training.verdict.allowed == 2
    assert bench.learner_log.stat().st_size <= (1 << 20) + 200


def test_over_the_parameter_budget_is_rejected_by_module(tmp_path):
    big = region(
        (CONSTRUCT, CONSTRUCT + "        self.spare = nn.Linear(256, 512)\n"),
    )
    verdict = ends(tmp_path, accepted(big, tmp_path)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.limit) == ("rejected", "parameter budget")
    # TD3 on InvertedPendulum and the spare layer; the budget is 5 % over TD3.
    assert f"{404_998 + 257 * 512:,}" in verdict.cause
    assert f"{int(1.05 * 404_998):,}" in verdict.cause
    assert "spare" in verdict.cause


def test_growing_after_the_first_check_is_rejected_at_the_next_export(tmp_path):
    grows = region((UPDATE, UPDATE + "        self.spare = nn.Linear(256, 512)\n"))
    training = ends(tmp_path, accepted(grows, tmp_path))
    assert training.verdict is not None
    assert training.verdict.kind == "rejected"
    assert training.exports == (0,)


def test_an_artefact_over_its_cap_ends_the_run_whatever_the_guest_counts(tmp_path):
    hides = region(
        (UPDATE, UPDATE + "        self.actor.blob = bytes(1_000_000)\n"),
    )
    verdict = ends(tmp_path, accepted(hides, tmp_path)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.limit) == ("rejected", "policy bytes")
    assert verdict.allowed == int(1.05 * 4 * 67_586) + 65_536
    assert verdict.measured is not None
    assert verdict.measured > 1_000_000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("env.begin(1)", "BUILT"),
        ("env.step_at_random()", "DRAW where"),
        ("env.export(b'x')", "EXPORT where"),
        ("env.log({}); env.log({})", "METRICS"),
        ("env._channel.send(4)", "DRAW where"),
        ("env._channel._socket.sendall(b'\\xff' * 64)", "no frame header"),
        ("env._channel._socket.sendall(b'\\x05\\x01\\0\\0\\xff\\xff\\xff\\xff')", "4294967295"),
    ],
)
def test_what_the_protocol_does_not_allow_now_ends_the_run(tmp_path, call, words):
    """A step too many, a reset, a second set of metrics, bytes of its own: through the socket."""
    finds = (
        "import gc\n"
        "        from sandbox.guest import TrainingEnvironment\n"
        "        env = next(e for e in gc.get_objects() if isinstance(e, TrainingEnvironment))\n"
    )
    cheats = region((UPDATE, UPDATE + f"        {finds}        {call}\n"))
    verdict = ends(tmp_path, unchecked(cheats)).verdict
    assert verdict is not None
    assert verdict.kind == "protocol-violation"
    assert words in verdict.cause
    assert verdict.step in (21, 22)


ANSWERS_AHEAD = """
import threading, time
from sandbox import wire
from sandbox.guest.client import VectorEnvironment

def begin(env, parameters):
    channel, steps = env._channel, env.constants["total_timesteps"]
    algorithm = build(env)
    asked(env, parameters)
    env.export(export_policy(algorithm.actor))
    frame = wire.HEADER.pack(wire.Kind.DRAW, wire.VERSION, 0, 0)
    threading.Thread(target=lambda: [channel._socket.sendall(frame) for _ in range(steps)]).start()
    for _ in range(steps):
        channel.receive()

asked, VectorEnvironment.begin = VectorEnvironment.begin, begin
"""


def test_answers_ahead_of_their_questions_end_the_run(tmp_path):
    """A learner that answers in advance could think while nobody's clock runs."""
    profile = small_profile(
        total_timesteps=3000, learning_starts=3000, eval_freq=3000, limits=LIMITS
    )
    training, _ = trained(unchecked(region(before=ANSWERS_AHEAD)), profile, tmp_path / "bench")
    assert training.verdict is not None
    assert training.verdict.kind == "protocol-violation"
    assert "before it was asked" in training.verdict.cause
    assert training.steps < 10


PROCESS_NAMES = {
    "not UTF-8": (b"\xff\xfe", "time.sleep(2)\n"),
    "a field of its own": (b"\rRssAnon: x", "os.fork() or os._exit(0)\ntime.sleep(2)\n"),
}


@pytest.mark.parametrize("name", PROCESS_NAMES)
@pytest.mark.parametrize("cgroups", [True, False])
def test_no_process_name_blinds_the_meter_or_passes_for_infrastructure(tmp_path, name, cgroups):
    raw, then = PROCESS_NAMES[name]
    code = f"import ctypes, os\nctypes.CDLL(None).prctl(15, {raw!r}, 0, 0, 0)\n{then}1 / 0\n"
    training, _ = trained(
        unchecked(region(before=code)),
        small_profile(limits=LIMITS),
        tmp_path / "bench",
        Bubblewrap(cgroups=cgroups),
    )
    assert training.verdict is not None
    assert training.verdict.kind == "crashed"
    assert "ZeroDivisionError" in training.verdict.cause


def test_a_failure_of_the_harness_itself_is_held_against_the_run_and_not_retried(
    tmp_path, monkeypatch
):
    """Fail closed: that the submission brought it about can never be ruled out."""

    def breaks(payload, rows, action_dim):
        raise KeyError("an oversight of ours")

    monkeypatch.setattr("sandbox.wire.decode_actions", breaks)
    verdict = ends(tmp_path, accepted(region(), tmp_path)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.step) == ("crashed", 20)
    assert "the harness could not go on with it: KeyError" in verdict.cause


def test_last_words_are_told_as_the_guests_own(tmp_path):
    """A refusal that the guest writes itself cannot read like one of ours."""
    words = "memory: 1 MiB of 1 MiB allowed. Nothing is held against the submission. " + "A" * 5000
    claims = region(
        (
            UPDATE,
            UPDATE + "        from sandbox.guest.parameters import OverBudget\n"
            f"        raise OverBudget({words!r})\n",
        )
    )
    verdict = ends(tmp_path, unchecked(claims)).verdict
    assert verdict is not None
    assert verdict.kind == "rejected"
    assert verdict.cause.startswith("by its own count it is over its parameter budget: ")
    assert len(verdict.cause) < 500


def test_metrics_cannot_fill_the_disk(tmp_path):
    """64 names of 64 control bytes a step, through the socket; the log grows to its cap alone."""
    floods = region(
        (
            UPDATE,
            UPDATE + "        import gc\n"
            "        from sandbox.guest import TrainingEnvironment as T\n"
            "        env = next(e for e in gc.get_objects() if isinstance(e, T))\n"
            "        env.log({f'{i:02d}' + chr(1) * 62: 1.0 for i in range(64)})\n",
        )
    )
    training, bench = trained(
        unchecked(floods),
        small_profile(total_timesteps=300, learning_starts=10, limits=LIMITS),
        tmp_path / "bench",
    )
    assert training.verdict is not None
    assert (training.verdict.kind, training.verdict.limit) == ("too-much-output", "metrics")
    assert bench.metrics.stat().st_size < (2 << 20) + 50_000


def test_metrics_of_any_kind_do_no_harm(tmp_path):
    odd = region(
        (
            "        return metrics\n",
            "        return {'a': float('nan'), 'b': 'x' * 10**7, 'c': {'d': 1}, 'e': 10**400,"
            " 'f' * 1000: 1.0, 'g': torch.ones(1), '=h()': 2} | {str(i): i for i in range(200)}\n",
        )
    )
    training, bench = trained(
        accepted(odd, tmp_path),
        small_profile(total_timesteps=1002, learning_starts=999, limits=LIMITS),
        tmp_path / "bench",
    )
    assert training.verdict is None
    rows = bench.metrics.read_text().splitlines()
    assert rows[0] == "step,name,value"
    assert "1001,g,1.0" in rows
    assert len(rows) <= 65
    assert max(map(len, rows)) < 200


def test_surviving_its_own_end_changes_nothing(tmp_path):
    """After the last export the bytes are in: a hanging thread, a late exit status: no matter."""
    clings = region(
        before="import threading, atexit, os, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "atexit.register(os._exit, 3)\n"
    )
    assert ends(tmp_path, unchecked(clings)).verdict is None
