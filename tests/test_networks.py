"""FQL's networks in PyTorch start and compute as its Flax code says they do."""

import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sandbox.guest import numerics
from sandbox.guest.networks import MLP, GaussianActor, Value, VectorFieldActor
from sandbox.guest.parameters import check_budget
from sandbox.guest.policy import WHOLE_MODULE, export_policy, load_policy

CPU = torch.device("cpu")
HIDDEN = (512, 512, 512, 512)
"""FQL's, for a policy and for values."""


@pytest.fixture(autouse=True)
def _seeded_and_as_in_a_guest():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    numerics.install({})  # whatever another test of this process has left
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def layers(module: nn.Module) -> list[nn.Linear]:
    return [each for each in module.modules() if isinstance(each, nn.Linear)]


def scrambled(module: nn.Module) -> nn.Module:
    """With every parameter drawn at random, biases and layer norms too, in float64."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return module


def silent(head: nn.Linear, *biases: float) -> None:
    """The head says `biases`, whatever it is fed."""
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor(biases))


# ---- Initial weights ----


def is_uniform(weights: torch.Tensor, limit: float) -> bool:
    """Up to the limit on both sides, with the variance of a uniform distribution."""
    spread = weights.var().item() / (limit**2 / 3)
    edges = 0.98 * limit < weights.max() <= limit and -limit <= weights.min() < -0.98 * limit
    return bool(edges) and 0.9 < spread < 1.1


def test_weights_are_uniform_by_the_average_of_both_fans_and_biases_zero():
    first, second, last = layers(MLP(28, (512, 256, 5), final_scale=0.01))
    assert is_uniform(first.weight, math.sqrt(6 / 540))
    assert is_uniform(second.weight, math.sqrt(6 / 768))
    assert is_uniform(last.weight, math.sqrt(0.06 / 261))
    assert all(not layer.bias.any() for layer in (first, second, last))


def test_a_networks_last_layer_is_not_scaled_unless_it_is_asked_for():
    assert is_uniform(layers(MLP(28, (512, 5)))[-1].weight, math.sqrt(6 / 517))


@pytest.mark.parametrize("head", ["mean_head", "log_std_head"])
def test_heads_of_a_gaussian_actor_start_near_zero(head):
    actor = GaussianActor(28, 5, (512,), state_dependent_std=True)
    assert is_uniform(getattr(actor, head).weight, math.sqrt(0.06 / 517))
    assert is_uniform(layers(actor.trunk)[0].weight, math.sqrt(6 / 540))


def test_a_seed_draws_the_same_weights_again_and_another_seed_others():
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(Value(3, 2, (8, 8)).parameters())

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


# ---- MLP ----


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution's function at x: Hendrycks and Gimpel (2016)."""
    return x * stats.norm.cdf(x)


def normalised(x: np.ndarray, norm: nn.LayerNorm) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
    return scaled * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def affine(x: np.ndarray, layer: nn.Linear) -> np.ndarray:
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


INPUTS = np.array([[0.3, -1.2], [2.0, 0.5], [0.0, 0.0]])


def norms(module: nn.Module) -> list[nn.LayerNorm]:
    return [each for each in module.modules() if isinstance(each, nn.LayerNorm)]


def computed(network: nn.Module, inputs: np.ndarray) -> np.ndarray:
    return network(torch.from_numpy(inputs)).detach().numpy()


def test_an_activation_comes_after_hidden_layers_alone():
    network = scrambled(MLP(2, (3, 4, 2)))
    first, second, last = layers(network)
    by_hand = affine(gelu(affine(gelu(affine(INPUTS, first)), second)), last)
    np.testing.assert_allclose(computed(network, INPUTS), by_hand, rtol=1e-12)
    assert not norms(network)


def test_layer_norm_comes_after_the_activation_of_hidden_layers():
    network = scrambled(MLP(2, (3, 4, 2), layer_norm=True))
    first, second, last = layers(network)
    one, two = norms(network)
    hidden = normalised(gelu(affine(INPUTS, first)), one)
    by_hand = affine(normalised(gelu(affine(hidden, second)), two), last)
    np.testing.assert_allclose(computed(network, INPUTS), by_hand, rtol=1e-12)


