"""Offline control: a policy learned from a fixed dataset, judged by how often it succeeds.

You fill the region between the two banner lines with a policy: its networks, its loss, and how it
acts. The critic, the data and the loop are fixed. Read it from top to bottom: it is everything that
happens to your code.
"""

import copy
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from sandbox.guest import (
    MLP,
    DatasetEnvironment,
    GaussianActor,
    OfflineBatch,
    Value,
    VectorFieldActor,
    adam,
    check_budget,
    checked_actions,
    checked_loss,
    checked_names,
    checked_networks,
    export_policy,
    soft_update,
)

# What a region may use without importing it, beside what is used below.
__all__ = ["Callable", "F", "Mapping", "copy", "math", "np", "optim", "random", "time", "torch"]
# Networks to build on, with the initial weights and the layer norm of FQL's code, and GELU:
#   MLP(input_dim, layer_dims)                                     (B, input_dim) -> (B, last)
#   GaussianActor(observation_dim, action_dim, hidden_dims)        observations -> a distribution
#   VectorFieldActor(observation_dim, action_dim, hidden_dims)     observations, actions[, times]
#   Value(observation_dim, action_dim, hidden_dims)                observations[, actions] -> values
__all__ += ["MLP", "GaussianActor", "Value", "VectorFieldActor"]

METRICS_EVERY = 1_000  # gradient steps between two entries in the log

Networks = Mapping[str, nn.Module]
Critic = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Config:
    """The numbers of this task, profile and dataset (task.toml); no name of a dataset is told."""

    seed: int
    total_timesteps: int  # gradient steps of the whole run
    batch_size: int  # transitions of one step
    learning_rate: float  # Adam's, of the critic and of the policy
    tau: float  # share of an online network that enters its target network at each step
    discount: float
    alpha: float  # weight of staying close to the data, as published for FQL on this dataset
    q_agg: str  # "min" or "mean": how the target makes one value of two
    normalize_q_loss: bool  # whether the policy's Q term is divided by the mean absolute Q
    actor_hidden_dims: tuple  # widths of a policy network's hidden layers
    value_hidden_dims: tuple  # widths of the critic's
    eval_freq: int  # steps between two exports of the policy
    eval_episodes: int  # episodes by which each export is scored, outside this process


# ==== EDITABLE REGION BEGINS ====
class PolicyTrainer:
    """What you are here to write. It is exported with the policy's networks, and acts with them."""

    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        self.config = config

    def create_policy_networks(self):
        """The policy's networks by name, a dict of nn.Module. The loop trains all of them."""
        raise NotImplementedError("write create_policy_networks")

    def compute_actor_loss(self, networks, batch, critic):
        """The loss of all these networks, a scalar, and a dict of scalars to log.

        networks: as created, by name. batch, float32 on the device: observations and
        next_observations (B, O), actions (B, A) within -1 and 1, rewards and masks (B,);
        next_actions (B, A), or None unless needs_next_actions says True. critic(observations,
        actions) gives the two values (2, B); gradients reach the actions, never the critic.
        """
        raise NotImplementedError("write compute_actor_loss")

    def sample_actions(self, networks, observations, temperature):
        """Actions (B, A) for observations (B, O); no gradients. What leaves -1 to 1 is clipped.

        temperature is 1.0 for the critic's target, where the networks that
        get_target_update_modules names are their targets; it is 0.0 when the policy is judged.
        """
        raise NotImplementedError("write sample_actions")

    def get_target_update_modules(self):
        """Names of networks that get a Polyak-averaged target. May be left out."""
        return ()

    def needs_next_actions(self):
        """Whether batches carry what the data's policy did next. May be left out."""
        return False


# ==== EDITABLE REGION ENDS ====


class Policy(nn.Module):
    """What is exported, and all that acts: the trainer and the networks that it created."""

    def __init__(self, trainer: PolicyTrainer, action_dim: int):
        super().__init__()
        self.trainer = trainer
        self.action_dim = action_dim
        self.networks = checked_networks(trainer.create_policy_networks())

    def sample(self, networks: Networks, obs: torch.Tensor, temperature: float) -> torch.Tensor:
        """The trainer's actions for these observations, clipped, (B, A)."""
        with torch.no_grad():
            actions = self.trainer.sample_actions(networks, obs, temperature)
        return checked_actions(actions, obs, self.action_dim)


