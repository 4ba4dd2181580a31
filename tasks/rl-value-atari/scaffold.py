"""Value-based control from pixels: one learner, one game, one update every fourth step.

You fill the region between the two banner lines with a Q-network and an algorithm. All else is
fixed. Read it from top to bottom: it is everything that happens to your code.
"""

import copy
import math
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from sandbox.guest import (
    Batch,
    FrameBuffer,
    PixelEnvironment,
    acting,
    adam,
    check_budget,
    export_policy,
    memory_format,
    soft_update,
    to_floats,
)

# What a region may use without importing it, beside what is used below.
__all__ = ["Batch", "F", "copy", "math", "np", "optim", "random", "time", "torch"]
# Helpers in the fastest form that leaves the algorithm as it is:
#   adam(parameters, lr)               torch's Adam
#   soft_update(target, source, tau)   Polyak averaging in place, over parameters
#   with acting(): ...                 no gradients, around the choice of an action
#   to_floats(observations)            float32 for an encoder, once for all networks that see them
__all__ += ["acting", "adam", "soft_update", "to_floats"]

METRICS_EVERY = 1_000  # steps between two entries of what `update` returns in the log


@dataclass
class Args:
    """The numbers of this task and profile (task.toml). The algorithm gets a copy of its own."""

    seed: int
    total_timesteps: int  # agent steps of the whole run, of four frames each
    learning_starts: int  # steps of uniformly random actions before the first update
    buffer_size: int  # transitions that the replay buffer keeps
    batch_size: int  # transitions of one update
    train_frequency: int  # steps for each update
    learning_rate: float  # Adam's
    gamma: float  # discount
    target_network_frequency: int  # steps between two updates of the target network
    tau: float  # share of the online network that enters the target network then
    start_e: float  # epsilon at the first step
    end_e: float  # epsilon from the end of exploration on
    exploration_fraction: float  # of the run, over which epsilon falls in a straight line
    eval_freq: int  # steps between two exports of the Q-network
    eval_episodes: int  # games by which each export is scored, outside this process


@dataclass(frozen=True)
class Discrete:
    """A game's actions: the numbers from 0 to n - 1."""

    n: int


@dataclass(frozen=True)
class Envs:
    """All that a region learns of its game. The game itself is outside this process."""

    single_action_space: Discrete


ENCODER_FEATURE_DIM = 512


class NatureDQNEncoder(nn.Module):
    """The convolutions of Mnih et al. (2015), and their layer of 512 units: 1,684,128 parameters.

    (B, 4, 84, 84), uint8 or float from 0 to 255 -> (B, 512).
    """

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, ENCODER_FEATURE_DIM),
            nn.ReLU(),
        ).to(memory_format=memory_format())

    def forward(self, x):
        return self.network(to_floats(x) / 255.0)


def linear_schedule(start_e: float, end_e: float, duration: float, t: int) -> float:
    """Epsilon at step t: from start_e to end_e in a straight line over `duration` steps."""
    return max(start_e + (end_e - start_e) / duration * t, end_e)


# ==== EDITABLE REGION BEGINS ====
class QNetwork(nn.Module):
    """Values of all actions, (B, n). An evaluation takes the largest, and calls nothing else."""

    def __init__(self, envs):
        super().__init__()
        self.encoder = NatureDQNEncoder()
        self.head = nn.Linear(ENCODER_FEATURE_DIM, envs.single_action_space.n)

    def forward(self, x):
        """uint8 (B, 4, 84, 84) -> float (B, n)."""
        return self.head(self.encoder(x))


class ValueAlgorithm:
    """What you are here to write. The loop below builds one and calls its two methods."""

    def __init__(self, envs, device, args):
        self.q_network = QNetwork(envs).to(device)  # this name is mandatory
        self.target_network = QNetwork(envs).to(device)
        self.target_network.load_state_dict(self.q_network.state_dict())

    def select_action(self, obs, epsilon=0.0):
        """numpy uint8 (1, 4, 84, 84) -> integers (1,). epsilon is 0: the host explores."""
        raise NotImplementedError("write select_action")

    def update(self, batch, global_step):
        """Learn from a batch; return a dict of scalars to log.

        On the device: batch.observations and batch.next_observations uint8 (B, 4, 84, 84),
        batch.actions int64 (B, 1), batch.rewards float32 (B, 1), -1, 0 or 1, batch.dones float32
        (B, 1), 1 where a life or the game was lost. global_step counts environment steps.
        """
        raise NotImplementedError("write update")


# ==== EDITABLE REGION ENDS ====


def build(env: PixelEnvironment) -> ValueAlgorithm:
    """The algorithm for the actions of one game. Its name is not to be had here."""
    args = Args(seed=env.seed, **env.constants)
    return ValueAlgorithm(Envs(Discrete(env.actions)), torch.device(env.device), args)


def act(q_network: nn.Module, observations: torch.Tensor) -> np.ndarray:
    """An evaluation's acting, greedy: uint8 (B, 4, 84, 84) -> actions (B,)."""
    with torch.no_grad():
        values = q_network(observations)
    if not values.isfinite().all():
        raise ArithmeticError("q_network gave values that are not finite: none of them is largest")
    return values.argmax(dim=1).cpu().numpy()


def train(env: PixelEnvironment) -> None:
    """The whole of a run. Game, step count, clock and returns are outside this process."""
    args = Args(seed=env.seed, **env.constants)
    algorithm = build(env)
    # Every network counts, targets too; a module over the budget is named, and the run rejected.
    parameters = check_budget(algorithm, env.parameter_budget)
    capacity = min(args.buffer_size, args.total_timesteps)
    buffer = FrameBuffer(capacity, args.seed, torch.device(env.device))

    buffer.begin(env.begin(parameters))
    env.export(export_policy(algorithm.q_network))
    for global_step in range(args.total_timesteps):
        # Warm-up and epsilon: the host draws, by linear_schedule over exploration_fraction.
        if env.host_draws:
            step = env.step_at_random()
        else:
            step = env.step(algorithm.select_action(buffer.newest(), epsilon=0.0))
        # A lost life ends an episode, and the game goes on. A game that is stopped at its longest
        # has not been lost: only `terminated` stops the bootstrap.
        buffer.add(step.action, step.reward, step.terminated, step.next_frame)
        if step.first_frame is not None:
            buffer.begin(step.first_frame)

        if global_step >= args.learning_starts and global_step % args.train_frequency == 0:
            metrics = algorithm.update(buffer.sample(args.batch_size), global_step)
            if global_step % METRICS_EVERY == 0:
                env.log(metrics)
        if env.export_due:
            check_budget(algorithm, env.parameter_budget)
            env.export(export_policy(algorithm.q_network))
