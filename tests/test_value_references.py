"""DQN, Double DQN, C51 and QR-DQN are what they say: every ceiling from pixels rests on them."""

import csv
import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from harness.numerics import STOCK, TUNED
from harness.references import Published
from harness.task import REGION_BEGINS, REGION_ENDS, REPOSITORY, Task
from sandbox.guest import numerics
from sandbox.guest.frames import Batch
from sandbox.guest.parameters import count_by_module
from sandbox.guest.source import load_source, seed_everything

TASK = "rl-value-atari"
REFERENCES = ("dqn", "double_dqn", "c51", "qr_dqn")
CHOOSER = {
    "dqn": "target_network",
    "double_dqn": "q_network",
    "c51": "target_network",
    "qr_dqn": "target_network",
}
"""Which network chooses the next action. The target network values it in all of them."""
CONSTANTS = {
    "total_timesteps": 5_000_000,
    "learning_starts": 80_000,
    "buffer_size": 1_000_000,
    "batch_size": 32,
    "train_frequency": 4,
    "learning_rate": 1e-4,
    "gamma": 0.99,
    "target_network_frequency": 1_000,
    "tau": 1.0,
    "start_e": 1.0,
    "end_e": 0.01,
    "exploration_fraction": 0.1,
    "eval_freq": 100_000,
    "eval_episodes": 10,
}
"""shared/facts/hyperparameters.md: what the scaffold fixes."""
CPU = torch.device("cpu")
BETWEEN_COPIES = 80_004
"""A step of an update that leaves the target network as it is."""


def reference(name):
    """A module of its own at each call: a test may change names in it."""
    scaffold = (REPOSITORY / "tasks" / TASK / "scaffold.py").read_text()
    region = (REPOSITORY / "reference_algorithms" / TASK / f"{name}.py").read_text()
    before, begins, rest = scaffold.partition(f"{REGION_BEGINS}\n")
    _, ends, after = rest.partition(f"{REGION_ENDS}\n")
    assert begins
    assert ends
    return load_source(before + begins + region + ends + after)


def constructed(module, actions, **constants):
    args = module.Args(seed=0, **CONSTANTS | constants)
    return module.ValueAlgorithm(module.Envs(module.Discrete(actions)), CPU, args)