class Learner:
    """The policy beside its fixed critic. Every network here counts against the budget."""

    def __init__(self, env: DatasetEnvironment):
        self.config = config = Config(seed=env.seed, **env.constants)
        device = torch.device(env.device)
        # Twin Q functions with layer norm.
        self.critic = Value(
            env.observation_dim,
            env.action_dim,
            config.value_hidden_dims,
            num_ensembles=2,
            layer_norm=True,
        ).to(device)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.trainer = PolicyTrainer(env.observation_dim, env.action_dim, config)
        self.policy = Policy(self.trainer, env.action_dim).to(device)
        # Slow copies of the networks that the trainer wants one of.
        names = optional(self.trainer, "get_target_update_modules", ())
        self.targets = {
            name: copy.deepcopy(self.policy.networks[name]).requires_grad_(False)
            for name in checked_names(names, self.policy.networks)
        }
        self.with_next_actions = bool(optional(self.trainer, "needs_next_actions", False))
        self.critic_optimizer = adam(self.critic.parameters(), config.learning_rate)
        self.policy_optimizer = adam(self.policy.networks.parameters(), config.learning_rate)

    def update(self, batch: OfflineBatch) -> dict:
        """One gradient step, of the critic and of the policy; what to log.

        Both gradients are taken before either moves, as if of one sum of losses.
        """
        values = self.critic(batch.observations, batch.actions)
        critic_loss = (values - self.critic_target(batch)).square().mean()
        self.critic_optimizer.zero_grad()
        critic_loss.backward()

        self.critic.requires_grad_(False)
        networks = self.policy.networks
        returned = self.trainer.compute_actor_loss(networks, batch, self.evaluate)
        actor_loss, metrics = checked_loss(returned)
        self.policy_optimizer.zero_grad()
        actor_loss.backward()
        self.critic.requires_grad_(True)

        self.critic_optimizer.step()
        self.policy_optimizer.step()
        soft_update(self.target_critic, self.critic, self.config.tau)
        for name, target in self.targets.items():
            soft_update(target, networks[name], self.config.tau)
            # What a network keeps beside its parameters (running statistics) is copied as it is.
            for slow, fast in zip(target.buffers(), networks[name].buffers(), strict=True):
                slow.copy_(fast)
        own = {"critic_loss": critic_loss, "q": values.mean(), "actor_loss": actor_loss}
        return {**metrics, **{name: each.detach() for name, each in own.items()}}

    def critic_target(self, batch: OfflineBatch) -> torch.Tensor:
        """Reward plus the discounted value of the policy's next action, (B,)."""
        networks = {**self.policy.networks, **self.targets}
        next_actions = self.policy.sample(networks, batch.next_observations, temperature=1.0)
        with torch.no_grad():
            both = self.target_critic(batch.next_observations, next_actions)
            value = both.amin(dim=0) if self.config.q_agg == "min" else both.mean(dim=0)
            return batch.rewards + self.config.discount * batch.masks * value

    def evaluate(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """What compute_actor_loss gets as its critic: the two values, (2, B)."""
        return self.critic(observations, actions)


def optional(trainer: PolicyTrainer, method: str, otherwise):
    """What the trainer's method returns, where it has one; a plain attribute is as good."""
    value = getattr(trainer, method, otherwise)
    return value() if callable(value) else value


def build(env: DatasetEnvironment) -> Learner:
    """The learner for the shapes of one dataset. Its name is not to be had here."""
    return Learner(env)


def act(policy: Policy, observations: torch.Tensor) -> np.ndarray:
    """An evaluation's acting: observations (B, O) -> actions (B, A). The critic is not there."""
    policy.eval()
    return policy.sample(policy.networks, observations, temperature=0.0).cpu().numpy()


def train(env: DatasetEnvironment) -> None:
    """The whole of a run. Judging, step count and clock are outside this process."""
    learner = build(env)
    # Every network counts, targets too; a module over the budget is named, and the run rejected.
    parameters = check_budget(learner, env.parameter_budget)
    dataset = env.dataset()

    env.begin(parameters)
    env.export(export_policy(learner.policy))
    for step in range(1, learner.config.total_timesteps + 1):
        # The host draws which transitions make a batch, uniformly.
        batch = dataset.batch(env.draw(), learner.with_next_actions)
        metrics = learner.update(batch)
        if step % METRICS_EVERY == 0:
            env.log(metrics)
        if env.export_due:
            check_budget(learner, env.parameter_budget)
            env.export(export_policy(learner.policy))
