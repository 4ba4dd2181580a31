"""The trial: what would end a run after an hour is said in seconds, with the line that did it."""

import json

import pytest

from harness.intake import trial
from harness.intake.submission import accept
from harness.intake.trial import try_out
from harness.task import REPOSITORY, HeldOut, Task
from tests.support import TASK, TD3, accepted, region, touchstone, unchecked

TASK_ = Task.load(TASK)
HELDOUT = TASK_.load_heldout()

ACT = "    def get_action(self, obs):\n        return self(obs)\n"
UPDATE = "    def update(self, batch):\n"
METRICS = "        return metrics\n"
NETWORK = (
    "        self.net = _mlp_factory(obs_dim, action_dim)\n        self.max_action = max_action\n"
)


def failing(*replacements: tuple[str, str], before: str = "", tmp_path, heldout=HELDOUT, **options):
    """The trial's only finding."""
    submission = accepted(region(*replacements, before=before), tmp_path)
    (found,) = try_out(TASK_, heldout, submission, **options).findings
    return found


def line_of(text: str, tmp_path) -> int:
    """Where a line stands in the file that was handed in."""
    lines = (tmp_path / "handed_in.py").read_text().split("\n")
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_good_submission_passes_at_every_shape_visible_and_held_out(tmp_path):
    done = try_out(TASK_, HELDOUT, accepted(region(before="# mine\n"), tmp_path))
    assert done.findings == ()
    assert {each.environment.id for each in done.tried if not each.heldout} == set(
        TASK_.environments
    )
    assert {each.environment.id for each in done.tried if each.heldout} == set(HELDOUT.environments)
    for each in done.tried:
        # TD3 is the largest reference.
        assert each.parameters == each.environment.reference_parameters
        assert sum(each.by_attribute.values()) == each.parameters
        assert each.budget == TASK_.budget.parameters(each.environment)
        assert 0 < each.policy_bytes < each.policy_cap
    assert done.tried[0].by_attribute["actor"] == 71_942


def test_the_published_placeholder_is_refused_though_it_builds():
    placeholder = TASK_.scaffold.decode().split("\n")[
        TASK_.region.first_line - 1 : TASK_.region.last_line
    ]
    submission = unchecked("# another text\n" + "\n".join(placeholder) + "\n")
    (found,) = try_out(TASK_, None, submission).findings
    assert found.rule == "trial-crashed"
    assert "NotImplementedError: write select_action" in found.message


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (("        self.updates += 1\n", "        self.updates += one\n"), "NameError"),
        (("        self.updates = 0\n", "        self.updates = 1 / 0\n"), "ZeroDivisionError"),
        (("noise.clamp(", "noise.klamp("), "AttributeError"),
        (("(1 - dones) *", "(1 - dones[:3]) *"), "RuntimeError"),
    ],
    ids=["update", "constructor", "method", "shapes"],
)
def test_a_crash_is_shown_at_its_own_line_of_the_file_handed_in(tmp_path, broken, words):
    found = failing(broken, before="# mine\n\n", tmp_path=tmp_path)
    assert found.rule == "trial-crashed"
    assert words in found.message
    number = line_of(broken[1].strip(), tmp_path)
    assert (found.line, found.file) == (number, str(tmp_path / "handed_in.py"))
    assert broken[1].strip() in found.text
    # The traceback names that line too, and not one of the source that was put together.
    assert f'handed_in.py", line {number}' in found.detail
    assert "source.py" not in found.detail


def test_a_crash_in_a_patch_is_shown_at_its_line_of_the_patch(tmp_path):
    patch = (REPOSITORY / "submissions/examples/weighted_twin.patch").read_text()
    broken = patch.replace("+        obs, next_obs,", "+        1 / 0\n+        obs, next_obs,", 1)
    header = next(line for line in patch.split("\n") if line.startswith("@@"))
    count = int(header.split("+")[1].split(" ")[0].split(",")[1])
    grown = header.replace(f",{count} @@", f",{count + 1} @@")
    path = tmp_path / "mine.patch"
    path.write_text(broken.replace(header, grown))
    (found,) = try_out(TASK_, None, accept(TASK_, path)).findings
    assert found.line == path.read_text().split("\n").index("+        1 / 0") + 1


