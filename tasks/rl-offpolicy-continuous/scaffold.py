"""Off-policy continuous control: one learner, one environment, one update a step.

You fill the region between the two banner lines with an actor, a critic and an algorithm. All else
is fixed. Read it from top to bottom: it is everything that happens to your code.
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
    ReplayBuffer,
    TrainingEnvironment,
    acting,
    adam,
    check_budget,
    export_policy,
    soft_update,
)

# What a region may use without importing it, beside what is used below.
__all__ = ["F", "copy", "math", "np", "optim", "random", "time", "torch"]
# Helpers in the fastest form that leaves the algorithm as it is:
#   soft_update(target, source, tau)   Polyak averaging in place, over parameters
#   adam(parameters, lr)               torch's Adam
#   with acting(): ...                 no gradients, around the choice of an action
__all__ += ["acting", "adam", "soft_update"]

METRICS_EVERY = 1_000  # steps between two entries of what `update` returns in the log


@dataclass
class Args:
    """The numbers of this task and profile (task.toml). The algorithm gets a copy of its own."""

    seed: int
    total_timesteps: int  # environment steps of the whole run
    learning_starts: int  # steps of uniformly random actions before the first update
    buffer_size: int  # transitions that the replay buffer keeps
    batch_size: int  # transitions of one update
    learning_rate: float  # Adam's, for every network
    gamma: float  # discount
    tau: float  # share of the online network that enters a target network at each soft update
    policy_frequency: int  # critic updates for each update of the actor
    exploration_noise: float  # standard deviation of Gaussian exploration, in units of max_action
    eval_freq: int  # steps between two exports of the policy
    eval_episodes: int  # episodes by which each export is scored, outside this process


def _mlp_factory(input_dim: int, output_dim: int, hidden: int = 256) -> nn.Sequential:
    """Two hidden layers with ReLU, torch's default initialisation."""
    return nn.Sequential(
        nn.Linear(input_dim, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, output_dim),
    )


# ==== EDITABLE REGION BEGINS ====
class Actor(nn.Module):
    """The policy network. `get_action` is all that an evaluation calls."""

    def __init__(self, obs_dim, action_dim, max_action):
        super().__init__()
        self.net = _mlp_factory(obs_dim, action_dim)
        self.max_action = max_action

    def forward(self, obs):
        return torch.tanh(self.net(obs)) * self.max_action

    def get_action(self, obs):
        """float32 (B, obs_dim) -> actions (B, action_dim), or a tuple that begins with them."""
        return self(obs)


class QNetwork(nn.Module):
    """A critic: the value of an action in a state, (B, 1)."""

    def __init__(self, obs_dim, action_dim):
        super().__init__()
        self.net = _mlp_factory(obs_dim + action_dim, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], dim=1))


class OffPolicyAlgorithm:
    """What you are here to write. The loop below builds one and calls its two methods."""

    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)  # this name is mandatory

    def select_action(self, obs):
        """Explore: numpy (obs_dim,) -> numpy (action_dim,). Called with gradients enabled."""
        raise NotImplementedError("write select_action")

    def update(self, batch):
        """Learn from (obs, next_obs, actions, rewards, dones); return a dict of scalars to log.

        float32 on the device: obs and next_obs (B, obs_dim), actions (B, action_dim), rewards and
        dones (B,). dones is 1 where the episode terminated, 0 where a time limit cut it.
        """
        raise NotImplementedError("write update")


# ==== EDITABLE REGION ENDS ====


def build(env: TrainingEnvironment) -> OffPolicyAlgorithm:
    """The algorithm for the shapes of one environment. Its name is not to be had here."""
    args = Args(seed=env.seed, **env.constants)
    device = torch.device(env.device)
    return OffPolicyAlgorithm(env.observation_dim, env.action_dim, env.max_action, device, args)


def act(actor: nn.Module, obs: torch.Tensor) -> np.ndarray:
    """An evaluation's acting: obs (B, obs_dim) -> actions (B, action_dim)."""
    with torch.no_grad():
        action = actor.get_action(obs)
    if isinstance(action, tuple):
        action = action[0]
    return action.cpu().numpy()


def train(env: TrainingEnvironment) -> None:
    """The whole of a run. Environment, step count, clock and returns are outside this process."""
    args = Args(seed=env.seed, **env.constants)
    algorithm = build(env)
    # Every network counts, targets too; a module over the budget is named, and the run rejected.
    parameters = check_budget(algorithm, env.parameter_budget)
    buffer = ReplayBuffer(
        min(args.buffer_size, args.total_timesteps),
        env.observation_dim,
        env.action_dim,
        args.seed,
        torch.device(env.device),
    )

    obs = env.begin(parameters)
    env.export(export_policy(algorithm.actor))
    for global_step in range(args.total_timesteps):
        if global_step < args.learning_starts:
            transition = env.step_at_random()
        else:
            transition = env.step(algorithm.select_action(obs))
        # A time limit is no terminal state: only `terminated` stops the bootstrap. And next_obs is
        # where the action led, never the first observation of the next episode.
        buffer.add(
            obs,
            transition.next_obs,
            transition.action,
            transition.reward,
            transition.terminated,
        )
        obs = transition.obs

        if global_step >= args.learning_starts:
            metrics = algorithm.update(buffer.sample(args.batch_size))
            if global_step % METRICS_EVERY == 0:
                env.log(metrics)
        if env.export_due:
            check_budget(algorithm, env.parameter_budget)
            env.export(export_policy(algorithm.actor))