def test_layer_norm_stabilises_small_activations_as_flax_does():
    """Their variance is near 1e-6 here, where torch's own constant would change all."""
    network = scrambled(MLP(2, (3, 1), layer_norm=True))
    first, last = layers(network)
    with torch.no_grad():
        first.bias.zero_()
    small = INPUTS[:2] * 1e-3
    by_hand = affine(normalised(gelu(affine(small, first)), *norms(network)), last)
    np.testing.assert_allclose(computed(network, small), by_hand, rtol=1e-12)


def test_a_final_activation_treats_the_last_layer_as_a_hidden_one():
    network = scrambled(MLP(2, (3,), layer_norm=True, activate_final=True))
    by_hand = normalised(gelu(affine(INPUTS, *layers(network))), *norms(network))
    np.testing.assert_allclose(computed(network, INPUTS), by_hand, rtol=1e-12)


def test_no_layers_are_refused():
    with pytest.raises(ValueError, match="layer_dims is empty"):
        MLP(2, ())


# ---- Values ----

_GENERATOR = torch.Generator().manual_seed(0)
OBSERVATIONS = torch.randn(6, 3, generator=_GENERATOR)
ACTIONS = torch.rand(6, 2, generator=_GENERATOR) * 2 - 1


def test_an_ensemble_answers_with_a_row_a_member():
    value = Value(3, 2, (8, 8), num_ensembles=4)
    assert value(OBSERVATIONS, ACTIONS).shape == (4, 6)
    assert Value(3, 0, (8, 8))(OBSERVATIONS).shape == (2, 6)


def test_a_single_network_answers_without_a_dimension_for_members():
    assert Value(3, 2, (8, 8), num_ensembles=1)(OBSERVATIONS, ACTIONS).shape == (6,)


def test_a_member_is_a_network_on_observation_and_action_side_by_side():
    value = Value(3, 2, (8, 8))
    inputs = torch.cat([OBSERVATIONS, ACTIONS], dim=1)
    for row, member in zip(value(OBSERVATIONS, ACTIONS), value.members, strict=True):
        assert torch.equal(row, member(inputs)[:, 0])
        assert len(norms(member)) == 2


def test_members_differ_from_the_start_and_learn_apart():
    value = Value(3, 2, (8, 8))
    first, second = value(OBSERVATIONS, ACTIONS)
    assert (first - second).abs().min() > 0
    first.sum().backward()
    one, two = value.members
    assert all(parameter.grad.any() for parameter in one.parameters())
    assert not any(parameter.grad.any() for parameter in two.parameters())


@pytest.mark.parametrize(
    ("action_dim", "actions"),
    [(2, None), (0, ACTIONS), (2, ACTIONS[:, :1]), (2, ACTIONS[:1]), (2, ACTIONS[0])],
    ids=["missing", "not asked for", "too narrow", "another batch", "no batch"],
)
def test_values_refuse_actions_that_they_were_not_built_for(action_dim, actions):
    with pytest.raises(ValueError, match=r"^Value was built for observations \(6, 3\)"):
        Value(3, action_dim, (8,))(OBSERVATIONS, actions)


def test_values_take_more_leading_dimensions_as_they_are():
    value = Value(3, 2, (8, 8))
    many = value(OBSERVATIONS.expand(5, 6, 3), ACTIONS.expand(5, 6, 2))
    assert many.shape == (2, 5, 6)
    torch.testing.assert_close(many[:, 4], value(OBSERVATIONS, ACTIONS))


def test_an_empty_ensemble_is_refused():
    with pytest.raises(ValueError, match="num_ensembles is 0"):
        Value(3, 2, (8,), num_ensembles=0)


# ---- Gaussian actors ----

MEANS, LOG_STDS = (0.2, -0.5), (0.3, -0.7)


def gaussian(**options) -> GaussianActor:
    """With MEANS and, where they are learned, LOG_STDS for any observation, in float64."""
    actor = GaussianActor(3, 2, (8, 8), **options)
    silent(actor.mean_head, *MEANS)
    if actor.log_std_head is not None:
        silent(actor.log_std_head, *LOG_STDS)
    if actor.log_stds is not None:
        actor.log_stds.data = torch.tensor(LOG_STDS)
    return actor.double()


