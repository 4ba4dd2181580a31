"""DQN in one plain script, after CleanRL's: no sandbox, no protocol, no harness around the loop.

What a sandboxed run is held against. Game, replay buffer, numeric backends and seeds are those of
a run, so that the same network comes out, bit for bit. What differs is what lies between them.
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
from harness.training.atari import FIRE, MAX_NO_OPS, Game, Start
from sandbox.guest import FrameBuffer, acting, adam, memory_format, soft_update, to_floats
from sandbox.guest.numerics import install
from sandbox.guest.source import seed_everything


class QNetwork(nn.Module):
    """uint8 (B, 4, 84, 84) -> (B, actions)."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, actions),
        ).to(memory_format=memory_format())

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.network(to_floats(frames) / 255.0)


def linear_schedule(start: float, end: float, duration: float, t: int) -> float:
    return max(start + (end - start) / duration * t, end)


def train(asked: Asked) -> dict[str, Any]:
    stopwatch, window = Stopwatch(asked.window), asked.window
    task = Task.load(asked.task)
    environment, args = task.environments[asked.subject.environment], task.constants
    exploring_steps = args["exploration_fraction"] * window.total

    torch.set_num_threads(1)
    install(asked.numerics)
    seed_everything(asked.seed)
    q_network = QNetwork(environment.actions)
    target_network = copy.deepcopy(q_network)
    optimizer = adam(q_network.parameters(), lr=args["learning_rate"])
    buffer = FrameBuffer(window.total, asked.seed, torch.device("cpu"))
    starts, chance = (np.random.default_rng([asked.seed, stream]) for stream in (0, 1))

    def new_game() -> np.ndarray:
        return game.begin(Start(int(starts.integers(1, MAX_NO_OPS, endpoint=True)), seed=0))

    game = Game(environment, sticky=False)
    buffer.begin(new_game())
    for step in range(window.total):
        epsilon = linear_schedule(args["start_e"], args["end_e"], exploring_steps, step)
        if step < window.learning_starts or chance.random() < epsilon:
            action = int(chance.integers(environment.actions, size=1, dtype=np.int32)[0])
        else:
            with acting():
                action = int(q_network(torch.from_numpy(buffer.newest())).argmax(dim=1))
        frame, reward = game.step(action)
        terminated = game.over or game.lost_life
        buffer.add(action, np.sign(reward), terminated, frame)
        if terminated:
            if not game.over:  # a life was lost, and Breakout waits
                frame, _ = game.step(FIRE)
            buffer.begin(new_game() if game.over else frame)
        stopwatch.tick()

        if step >= window.learning_starts and step % args["train_frequency"] == 0:
            batch = buffer.sample(args["batch_size"])
            with torch.no_grad():
                next_q = target_network(batch.next_observations).max(dim=1).values
                rewards, dones = batch.rewards.flatten(), batch.dones.flatten()
                target = rewards + args["gamma"] * next_q * (1 - dones)
            q_values = q_network(batch.observations).gather(1, batch.actions).squeeze(1)
            loss = F.mse_loss(q_values, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % args["target_network_frequency"] == 0:
                soft_update(target_network, q_network, args["tau"])
    return stopwatch.result(loss=loss.item(), weights_sha256=weights_sha256(q_network))


if __name__ == "__main__":
    print(json.dumps(train(parse(__doc__.splitlines()[0]))), flush=True)