def test_a_crash_at_one_shape_names_the_environment(tmp_path):
    crash = (
        "        self.args = args\n",
        "        assert obs_dim != 11\n        self.args = args\n",
    )
    assert "at the shapes of Hopper-v4" in failing(crash, tmp_path=tmp_path).message


def test_metrics_that_are_none_are_found_before_a_thousand_steps(tmp_path):
    found = failing((METRICS, "        return None\n"), tmp_path=tmp_path)
    assert "update must return a dict of scalars; it returned None" in found.message


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((ACT, ACT.replace("self(obs)", "self(obs)[0]")), "get_action returned shape"),
        ((ACT, ACT.replace("self(obs)", "self(obs) / 0 * 0")), "get_action returned nan"),
        (
            ("        return np.clip(", "        return np.nan * np.clip("),
            "select_action returned nan",
        ),
        (
            ("        return np.clip(", "        return [0.0], np.clip("),
            "select_action returned no array of numbers",
        ),
    ],
    ids=["shape", "nan", "exploring nan", "exploring shape"],
)
def test_actions_are_looked_at(tmp_path, wrong, words):
    found = failing(wrong, tmp_path=tmp_path)
    assert found.rule == "bad-action"
    assert words in found.message
    assert found.detail == ""  # nothing of ours
    method = "select_action" if "select_action" in words else "get_action"
    assert f"def {method}" in found.text
    assert found.line == line_of(f"def {method}", tmp_path)


def test_over_the_budget_is_told_for_the_worst_shape_with_the_parts(tmp_path):
    third = (
        "        self.qf2_target =",
        "        self.qf3 = copy.deepcopy(self.qf1)\n        self.qf2_target =",
    )
    found = failing(third, tmp_path=tmp_path)
    assert found.rule == "parameter-budget"
    # 12 % too many at every shape, and a little more where the first and last layers are smallest.
    assert "472,583 parameters at the shapes of InvertedPendulum-v4, 47,336 over" in found.message
    assert "qf3 67,585" in found.message


def test_what_is_over_the_budget_at_any_check_is_over(tmp_path):
    """A run would end at the first of them."""
    dropped = [
        (
            "        self.updates = 0\n",
            "        self.updates, self.scratch = 0, torch.zeros(10**6)\n",
        ),
        (UPDATE, UPDATE + "        self.scratch = None\n"),
    ]
    found = failing(*dropped, tmp_path=tmp_path)
    assert found.rule == "parameter-budget"
    assert "scratch 1,000,000" in found.message


def test_the_constants_are_those_of_the_real_benchmark_but_for_the_warm_up(tmp_path):
    full = TASK_.profile("full")
    held = (
        "        self.updates = 0\n",
        "        self.updates = 0\n"
        f"        assert args.total_timesteps == {full.total_timesteps}\n"
        f"        assert args.buffer_size == {full.buffer_size}\n"
        f"        assert args.learning_starts == {trial.WARM_UP_STEPS}\n",
    )
    assert try_out(TASK_, HELDOUT, accepted(region(held), tmp_path)).findings == ()


def test_an_attribute_of_any_name_is_counted(tmp_path):
    named = (
        "        self.updates = 0\n",
        "        self.updates = 0\n        setattr(self, 'a b', nn.Linear(1, 1))\n"
        "        self.é = nn.Linear(1, 2)\n",
    )
    done = try_out(TASK_, None, accepted(region(named), tmp_path))
    assert done.findings == ()
    assert {each for each in done.tried[0].by_attribute if each.startswith("attribute_")}


def test_a_policy_over_its_bytes_is_told(tmp_path):
    heavy = (NETWORK, NETWORK + "        self.notes = [float(each) for each in range(60_000)]\n")
    found = failing(heavy, tmp_path=tmp_path)
    assert found.rule == "policy-bytes"


GLOBAL = "SEEN = {'mean': 0.0}\n"
LEARNS = (UPDATE, UPDATE + "        SEEN['mean'] += 1.0\n")


