"""Atari: games in the settings of DQN, frames as learners see them, whole games as they score.

Every setting is that of gymnasium's `...NoFrameskip-v4` under the wrappers that CleanRL and
Stable-Baselines3 share (they go back to Mnih et al. 2015): an action lasts four frames, what is
seen is the maximum of the last two, gray, 84 x 84, and a game begins with 1 to 30 no-ops and FIRE.
In training a lost life ends an episode, the game goes on, and a reward is its sign; an evaluation
has neither. Against the wrappers: FIRE alone is pressed, where they add the second action; after a
lost life one step is hidden, FIRE where the game waits for it and else a no-op.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

import ale_py
import gymnasium
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from numpy.typing import NDArray

from harness.keys import Purpose
from harness.records import Plan
from harness.task import AtariGame, Environment
from harness.training.environments import EnvironmentMismatch, Second, SeedOf, Settings
from sandbox import pixels
from sandbox.pixels import SIDE, STACK, Frame, PixelTransition

FRAME_SKIP = 4
POOLED_FRAMES = 2
MAX_NO_OPS = 30
STICKINESS = 0.25
"""Probability of each frame to repeat the last action (Machado et al. 2018, JAIR 61, 523-562)."""
NO_OP, FIRE = 0, 1
"""Indices of a game's minimal action set, where it has FIRE at all."""

_STARTS_STREAM, _CHANCE_STREAM = 0, 1  # of a run's seed

ALEInterface.setLoggerMode(LoggerMode.Error)
gymnasium.register_envs(ale_py)


class Start(NamedTuple):
    """How a game of an evaluation begins."""

    no_ops: int
    seed: int
    """Of the emulator. Without sticky actions it changes nothing: a game has no other chance."""


class Game:
    """A console with one game in it: whole agent steps, and what is seen after each.

    Attributes:
        over: whether the game has ended.
        lost_life: whether the last step cost a life and the game goes on.
    """

    def __init__(self, environment: AtariGame, sticky: bool) -> None:
        self.over = False
        self.lost_life = False
        self._environment = environment
        self._stickiness = STICKINESS if sticky else 0.0
        self._rom = _rom(environment)
        self._load(seed=0)
        height, width = self._ale.getScreenDims()
        self._screens = np.zeros((POOLED_FRAMES, height, width), dtype=np.uint8)
        self._shrink = Shrink(height, width)

    def begin(self, start: Start) -> Frame:
        """A new game: no-ops, a frame each, then FIRE where the game knows it."""
        if self._stickiness:
            self._load(start.seed)
        # A reset alone leaves traces of what was played before in Seaquest and BeamRider.
        self._ale.restoreSystemState(self._switched_on)
        self._ale.reset_game()
        for _ in range(start.no_ops):
            self._ale.act(self._actions[NO_OP])
        self.over = self.lost_life = False
        self._lives = self._ale.lives()
        for screen in self._screens:
            self._ale.getScreenGrayscale(screen)
        frame = self._seen()
        if self._has_fire:
            *_, (frame, _) = self.fire()
        return frame

    def fire(self) -> Iterator[tuple[Frame, float]]:
        """Press FIRE until it is pressed: what `step` gives, each time.

        Once. Where actions are sticky all four frames of it can be another action's, so twice.
        """
        for _ in range(2 if self._stickiness else 1):
            yield self.step(FIRE)

    def step(self, action: int) -> tuple[Frame, float]:
        """Four frames of one action: what is seen then, and their raw rewards, added up."""
        reward = 0
        for number in range(FRAME_SKIP):
            reward += self._ale.act(self._actions[action])
            self.over = self._ale.game_over()
            if self.over or number >= FRAME_SKIP - POOLED_FRAMES:
                self._ale.getScreenGrayscale(self._screens[number % POOLED_FRAMES])
            if self.over:
                break
        lives = self._ale.lives()
        # Qbert counts no life for some frames before its game is over.
        self.lost_life = 0 < lives < self._lives and not self.over
        self._lives = lives
        return self._seen(), float(reward)

    @property
    def settings(self) -> dict[str, str | int | float | bool]:
        """As the emulator says them, where it can."""
        return {
            "id": self._environment.id,
            "frame_skip": FRAME_SKIP,
            "pooled_frames": POOLED_FRAMES,
            "observation": f"{STACK} frames of {SIDE} x {SIDE}, gray, area mean",
            "repeat_action_probability": self._ale.getFloat("repeat_action_probability"),
            "frames_limit": self._ale.getInt("max_num_frames_per_episode"),
            "actions": " ".join(each.name for each in self._actions),
            "max_no_ops": MAX_NO_OPS,
            "fire_at_reset": self._has_fire,
            "fire_after_lost_life": self._environment.waits_for_fire,
            "steps_limit": self._environment.time_limit,
            "ale_py": version("ale_py"),
        }

    def _seen(self) -> Frame:
        return self._shrink(np.maximum(*self._screens))

    def _load(self, seed: int) -> None:
        """Start the emulator, and see that it is what was asked for."""
        self._ale = ale = ALEInterface()
        ale.setInt("random_seed", seed)
        ale.setFloat("repeat_action_probability", self._stickiness)
        ale.setInt("frame_skip", 1)
        ale.setInt("max_num_frames_per_episode", 0)  # a game is stopped by us, and that is said
        ale.loadROM(self._rom)
        self._actions = ale.getMinimalActionSet()
        self._has_fire = self._actions[FIRE].name == "FIRE"
        found = {
            "repeat_action_probability": (
                ale.getFloat("repeat_action_probability"),
                self._stickiness,
            ),
            "frame_skip": (ale.getInt("frame_skip"), 1),
            "actions": (len(self._actions), self._environment.actions),
        }
        _compare(self._environment, found)
        if self._environment.waits_for_fire and not self._has_fire:
            raise EnvironmentMismatch(f"{self._environment.id}: it has no FIRE to wait for")
        self._switched_on = ale.cloneSystemState()
        self._lives = ale.lives()