@pytest.fixture(autouse=True)
def _as_in_a_guest():
    """One thread, and torch's own backends until a test says otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    numerics.install({})
    yield
    numerics.install({})
    torch.set_num_threads(threads)


def close(value):
    return pytest.approx(value, rel=1e-4, abs=1e-5)


# ---- C51's projection ----

PROJECT = reference("c51").project
ATOMS = torch.linspace(-10, 10, 51)


def projected_by_loops(probabilities, rewards, dones, gamma, atoms):
    """Equation 7 of the paper: a mass falls off linearly with the distance to where it went."""
    spacing = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    projected = np.zeros_like(probabilities)
    for row, reward, done, masses in zip(projected, rewards, dones, probabilities, strict=True):
        for mass, atom in zip(masses, atoms, strict=True):
            went = min(max(reward + gamma * (1 - done) * atom, atoms[0]), atoms[-1])
            for i, there in enumerate(atoms):
                row[i] += mass * max(0.0, 1 - abs(went - there) / spacing)
    return projected


@st.composite
def transitions(draw):
    """Probabilities (B, N), rewards (B,), dones (B,), a discount, and atoms (N,)."""
    size, count = draw(st.integers(1, 4)), draw(st.integers(2, 12))
    low, width = draw(st.floats(-20, 5)), draw(st.floats(0.5, 30))
    rewards = draw(st.lists(st.floats(-30, 30), min_size=size, max_size=size))
    dones = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size))
    # Integers, so that some atoms hold nothing.
    masses = st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any)
    rows = np.array([draw(masses) for _ in range(size)], dtype=float)
    probabilities = rows / rows.sum(axis=1, keepdims=True)
    gamma = draw(st.sampled_from([0.0, 0.99, 1.0]) | st.floats(0, 1))
    atoms = np.linspace(low, low + width, count)
    return probabilities, np.array(rewards), np.array(dones), gamma, atoms


def projected(probabilities, rewards, dones, gamma, atoms):
    columns = [torch.as_tensor(each).unsqueeze(1) for each in (rewards, dones)]
    return PROJECT(torch.as_tensor(probabilities), *columns, gamma, torch.as_tensor(atoms)).numpy()


@given(transitions())
@settings(max_examples=150, deadline=None)
def test_c51s_projection_is_the_one_by_plain_loops(case):
    found = projected(*case)
    assert found == pytest.approx(projected_by_loops(*case), abs=1e-9)
    assert found.sum(axis=1) == pytest.approx(np.ones(len(found)))
    assert np.all(found >= 0)


@given(transitions())
@settings(max_examples=50, deadline=None)
def test_c51s_projection_keeps_the_expected_return_where_nothing_is_clipped(case):
    probabilities, rewards, dones, gamma, atoms = case
    went = rewards[:, None] + gamma * (1 - dones[:, None]) * atoms
    inside = np.all((went >= atoms[0]) & (went <= atoms[-1]), axis=1)
    expected = rewards + gamma * (1 - dones) * (probabilities @ atoms)
    assert (projected(*case) @ atoms)[inside] == pytest.approx(expected[inside], abs=1e-9)


def test_c51s_projection_puts_all_of_a_mass_on_the_atom_where_it_lands():
    """Where the atoms below and above are the same one, a share for each would be none at all."""
    shifted = PROJECT(
        torch.tensor([[0.5, 0.25, 0.125, 0.125, 0.0]] * 3),
        torch.tensor([[0.0], [1.0], [-1.0]]),
        torch.zeros(3, 1),
        1.0,
        torch.arange(-2.0, 3.0),
    )
    assert shifted.tolist() == [
        [0.5, 0.25, 0.125, 0.125, 0.0],
        [0.0, 0.5, 0.25, 0.125, 0.125],
        [0.75, 0.125, 0.125, 0.0, 0.0],  # what went below the first atom is the first one's
    ]


def test_c51s_projection_of_a_last_reward_is_the_atom_of_that_reward():
    """In float32 and at the task's atoms, of which most are no sums of powers of two."""
    probabilities = torch.rand(51, 51, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    last = PROJECT(probabilities, ATOMS.unsqueeze(1), torch.ones(51, 1), 0.99, ATOMS)
    assert last.numpy() == pytest.approx(np.eye(51), abs=1e-5)


@pytest.mark.parametrize(("reward", "atom"), [(25.0, 50), (10.0, 50), (-10.0, 0), (-1e6, 0)])
def test_c51s_projection_clips_at_both_ends(reward, atom):
    probabilities = torch.full((1, 51), 1 / 51)
    done = torch.ones(1, 1)
    found = PROJECT(probabilities, torch.tensor([[reward]]), done, 0.99, ATOMS)
    assert found[0, atom].item() == pytest.approx(1, abs=1e-6)
    going_on = PROJECT(probabilities, torch.tensor([[2 * reward]]), 1 - done, 0.99, ATOMS)
    assert going_on.sum().item() == pytest.approx(1, abs=1e-6)
    assert going_on[0, atom].item() > 0.5


# ---- QR-DQN's loss ----

QUANTILE_LOSS = reference("qr_dqn").quantile_huber_loss


def quantile_loss_by_loops(quantiles, targets, midpoints, kappa):
    """Equations 9 and 10 of the paper, and the sums of its algorithm 1."""
    total = 0.0
    for row, wanted in zip(quantiles, targets, strict=True):
        for quantile, midpoint in zip(row, midpoints, strict=True):
            for target in wanted:
                u = target - quantile
                huber = u**2 / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                total += abs(midpoint - (u < 0)) * huber / len(wanted)
    return total / len(quantiles)


def test_the_quantile_huber_loss_is_the_one_computed_by_hand():
    quantiles = torch.tensor([[0.0, 3.0], [5.0, 5.0]])
    targets = torch.tensor([[1.0, 0.5], [5.0, 5.0]])
    # Quantile 0.0 lies below both targets: 1/4 of 1/2 and of 1/8. Quantile 3.0 lies above both, by
    # more than kappa: 1 - 3/4 of 3/2 and of 2. The second row is where it should be.
    first = (0.25 * 0.5 + 0.25 * 0.125) / 2
    second = (0.25 * 1.5 + 0.25 * 2.0) / 2
    loss = QUANTILE_LOSS(quantiles, targets, torch.tensor([0.25, 0.75]))
    assert loss.item() == (first + second + 0) / 2


@given(
    st.integers(1, 4),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from([0.1, 1.0, 2.5]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_the_quantile_huber_loss_is_the_one_by_plain_loops(size, count, others, kappa, seed):
    rng = np.random.default_rng(seed)
    quantiles = rng.normal(0, 2, (size, count))
    targets = rng.normal(0, 2, (size, others))
    midpoints = rng.uniform(0, 1, count)
    found = QUANTILE_LOSS(*map(torch.from_numpy, (quantiles, targets, midpoints)), kappa=kappa)
    assert found.item() == pytest.approx(
        quantile_loss_by_loops(quantiles, targets, midpoints, kappa)
    )


@pytest.mark.parametrize(("midpoint", "gradient"), [(0.9, -0.4), (0.5, 0.0), (0.1, 0.4)])
def test_a_high_quantile_is_pulled_up_and_a_low_one_down(midpoint, gradient):
    """Between two targets at the same distance, within kappa: the weights alone decide."""
    quantiles = torch.zeros(1, 1, requires_grad=True)
    QUANTILE_LOSS(quantiles, torch.tensor([[-1.0, 1.0]]), torch.tensor([midpoint])).backward()
    assert quantiles.grad.item() == pytest.approx(gradient)


@pytest.mark.parametrize("midpoint", [0.1, 0.25, 0.7])
def test_the_quantile_huber_loss_is_lowest_at_the_quantile_of_the_targets(midpoint):
    targets = torch.randn(1, 999, generator=torch.Generator().manual_seed(0))
    grid = torch.linspace(-2, 2, 401)
    losses = [
        QUANTILE_LOSS(each.view(1, 1), targets, torch.tensor([midpoint]), kappa=0.01).item()
        for each in grid
    ]
    lowest = grid[int(np.argmin(losses))].item()
    assert lowest == pytest.approx(np.quantile(targets.numpy(), midpoint), abs=0.02)


# ---- by hand: linear networks over two pixels, all arithmetic again in numpy ----

ACTIONS, GAMMA, RATE = 3, 0.9, 0.1
SMALL_ATOMS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
OUTPUTS = {"dqn": 1, "double_dqn": 1, "c51": len(SMALL_ATOMS), "qr_dqn": 4}
"""Of a network, for each action."""
MIDPOINTS = np.array([1, 3, 5, 7]) / 8
FEATURES = 2

OBS = np.array([[-0.7, 0.5], [0.2, -0.6], [-0.3, 1.1], [-0.9, -0.5], [1.0, 0.6]])
NEXT = np.array([[-0.5, -0.4], [-0.1, 0.1], [1.4, -0.8], [0.3, -0.3], [-0.8, 1.3]])
TAKEN = np.array([0, 2, 1, 1, 0])
REWARDS = np.array([1.0, -1.0, 0.0, 1.0, -1.0])
DONES = np.array([0.0, 1.0, 0.0, 0.0, 0.0])


class TwoPixels(nn.Module):
    """In place of the encoder: two pixels of the newest frame, between -1 and 1.55."""

    def forward(self, x):
        return x[:, -1, 0, :FEATURES].float() / 100 - 1


def stacks(features):
    pixels = torch.zeros(len(features), 4, 84, 84, dtype=torch.uint8)
    pixels[:, -1, 0, :FEATURES] = torch.tensor((features + 1) * 100).round().byte()
    return pixels


def batch(next_features=NEXT):
    columns = (torch.tensor(x).unsqueeze(1) for x in (TAKEN, REWARDS, DONES))
    actions, rewards, dones = columns
    return Batch(stacks(OBS), actions, stacks(next_features), dones.float(), rewards.float())


def linear(name, **constants):
    """The reference over two features, with known weights that differ between its networks."""
    module = reference(name)
    module.NatureDQNEncoder, module.ENCODER_FEATURE_DIM = TwoPixels, FEATURES
    if name == "c51":
        module.QNetwork.ATOMS = len(SMALL_ATOMS)
        module.QNetwork.V_MIN, module.QNetwork.V_MAX = SMALL_ATOMS[0], SMALL_ATOMS[-1]
    if name == "qr_dqn":
        module.QNetwork.QUANTILES = len(MIDPOINTS)
    algorithm = constructed(module, ACTIONS, gamma=GAMMA, **constants)
    rng = np.random.default_rng(0)
    for network in (algorithm.q_network, algorithm.target_network):
        for parameter in network.parameters():
            parameter.data = torch.tensor(rng.normal(0, 1, parameter.shape)).float()
    return algorithm


def descending(name, **constants):
    """The same, with an optimizer that subtracts RATE times the gradient."""
    algorithm = linear(name, **constants)
    algorithm.optimizer = torch.optim.SGD(algorithm.q_network.parameters(), lr=RATE)
    return algorithm


def weights(algorithm):
    return {
        name: nn.utils.parameters_to_vector(network.parameters()).detach().numpy().astype(float)
        for name, network in vars(algorithm).items()
        if isinstance(network, nn.Module)
    }


def outputs(name, numbers, features):
    """What the layer says of each action: (B, ACTIONS, OUTPUTS)."""
    count = ACTIONS * OUTPUTS[name]
    found = features @ numbers[: count * FEATURES].reshape(count, FEATURES).T + numbers[-count:]
    return found.reshape(len(features), ACTIONS, OUTPUTS[name])


def probabilities(logits):
    powers = np.exp(logits)
    return powers / powers.sum(axis=-1, keepdims=True)


def values(name, numbers, features):
    """Expected returns, (B, ACTIONS)."""
    found = outputs(name, numbers, features)
    return probabilities(found) @ SMALL_ATOMS if name == "c51" else found.mean(axis=2)


def loss_by_hand(name, w, chooser=None):
    """Of the batch, where `chooser` chooses the next actions."""
    rows = np.arange(len(OBS))
    choice = values(name, w[chooser or CHOOSER[name]], NEXT).argmax(axis=1)
    following = outputs(name, w["target_network"], NEXT)[rows, choice]
    present = outputs(name, w["q_network"], OBS)[rows, TAKEN]
    if name == "c51":
        wanted = projected_by_loops(probabilities(following), REWARDS, DONES, GAMMA, SMALL_ATOMS)
        return -np.mean(np.sum(wanted * np.log(probabilities(present)), axis=1))
    wanted = np.where(DONES[:, None] == 1, 0, GAMMA * following) + REWARDS[:, None]
    if name == "qr_dqn":
        return quantile_loss_by_loops(present, wanted, MIDPOINTS, kappa=1.0)
    return np.mean((present - wanted) ** 2)


@pytest.mark.parametrize("name", REFERENCES)
def test_a_network_called_gives_the_expected_return_of_each_action(name):
    algorithm = linear(name)
    for each, numbers in weights(algorithm).items():
        found = getattr(algorithm, each)(stacks(OBS))
        assert found.shape == (len(OBS), ACTIONS)
        assert found.detach().numpy() == close(values(name, numbers, OBS))


@pytest.mark.parametrize("name", REFERENCES)
def test_the_loss_is_the_one_computed_by_hand(name):
    algorithm = descending(name)
    w = weights(algorithm)
    metrics = algorithm.update(batch(), BETWEEN_COPIES)
    assert metrics["loss"] == close(loss_by_hand(name, w))
    taken = values(name, w["q_network"], OBS)[np.arange(len(OBS)), TAKEN]
    assert metrics["q_values"] == close(taken.mean())


@pytest.mark.parametrize("name", REFERENCES)
def test_the_online_network_follows_the_gradient_of_its_loss_with_the_target_held_fixed(name):
    algorithm = descending(name)
    w = weights(algorithm)
    algorithm.update(batch(), BETWEEN_COPIES)
    slope = []
    for step in 1e-5 * np.eye(len(w["q_network"])):
        ends = [
            loss_by_hand(name, w | {"q_network": w["q_network"] + sign * step}) for sign in (1, -1)
        ]
        slope.append((ends[0] - ends[1]) / 2e-5)
    moved = (w["q_network"] - weights(algorithm)["q_network"]) / RATE
    assert moved == close(np.array(slope))


@pytest.mark.parametrize("name", REFERENCES)
def test_a_terminated_transition_ignores_its_next_state(name):
    def loss(next_features):
        return descending(name).update(batch(next_features), BETWEEN_COPIES)["loss"]

    elsewhere = NEXT[::-1] / 2
    # C51's probabilities add up to 1 but for rounding, which is the next state's.
    same = pytest.approx(loss(NEXT), rel=1e-6)
    assert loss(np.where(DONES[:, None] == 1, elsewhere, NEXT)) == same
    for i in np.flatnonzero(DONES == 0):
        one = NEXT.copy()
        one[i] = elsewhere[i]
        assert loss(one) != same


@pytest.mark.parametrize("name", REFERENCES)
def test_the_next_action_is_chosen_by_the_online_network_in_double_dqn_alone(name):
    algorithm = descending(name)
    w = weights(algorithm)
    loss = algorithm.update(batch(), BETWEEN_COPIES)["loss"]
    other = {"q_network": "target_network", "target_network": "q_network"}[CHOOSER[name]]
    assert loss == close(loss_by_hand(name, w, CHOOSER[name]))
    assert loss != close(loss_by_hand(name, w, other))


@pytest.mark.parametrize(("name", "bootstrap"), [("dqn", 5.0), ("double_dqn", 3.0)])
def test_double_dqn_takes_the_targets_value_of_the_online_networks_choice(name, bootstrap):
    algorithm = descending(name)
    for network, bias in (
        (algorithm.q_network, [0.0, 1.0, 2.0]),
        (algorithm.target_network, [1.0, 5.0, 3.0]),
    ):
        network.head.weight.data.zero_()
        network.head.bias.data = torch.tensor(bias)
    target = REWARDS + GAMMA * (1 - DONES) * bootstrap
    loss = algorithm.update(batch(), BETWEEN_COPIES)["loss"]
    assert loss == close(np.mean((np.array([0.0, 1.0, 2.0])[TAKEN] - target) ** 2))


def test_double_dqn_converts_the_next_observations_once_for_both_networks():
    algorithm = linear("double_dqn")
    seen = []
    for network in (algorithm.q_network, algorithm.target_network):
        network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    algorithm.update(batch(), BETWEEN_COPIES)
    chosen, valued, present = seen
    assert chosen is valued
    assert chosen.dtype == torch.float32
    assert torch.equal(chosen, stacks(NEXT).float())
    assert torch.equal(present, stacks(OBS))


@pytest.mark.parametrize("name", REFERENCES)
def test_the_target_network_moves_at_multiples_of_its_period_alone(name):
    algorithm = linear(name)
    for step in (80_996, 81_000, 81_004, 81_996, 82_000):
        before = weights(algorithm)
        algorithm.update(batch(), step)
        after = weights(algorithm)
        assert not np.array_equal(before["q_network"], after["q_network"])
        if step % 1_000 == 0:
            assert np.array_equal(after["target_network"], after["q_network"])
        else:
            assert np.array_equal(after["target_network"], before["target_network"])


@pytest.mark.parametrize("name", REFERENCES)
def test_the_target_network_takes_a_share_of_tau_of_the_updated_network(name):
    algorithm = linear(name, tau=0.25, target_network_frequency=8)
    before = weights(algorithm)
    algorithm.update(batch(), 80_008)
    after = weights(algorithm)
    mixed = 0.75 * before["target_network"] + 0.25 * after["q_network"]
    assert after["target_network"] == close(mixed)


@pytest.mark.parametrize("name", REFERENCES)
def test_an_action_is_the_greedy_one_in_an_integer_array_of_one(name):
    algorithm = linear(name)
    best = values(name, weights(algorithm)["q_network"], OBS).argmax(axis=1)
    assert len(set(best)) > 1
    states = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    for stack, action in zip(stacks(OBS), best, strict=True):
        chosen = algorithm.select_action(stack.unsqueeze(0).numpy(), epsilon=0.0)
        assert chosen.shape == (1,)
        assert np.issubdtype(chosen.dtype, np.integer)
        assert chosen[0] == action
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states


# ---- at the task's size ----

ENCODER = 1_684_128
"""Parameters of the fixed encoder: shared/facts/hyperparameters.md."""


def pixels(actions, size=8, seed=0):
    """A batch of noise."""
    rng = np.random.default_rng(seed)
    stacks = (torch.from_numpy(rng.integers(0, 256, (size, 4, 84, 84), np.uint8)) for _ in range(2))
    return Batch(
        observations=next(stacks),
        next_observations=next(stacks),
        actions=torch.from_numpy(rng.integers(0, actions, (size, 1))),
        rewards=torch.from_numpy(rng.integers(-1, 2, (size, 1)).astype(np.float32)),
        dones=torch.from_numpy((rng.random((size, 1)) < 0.2).astype(np.float32)),
    )


TASK_ = Task.load("rl-value-atari")
GAMES = {**TASK_.environments, **TASK_.load_heldout().environments}


@pytest.mark.parametrize("id_", GAMES)
def test_qr_dqn_is_the_largest_reference_and_the_size_that_the_budget_is_made_of(id_):
    actions = GAMES[id_].actions
    counts = {name: count_by_module(constructed(reference(name), actions)) for name in REFERENCES}
    networks = ENCODER + actions * 200 * 513
    assert counts["qr_dqn"] == {
        "q_network": networks,
        "target_network": networks,
        "midpoints": 200,
    }
    assert GAMES[id_].reference_parameters == 2 * networks + 200
    assert GAMES[id_].reference_policy_parameters == networks
    for name, outputs_each in (("dqn", 1), ("double_dqn", 1), ("c51", 51)):
        atoms = 51 if name == "c51" else 0
        one = ENCODER + actions * outputs_each * 513 + atoms
        assert counts[name] == {"q_network": one, "target_network": one}
        assert 2 * one <= 1.05 * (2 * networks + 200)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_hyperparameters_are_those_of_the_published_task(name):
    """shared/facts/hyperparameters.md, the columns marked [MLS]."""
    algorithm = constructed(reference(name), 4)
    assert type(algorithm.optimizer) is torch.optim.Adam
    (group,) = algorithm.optimizer.param_groups
    assert {id(each) for each in group["params"]} == set(map(id, algorithm.q_network.parameters()))
    assert group["lr"] == 1e-4
    assert group["betas"] == (0.9, 0.999)
    assert group["weight_decay"] == 0
    assert group["eps"] == (1e-8 if name in ("dqn", "double_dqn") else 3.125e-4)


def test_c51_has_51_atoms_from_minus_ten_to_ten():
    algorithm = constructed(reference("c51"), 4)
    for network in (algorithm.q_network, algorithm.target_network):
        assert network.atoms.numpy() == pytest.approx(-10 + 0.4 * np.arange(51), abs=1e-5)
    assert algorithm.q_network.logits(pixels(4).observations).shape == (8, 4, 51)


def test_qr_dqn_has_200_quantiles_at_the_midpoints_and_a_kappa_of_one():
    module = reference("qr_dqn")
    algorithm = constructed(module, 4)
    midpoints = [(2 * i - 1) / 400 for i in range(1, 201)]
    assert algorithm.midpoints.tolist() == pytest.approx(midpoints)
    assert inspect.signature(module.quantile_huber_loss).parameters["kappa"].default == 1
    assert algorithm.q_network.quantiles(pixels(4).observations).shape == (8, 4, 200)


@pytest.mark.parametrize("name", REFERENCES)
def test_updates_halve_the_loss_on_a_repeated_batch(name):
    """Of last transitions, so that the least loss is next to nothing for C51 as well."""
    seed_everything(0)
    algorithm = constructed(reference(name), 6, batch_size=8)
    repeated = pixels(6)._replace(dones=torch.ones(8, 1))
    losses = [algorithm.update(repeated, BETWEEN_COPIES)["loss"] for _ in range(40)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("name", REFERENCES)
def test_stock_and_tuned_backends_compute_the_same_losses_to_rounding(name):
    def losses(backends):
        numerics.install(backends)
        seed_everything(0)
        algorithm = constructed(reference(name), 6)
        return [algorithm.update(pixels(6, seed=i), 1_000 * i)["loss"] for i in range(5)]

    stock = losses(STOCK)
    assert losses(TUNED) == pytest.approx(stock, rel=1e-3)


# ---- what others have published ----


def test_published_numbers_say_what_they_are_and_where_they_differ():
    with (REPOSITORY / "tasks" / TASK / "published.csv").open(newline="") as file:
        lines = [Published.model_validate(each) for each in csv.DictReader(file)]
    at_five_million = {
        (line.algorithm, line.environment): line.mean
        for line in lines
        if line.protocol == "evaluation" and line.steps == CONSTANTS["total_timesteps"]
    }
    # The mean of 7892, 7038 and 12152: one line for three seeds.
    assert at_five_million["qr_dqn", "SeaquestNoFrameskip-v4"] == pytest.approx(9027.3333)
    assert {name for name, _ in at_five_million} == {"double_dqn", "c51", "qr_dqn"}  # none for DQN
    for line in lines:
        assert line.algorithm.startswith(REFERENCES)
        if line.steps != CONSTANTS["total_timesteps"]:
            assert f"{line.steps // 1_000_000}M steps" in line.note
        if "sticky" in line.environment:
            assert "sticky" in line.note