@pytest.mark.parametrize(
    ("replacements", "before", "words"),
    [
        (
            [(ACT, ACT.replace("self(obs)", "self(obs - SEEN['mean'])")), LEARNS],
            GLOBAL,
            "module globals",
        ),
        (
            [
                (
                    "    def forward(self, obs):\n",
                    "    mean = 0.0\n\n    def forward(self, obs):\n",
                ),
                (ACT, ACT.replace("self(obs)", "self(obs - Actor.mean)")),
                (UPDATE, UPDATE + "        Actor.mean += 1.0\n"),
            ],
            "",
            "class attributes",
        ),
        (
            [
                (NETWORK, NETWORK + "        self.mean = 0.0\n        self.scale = lambda x: x\n"),
                (ACT, ACT.replace("self(obs)", "self(self.scale(obs - self.mean))")),
                (UPDATE, UPDATE + "        self.actor.mean += 1.0\n"),
            ],
            "",
            "its parameters and buffers alone were exported",
        ),
    ],
    ids=["in a module global", "in a class attribute", "in a plain attribute beside a lambda"],
)
def test_statistics_that_a_reload_loses_are_refused_with_advice(
    tmp_path, replacements, before, words
):
    found = failing(*replacements, before=before, tmp_path=tmp_path)
    assert found.rule == "reload-differs"
    assert words in found.message
    assert "register_buffer" in found.advice


def test_statistics_in_buffers_and_plain_attributes_survive(tmp_path):
    kept = [
        (
            NETWORK,
            NETWORK
            + "        self.mean = 0.0\n        self.register_buffer('n', torch.zeros(1))\n",
        ),
        (ACT, ACT.replace("self(obs)", "self(obs - self.mean - self.n) + torch.randn(1)")),
        (UPDATE, UPDATE + "        self.actor.mean += 1.0\n        self.actor.n += 1\n"),
    ]
    assert try_out(TASK_, HELDOUT, accepted(region(*kept), tmp_path)).findings == ()


@pytest.mark.parametrize(
    ("code", "words", "seconds"),
    [
        ("        while True: pass\n", "thinking time", 6.0),
        ("        x = [torch.ones(1 << 26) for _ in range(20)]\n", "memory", 60.0),
        ("        print('x' * (20 << 20))\n", "output", 60.0),
    ],
    ids=["time", "memory", "output"],
)
def test_the_trial_has_limits_and_names_the_one_that_was_met(
    tmp_path, monkeypatch, code, words, seconds
):
    monkeypatch.setattr(trial, "SECONDS", seconds)
    found = failing((UPDATE, UPDATE + code), tmp_path=tmp_path)
    assert found.rule == "trial-limits"
    assert words in found.message


def test_a_hang_is_shown_with_its_line_in_the_watchdogs_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 6.0)
    found = failing((UPDATE, UPDATE + "        while True: pass\n"), tmp_path=tmp_path)
    number = line_of("while True: pass", tmp_path)
    assert f'handed_in.py", line {number}, in update' in found.detail


SECRET = HeldOut.model_validate(
    {
        "profiles": {"full": ["Secret-v0"]},
        "environments": {
            "Secret-v0": HELDOUT.environments["Humanoid-v4"].model_dump()
            | {"id": "Secret-v0", "observation_dim": 321, "time_limit": 77}
        },
    }
)
BUILD = "        self.args = args\n"


@pytest.mark.parametrize(
    "code",
    [
        "assert obs_dim != 321, obs_dim",
        "self.more = nn.Linear(2000, 1000) if obs_dim == 321 else None",
        "while obs_dim == 321: pass",
        "obs_dim != 321 or [].append(1, 2)",
    ],
    ids=["crash", "parameters", "hang", "another crash"],
)
def test_a_submitter_is_told_that_a_held_out_shape_fails_and_nothing_else(
    tmp_path, monkeypatch, code
):
    monkeypatch.setattr(trial, "SECONDS", 6.0)
    submission = accepted(region((BUILD, f"        {code}\n{BUILD}")), tmp_path)
    done = try_out(TASK_, SECRET, submission, for_submitter=True)
    (found,) = done.findings
    assert (found.rule, found.line, found.detail) == ("held-out-shapes", None, "")
    assert found.message == "it passes at every visible shape, and fails at a held-out one"
    assert {each.environment.id for each in done.tried} == set(TASK_.environments)
    # The operator is told.
    (found,) = try_out(TASK_, SECRET, submission).findings
    assert "Secret-v0" in found.message


def test_what_fails_everywhere_is_shown_at_a_visible_shape(tmp_path):
    code = (BUILD, f"        assert False\n{BUILD}")
    found = failing(code, tmp_path=tmp_path, heldout=SECRET, for_submitter=True)
    assert "assert False" in found.render()
    assert "HalfCheetah-v4" in found.message


