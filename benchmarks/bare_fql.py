"""FQL in one plain script, after CleanRL's: no sandbox, no protocol, no harness around the loop.

What a sandboxed run is held against. Networks, reading of rows, numeric backends and seeds are
those of a run, so that the same network comes out, bit for bit. What differs is what lies between
them.
"""

import copy
import json
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its name in the field
from torch import nn

from benchmarks.measuring import Asked, Stopwatch, parse, weights_sha256
from harness.task import Task
from sandbox.guest import Value, VectorFieldActor, adam, soft_update
from sandbox.guest.dataset import Dataset
from sandbox.guest.numerics import install
from sandbox.guest.source import seed_everything

FLOW_STEPS = 10


def train(asked: Asked) -> dict[str, Any]:
    stopwatch = Stopwatch(asked.window)
    task = Task.load(asked.task)
    environment = task.environments[asked.subject.environment]
    shapes = environment.observation_dim, environment.action_dim
    args = {**task.constants, **environment.constants}

    torch.set_num_threads(1)
    install(asked.numerics)
    seed_everything(asked.seed)
    critic = Value(*shapes, args["value_hidden_dims"], num_ensembles=2, layer_norm=True)
    target_critic = copy.deepcopy(critic).requires_grad_(False)
    flow = VectorFieldActor(*shapes, args["actor_hidden_dims"], times=True)
    one_step = VectorFieldActor(*shapes, args["actor_hidden_dims"], times=False)
    policy = nn.ModuleDict({"flow": flow, "one_step": one_step})
    critic_optimizer = adam(critic.parameters(), lr=args["learning_rate"])
    policy_optimizer = adam(policy.parameters(), lr=args["learning_rate"])
    dataset = Dataset(asked.dataset, *shapes, torch.device("cpu"))
    rows = np.random.default_rng([asked.seed, 2])

    for _ in range(asked.window.total):
        drawn = rows.integers(len(dataset), size=args["batch_size"])
        stopwatch.tick()
        batch = dataset.batch(drawn, with_next_actions=False)

        # The critic.
        values = critic(batch.observations, batch.actions)
        with torch.no_grad():
            noise = torch.randn_like(batch.actions)
            next_actions = one_step(batch.next_observations, noise).clamp(-1.0, 1.0)
            both = target_critic(batch.next_observations, next_actions)
            next_value = both.amin(dim=0) if args["q_agg"] == "min" else both.mean(dim=0)
            target = batch.rewards + args["discount"] * batch.masks * next_value
        critic_loss = (values - target).square().mean()
        critic_optimizer.zero_grad()
        critic_loss.backward()

        # The flow.
        noise = torch.randn_like(batch.actions)
        times = torch.rand_like(batch.actions[:, :1])
        between = (1.0 - times) * noise + times * batch.actions
        velocities = flow(batch.observations, between, times)
        flow_loss = F.mse_loss(velocities, batch.actions - noise)

        # The policy of one step.
        noise = torch.randn_like(batch.actions)
        with torch.no_grad():
            carried = noise
            for step in range(FLOW_STEPS):
                times = torch.full_like(noise[:, :1], step / FLOW_STEPS)
                carried = carried + flow(batch.observations, carried, times) / FLOW_STEPS
            carried = carried.clamp(-1.0, 1.0)
        actions = one_step(batch.observations, noise)
        distill_loss = F.mse_loss(actions, carried)
        critic.requires_grad_(False)
        q = critic(batch.observations, actions.clamp(-1.0, 1.0)).mean(dim=0)
        q_loss = -q.mean()
        if args["normalize_q_loss"]:
            q_loss = q_loss / q.detach().abs().mean()
        loss = flow_loss + args["alpha"] * distill_loss + q_loss
        policy_optimizer.zero_grad()
        loss.backward()
        critic.requires_grad_(True)

        critic_optimizer.step()
        policy_optimizer.step()
        soft_update(target_critic, critic, args["tau"])
    return stopwatch.result(loss=loss.item(), weights_sha256=weights_sha256(policy))


if __name__ == "__main__":
    print(json.dumps(train(parse(__doc__.splitlines()[0]))), flush=True)