class Shrink:
    """The area mean of a gray screen, 84 x 84: each pixel counts by how much of it is covered.

    Sums are of whole numbers below 2^24, so float32 holds them exactly and the order of additions
    changes nothing: the result is the exact mean, rounded (halves to even) once.
    """

    def __init__(self, height: int, width: int) -> None:
        self._rows, row_sum = _cover(height)
        columns, column_sum = _cover(width)
        self._columns = np.ascontiguousarray(columns.T)
        self._area = np.float32(row_sum * column_sum)
        if 255 * row_sum * column_sum >= 1 << 24:
            raise ValueError(f"a screen of {height} x {width} is not summed exactly in float32")

    def __call__(self, screen: NDArray[np.uint8]) -> Frame:
        # Block by block: products so small that BLAS starts no thread for them.
        high, wide = self._rows.shape[1], self._columns.shape[0]
        rows = self._rows @ screen.astype(np.float32).reshape(-1, high, screen.shape[1])
        sums = (rows.reshape(SIDE, -1, wide) @ self._columns).reshape(SIDE, SIDE)
        mean: Frame = np.rint(sums / self._area).astype(np.uint8)
        return mean


def _cover(size: int) -> tuple[NDArray[np.float32], int]:
    """How much of each pixel of a block each of the pixels that it shrinks to covers, and the sum.

    A block is the fewest of `size` pixels that become a whole number of the 84. In units of the
    largest length that divides a pixel of both kinds.
    """
    blocks = int(np.gcd(size, SIDE))
    pixel, interval = SIDE // blocks, size // blocks
    starts, ends = np.arange(pixel)[:, None] * interval, np.arange(interval) * pixel
    overlap = np.minimum(starts + interval, ends + pixel) - np.maximum(starts, ends)
    return np.maximum(overlap, 0).astype(np.float32), interval


class PixelEpisodes:
    """A run's training game: lost lives end episodes, rewards are signs, chance is drawn here.

    `returns` are raw, of whole games, with their exploration in them.
    """

    def __init__(self, environment: AtariGame, plan: Plan, seed: int) -> None:
        self.returns: list[float] = []
        self.host_draws = False
        self._game = Game(environment, sticky=False)
        self._environment = environment
        self._starts = np.random.default_rng([seed, _STARTS_STREAM])
        self._chance = np.random.default_rng([seed, _CHANCE_STREAM])
        self._warm_up_steps = plan.profile.learning_starts
        self._epsilon = epsilon(plan)
        self._steps = 0
        self._return = 0.0
        self._length = 0

    @property
    def settings(self) -> Settings:
        return self._game.settings

    def begin(self) -> bytes:
        first = self._new_game()
        self._toss()
        return pixels.encode_first_frame(first, self.host_draws)

    def draw(self) -> NDArray[np.int32]:
        return self._chance.integers(self._environment.actions, size=1, dtype=np.int32)

    def decode(self, payload: bytes) -> NDArray[np.int32]:
        return pixels.decode_actions(payload, 1, self._environment.actions)

    def take(self, action: NDArray[np.int32]) -> bytes:
        """One step, with all that follows before the learner acts again."""
        chosen = int(action[0])
        frame, reward = self._game.step(chosen)
        self._return += reward
        self._length += 1
        self._steps += 1
        terminated = self._game.over or self._game.lost_life
        stopped = self._length == self._environment.time_limit
        first = None
        if terminated or stopped:
            first = self._go_on(stopped)
        self._toss()
        transition = PixelTransition(
            chosen, float(np.sign(reward)), terminated, stopped and not terminated, frame, first
        )
        return pixels.encode_transition(transition, self.host_draws)

    def close(self) -> None:
        """Nothing outlives the object."""

    def _go_on(self, stopped: bool) -> Frame:
        """The first frame of the next episode: the same game's where it is not over."""
        if not (self._game.over or stopped):
            frame, reward = self._game.step(FIRE if self._environment.waits_for_fire else NO_OP)
            self._return += reward
            if not self._game.over:
                return frame
        self.returns.append(self._return)
        return self._new_game()

    def _new_game(self) -> Frame:
        self._return, self._length = 0.0, 0
        no_ops = int(self._starts.integers(1, MAX_NO_OPS, endpoint=True))
        return self._game.begin(Start(no_ops, seed=0))

    def _toss(self) -> None:
        self.host_draws = (
            self._steps < self._warm_up_steps or self._chance.random() < self._epsilon(self._steps)
        )


