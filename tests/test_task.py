"""A task's tables are true: shapes, bounds, budgets and banners, held against the real things."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.intake.submission import accept
from harness.task import REPOSITORY, TASKS, Task, TaskError, plan
from harness.training.continuous_control import SteppedEnvironment, make
from harness.training.environments import EnvironmentMismatch
from sandbox.guest.parameters import check_budget
from sandbox.guest.source import load_source
from tests.support import TASK, TD3

NAMES = sorted(each.parent.name for each in TASKS.glob("*/task.toml"))
REFERENCE = Task.load(TASK)
ENVIRONMENTS = {**REFERENCE.environments, **REFERENCE.load_heldout().environments}


@pytest.mark.parametrize("id_", ENVIRONMENTS)
def test_shapes_bounds_and_time_limit_are_those_of_the_real_environment(id_):
    made = make(ENVIRONMENTS[id_])  # raises where they are not
    assert made.observation_space.shape == (ENVIRONMENTS[id_].observation_dim,)
    made.close()


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("observation_dim", 18), ("action_dim", 5), ("max_action", 0.5), ("time_limit", 999)],
)
def test_an_environment_that_is_not_the_described_one_is_refused(field, wrong):
    cheetah = ENVIRONMENTS["HalfCheetah-v4"].model_copy(update={field: wrong})
    with pytest.raises(EnvironmentMismatch, match=field):
        make(cheetah)


@pytest.mark.parametrize("id_", ENVIRONMENTS)
def test_budgets_are_those_of_the_largest_reference(id_, tmp_path):
    """TD3's parameters as torch counts them; SAC's actor by the arithmetic of its two heads."""
    environment = ENVIRONMENTS[id_]
    module = load_source(accept(REFERENCE, TD3).source.decode())
    constants = dict(REFERENCE.constants) | {
        "total_timesteps": 1,
        "learning_starts": 0,
        "buffer_size": 1,
        "eval_freq": 1,
        "eval_episodes": 1,
    }
    algorithm = module.OffPolicyAlgorithm(
        environment.observation_dim,
        environment.action_dim,
        environment.max_action,
        torch.device("cpu"),
        module.Args(seed=0, **constants),
    )
    networks = [each for each in vars(algorithm).values() if isinstance(each, nn.Module)]
    by_torch = sum(each.numel() for network in networks for each in network.parameters())
    assert environment.reference_parameters == by_torch
    assert check_budget(algorithm, by_torch) == by_torch
    o, a = environment.observation_dim, environment.action_dim
    gaussian = (o * 256 + 256) + (256 * 256 + 256) + 2 * (256 * a + a)
    assert environment.reference_policy_parameters == gaussian
    assert REFERENCE.budget.parameters(environment) == int(1.05 * by_torch)
    assert REFERENCE.budget.artefact_bytes(environment) == int(1.05 * 4 * gaussian) + 65_536


def test_published_counts_for_half_cheetah():
    """shared/facts/hyperparameters.md: TD3 432,656 with targets; a Gaussian actor 73,484."""
    assert ENVIRONMENTS["HalfCheetah-v4"].reference_parameters == 432_656
    assert ENVIRONMENTS["HalfCheetah-v4"].reference_policy_parameters == 73_484


def test_max_action_of_humanoid_comes_from_its_space():
    assert ENVIRONMENTS["Humanoid-v4"].max_action == 0.4


def test_the_full_profile_is_the_published_one():
    full = REFERENCE.profile("full")
    assert (full.total_timesteps, full.learning_starts, full.buffer_size) == (10**6, 25_000, 10**6)
    assert (full.eval_freq, full.eval_episodes, full.final_episodes) == (10_000, 10, 100)
    assert full.seeds == (42, 123, 456)
    assert full.environments == ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
    assert REFERENCE.load_heldout().profiles["full"] == ("Ant-v4", "Humanoid-v4")
    assert full.export_steps() == (*range(0, 10**6, 10_000), 10**6)


def test_the_example_submission_is_accepted():
    example = REPOSITORY / "submissions" / "examples" / "weighted_twin.patch"
    assert accept(REFERENCE, example).form == "unified diff"


def copied(tmp_path: Path) -> Path:
    shutil.copytree(TASKS / TASK, tmp_path / TASK)
    return tmp_path / TASK


def changed(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("first_line = 70", "first_line = 71", "belongs on line 70 of scaffold.py"),
        ("version = 1", "version = 0", "version: Input should be greater than 0"),
        ("gamma = 0.99", "gamma = 'x'", "constants.gamma"),
        ("final_episodes = 100", "final_episods = 100", "final_episods"),
        ('"Hopper-v4", ', '"Hopper-v5", ', "names Hopper-v5, which has no table"),
        ("seeds = [42, 123, 456]", "seeds = [42, 42]", "listed twice"),
        ("[region]", "[region", "line 8"),
    ],
)
def test_a_mistake_in_a_task_file_is_told_with_its_place(tmp_path, old, new, words):
    directory = copied(tmp_path)
    changed(directory / "task.toml", old, new)
    with pytest.raises(TaskError, match=r"task\.toml") as raised:
        Task.load(TASK, tmp_path)
    assert words in str(raised.value)


def test_a_held_out_file_that_names_a_visible_environment_is_refused(tmp_path):
    directory = copied(tmp_path)
    task = Task.load(TASK, tmp_path)
    changed(directory / "heldout.toml", '"Ant-v4", ', '"HalfCheetah-v4", ')
    changed(directory / "heldout.toml", "[environments.Ant-v4]", "[environments.HalfCheetah-v4]")
    with pytest.raises(TaskError, match="already visible"):
        task.load_heldout()


def test_an_unknown_task_or_profile_is_answered_with_those_there_are():
    with pytest.raises(TaskError, match=TASK):
        Task.load("rl-offpolicy")
    with pytest.raises(TaskError, match="full, lite, quick, smoke"):
        REFERENCE.profile("fulll")


@pytest.mark.parametrize("name", NAMES)
def test_every_scored_environment_clears_its_floor_and_every_number_has_its_source(name):
    task = Task.load(name)
    for profile in task.profiles.values():
        sources = [
            profile.steps_per_second_source,
            profile.limits.thinking_source,
            profile.limits.acting_source,
        ]
        for each in plan(task, profile, task.load_heldout()):
            if each.scale is not None:
                assert each.scale.ceiling > each.scale.floor
                assert getattr(each.environment, "floor", each.scale.floor) == each.scale.floor
                sources += [each.scale.floor_source, each.scale.ceiling_source]
        assert all(len(source) >= 10 and "TODO" not in source for source in sources)


# ---- stepping ----


def test_truncation_is_not_termination_and_the_last_observation_is_not_the_next_episodes():
    stepped = SteppedEnvironment(ENVIRONMENTS["Reacher-v4"])
    stepped.reset(0)
    zeros = torch.zeros(2).numpy()
    flags = [stepped.transition(zeros)[2:] for _ in range(50)]
    assert flags[:-1] == [(False, False)] * 49
    assert flags[-1] == (False, True)


def test_a_fall_is_a_termination_and_its_return_is_the_sum_of_its_rewards():
    stepped = SteppedEnvironment(ENVIRONMENTS["InvertedPendulum-v4"])
    stepped.reset(0)
    push = stepped.clip(torch.full((1,), 1e9).numpy())
    assert push == 3.0
    ended, rewards = False, []
    while not ended:
        _, reward, terminated, truncated = stepped.transition(push)
        rewards.append(reward)
        ended = terminated or truncated
    assert (terminated, truncated) == (True, False)
    assert stepped.episode_return == sum(rewards) == len(rewards) == stepped.episode_length


def test_the_same_seed_and_actions_give_the_same_bytes():
    def observations():
        stepped = SteppedEnvironment(ENVIRONMENTS["HalfCheetah-v4"])
        seen = [stepped.reset(7)]
        for step in range(50):
            action = torch.sin(torch.arange(6) + step).numpy()
            seen.append(stepped.step(stepped.clip(action))[0])
        return b"".join(each.tobytes() for each in seen)

    assert observations() == observations()


def test_settings_that_change_scores_are_recorded():
    recorded = SteppedEnvironment(ENVIRONMENTS["Ant-v4"]).settings
    assert recorded["id"] == "Ant-v4"
    assert recorded["time_limit"] == 1000
    assert recorded["use_contact_forces"] is False
    assert recorded["terminate_when_unhealthy"] is True
    assert "healthy_reward" in recorded


def test_what_is_held_out_in_one_profile_says_nothing_of_another():
    """So that a list for one profile does not set evaluations of the others apart."""
    heldout = Task.load(TASK).load_heldout()
    fewer = heldout.model_copy(update={"profiles": {**heldout.profiles, "full": ("Ant-v4",)}})

    assert fewer.digest("quick") == heldout.digest("quick")
    assert fewer.digest("full") != heldout.digest("full")
    assert heldout.digest("smoke") is None


def test_a_scaffold_that_was_edited_in_its_checkout_is_refused_with_the_way_back(tmp_path):
    shutil.copytree(TASKS / TASK, tmp_path / TASK)
    scaffold = tmp_path / TASK / "scaffold.py"
    scaffold.write_text(scaffold.read_text().replace("METRICS_EVERY = 1_000", "METRICS_EVERY = 1"))
    with pytest.raises(
        TaskError, match=r"(?s)it was edited.*git diff -- .*git checkout -- "
    ) as raised:
        Task.load(TASK, tmp_path)
    assert str(scaffold) in str(raised.value)


def test_every_task_says_which_scaffold_is_its_own():
    for path in TASKS.glob("*/task.toml"):
        assert Task.load(path.parent.name).region.scaffold_sha256
