"""What a guest is given: a buffer, a count, an export; and what a learner sees from inside."""

import functools
import time
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from sandbox.guest.parameters import OverBudget, check_budget, count_by_module
from sandbox.guest.policy import export_policy, load_policy
from sandbox.guest.replay import ReplayBuffer
from tests.support import (
    CHEETAH,
    PENDULUM,
    TASK,
    accepted,
    region,
    small_profile,
    trained,
    unchecked,
)

CPU = torch.device("cpu")


# ---- replay ----


def filled(capacity, count, seed=0):
    """Transition i: obs = (i, i + 0.25), next_obs = obs + 0.5, action = -i, reward = 10 i."""
    buffer = ReplayBuffer(capacity, 2, 1, seed, CPU)
    for i in range(count):
        obs = np.array([i, i + 0.25], dtype=np.float32)
        buffer.add(obs, obs + 0.5, np.array([-i], dtype=np.float32), 10.0 * i, i % 3 == 0)
    return buffer


def test_a_batch_holds_whole_transitions_of_the_last_capacity():
    buffer = filled(capacity=50, count=120)
    assert len(buffer) == 50
    obs, next_obs, actions, rewards, dones = buffer.sample(4096)
    assert [tuple(each.shape) for each in (obs, next_obs, actions, rewards, dones)] == [
        (4096, 2),
        (4096, 2),
        (4096, 1),
        (4096,),
        (4096,),
    ]
    i = obs[:, 0]
    assert set(i.tolist()) == set(range(70, 120))
    assert torch.equal(obs[:, 1], i + 0.25)
    assert torch.equal(next_obs, obs + 0.5)
    assert torch.equal(actions[:, 0], -i)
    assert torch.equal(rewards, 10 * i)
    assert torch.equal(dones, (i % 3 == 0).float())


def test_packed_rows_give_the_very_batches_of_a_plain_buffer():
    """Where a number lies changes none: so this layout stays as it is under STOCK=1 too."""
    draws = np.random.default_rng(3)
    packed = ReplayBuffer(30, 5, 2, seed=9, device=CPU)
    plain = [np.zeros((30, width), dtype=np.float32) for width in (5, 5, 2, 1, 1)]
    for i in range(75):
        whole = [draws.normal(size=width).astype(np.float32) for width in (5, 5, 2)]
        reward, done = draws.normal(), bool(draws.integers(2))
        packed.add(*whole, reward, done)
        for column, value in zip(plain, (*whole, reward, done), strict=True):
            column[i % 30] = value
    indices = np.random.default_rng(9)
    for _ in range(3):
        rows = indices.integers(30, size=64)
        for ours, column in zip(packed.sample(64), plain, strict=True):
            expected = torch.from_numpy(column[rows]).view(ours.shape)
            assert torch.equal(ours, expected)


def test_a_batch_is_the_submissions_own():
    buffer = filled(10, 10)
    first = buffer.sample(64)
    for each in first:
        assert each.is_contiguous()
        each.fill_(-1.0)
    assert all(each.min() >= -9.0 for each in buffer.sample(64)[:2])


def test_sampling_is_seeded_and_touches_no_global_generator():
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    first, second = (filled(100, 100, seed=5).sample(32)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, filled(100, 100, seed=6).sample(32)[0])
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


# ---- the parameter budget ----


class Algorithm:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_every_distinct_tensor_counts_once():
    online = nn.Linear(10, 10)  # 110
    shared = [online, online.weight]
    algorithm = Algorithm(
        online=online,
        again=online,
        shared=shared,
        target=nn.Linear(10, 10),  # 110
        log_alpha=torch.zeros(1, requires_grad=True),  # 1
        statistics={"mean": torch.zeros(5), "count": np.zeros(3, dtype=np.float32)},  # 8
        norm=nn.BatchNorm1d(4),  # 4 + 4 parameters, 4 + 4 and a 64-bit counter (2) as buffers
        optimizer=torch.optim.Adam(online.parameters()),
        name="text",
        rate=0.1,
    )
    assert check_budget(algorithm, 10_000) == 110 + 110 + 1 + 8 + 18


