"""The buffer of single frames is a buffer of stacks in a seventh of the memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.guest.frames import FrameBuffer
from sandbox.pixels import SIDE, STACK, buffer_bytes, frame_slots

CPU = torch.device("cpu")


def frame(number: int) -> np.ndarray:
    """One that can be told from any other, and whose last pixel is not its first."""
    return np.resize(np.frombuffer(number.to_bytes(4, "little"), np.uint8), (SIDE, SIDE))


class Naive:
    """Stacks, stored whole: what the published scaffolds do."""

    def __init__(self) -> None:
        self.transitions: list[tuple[bytes, bytes, int, float, bool]] = []

    def begin(self, first: np.ndarray) -> None:
        self.stack = np.stack([first] * STACK)

    def add(self, action: int, reward: float, terminated: bool, following: np.ndarray) -> None:
        after = np.concatenate([self.stack[1:], following[None]])
        self.transitions.append((self.stack.tobytes(), after.tobytes(), action, reward, terminated))
        self.stack = after


def played(buffer, episodes: list[tuple[int, bool]]) -> None:
    """Episodes of that many steps, which terminate or are cut."""
    number = 0
    for steps, terminates in episodes:
        buffer.begin(frame(number))
        for step in range(steps):
            number += 1
            buffer.add(
                number % 7, float(number % 3), terminates and step == steps - 1, frame(number)
            )
        number += 1


def drawn(buffer: FrameBuffer, count: int) -> set[tuple[bytes, bytes, int, float, bool]]:
    batch = buffer.sample(count)
    return {
        (obs.numpy().tobytes(), after.numpy().tobytes(), int(action), float(reward), bool(done))
        for obs, action, after, done, reward in zip(*batch, strict=True)
    }


@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 60),
)
@settings(max_examples=60, deadline=None)
def test_it_gives_the_last_transitions_as_a_buffer_of_whole_stacks_would(episodes, capacity):
    buffer, naive = FrameBuffer(capacity, 0, CPU), Naive()
    played(buffer, episodes)
    played(naive, episodes)
    kept = naive.transitions[-len(buffer) :]
    seen = drawn(buffer, 600)
    assert seen <= set(kept)
    # Where so many episodes end that their last frames fill the ring, the oldest stack may be gone.
    gone = 0 if len(episodes) <= 0.03 * capacity else 3
    assert len(set(kept) - seen) <= gone
    assert len(buffer) <= capacity
    if len(episodes) < 0.03 * capacity:
        assert len(buffer) == min(capacity, len(naive.transitions))


def test_a_batch_has_the_shapes_and_types_of_the_published_buffer():
    buffer = FrameBuffer(10, 0, CPU)
    played(buffer, [(5, True)])
    batch = buffer.sample(32)
    assert batch._fields == ("observations", "actions", "next_observations", "dones", "rewards")
    stacks, columns = (32, 4, 84, 84), (32, 1)
    assert [tuple(each.shape) for each in batch] == [stacks, columns, stacks, columns, columns]
    assert [each.dtype for each in batch] == [
        torch.uint8,
        torch.int64,
        torch.uint8,
        torch.float32,
        torch.float32,
    ]
    assert all(each.is_contiguous() for each in batch)
    assert len(batch.observations) == 32


def test_a_batch_is_the_callers_own():
    buffer = FrameBuffer(10, 0, CPU)
    played(buffer, [(5, True)])
    before = drawn(buffer, 200)
    for each in buffer.sample(32):
        each.zero_()
    assert drawn(buffer, 200) == before


def test_the_same_seed_draws_the_same_transitions_whatever_else_is_drawn():
    def batches(seed: int, noise: bool) -> list[bytes]:
        buffer = FrameBuffer(50, seed, CPU)
        played(buffer, [(20, True), (20, False)])
        if noise:
            np.random.random(7)
            torch.rand(3)
        return [buffer.sample(8).observations.numpy().tobytes() for _ in range(3)]

    assert batches(1, noise=False) == batches(1, noise=True)
    assert batches(1, noise=False) != batches(2, noise=False)


def test_every_transition_is_as_likely_as_any_other():
    buffer = FrameBuffer(40, 0, CPU)
    played(buffer, [(1, True), (3, True), (30, True), (6, False)])
    counts: dict[bytes, int] = {}
    for _ in range(100):
        for each in buffer.sample(40).observations:
            key = each.numpy().tobytes()
            counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 40
    assert min(counts.values()) > 55
    assert max(counts.values()) < 150


def test_a_million_transitions_fit_into_7_3_gigabytes_and_the_bytes_are_those_of_its_arrays():
    assert 7.0e9 < buffer_bytes(1_000_000) <= 7.3e9
    assert frame_slots(1_000_000) >= 1_030_000
    arrays = [each for each in vars(FrameBuffer(500, 0, CPU)).values() if hasattr(each, "nbytes")]
    assert len(arrays) == 6
    assert sum(each.nbytes for each in arrays) == buffer_bytes(500)


def test_an_empty_buffer_says_so():
    with pytest.raises(ValueError, match="no transition"):
        FrameBuffer(10, 0, CPU).sample(1)
