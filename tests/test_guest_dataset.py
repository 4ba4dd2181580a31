"""Batches of a dataset are its rows, taken apart; a file that is no dataset is refused."""

import re

import numpy as np
import pytest
import torch

from sandbox.guest.dataset import Dataset, OfflineBatch
from sandbox.rows import row_length

CPU = torch.device("cpu")
OBSERVATION_DIM, ACTION_DIM = 2, 1
ROWS = np.array(
    [
        # observation, next observation, action, next action, reward, mask
        [0.0, 0.1, 1.0, 1.1, 0.5, 0.6, -1.0, 1.0],
        [1.0, 1.1, 2.0, 2.1, 0.6, 0.7, -2.0, 1.0],
        [2.0, 2.1, 3.0, 3.1, 0.7, 0.7, 0.0, 0.0],
        [7.0, 7.1, 8.0, 8.1, -0.5, -0.6, -3.0, 1.0],
    ],
    dtype=np.float32,
)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "train.npy"
    np.save(file, ROWS)
    return file


def opened(path) -> Dataset:
    return Dataset(path, OBSERVATION_DIM, ACTION_DIM, CPU)


def batch(path, *indices: int, with_next_actions: bool = True) -> OfflineBatch:
    return opened(path).batch(np.array(indices, dtype=np.int32), with_next_actions)


def test_a_batch_holds_the_asked_for_rows_in_the_asked_for_order(path):
    got = batch(path, 3, 1, 2, 1)
    assert got.observations.tolist() == ROWS[[3, 1, 2, 1], 0:2].tolist()
    assert got.next_observations.tolist() == ROWS[[3, 1, 2, 1], 2:4].tolist()
    assert got.actions.tolist() == ROWS[[3, 1, 2, 1], 4:5].tolist()
    assert got.next_actions.tolist() == ROWS[[3, 1, 2, 1], 5:6].tolist()
    assert got.rewards.tolist() == [-3, -2, 0, -2]
    assert got.masks.tolist() == [1, 1, 0, 1]


def test_each_of_many_columns_lands_where_it_belongs(tmp_path):
    """Column c of row r is 1000 r + c."""
    width = row_length(28, 5)
    rows = 1000 * np.arange(300)[:, None] + np.arange(width)[None]
    np.save(tmp_path / "wide.npy", rows.astype(np.float32))
    indices = np.random.default_rng(0).integers(300, size=256, dtype=np.int32)
    got = Dataset(tmp_path / "wide.npy", 28, 5, CPU).batch(indices, with_next_actions=True)
    start = 1000 * torch.from_numpy(indices)[:, None]
    assert torch.equal(got.observations, (start + torch.arange(0, 28)).float())
    assert torch.equal(got.next_observations, (start + torch.arange(28, 56)).float())
    assert torch.equal(got.actions, (start + torch.arange(56, 61)).float())
    assert torch.equal(got.next_actions, (start + torch.arange(61, 66)).float())
    assert torch.equal(got.rewards, (start[:, 0] + 66).float())
    assert torch.equal(got.masks, (start[:, 0] + 67).float())


def test_all_parts_are_contiguous_float32_on_the_device(path):
    for part in batch(path, 0, 2, 3):
        assert part.dtype is torch.float32
        assert part.device == CPU
        assert part.is_contiguous()
        assert len(part) == 3


def test_next_actions_come_only_where_they_are_asked_for(path):
    without = batch(path, 0, 2, with_next_actions=False)
    assert without.next_actions is None
    for asked, unasked in zip(batch(path, 0, 2)[:-1], without[:-1], strict=True):
        assert torch.equal(asked, unasked)


def test_its_length_is_the_number_of_transitions(path):
    assert len(opened(path)) == 4


@pytest.mark.parametrize("indices", [(1,), (0, 1, 2, 3)])
def test_changing_a_batch_changes_neither_the_file_nor_another_part_of_it(path, indices):
    before, dataset = path.read_bytes(), opened(path)
    asked = np.array(indices, dtype=np.int32)
    changed, kept = dataset.batch(asked, True), dataset.batch(asked, True)
    for number, part in enumerate(changed):
        part.fill_(100 + number)
    assert [part.unique().item() for part in changed] == [100, 101, 102, 103, 104, 105]
    assert path.read_bytes() == before
    for again, part in zip(dataset.batch(asked, True), kept, strict=True):
        assert torch.equal(again, part)


@pytest.mark.parametrize("indices", [(1,), (0, 1, 2)])
def test_a_kept_part_keeps_no_others_in_memory(path, indices):
    for part, width in zip(batch(path, *indices), (2, 1, 1, 1, 2, 1), strict=True):
        assert part.untyped_storage().nbytes() == len(indices) * width * 4


def test_an_index_beyond_the_last_transition_is_refused(path):
    with pytest.raises(IndexError):
        batch(path, 4)


def test_the_indices_are_left_as_they_are(path):
    indices = np.array([3, 0], dtype=np.int32)
    indices.flags.writeable = False
    opened(path).batch(indices, with_next_actions=False)
    assert indices.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (ROWS[:, :-1], r"float32 \(4, 7\); float32 \(transitions, 8\) is needed"),
        (np.hstack([ROWS, ROWS]), r"float32 \(4, 16\)"),
        (ROWS.astype(np.float64), r"float64 \(4, 8\)"),
        (ROWS.astype(">f4"), r">f4 \(4, 8\)"),
        (ROWS[None], r"float32 \(1, 4, 8\)"),
        (ROWS[0], r"float32 \(8,\)"),
        (np.asfortranarray(ROWS), "rows must"),
        (ROWS[:0], ""),
        (np.array([[{}] * 8]), "objects"),
    ],
    ids=["narrow", "wide", "float64", "big-endian", "3-D", "1-D", "columns", "no rows", "pickle"],
)
def test_an_array_of_another_kind_is_refused_with_its_path(path, array, problem):
    np.save(path, array, allow_pickle=True)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: .*{problem}"):
        opened(path)


@pytest.mark.parametrize("kept", [0, 5, 40, 128, 200, -1])
def test_a_truncated_file_is_refused_with_its_path(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: no array"):
        opened(path)


def test_a_file_of_something_else_is_refused_with_its_path(path):
    np.savez(path.with_suffix(".npz"), ROWS)
    with pytest.raises(ValueError, match=r"train\.npz: no array"):
        opened(path.with_suffix(".npz"))


def test_a_missing_file_is_named(path):
    with pytest.raises(FileNotFoundError, match=r"absent\.npy"):
        opened(path.with_name("absent.npy"))