def test_each_tensor_counts_the_larger_of_its_elements_and_its_bytes():
    algorithm = Algorithm(
        expanded=torch.zeros(1).expand(1000),  # 1000 elements in 4 bytes
        double=torch.zeros(100, dtype=torch.float64),  # 200
        small=torch.zeros(100, dtype=torch.int8),  # 100
        view=torch.zeros(500)[:1],  # its storage: 500
    )
    assert count_by_module(algorithm) == {
        "expanded": 1000,
        "double": 200,
        "small": 100,
        "view": 500,
    }


def test_optimizer_state_does_not_count():
    network = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    assert check_budget(Algorithm(network=network, optimizer=optimizer), 10_000) == 72


def test_over_budget_names_the_module_and_both_figures():
    algorithm = Algorithm(small=nn.Linear(2, 2), huge=nn.Linear(100, 100))
    with pytest.raises(OverBudget, match=r"10,106 .* 106 over .*10,000.*huge 10,100, small 6"):
        check_budget(algorithm, 10_000)


# ---- export ----


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("mean", torch.zeros(3))
        self.plain = 0.0

    def forward(self, obs):
        return self.layer(obs - self.mean) + self.plain


def test_a_policy_comes_back_with_buffers_plain_attributes_and_training_flag():
    policy = Statistics()
    policy.mean += 2.0
    policy.plain = 7.0
    policy.eval()
    back = load_policy(export_policy(policy), Statistics, CPU)
    obs = torch.randn(4, 3)
    assert torch.equal(back(obs), policy(obs))
    assert back.training is False
    assert load_policy(export_policy(policy.train()), Statistics, CPU).training is True


def test_a_policy_that_cannot_be_pickled_comes_back_from_its_state():
    policy = Statistics()
    policy.mean += 2.0
    policy.hook = lambda x: x
    policy.eval()
    back = load_policy(export_policy(policy), Statistics, CPU)
    obs = torch.randn(4, 3)
    assert torch.equal(back(obs), policy(obs))
    assert back.training is False


# ---- from inside a learner ----


def looks(code, tmp_path, *environments, **changes):
    """The log of a learner that runs `code` in its first update."""
    source = region(("        self.updates += 1\n", f"        self.updates += 1\n        {code}\n"))
    training, bench = trained(
        unchecked(source), small_profile(*environments, **changes), tmp_path / "bench"
    )
    assert training.verdict is None, training.verdict
    return bench.learner_log.read_text()


def test_nothing_in_a_guest_tells_the_name_of_its_environment(tmp_path):
    look = (
        "import os, sys, gc; "
        "print(sys.argv, dict(os.environ), open('/proc/self/cmdline').read(), "
        "open('/proc/1/cmdline').read(), open('/proc/self/mountinfo').read(), os.getcwd(), "
        "[x for x in gc.get_objects() if type(x) is str], vars(self.args)) "
        "if self.updates == 1 else None"
    )
    log = looks(look, tmp_path, CHEETAH)
    assert "total_timesteps" in log
    for word in ("HalfCheetah", "Cheetah", "cheetah", "attempt-1", TASK):
        assert word not in log


def test_what_a_region_changes_in_args_stays_with_it(tmp_path):
    greedy = region(
        (
            "        self.args = args\n",
            "        self.args = args\n        args.total_timesteps = 5\n"
            "        args.learning_starts = 0\n        args.batch_size = 1\n",
        ),
        (
            "        self.updates += 1\n",
            "        self.updates += 1\n        assert len(rewards) == 256\n",
        ),
    )
    training, _ = trained(accepted(greedy, tmp_path), small_profile(), tmp_path / "bench")
    assert training.verdict is None
    assert training.steps == 40


def test_a_published_style_region_runs_unmodified(tmp_path):
    """Names, shapes and types that public submissions rely on (shared/facts/submission_api.md)."""
    look = (
        "assert [tuple(x.shape) for x in batch] == "
        "[(256, 17), (256, 17), (256, 6), (256,), (256,)]; "
        "assert all(x.dtype == torch.float32 for x in batch); "
        "assert isinstance(batch, tuple); "
        "assert (self.args.gamma, self.args.tau, self.args.learning_rate) == (0.99, 0.005, 3e-4); "
        "assert (self.args.exploration_noise, self.args.policy_frequency) == (0.1, 2); "
        "assert self.max_action == 1.0; assert nn.utils.clip_grad_norm_; "
        "assert torch.distributions.Normal; assert torch.func.functional_call; "
        "assert random and math and time and copy and dataclass"
    )
    looks(look, tmp_path, CHEETAH)


