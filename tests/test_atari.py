"""Atari games are stepped in DQN's published settings, and scored by what they pay."""

import itertools

import numpy as np
import pytest
from ale_py import ALEInterface, roms
from ale_py.vector_env import AtariVectorEnv

from harness.guest_config import guest_config
from harness.manifest import plan_of
from harness.records import Plan
from harness.task import AtariGame, Planned, Task
from harness.training.atari import (
    FIRE,
    Atari,
    EvaluatedGame,
    Game,
    PixelEpisodes,
    Shrink,
    Start,
    epsilon,
)
from harness.training.environments import EnvironmentMismatch, family_of
from sandbox import pixels
from sandbox.guest.source import load_source
from sandbox.pixels import SIDE
from sandbox.wire import Malformed

TASK = Task.load("rl-value-atari")
GAMES = {**TASK.environments, **TASK.load_heldout().environments}
BREAKOUT = GAMES["BreakoutNoFrameskip-v4"]
PONG = GAMES["PongNoFrameskip-v4"]
ROMS = {
    "BreakoutNoFrameskip-v4": "breakout",
    "PongNoFrameskip-v4": "pong",
    "SeaquestNoFrameskip-v4": "seaquest",
    "QbertNoFrameskip-v4": "qbert",
    "BeamRiderNoFrameskip-v4": "beam_rider",
}
SEED = 42
FAMILY = Atari()


def changed(game: AtariGame, **values) -> AtariGame:
    return game.model_copy(update=values)


def plan(game: AtariGame, **profile) -> Plan:
    smoke = TASK.profile("smoke").model_copy(update={"learning_starts": 50} | profile)
    return plan_of(TASK, smoke, (Planned(environment=game, heldout=False, scale=None),))


def emulator(rom: str, seed: int = 0) -> ALEInterface:
    """Set by hand, and shared with nothing of ours."""
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(rom))
    return ale


def stepped(ale: ALEInterface, action: int) -> tuple[list[np.ndarray], int]:
    """Four frames of one action: the screens after each, and the rewards, added up."""
    actions, screens, reward = ale.getMinimalActionSet(), [], 0
    for _ in range(4):
        reward += ale.act(actions[action])
        screens.append(ale.getScreenGrayscale().copy())
    return screens, reward