STATES = OBSERVATIONS.double()
POINTS = torch.linspace(-0.9, 0.9, 12, dtype=torch.float64).view(6, 2)


def log_density(x: np.ndarray, stds: np.ndarray) -> np.ndarray:
    """Of a normal distribution around MEANS, per row: its definition."""
    each = ((x - np.array(MEANS)) / stds) ** 2 / -2 - np.log(stds) - math.log(2 * math.pi) / 2
    return each.sum(axis=1)


@pytest.mark.parametrize(
    ("options", "stds"),
    [
        ({}, (1.0, 1.0)),
        ({"const_std": False}, (math.exp(0.3), math.exp(-0.7))),
        ({"state_dependent_std": True}, (math.exp(0.3), math.exp(-0.7))),
        ({"const_std": False, "state_dependent_std": True}, (math.exp(0.3), math.exp(-0.7))),
    ],
    ids=["constant", "learned", "by the state, though constant", "by the state"],
)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_prob_is_summed_over_an_actions_components(options, stds, temperature):
    got = gaussian(**options)(STATES, temperature).log_prob(POINTS)
    expected = log_density(POINTS.numpy(), temperature * np.array(stds))
    assert got.shape == (6,)
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-6)


def test_log_prob_of_squashed_actions_is_the_slope_of_their_distribution_function():
    """P(tanh(x) <= y) = P(x <= artanh(y)), differentiated by central differences."""

    def below(y: np.ndarray) -> np.ndarray:
        standard = (np.arctanh(y) - np.array(MEANS)) / np.exp(np.array(LOG_STDS))
        return 0.5 * (1 + np.vectorize(math.erf)(standard / math.sqrt(2)))

    step, points = 1e-5, POINTS.numpy()
    slopes = (below(points + step) - below(points - step)) / (2 * step)
    got = gaussian(const_std=False, tanh_squash=True)(STATES).log_prob(POINTS)
    assert got.shape == (6,)
    np.testing.assert_allclose(got.detach().numpy(), np.log(slopes).sum(axis=1), atol=1e-5)


def test_a_sample_that_rounds_to_the_bound_has_a_finite_log_prob():
    actor = GaussianActor(3, 2, (8,), tanh_squash=True)
    silent(actor.mean_head, 20.0, -20.0)
    distribution = actor(OBSERVATIONS)
    sample = distribution.rsample()
    assert (sample.abs() == 1).all()
    assert distribution.log_prob(sample).isfinite().all()


def test_the_mode_is_the_mean_and_squashed_its_tanh():
    torch.testing.assert_close(gaussian()(STATES).mode[3], torch.tensor(MEANS).double())
    squashed = gaussian(tanh_squash=True)(STATES).mode
    expected = torch.tensor([math.tanh(0.2), math.tanh(-0.5)]).double()
    torch.testing.assert_close(squashed[3], expected)
    assert squashed.shape == (6, 2)