def test_batches_hold_no_transition_that_spans_a_reset(tmp_path):
    """InvertedPendulum's first random episodes are short: many resets in 200 steps.

    Within an episode the cart moves a little a step; a pair over a reset would jump back to the
    start. And where an episode terminated, the pole (2nd coordinate) has passed 0.2 in next_obs.
    """
    look = (
        "end = dones == 1; "
        "assert bool((next_obs[end][:, 1].abs() > 0.2).all()); "
        "assert bool((next_obs[~end][:, 1].abs() <= 0.2).all()); "
        "assert bool((obs[:, 1].abs() <= 0.2).all()); "
        "print('ends seen', int(end.sum()))"
    )
    log = looks(look, tmp_path, PENDULUM, total_timesteps=200, learning_starts=190)
    assert any(int(line.split()[-1]) > 5 for line in log.splitlines() if "ends seen" in line)


def test_warm_up_actions_are_the_hosts_uniform_and_reach_the_buffer(tmp_path):
    look = "print('extremes', float(actions.min()), float(actions.max()), float(actions.std()))"
    log = looks(look, tmp_path, PENDULUM, total_timesteps=310, learning_starts=300)
    line = next(line for line in log.splitlines() if line.startswith("extremes"))
    low, high, std = map(float, line.split()[1:])
    assert -3.0 <= low < -2.8
    assert 2.8 < high <= 3.0
    assert std == pytest.approx(6 / 12**0.5, rel=0.1)


def test_a_learner_has_one_thread_and_a_seeded_hash(tmp_path):
    log = looks("print('threads', torch.get_num_threads(), hash('x'))", tmp_path)
    again = looks("print('threads', torch.get_num_threads(), hash('x'))", tmp_path / "b")
    assert "threads 1 " in log
    assert log == again


class Plain:
    """An object of a submission's own: a call is all that it shows."""

    def __init__(self, network):
        self.network = network

    def __call__(self, x):
        return self.network(x)


class Slotted:
    __slots__ = ("network",)

    def __init__(self, network):
        self.network = network


@pytest.mark.parametrize(
    "hold",
    [
        Plain,
        Slotted,
        lambda network: deque([network]),
        lambda network: functools.partial(network),
        lambda network: functools.partial(len, network),
        lambda network: network.forward,
        lambda network: lambda x: network(x),
        lambda network: [{"a": (Plain(Slotted(network)),)}],
        lambda network: torch.jit.script(network),
        lambda network: torch.compile(network, backend="eager"),
    ],
    ids=[
        "callable",
        "slots",
        "deque",
        "partial-of",
        "partial-with",
        "method",
        "closure",
        "nested",
        "scripted",
        "compiled",
    ],
)
def test_networks_count_however_they_are_held(hold):
    assert check_budget(Plain(hold(nn.Linear(10, 10))), 10_000) == 110


def test_an_algorithm_with_slots_is_counted_too():
    assert count_by_module(Slotted(nn.Linear(10, 10))) == {"network": 110}


def test_what_was_computed_from_parameters_and_shapes_without_numbers_do_not_count():
    normalised = nn.utils.weight_norm(nn.Linear(10, 10))
    normalised(torch.zeros(1, 10))
    assert check_budget(Plain(normalised), 10_000) == 100 + 10 + 10
    assert check_budget(Plain(nn.Linear(10, 10, device="meta")), 10_000) == 0


def test_tensors_of_every_kind_are_counted():
    algorithm = Algorithm(
        lazy=nn.LazyLinear(3),  # no shape yet
        sparse=torch.eye(4).to_sparse(),  # 4
        rows=torch.eye(5).to_sparse_csr(),  # 5
    )
    assert count_by_module(algorithm) == {"lazy": 0, "sparse": 4, "rows": 5}


def test_counting_passes_plain_numbers_by():
    algorithm = Algorithm(priorities=[0.5] * 10 + list(map(float, range(1_000_000))))
    began = time.process_time()
    assert check_budget(algorithm, 10) == 0
    assert time.process_time() - began < 1.5