def test_the_guest_whose_words_are_shown_never_holds_a_held_out_shape(tmp_path):
    visible, hidden = trial._shapes(TASK_, SECRET)
    submission = accepted(region(), tmp_path)
    assert "321" in json.dumps(trial._config(TASK_, hidden, submission)["environments"])
    assert "321" not in json.dumps(trial._config(TASK_, visible, submission)["environments"])
    # One whose shape is a visible one's tells nothing new, and is tried with it.
    visible, hidden = trial._shapes(TASK_, HELDOUT)
    assert [each.environment.id for (each,) in hidden] == ["Ant-v4", "Humanoid-v4"]


def test_the_seconds_shown_to_a_submitter_are_those_of_visible_shapes(tmp_path):
    slow = (BUILD, f"        time.sleep(8.0 if obs_dim == 321 else 0)\n{BUILD}")
    done = try_out(TASK_, SECRET, accepted(region(slow), tmp_path), for_submitter=True)
    assert done.findings == ()
    assert done.seconds < 8


def test_counts_that_are_none_are_a_violation_of_the_protocol(tmp_path, monkeypatch):
    forged = (
        "import sys\n_client = sys.modules['sandbox.guest.trial']\n"
        "_client.count_by_module = lambda algorithm: {'actor': 2**60}\n"
    )
    (found,) = try_out(TASK_, None, unchecked(region(before=forged))).findings
    assert found.rule == "trial-protocol"
    assert "for a count" in found.message


def test_a_policy_that_does_not_repeat_itself_is_told_so(tmp_path):
    own = (ACT, ACT.replace("self(obs)", "self(obs) * OWN.random()"))
    found = failing(own, before="OWN = np.random.default_rng()\n", tmp_path=tmp_path)
    assert found.rule == "reload-differs"
    assert "nor does the live one repeat itself" in found.message


def test_a_message_of_several_lines_is_told_by_its_first(tmp_path):
    code = "        raise ValueError('first line\\nsecond line')\n"
    found = failing((UPDATE, UPDATE + code), tmp_path=tmp_path)
    assert found.message.endswith("it raised ValueError: first line")
    assert "second line" in found.detail


def test_a_form_feed_shifts_no_line_of_a_traceback(tmp_path):
    crash = (METRICS, "        # \x0c \u2028 \x85\n        return undefined\n")
    found = failing(crash, before="# one\x0c\u2028\n", tmp_path=tmp_path)
    assert "return undefined" in found.text
    assert "    return undefined" in found.detail


def test_validate_prints_one_verdict_with_parameters_bytes_and_the_sources_hash():
    done = touchstone("validate", TASK, TD3)
    assert done.returncode == 0, done.stderr
    assert "read as a region file\n" in done.stdout
    assert f"source {accept(TASK_, TD3).sha256}" in done.stdout
    assert "Humanoid-v4 (held-out)" in done.stdout
    hidden = touchstone("validate", TASK, TD3, "--for-submitter")
    assert hidden.returncode == 0
    assert "Humanoid" not in hidden.stdout + hidden.stderr
    assert "held-out" not in hidden.stdout + hidden.stderr


def test_validate_answers_programs_in_json(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(region((METRICS, "        return undefined\n")))
    done = touchstone("validate", TASK, path, "--json")
    assert done.returncode == 3
    told = json.loads(done.stdout)
    assert done.stderr == ""
    assert told["accepted"] is False
    (found,) = told["findings"]
    assert (found["rule"], found["level"]) == ("trial-crashed", "error")
    assert found["line"] == path.read_text().split("\n").index("        return undefined") + 1
    path.write_text(region(before="import os\n"))
    told = json.loads(touchstone("validate", TASK, path, "--json").stdout)
    assert [each["rule"] for each in told["findings"]] == ["import"]
    assert told["trial"] is None


def test_eval_refuses_what_the_trial_refuses_and_stores_nothing(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(region((METRICS, "        return undefined\n")))
    store = tmp_path / "store"
    done = touchstone("eval", TASK, path, "--profile", "smoke", "--store", store)
    assert done.returncode == 3
    assert "error[trial-crashed]" in done.stderr
    assert not list(store.glob("rl-*"))