@pytest.mark.parametrize("squash", [False, True])
def test_samples_have_the_spread_of_the_distribution_and_let_gradients_through(squash):
    actor = gaussian(const_std=False, tanh_squash=squash)
    drawn = actor(STATES[:1]).rsample((20_000,))[:, 0]
    assert drawn.shape == (20_000, 2)
    normal = drawn.atanh() if squash else drawn
    np.testing.assert_allclose(normal.mean(dim=0).tolist(), MEANS, atol=0.04)
    np.testing.assert_allclose(normal.std(dim=0).log().tolist(), LOG_STDS, atol=0.03)
    normal.mean(dim=0).sum().backward()
    # Each mean moves its samples one to one.
    torch.testing.assert_close(actor.mean_head.bias.grad, torch.ones(2).double())


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("options", [{}, {"const_std": False}, {"state_dependent_std": True}])
def test_at_temperature_zero_all_samples_are_the_mode_and_it_can_be_learned(options, squash):
    actor = gaussian(tanh_squash=squash, **options)
    frozen = actor(STATES, temperature=0.0)
    assert torch.equal(frozen.sample(), frozen.mode)
    assert torch.equal(frozen.mode, actor(STATES).mode)
    frozen.mode.sum().backward()
    gradients = [each.grad for each in actor.parameters() if each.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_standard_deviations_by_the_state_are_clipped_on_both_sides():
    actor = GaussianActor(3, 3, (8,), state_dependent_std=True)
    silent(actor.log_std_head, 10.0, -10.0, 0.5)
    expected = torch.tensor([math.exp(2), math.exp(-5), math.exp(0.5)])
    torch.testing.assert_close(actor(OBSERVATIONS).stddev[0], expected)
    tight = GaussianActor(3, 1, (8,), const_std=False, log_std_min=0.25, log_std_max=0.5)
    torch.testing.assert_close(tight(OBSERVATIONS).stddev[0], torch.tensor([math.exp(0.25)]))


def test_standard_deviations_by_the_state_differ_between_states_and_the_others_do_not():
    by_state = GaussianActor(3, 2, (8,), state_dependent_std=True, final_scale=1.0)
    assert by_state(OBSERVATIONS).stddev.std(dim=0).min() > 0.01
    learned = GaussianActor(3, 2, (8,), const_std=False, final_scale=1.0)
    assert (learned(OBSERVATIONS).stddev == 1).all()


# ---- Vector fields ----

TIMES = torch.linspace(0, 1, 6).view(6, 1)


def test_a_field_is_a_network_on_observation_action_and_time_side_by_side():
    field = VectorFieldActor(3, 2, (8, 8))
    velocities = field(OBSERVATIONS, ACTIONS, TIMES)
    assert velocities.shape == (6, 2)
    assert torch.equal(velocities, field.field(torch.cat([OBSERVATIONS, ACTIONS, TIMES], dim=1)))
    later = field(OBSERVATIONS, ACTIONS, TIMES + 0.5)
    assert (velocities - later).abs().max() > 1e-3
    assert not norms(field)
    assert len(norms(VectorFieldActor(3, 2, (8, 8), layer_norm=True))) == 2


def test_a_field_without_times_is_a_network_on_observation_and_action():
    field = VectorFieldActor(3, 2, (8, 8), times=False)
    actions = field(OBSERVATIONS, ACTIONS)
    assert actions.shape == (6, 2)
    assert torch.equal(actions, field.field(torch.cat([OBSERVATIONS, ACTIONS], dim=1)))


@pytest.mark.parametrize(
    ("built_with", "times", "message"),
    [
        (True, None, r"times \(6, 1\); it got observations \(6, 3\), actions \(6, 2\)$"),
        (True, TIMES[:, 0], r"times \(6, 1\); it got .*, times \(6,\)$"),
        (True, TIMES[:1], r"times \(6, 1\); it got .*, times \(1, 1\)$"),
        (False, TIMES, r"actions \(6, 2\); it got .*, times \(6, 1\)$"),
    ],
    ids=["missing", "flat", "another batch", "not asked for"],
)
def test_a_field_refuses_times_that_it_was_not_built_for(built_with, times, message):
    with pytest.raises(ValueError, match=f"^VectorFieldActor was built for .*{message}"):
        VectorFieldActor(3, 2, (8,), times=built_with)(OBSERVATIONS, ACTIONS, times)


# ---- All of them ----

each_network = pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (lambda: MLP(3, (8, 8, 2), layer_norm=True), (OBSERVATIONS,)),
        (lambda: Value(3, 2, (8, 8)), (OBSERVATIONS, ACTIONS)),
        (lambda: GaussianActor(3, 2, (8, 8)), (OBSERVATIONS,)),
        (lambda: GaussianActor(3, 2, (8,), const_std=False, tanh_squash=True), (OBSERVATIONS,)),
        (lambda: GaussianActor(3, 2, (8, 8), state_dependent_std=True), (OBSERVATIONS,)),
        (lambda: VectorFieldActor(3, 2, (8, 8)), (OBSERVATIONS, ACTIONS, TIMES)),
        (lambda: VectorFieldActor(3, 2, (8, 8), times=False), (OBSERVATIONS, ACTIONS)),
    ],
    ids=["mlp", "value", "constant", "squashed", "by the state", "flow", "one step"],
)