def epsilon(plan: Plan) -> Callable[[int], float]:
    """By step, the share that is left to chance: `linear_schedule` of the scaffold."""
    begin, end = plan.constants["start_e"], plan.constants["end_e"]
    duration = plan.constants["exploration_fraction"] * plan.profile.total_timesteps
    return lambda step: max(begin + (end - begin) / duration * step, end)


class EvaluatedGame:
    """Whole games, all lives, raw rewards; what is acted on is a stack, uint8 (4, 84, 84)."""

    def __init__(self, environment: AtariGame, sticky: bool) -> None:
        self.episode_return = 0.0
        self.episode_length = 0
        self.stopped = False
        self._environment = environment
        self._game = Game(environment, sticky)

    @property
    def settings(self) -> Settings:
        return self._game.settings

    def reset(self, start: Start) -> NDArray[np.uint8]:
        self.episode_return, self.episode_length, self.stopped = 0.0, 0, False
        self._stack = np.stack([self._game.begin(start)] * STACK)
        return self._stack

    def clip(self, action: NDArray[np.int32]) -> NDArray[np.int32]:
        return action

    def step(self, action: NDArray[np.int32]) -> tuple[NDArray[np.uint8], bool]:
        self._see(self._game.step(int(action)))
        if self._game.lost_life and self._environment.waits_for_fire:
            # A policy that never fires would stand here until the game is stopped.
            for seen in self._game.fire():
                self._see(seen)
        self.episode_length += 1
        self.stopped = self.episode_length == self._environment.time_limit and not self._game.over
        return self._stack, self._game.over or self.stopped

    def close(self) -> None:
        """Nothing outlives the object."""

    def _see(self, seen: tuple[Frame, float]) -> None:
        frame, reward = seen
        self.episode_return += reward
        self._stack = np.concatenate([self._stack[1:], frame[None]])


class Atari:
    """The family."""

    def second(self, environment: Environment) -> Second:
        """Without sticky actions a game has its 30 starts, and no other chance."""
        return Second(f"sticky actions ({STICKINESS})", _game(environment).floor)

    def check(self, environment: Environment) -> Settings:
        return Game(_game(environment), sticky=False).settings

    def training(self, environment: Environment, plan: Plan, seed: int) -> PixelEpisodes:
        return PixelEpisodes(_game(environment), plan, seed)

    def evaluated(self, environment: Environment, second: bool) -> EvaluatedGame:
        return EvaluatedGame(_game(environment), sticky=second)

    def starts(self, purpose: Purpose, count: int, seed: SeedOf) -> Sequence[Start]:
        """`count` = 30 takes each number of no-ops once, fewer the first of a secret order."""
        order = np.random.default_rng(seed(purpose, 0)).permutation(MAX_NO_OPS) + 1
        return [
            Start(int(order[index % MAX_NO_OPS]), seed(purpose, index)) for index in range(count)
        ]

    def decode_actions(
        self, environment: Environment, payload: bytes, rows: int
    ) -> NDArray[np.int32]:
        return pixels.decode_actions(payload, rows, _game(environment).actions)


def _game(environment: Environment) -> AtariGame:
    assert isinstance(environment, AtariGame)
    return environment


def _rom(environment: AtariGame) -> str:
    """The path of the cartridge, of an id whose registered settings are those that we emulate."""
    try:
        spec = gymnasium.spec(environment.id)
    except gymnasium.error.Error as error:
        raise EnvironmentMismatch(f"{environment.id}: {error}") from error
    wanted = {"repeat_action_probability": 0.0, "frameskip": 1, "full_action_space": False}
    if "game" not in spec.kwargs:
        raise EnvironmentMismatch(f"{environment.id} is no Atari game")
    _compare(environment, {name: (spec.kwargs.get(name), each) for name, each in wanted.items()})
    return str(roms.get_rom_path(spec.kwargs["game"]))


def _compare(environment: AtariGame, found: Mapping[str, tuple[object, object]]) -> None:
    for name, (is_, should_be) in found.items():
        if is_ != should_be:
            raise EnvironmentMismatch(
                f"{environment.id}: {name} is {is_}, the task says {should_be}"
            )