def shrunk_plainly(screen: np.ndarray) -> np.ndarray:
    """The area mean by repetition: every pixel is cut into equal parts, which are then averaged."""
    height, width = screen.shape
    rows, columns = np.lcm(height, SIDE), np.lcm(width, SIDE)
    parts = screen.astype(np.int64).repeat(rows // height, 0).repeat(columns // width, 1)
    blocks = parts.reshape(SIDE, rows // SIDE, SIDE, columns // SIDE).sum(axis=(1, 3))
    area = (rows // SIDE) * (columns // SIDE)
    return np.array([[round(int(each) / area) for each in row] for row in blocks], dtype=np.uint8)


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ROMS)
def test_frames_are_those_of_a_plain_preprocessing(id_):
    """Maximum of the last two of four gray screens, shrunk by repeating pixels and averaging."""
    game, ale = Game(GAMES[id_], sticky=False), emulator(ROMS[id_])
    generator = np.random.default_rng(7)
    seen, ours = [], [game.begin(Start(3, 0))]
    ale.reset_game()
    for _ in range(3):
        ale.act(0)
    screens, _ = stepped(ale, FIRE)
    seen.append(shrunk_plainly(np.maximum(screens[2], screens[3])))
    for _ in range(60):
        action = int(generator.integers(GAMES[id_].actions))
        screens, theirs = stepped(ale, action)
        frame, reward = game.step(action)
        assert not game.over
        assert reward == theirs
        ours.append(frame)
        seen.append(shrunk_plainly(np.maximum(screens[2], screens[3])))
    np.testing.assert_array_equal(np.stack(ours), np.stack(seen))


@pytest.mark.parametrize("id_", ROMS)
def test_frames_rewards_lives_and_ends_are_those_of_ales_own_vector_environment(id_):
    """To the last game of each. Its pixels are rounded in float, so ties differ by one level."""
    game = Game(GAMES[id_], sticky=False)
    theirs = AtariVectorEnv(
        ROMS[id_], 1, noop_max=0, use_fire_reset=False, reward_clipping=False, num_threads=1
    )
    theirs.reset(seed=0)
    obs, _, _, _, info = theirs.step(np.array([FIRE]))
    generator = np.random.default_rng(1)
    frame, lives = game.begin(Start(0, 0)), int(info["lives"][0])
    differing, pixels_seen = 0, 0
    for _ in range(1200):
        difference = np.abs(obs[0, -1].astype(int) - frame.astype(int))
        assert difference.max() <= 1
        differing += int((difference > 0).sum())
        pixels_seen += difference.size
        action = int(generator.integers(GAMES[id_].actions))
        obs, rewards, over, _, info = theirs.step(np.array([action]))
        frame, reward = game.step(action)
        assert reward == rewards[0]
        assert game.over == over[0]
        assert game.lost_life == (0 < info["lives"][0] < lives and not over[0])
        lives = int(info["lives"][0])
        if game.over:
            break
    assert differing < pixels_seen / 5_000


def test_an_area_mean_is_exact_and_halves_go_to_the_even_level():
    shrink = Shrink(210, 160)
    generator = np.random.default_rng(0)
    for screen in (
        generator.integers(256, size=(210, 160), dtype=np.uint8),
        np.full((210, 160), 255, dtype=np.uint8),
        # Columns that alternate between two neighbours: half-way wherever the cut is even.
        np.tile(np.array([100, 101], dtype=np.uint8), (210, 80)),
    ):
        np.testing.assert_array_equal(shrink(screen), shrunk_plainly(screen))


# --- how a game begins ----------------------------------------------------------------------------


@pytest.mark.parametrize("id_", GAMES)
def test_a_games_table_is_what_the_emulator_says(id_):
    game = GAMES[id_]
    settings = family_of(game).check(game)
    assert settings["id"] == id_
    assert settings["repeat_action_probability"] == 0.0
    assert settings["frame_skip"] == 4
    assert len(str(settings["actions"]).split()) == game.actions
    assert game.time_limit * 4 == 108_000
    sticky = FAMILY.evaluated(game, second=True).settings
    assert sticky["repeat_action_probability"] == 0.25


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"actions": 5}, "actions is 4, the task says 5"),
        ({"id": "ALE/Breakout-v5"}, "repeat_action_probability is 0.25"),
        ({"id": "BreakoutNoFrameskip-v0"}, "repeat_action_probability is 0.25"),
        ({"id": "CartPole-v1"}, "is no Atari game"),
        (
            {"id": "MsPacmanNoFrameskip-v4", "actions": 9},
            "it has no FIRE to wait for",
        ),
        ({"id": "ALE/BreakoutNoFrameskip-v4"}, "ALE/BreakoutNoFrameskip"),
    ],
)
def test_another_environment_than_the_tasks_is_refused(values, words):
    with pytest.raises(EnvironmentMismatch, match=words):
        FAMILY.check(changed(BREAKOUT, **values))


@pytest.mark.parametrize("id_", GAMES)
def test_a_start_is_the_same_game_whatever_was_played_before(id_):
    """An emulator's reset alone leaves traces: Seaquest and BeamRider went on differently."""

    def played(game, no_ops, seed):
        generator = np.random.default_rng(0)
        frames = [game.begin(Start(no_ops, seed))]
        for _ in range(120):
            frames.append(game.step(int(generator.integers(GAMES[id_].actions)))[0])
        return np.stack(frames).tobytes()

    game = Game(GAMES[id_], sticky=False)
    before = [played(game, no_ops, 0) for no_ops in (30, 1, 17)]
    another = Game(GAMES[id_], sticky=False)
    played(another, 5, 0)
    for _ in range(150):
        another.step(1)
    assert [played(another, no_ops, 99) for no_ops in (30, 1, 17)] == before
    assert len(set(before)) > 1


def test_a_final_evaluation_plays_each_of_the_thirty_starts_once():
    starts = FAMILY.starts("final", 30, lambda purpose, index: 5)
    assert sorted(start.no_ops for start in starts) == list(range(1, 31))
    for name in ("full", "lite", "quick"):
        assert TASK.profile(name).final_episodes == 30


def test_fewer_episodes_than_starts_take_different_ones_that_the_key_decides():
    def chosen(seed):
        return [each.no_ops for each in FAMILY.starts("curve", 10, lambda purpose, index: seed)]

    assert len(set(chosen(1))) == 10
    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


