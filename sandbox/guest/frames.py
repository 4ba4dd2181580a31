"""The replay buffer of pixel tasks: each frame once, stacked as it is sampled."""

from typing import NamedTuple

import numpy as np
import torch

from sandbox.pixels import FRAME_BYTES, SIDE, STACK, Frame, frame_slots


class Batch(NamedTuple):
    """Transitions, in fresh tensors on the device: the caller may keep or change them.

    In the order of Stable-Baselines3's samples, for regions that unpack them.
    """

    observations: torch.Tensor
    """uint8 (B, 4, 84, 84): the newest frame is the last."""
    actions: torch.Tensor
    """int64 (B, 1)."""
    next_observations: torch.Tensor
    """uint8 (B, 4, 84, 84)."""
    dones: torch.Tensor
    """float32 (B, 1): 1 where the episode terminated, 0 where it was cut."""
    rewards: torch.Tensor
    """float32 (B, 1)."""


class FrameBuffer:
    """The last transitions, at most `capacity`, in a ring of single frames.

    Memory is `pixels.buffer_bytes(capacity)`, touched as it fills: 7.29 GB for a million
    transitions, where stacks would take 28 to 56. A stack reaches back to the start of its own
    episode and repeats that frame before it; the frame that an action led to is kept at an
    episode's end, too. Where episodes are shorter than 1 / SPARE_FRAMES steps on average, the
    oldest transitions give way earlier.

    Its generator is private, so that what a submission draws from the global generators does not
    change which transitions are sampled.
    """

    def __init__(self, capacity: int, seed: int, device: torch.device) -> None:
        slots = frame_slots(capacity)
        self._frames = np.empty((slots, FRAME_BYTES), dtype=np.uint8)
        self._age = np.zeros(slots, dtype=np.uint8)  # frames of its episode before it, 3 at most
        self._leads_on = np.zeros(slots, dtype=np.bool_)  # whether an action was taken here
        self._actions = np.zeros(slots, dtype=np.int64)
        self._rewards = np.zeros(slots, dtype=np.float32)
        self._dones = np.zeros(slots, dtype=np.float32)
        self._capacity = capacity
        self._generator = np.random.default_rng(seed)
        self._device = device
        self._frames_seen = 0
        self._oldest = 0  # counts frames, as `_frames_seen` does
        self._transitions = 0

    def __len__(self) -> int:
        return self._transitions

    def begin(self, frame: Frame) -> None:
        """An episode's first frame, uint8 (84, 84)."""
        self._append(frame, age=0)

    def add(self, action: int, reward: float, terminated: bool, next_frame: Frame) -> None:
        """The step from the newest frame to `next_frame`, uint8 (84, 84)."""
        slot = (self._frames_seen - 1) % len(self._frames)
        self._actions[slot] = action
        self._rewards[slot] = reward
        self._dones[slot] = terminated
        self._leads_on[slot] = True
        age = int(self._age[slot])
        self._append(next_frame, age=min(age + 1, STACK - 1))
        self._transitions += 1
        while self._transitions > self._capacity:
            self._forget()

    def newest(self) -> np.ndarray:
        """The stack that ends with the newest frame, uint8 (1, 4, 84, 84): what to act on."""
        newest = self._frames_seen - 1
        age = int(self._age[newest % len(self._frames)])
        slots = newest - np.minimum(np.arange(STACK - 1, -1, -1), age)
        frames = self._frames.take(slots % len(self._frames), axis=0)
        return frames.reshape(1, STACK, SIDE, SIDE)

    def sample(self, batch_size: int) -> Batch:
        """Draw with replacement, each transition as likely as any other."""
        slots = self._draw(batch_size)
        age = self._age[slots, None].astype(np.int64)
        back = np.arange(STACK - 1, -1, -1)
        return Batch(
            observations=self._stacks(slots[:, None] - np.minimum(back, age)),
            actions=torch.from_numpy(self._actions[slots, None]).to(self._device),
            next_observations=self._stacks(
                slots[:, None] + 1 - np.minimum(back, np.minimum(age + 1, STACK - 1))
            ),
            dones=torch.from_numpy(self._dones[slots, None]).to(self._device),
            rewards=torch.from_numpy(self._rewards[slots, None]).to(self._device),
        )

    def _stacks(self, slots: np.ndarray) -> torch.Tensor:
        """uint8 (B, 4, 84, 84) of the frames in those slots, int64 (B, 4), round the ring."""
        # `take` of whole rows: half the time of indexing, and no second copy.
        frames = self._frames.take(slots.ravel() % len(self._frames), axis=0)
        return torch.from_numpy(frames.reshape(-1, STACK, SIDE, SIDE)).to(self._device)

    def _draw(self, count: int) -> np.ndarray:
        """Slots of transitions whose whole stack is still there."""
        if not self._transitions:
            raise ValueError("sample: the buffer holds no transition yet")
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            frames = self._generator.integers(self._oldest, self._frames_seen, size=count)
            slots = frames % len(self._frames)
            oldest_kept = self._frames_seen - len(self._frames)
            whole = self._leads_on[slots] & (frames - self._age[slots] >= oldest_kept)
            drawn = np.concatenate([drawn, slots[whole]])
        return drawn[:count]

    def _append(self, frame: np.ndarray, age: int) -> None:
        if self._frames_seen - self._oldest == len(self._frames):
            self._forget()
        slot = self._frames_seen % len(self._frames)
        self._frames[slot] = frame.reshape(FRAME_BYTES)
        self._age[slot] = age
        self._leads_on[slot] = False
        self._frames_seen += 1

    def _forget(self) -> None:
        self._transitions -= bool(self._leads_on[self._oldest % len(self._frames)])
        self._oldest += 1