def answers(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Tensors as they are; of a distribution, mode and spread."""
    out = module(*inputs)
    if isinstance(out, torch.Tensor):
        return out
    torch.manual_seed(5)
    return torch.cat([out.mode, out.sample()])


@each_network
def test_a_network_survives_pickling_export_and_its_state_dict(build, inputs):
    module = build()
    expected = answers(module, inputs)
    assert torch.equal(answers(pickle.loads(pickle.dumps(module)), inputs), expected)  # noqa: S301
    exported = export_policy(module)
    assert exported[:1] == WHOLE_MODULE
    assert torch.equal(answers(load_policy(exported, build, CPU), inputs), expected)
    other = scrambled(build()).float()
    assert not torch.equal(answers(other, inputs), expected)
    other.load_state_dict(module.state_dict())
    assert torch.equal(answers(other, inputs), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@each_network
def test_a_network_computes_on_a_gpu_what_it_computes_here(build, inputs):
    module = build()
    moved = pickle.loads(pickle.dumps(module)).cuda()  # noqa: S301
    here, there = module(*inputs), moved(*(each.cuda() for each in inputs))
    if not isinstance(here, torch.Tensor):
        assert there.sample().is_cuda
        here, there = here.mode, there.mode
    torch.testing.assert_close(there.cpu(), here, atol=1e-3, rtol=1e-3)


HIDDEN_TO_HIDDEN = 3 * (512 * 512 + 512)


@pytest.mark.parametrize(
    ("module", "parameters"),
    [
        (Value(28, 5, HIDDEN), 2 * (34 * 512 + HIDDEN_TO_HIDDEN + 4 * 2 * 512 + 513)),
        (Value(28, 5, HIDDEN), 1_619_970),
        (Value(28, 0, HIDDEN, num_ensembles=1, layer_norm=False), 803_329),
        (GaussianActor(28, 5, HIDDEN), 29 * 512 + HIDDEN_TO_HIDDEN + 513 * 5),
        (GaussianActor(28, 5, HIDDEN, const_std=False), 805_381 + 5),
        (GaussianActor(28, 5, HIDDEN, state_dependent_std=True), 805_381 + 513 * 5),
        (VectorFieldActor(28, 5, HIDDEN), 35 * 512 + HIDDEN_TO_HIDDEN + 513 * 5),
        (VectorFieldActor(28, 5, HIDDEN, times=False), 807_941),
    ],
)
def test_parameters_are_those_of_the_published_networks(module, parameters):
    assert check_budget(module, 10_000_000) == parameters


# ---- What the field is for ----

MODE = 0.8
NEAR = 0.2
STEPS = 600


def two_modes(batch: int) -> torch.Tensor:
    """Actions (B, 1) of data in which one observation was answered in two ways, as often."""
    return MODE * (2.0 * torch.randint(2, (batch, 1)) - 1)


def test_a_flow_finds_both_modes_of_the_data_between_which_a_gaussian_falls():
    observations = torch.zeros(256, 1)
    flow = VectorFieldActor(1, 1, (64, 64))
    normal = GaussianActor(1, 1, (64, 64), const_std=False)
    optimizer = torch.optim.Adam([*flow.parameters(), *normal.parameters()], lr=3e-3)
    for _ in range(STEPS):
        actions, noise, times = two_modes(256), torch.randn(256, 1), torch.rand(256, 1)
        between = (1 - times) * noise + times * actions
        matching = (flow(observations, between, times) - (actions - noise)).square().mean()
        likelihood = normal(observations).log_prob(actions).mean()
        optimizer.zero_grad()
        (matching - likelihood).backward()
        optimizer.step()

    samples, states = torch.randn(2_000, 1), torch.zeros(2_000, 1)
    with torch.no_grad():
        for step in range(10):
            samples += flow(states, samples, torch.full((2_000, 1), step / 10)) / 10
        gaussian_mode = normal(states[:1]).mode.item()
        gaussian_samples = normal(states).sample()
    low, high = ((samples - mode).abs().lt(NEAR).float().mean() for mode in (-MODE, MODE))
    assert low + high > 0.7
    assert min(low, high) > 0.25
    # The likeliest normal distribution has the data's mean, 0, and its standard deviation, 0.8:
    # 24% of it lie that near to a mode.
    assert abs(gaussian_mode) < 0.2
    assert (gaussian_samples.abs() - MODE).abs().lt(NEAR).float().mean() < 0.35