@pytest.mark.parametrize("id_", GAMES)
def test_a_game_waits_for_fire_exactly_where_its_table_says_so(id_):
    """After a lost life, the screen stands still without FIRE, whatever else is pressed."""
    game, generator = Game(GAMES[id_], sticky=False), np.random.default_rng(3)
    game.begin(Start(1, 0))
    steps = 0
    while not game.lost_life and not game.over and steps < 3000:
        game.step(int(generator.integers(GAMES[id_].actions)))
        steps += 1
    if not game.lost_life:
        assert not GAMES[id_].waits_for_fire  # Pong has no lives to lose
        return
    for _ in range(40):
        game.step(0)  # what was still moving comes to rest
    frames = {game.step(0)[0].tobytes() for _ in range(100)}
    assert (len(frames) == 1) == GAMES[id_].waits_for_fire


# --- evaluation -----------------------------------------------------------------------------------


A_START = Start(5, 0)


def play(evaluated, policy, start=A_START) -> tuple[int, list[np.ndarray]]:
    """Steps of one game, and the stacks that were seen."""
    seen = [evaluated.reset(start)]
    for steps in itertools.count(1):
        stack, over = evaluated.step(np.int32(policy(steps)))
        seen.append(stack)
        if over:
            return steps, seen
    raise AssertionError


def test_breakouts_five_lives_are_one_game_and_it_ends_for_a_policy_that_never_fires():
    evaluated = EvaluatedGame(BREAKOUT, sticky=False)
    lost = []
    evaluated.reset(Start(5, 0))
    over = False
    while not over:
        before = evaluated._game._ale.lives()
        _, over = evaluated.step(np.int32(2))  # right, for ever
        if evaluated._game._ale.lives() < before:
            lost.append(evaluated.episode_length)
    assert len(lost) == 5
    assert not evaluated.stopped
    assert evaluated.episode_length < 1000


def test_where_actions_are_sticky_fire_is_pressed_twice():
    """All four frames of one press can be another action's, in one of 256: no ball is served."""
    for sticky, presses in ((False, 1), (True, 2)):
        game = Game(BREAKOUT, sticky)
        game.begin(A_START)
        assert len(list(game.fire())) == presses


def test_an_evaluation_counts_what_the_game_pays_and_not_its_sign():
    game = GAMES["QbertNoFrameskip-v4"]
    generator = np.random.default_rng(0)
    actions = generator.integers(game.actions, size=10_000)
    evaluated, ale = EvaluatedGame(game, sticky=False), emulator("qbert")
    steps, _ = play(evaluated, lambda step: actions[step])
    for _ in range(5):
        ale.act(0)
    stepped(ale, FIRE)
    paid = 0
    for step in range(1, steps + 1):
        for _ in range(4):
            if not ale.game_over():
                paid += ale.act(ale.getMinimalActionSet()[actions[step]])
    assert ale.game_over()
    assert evaluated.episode_return == paid
    assert paid >= 25  # Qbert pays 25 for a cube: more than any sum of so few signs would be


def test_a_game_that_does_not_end_is_stopped_at_its_longest_and_said():
    evaluated = EvaluatedGame(changed(PONG, time_limit=30), sticky=False)
    steps, _ = play(evaluated, lambda step: 0)
    assert steps == evaluated.episode_length == 30
    assert evaluated.stopped
    ended = EvaluatedGame(BREAKOUT, sticky=False)
    play(ended, lambda step: 0)
    assert not ended.stopped


def test_stacks_hold_the_four_newest_frames_and_begin_with_the_first_four_times():
    _, seen = play(EvaluatedGame(changed(PONG, time_limit=60), sticky=False), lambda step: step % 6)
    assert all((seen[0][index] == seen[0][3]).all() for index in range(3))
    for before, after in itertools.pairwise(seen):
        np.testing.assert_array_equal(before[1:], after[:3])


