"""The replay buffer of off-policy tasks: a packed row a transition, a generator of its own."""

import numpy as np
import torch

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class ReplayBuffer:
    """The last `capacity` transitions, each one row of float32.

    Memory is `capacity x (2 x observation_dim + action_dim + 2) x 4` bytes, touched as it fills.
    Its generator is private, so that what a submission draws from numpy's or torch's global
    generators does not change which transitions are sampled.
    """

    def __init__(
        self, capacity: int, observation_dim: int, action_dim: int, seed: int, device: torch.device
    ) -> None:
        ends = np.cumsum([observation_dim, observation_dim, action_dim, 1, 1])
        self._obs, self._next_obs, self._actions, self._reward, self._done = (
            slice(int(end) - size, int(end))
            for end, size in zip(
                ends, [observation_dim, observation_dim, action_dim, 1, 1], strict=True
            )
        )
        self._rows = np.empty((capacity, int(ends[-1])), dtype=np.float32)
        self._generator = np.random.default_rng(seed)
        self._device = device
        self._next = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Store one transition over the oldest. `next_obs` never belongs to the next episode."""
        row = self._rows[self._next]
        row[self._obs] = obs
        row[self._next_obs] = next_obs
        row[self._actions] = action
        row[self._reward] = reward
        row[self._done] = terminated
        self._next = (self._next + 1) % len(self._rows)
        self._size = min(self._size + 1, len(self._rows))

    def sample(self, batch_size: int) -> Batch:
        """Draw with replacement: obs and next_obs (B, O), actions (B, A), rewards and dones (B,).

        Fresh contiguous float32 tensors on the device: the caller may keep or change them.
        """
        rows = self._rows[self._generator.integers(self._size, size=batch_size)]
        return (
            self._tensor(rows[:, self._obs]),
            self._tensor(rows[:, self._next_obs]),
            self._tensor(rows[:, self._actions]),
            self._tensor(rows[:, self._reward]).view(-1),
            self._tensor(rows[:, self._done]).view(-1),
        )

    def _tensor(self, columns: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(columns.copy()).to(self._device)