def test_sticky_actions_change_a_game_and_repeat_themselves_under_their_seed():
    def played(seed: int) -> bytes:
        sticky = FAMILY.evaluated(changed(BREAKOUT, time_limit=60), second=True)
        _, seen = play(sticky, lambda step: 2 + step // 5 % 2, Start(5, seed))
        return np.stack(seen).tobytes()

    assert played(1) == played(1)
    assert played(1) != played(2)
    plain = FAMILY.evaluated(changed(BREAKOUT, time_limit=60), second=False)
    _, seen = play(plain, lambda step: 2 + step // 5 % 2)
    assert np.stack(seen).tobytes() not in (played(1), played(2))


# --- training -------------------------------------------------------------------------------------


def trained_in(game: AtariGame, steps: int, policy=None, **profile):
    """Transitions, who drew their actions, and the episodes that they belong to."""
    episodes = PixelEpisodes(game, plan(game, **profile), SEED)
    episodes.begin()
    transitions, drawn = [], []
    for step in range(steps):
        drawn.append(episodes.host_draws)
        action = episodes.draw() if episodes.host_draws else np.array([0], dtype=np.int32)
        if policy is not None:
            action = np.array([policy(step)], dtype=np.int32)
        transition, host_draws = pixels.decode_transition(episodes.take(action))
        assert host_draws == episodes.host_draws
        transitions.append(transition)
    return transitions, drawn, episodes


def test_a_lost_life_ends_an_episode_and_not_the_game():
    transitions, _, episodes = trained_in(BREAKOUT, 700, policy=lambda step: 2)
    ends = [index for index, each in enumerate(transitions) if each.terminated]
    assert not any(each.truncated for each in transitions)
    assert all((each.first_frame is not None) == each.terminated for each in transitions)
    # Five lives to a game: the returns of whole games are fewer than the episodes.
    assert len(ends) // 5 == len(episodes.returns) >= 2
    # After a lost life the ball is served anew: a policy that never fires sees it move.
    begin = ends[0] + 1
    moving = {each.next_frame.tobytes() for each in transitions[begin : begin + 10]}
    assert len(moving) > 1


def test_a_learner_is_paid_signs_and_returns_are_raw():
    game = GAMES["QbertNoFrameskip-v4"]
    transitions, _, episodes = trained_in(game, 1_500, total_timesteps=1_500, learning_starts=1_500)
    assert {each.reward for each in transitions} == {0.0, 1.0}
    ends = len(episodes.returns)
    assert ends > 0
    assert all(each % 25 == 0 for each in episodes.returns)
    assert sum(episodes.returns) > sum(each.reward for each in transitions)


def test_a_game_at_its_longest_is_truncated_with_its_last_frame():
    transitions, _, episodes = trained_in(changed(PONG, time_limit=40), 100, policy=lambda step: 0)
    cut = [index for index, each in enumerate(transitions) if each.truncated]
    assert cut == [39, 79]
    assert len(episodes.returns) == 2
    for index in cut:
        assert not transitions[index].terminated
        assert transitions[index].first_frame is not None
        assert (transitions[index].next_frame != transitions[index].first_frame).any()


def test_the_host_draws_the_warm_up_and_epsilons_share_of_what_follows():
    steps = 12_000
    _, drawn, _ = trained_in(
        PONG, 4_000, policy=lambda step: 0, total_timesteps=steps, learning_starts=400
    )
    assert all(drawn[:400])
    # Epsilon falls from 1 to 0.01 over the first 1,200 of 12,000 steps.
    expected = np.maximum(1 - 0.99 * np.arange(4_000) / 1_200, 0.01)
    for begin, end in ((400, 800), (800, 1_200), (1_200, 4_000)):
        mean, count = expected[begin:end].mean(), end - begin
        spread = 4 * np.sqrt(mean * (1 - mean) / count) + 0.01
        assert abs(np.mean(drawn[begin:end]) - mean) < spread


def test_epsilon_is_the_scaffolds_schedule_at_every_step():
    scaffold = load_source(TASK.scaffold.decode())
    a_plan = plan(PONG, total_timesteps=1_000)
    ours = epsilon(a_plan)
    for step in range(1_000):
        wanted = scaffold.linear_schedule(1.0, 0.01, 0.1 * 1_000, step)
        assert ours(step) == pytest.approx(wanted, abs=1e-12)
    assert (ours(0), ours(100), ours(999)) == (1.0, pytest.approx(0.01), 0.01)


def test_a_runs_seed_decides_everything_that_is_drawn():
    def frames(seed):
        episodes = PixelEpisodes(BREAKOUT, plan(BREAKOUT), seed)
        first = episodes.begin()
        return first + b"".join(episodes.take(episodes.draw()) for _ in range(60))

    assert frames(1) == frames(1)
    assert frames(1) != frames(2)


# --- what a guest learns and says -----------------------------------------------------------------


def test_a_guest_learns_how_many_actions_there_are_and_no_name():
    config = guest_config("learner", BREAKOUT, plan(BREAKOUT), 42, "", "cpu", {})
    assert config["observations"] == "pixels"
    assert config["actions"] == 4
    assert "reakout" not in str(config)
    assert "waits_for_fire" not in config


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([4], "the action 4; there are 0 to 3"),
        ([-1], "the action -1"),
        ([0, 1], "8 bytes"),
        ([], "0 bytes"),
    ],
)
def test_actions_that_are_none_are_refused(actions, words):
    with pytest.raises(Malformed, match=words):
        pixels.decode_actions(np.array(actions, dtype=np.int32).tobytes(), 1, 4)
