"""The offline scaffold: its critic and its steps by hand, what submitters are told, references."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import nn

from harness.bare_run import BareRun
from harness.guest_config import guest_config
from harness.intake.submission import accept, judge
from harness.intake.trial import try_out
from harness.records import Plan
from harness.task import REPOSITORY, Planned, Task
from harness.training.environments import EnvironmentMismatch, family_of
from sandbox.guest import numerics
from sandbox.guest.client import environment_of
from sandbox.guest.dataset import OfflineBatch
from sandbox.guest.parameters import count_by_module
from sandbox.guest.policy import WHOLE_MODULE, export_policy, load_policy
from sandbox.guest.shapes import BadAction
from sandbox.guest.source import act, load_actor, load_source, seed_everything
from tests.support import accepted, unchecked

TASK = "rl-offline-policy"
TASK_ = Task.load(TASK)
HELDOUT = TASK_.load_heldout()
ALL = {**TASK_.environments, **HELDOUT.environments}
SMALL = TASK_.environments["pointmaze-medium-navigate-5"]
REFERENCES = ("bc", "awr", "rebrac", "fql")
REGIONS = sorted((Path(__file__).parent / "regions" / "offline").glob("*.py"))
CPU = torch.device("cpu")

OBSERVATION_DIM, ACTION_DIM = 3, 2
DISCOUNT, TAU, RATE = 0.9, 0.005, 0.01


@pytest.fixture(autouse=True)
def _seeded_and_as_in_a_guest():
    """One thread, torch's own backends."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    numerics.install({})
    torch.manual_seed(0)
    yield
    numerics.install({})
    torch.set_num_threads(threads)


# ---- regions and learners ----


@cache
def source_of(text):
    """The accepted source with that region."""
    return judge(TASK_, unchecked(text, TASK)).source.decode()


def reference(name):
    """The accepted source of a reference."""
    return source_of((REPOSITORY / "reference_algorithms" / TASK / f"{name}.py").read_text())


def region(networks, loss, actions, more=""):
    """A region of one expression each; O and A are the sizes."""
    return f"""
class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.sizes, self.config = (observation_dim, action_dim), config

    def create_policy_networks(self):
        O, A = self.sizes
        return {networks}

    def compute_actor_loss(self, networks, batch, critic):
        obs = batch.observations
        return {loss}

    def sample_actions(self, networks, observations, temperature):
        return {actions}
{more}
"""


TARGETS = """
    def get_target_update_modules(self):
        return ["slow"]
"""
MIXED = region(
    '{"slow": nn.Linear(O, A), "fast": nn.Linear(O, A)}',
    '(networks["slow"](obs) + networks["fast"](obs)).square().mean(), {}',
    'temperature * (networks["slow"](observations) + 2.0 * networks["fast"](observations))',
    TARGETS,
)
"""Acts by two networks, of which one has a target."""
CLIMBING = region(
    '{"slow": nn.Linear(O, A)}',
    'F.mse_loss(networks["slow"](obs).tanh(), batch.actions)'
    ' - critic(obs, networks["slow"](obs).tanh())[0].mean(), {}',
    'networks["slow"](observations).tanh()',
    TARGETS,
)
"""Draws near the data, and to where the first of the critic's values is high."""


def table(observation_dim=OBSERVATION_DIM, action_dim=ACTION_DIM, **numbers):
    """A dataset of the smallest profile with other shapes and numbers."""
    small = {"actor_hidden_dims": (6, 5), "value_hidden_dims": (5, 4)}
    small |= {"discount": DISCOUNT, "learning_rate": RATE, "tau": TAU}
    changed = SMALL.numbers.model_copy(update=small | numbers)
    shapes = {"observation_dim": observation_dim, "action_dim": action_dim}
    return SMALL.model_copy(update=shapes | {"numbers": changed})


def guest(environment):
    """What a learner or an actor has of that table."""
    plan = Plan(
        task=TASK,
        task_version=TASK_.version,
        profile=TASK_.profile("smoke"),
        environments=(Planned(environment=environment, heldout=False, scale=None),),
        budget=TASK_.budget,
        constants=TASK_.constants,
    )
    config = guest_config("actor", environment, plan, 0, "", "cpu", {})
    return environment_of(None, None, config)  # there is no host: none of these tests asks it


def learner_of(source, environment=None):
    return load_source(source).build(guest(environment or table()))


def exact(learner):
    """The same in float64, where a rounding moves nothing, with all weights drawn at random."""
    generator = torch.Generator().manual_seed(7)
    networks = [learner.critic, learner.target_critic, learner.policy, *learner.targets.values()]
    for module in networks:
        module.double()
        for parameter in module.parameters():
            parameter.data.normal_(generator=generator)
    return learner


MASKS = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])


def batch(seed=0):
    rng = np.random.default_rng(seed)
    size = len(MASKS)
    return OfflineBatch(
        observations=torch.tensor(rng.normal(size=(size, OBSERVATION_DIM))),
        actions=torch.tensor(rng.uniform(-1, 1, (size, ACTION_DIM))),
        rewards=torch.tensor(rng.normal(size=size)),
        masks=torch.tensor(MASKS),
        next_observations=torch.tensor(rng.normal(size=(size, OBSERVATION_DIM))),
        next_actions=None,
    )


def single(given):
    """The same in float32, as a dataset's batches are."""
    return OfflineBatch(*(None if each is None else each.float() for each in given))


def weights(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


# ---- by hand, in numpy ----


def arrays(module):
    return [parameter.detach().numpy() for parameter in module.parameters()]


def linear_by_hand(module, inputs):
    weight, bias = arrays(module)
    return inputs @ weight.T + bias


def member_by_hand(member, inputs):
    """Linear, GELU, layer norm, as often as there are hidden layers; a last layer of one number."""
    *hidden, last_weight, last_bias = arrays(member)
    while hidden:
        weight, bias, gain, shift, *hidden = hidden
        inputs = inputs @ weight.T + bias
        inputs = 0.5 * inputs * (1 + erf(inputs / math.sqrt(2)))
        mean = inputs.mean(axis=1, keepdims=True)
        variance = ((inputs - mean) ** 2).mean(axis=1, keepdims=True)
        inputs = (inputs - mean) / np.sqrt(variance + 1e-6) * gain + shift
    return (inputs @ last_weight.T + last_bias)[:, 0]


def values_by_hand(critic, observations, actions):
    inputs = np.hstack([observations, actions])
    return np.stack([member_by_hand(member, inputs) for member in critic.members])


def next_actions_by_hand(learner, given):
    """Of MIXED: by the target of one network and by the other as it is, at temperature 1."""
    observations = given.next_observations.numpy()
    slow = linear_by_hand(learner.targets["slow"], observations)
    fast = linear_by_hand(learner.policy.networks["fast"], observations)
    return slow + 2 * fast


def target_by_hand(learner, given, q_agg):
    actions = np.clip(next_actions_by_hand(learner, given), -1, 1)
    both = values_by_hand(learner.target_critic, given.next_observations.numpy(), actions)
    assert {bool(each) for each in both[0] < both[1]} == {True, False}
    value = {"min": both.min(axis=0), "mean": both.mean(axis=0)}[q_agg]
    return given.rewards.numpy() + DISCOUNT * given.masks.numpy() * value


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("q_agg", ["min", "mean"])
def test_the_critics_target_is_the_one_computed_by_hand(q_agg):
    learner, given = exact(learner_of(source_of(MIXED), table(q_agg=q_agg))), batch()
    assert learner.critic_target(given).numpy() == close(target_by_hand(learner, given, q_agg))


def test_next_actions_are_clipped_before_the_critic_sees_them():
    learner, given = exact(learner_of(source_of(MIXED))), batch()
    seen = []
    learner.target_critic.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    learner.critic_target(given)
    (actions,) = seen
    unclipped = next_actions_by_hand(learner, given)
    assert actions.numpy() == close(np.clip(unclipped, -1, 1))
    assert np.any(unclipped > 1)
    assert np.any(unclipped < -1)
    assert np.any(np.abs(unclipped) < 1)


def test_a_mask_of_zero_stops_the_bootstrap_and_a_mask_of_one_does_not():
    learner, given = exact(learner_of(source_of(MIXED))), batch()
    target = learner.critic_target(given)
    elsewhere = learner.critic_target(
        given._replace(next_observations=given.next_observations.flip(0) + 1)
    )
    assert (target == elsewhere).tolist() == (MASKS == 0).tolist()
    assert target[MASKS == 0].tolist() == given.rewards[MASKS == 0].tolist()


def test_the_critics_loss_is_the_mean_of_both_members_squared_errors():
    learner, given = exact(learner_of(source_of(MIXED), table(q_agg="min"))), batch()
    values = values_by_hand(learner.critic, given.observations.numpy(), given.actions.numpy())
    errors = values - target_by_hand(learner, given, "min")
    metrics = learner.update(given)
    assert metrics["critic_loss"].item() == close(np.mean(errors**2))
    assert metrics["q"].item() == close(np.mean(values))


def test_targets_move_by_tau_towards_the_new_network_at_every_step():
    learner = exact(learner_of(source_of(MIXED)))
    for step in range(3):
        pairs = [(learner.target_critic, learner.critic)]
        pairs += [(learner.targets["slow"], learner.policy.networks["slow"])]
        before = [weights(target) for target, _ in pairs]
        online = weights(learner.critic)
        learner.update(batch(step))
        assert not np.array_equal(weights(learner.critic), online)
        for (target, moved), old in zip(pairs, before, strict=True):
            assert weights(target) == close((1 - TAU) * old + TAU * weights(moved))
            assert not np.array_equal(weights(target), old)


def test_targets_begin_as_copies_and_only_networks_that_are_named_have_one():
    learner = learner_of(source_of(MIXED))
    assert list(learner.targets) == ["slow"]
    pairs = [(learner.targets["slow"], learner.policy.networks["slow"])]
    for target, online in (*pairs, (learner.target_critic, learner.critic)):
        assert np.array_equal(weights(target), weights(online))
        assert target is not online


def test_a_trainer_without_the_optional_methods_has_no_targets_and_no_next_actions():
    learner = learner_of(reference("bc"))
    assert learner.targets == {}
    assert learner.with_next_actions is False


# ---- the same steps by a plain loop ----


def plain_critics(hidden=(5, 4)):
    """Two networks of nobody's classes but torch's, in float64."""

    def one():
        layers, width = [], OBSERVATION_DIM + ACTION_DIM
        for each in hidden:
            layers += [nn.Linear(width, each), nn.GELU(), nn.LayerNorm(each, eps=1e-6)]
            width = each
        return nn.Sequential(*layers, nn.Linear(width, 1))

    return nn.ModuleList([one(), one()]).double()


def copied(module, like):
    nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(like.parameters()).detach().clone(), module.parameters()
    )
    return module


def plain_loop(learner, batches, critic_first=False):
    """CLIMBING's weights after those batches: critic, its target, actor, its target.

    `critic_first`: as many codes have it, the policy's gradient is that of a critic already moved.
    """
    critics = copied(plain_critics(), learner.critic)
    slow_critics = copied(plain_critics(), learner.target_critic)
    actor = copied(nn.Linear(3, 2).double(), learner.policy.networks["slow"])
    slow_actor = copied(nn.Linear(3, 2).double(), learner.targets["slow"])
    of_critics = torch.optim.Adam(critics.parameters(), lr=RATE)
    of_actor = torch.optim.Adam(actor.parameters(), lr=RATE)

    for each in batches:

        def q(networks, observations, actions):
            inputs = torch.cat([observations, actions], dim=1)
            return torch.stack([network(inputs)[:, 0] for network in networks])

        with torch.no_grad():
            following = slow_actor(each.next_observations).tanh()
            value = q(slow_critics, each.next_observations, following).mean(dim=0)
            target = each.rewards + DISCOUNT * each.masks * value
        found = q(critics, each.observations, each.actions)
        critic_loss = sum(((one - target) ** 2).mean() for one in found) / 2
        gradients = torch.autograd.grad(critic_loss, list(critics.parameters()))
        for parameter, gradient in zip(critics.parameters(), gradients, strict=True):
            parameter.grad = gradient
        if critic_first:
            of_critics.step()

        actions = actor(each.observations).tanh()
        actor_loss = ((actions - each.actions) ** 2).mean()
        actor_loss = actor_loss - q(critics, each.observations, actions)[0].mean()
        gradients = torch.autograd.grad(actor_loss, list(actor.parameters()))
        for parameter, gradient in zip(actor.parameters(), gradients, strict=True):
            parameter.grad = gradient
        if not critic_first:
            of_critics.step()
        of_actor.step()

        with torch.no_grad():
            for slow, fast in ((slow_critics, critics), (slow_actor, actor)):
                for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                    old.copy_((1 - TAU) * old + TAU * new)
    return [weights(each) for each in (critics, slow_critics, actor, slow_actor)]


def test_steps_are_those_of_a_plain_loop_with_two_adams_and_gradients_at_the_same_weights():
    learner = exact(learner_of(source_of(CLIMBING), table(q_agg="mean")))
    batches = [batch(seed) for seed in range(10)]
    wanted = plain_loop(learner, batches)
    other = plain_loop(learner, batches, critic_first=True)
    for each in batches:
        learner.update(each)
    found = (learner.critic, learner.target_critic)
    found += (learner.policy.networks["slow"], learner.targets["slow"])
    for module, numbers in zip(found, wanted, strict=True):
        assert weights(module) == pytest.approx(numbers, rel=1e-7, abs=1e-9)
    assert np.abs(other[2] - wanted[2]).max() > 1e-5  # the loop can tell the two orders apart


def test_no_loss_of_a_policy_moves_the_critic_and_its_gradient_reaches_the_actions():
    """The critic's gradient is its own loss's; it is moved by the same step whatever the policy."""
    loud = CLIMBING.replace("critic(obs,", "1e6 * critic(obs,")
    quiet = CLIMBING.replace("critic(obs,", "0.0 * critic(obs,")
    moved = {}
    for name, text in (("loud", loud), ("quiet", quiet)):
        learner, given = exact(learner_of(source_of(text))), batch()
        target = torch.tensor(learner.critic_target(given).numpy())
        values = learner.critic(given.observations, given.actions)
        own = torch.autograd.grad((values - target).square().mean(), learner.critic.parameters())
        learner.update(given)
        for parameter, gradient in zip(learner.critic.parameters(), own, strict=True):
            assert parameter.grad.numpy() == close(gradient.numpy())
            assert parameter.requires_grad
        moved[name] = weights(learner.critic), weights(learner.policy.networks["slow"])
    assert np.array_equal(moved["loud"][0], moved["quiet"][0])
    assert not np.allclose(moved["loud"][1], moved["quiet"][1])


# ---- runs ----


def rows(observations, actions, rewards, masks, next_observations=None, next_actions=None):
    """Of a dataset's file: float32, one transition each, as `sandbox/rows.py` says."""
    next_observations = observations if next_observations is None else next_observations
    next_actions = actions if next_actions is None else next_actions
    parts = [observations, next_observations, actions, next_actions, rewards, masks]
    return np.column_stack(parts).astype(np.float32)


def train(source, environment, data, tmp_path, steps):
    """A run in this process, with batches as a host draws them."""
    np.save(tmp_path / "rows.npy", data)
    profile = TASK_.profile("smoke")
    lengths = {"total_timesteps": steps, "eval_freq": steps, "scored_exports": ()}
    environment = environment.model_copy(update={"transitions": len(data)})
    task = TASK_.model_copy(update={"constants": dict(TASK_.constants) | {"batch_size": 128}})
    shorter = profile.model_copy(update=lengths)
    run = BareRun(task, shorter, environment, 0, {}, tmp_path / "rows.npy")
    run.train(source, lambda line: None)
    return run


def ask(run, environment, observations, seed=0):
    """What an actor that loaded the last export does, (B, A)."""
    present = guest(environment)
    actor = load_actor(run.module, run.policy, present)
    seed_everything(seed)
    payload = act(run.module, actor, observations.astype(np.float32).tobytes(), present)
    return np.frombuffer(payload, dtype=np.float32).reshape(len(observations), -1)


NEEDS = """
    def needs_next_actions(self):
        return {}
"""
LOOKS = region(
    '{"actor": nn.Linear(O, A)}',
    'networks["actor"](obs).mean(), self.look(batch)',
    'networks["actor"](observations)',
    """
    def look(self, batch):
        CHECK
        return {}
""",
)


@pytest.mark.parametrize(
    ("method", "check"),
    [
        ("", "assert batch.next_actions is None"),
        (NEEDS.format(False), "assert batch.next_actions is None"),
        (NEEDS.format(True), "assert torch.equal(batch.next_actions, -batch.actions)"),
    ],
    ids=["left out", "off", "on"],
)
def test_next_actions_are_the_datas_where_they_are_asked_for_and_none_elsewhere(
    tmp_path, method, check
):
    rng = np.random.default_rng(0)
    observations, actions = rng.normal(size=(64, 3)), rng.uniform(-1, 1, (64, 2))
    ones = np.ones(64)
    data = rows(observations, actions, ones, ones, next_actions=-actions)
    text = LOOKS.replace("CHECK", check) + method
    assert train(source_of(text), table(), data, tmp_path, steps=3).policy
    wrong = LOOKS.replace("CHECK", check.replace("assert ", "assert not ")) + method
    with pytest.raises(AssertionError):
        train(source_of(wrong), table(), data, tmp_path, steps=3)


# ---- what acts ----


@pytest.mark.parametrize("name", REFERENCES)
def test_what_is_exported_is_the_policy_and_nothing_of_the_critic(name):
    environment = ALL["pointmaze-medium-navigate-5"]
    learner = learner_of(reference(name), environment)
    artefact = export_policy(learner.policy)
    assert artefact[:1] == WHOLE_MODULE
    policy = load_policy(artefact, build=None, device=CPU)
    held = count_by_module(policy)
    assert set(held) <= {"networks", "_modules"}
    numbers = sum(each.numel() for each in learner.policy.networks.parameters())
    assert sum(held.values()) == numbers
    assert 4 * numbers < len(artefact) < 4 * numbers + 16_384
    assert [key.split(".")[0] for key in policy.state_dict()] == ["networks"] * len(
        learner.policy.networks.state_dict()
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_an_actor_that_is_loaded_acts_as_the_live_policy_does(name, tmp_path):
    environment, source = table(), reference(name)
    present, observations = guest(environment), torch.randn(16, OBSERVATION_DIM)
    module = load_source(source)
    learner = module.build(present)
    for seed in range(3):
        learner.update(single(batch(seed)))
    artefact = export_policy(learner.policy)
    seed_everything(5)
    live = module.act(learner.policy, observations)
    fresh = load_source(source)
    actor = load_actor(fresh, artefact, present)
    seed_everything(5)
    assert np.array_equal(fresh.act(actor, observations), live)
    assert live.shape == (16, ACTION_DIM)


def test_fqls_noise_is_fresh_at_each_question_and_follows_from_the_seed():
    module = load_source(reference("fql"))
    policy, observations = module.build(guest(table())).policy, torch.randn(16, OBSERVATION_DIM)

    def asked(seed):
        seed_everything(seed)
        return [module.act(policy, observations) for _ in range(2)]

    first, again, other = asked(1), asked(1), asked(2)
    assert np.array_equal(first, again)
    assert not np.allclose(first[0], first[1])
    assert not np.allclose(first, other)


@pytest.mark.parametrize("name", ["bc", "awr", "rebrac"])
def test_the_other_references_act_without_chance_when_they_are_judged(name):
    module = load_source(reference(name))
    policy, observations = module.build(guest(table())).policy, torch.randn(4, OBSERVATION_DIM)
    assert np.array_equal(module.act(policy, observations), module.act(policy, observations))


def test_rebracs_target_policy_is_noisy_and_stays_within_half_of_the_bound():
    learner = learner_of(reference("rebrac"))
    networks, observations = learner.policy.networks, torch.randn(4096, OBSERVATION_DIM)
    calm = learner.policy.sample(networks, observations, temperature=0.0)
    noise = learner.policy.sample(networks, observations, temperature=1.0) - calm
    assert calm.abs().max() < 0.5  # so that nothing is clipped
    assert noise.std().item() == pytest.approx(0.2, rel=0.05)
    assert noise.abs().max().item() == pytest.approx(0.5, abs=1e-6)


def test_dropout_is_on_in_training_and_off_when_the_policy_is_judged():
    text = region(
        '{"actor": nn.Sequential(nn.Linear(O, 32), nn.Dropout(0.5), nn.Linear(32, A))}',
        'networks["actor"](obs).mean(), {}',
        'networks["actor"](observations)',
    )
    module = load_source(source_of(text))
    present, observations = guest(table()), torch.randn(16, OBSERVATION_DIM)
    learner = module.build(present)

    def in_training():
        return learner.policy.sample(learner.policy.networks, observations, temperature=1.0)

    assert not torch.equal(in_training(), in_training())
    actor = load_actor(module, export_policy(learner.policy), present)
    assert actor.training
    judged = module.act(actor, observations)
    assert np.array_equal(judged, module.act(actor, observations))
    first, _, last = actor.networks["actor"]
    wanted = last(first(observations)).clamp(-1, 1).detach().numpy()
    assert judged == pytest.approx(wanted, abs=1e-6)


def test_temperature_is_0_when_the_policy_is_judged_and_what_leaves_the_bounds_is_clipped():
    text = region(
        '{"actor": nn.Linear(O, A)}',
        'networks["actor"](obs).mean(), {}',
        "torch.tensor([[0.25, -7.0]]).repeat(len(observations), 1) + 0.5 * temperature",
    )
    module = load_source(source_of(text))
    policy = module.build(guest(table())).policy
    assert module.act(policy, torch.zeros(2, OBSERVATION_DIM)).tolist() == [[0.25, -1.0]] * 2


# ---- what a submitter is told ----

NETWORKS = '{"slow": nn.Linear(O, A), "fast": nn.Linear(O, A)}'


@pytest.mark.parametrize("returned", ["{}", "None", "[nn.Linear(O, A)]", "nn.Linear(O, A)"])
def test_networks_that_are_no_dict_of_some_are_refused_by_the_methods_name(returned):
    words = r"create_policy_networks returned (\w+; a dict|nothing that has parameters)"
    with pytest.raises((TypeError, ValueError), match=words):
        learner_of(source_of(MIXED.replace(NETWORKS, returned)))


def tried(text, tmp_path):
    """The only finding of a trial in the sandbox, at visible shapes."""
    (found,) = try_out(TASK_, None, accepted(text, tmp_path, TASK)).findings
    return found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('return ["slow"]', 'return ["critic"]', "get_target_update_modules names 'critic'"),
        ('return {"slow"', '{"slow"', "create_policy_networks returned NoneType; a dict"),
        ("return temperature *", "return 0 if temperature else", "sample_actions returned int"),
    ],
    ids=["a target of no network", "no networks", "no tensor"],
)
def test_the_trial_names_the_method_that_returned_something_else(tmp_path, old, new, words):
    found = tried(MIXED.replace(old, new), tmp_path)
    assert found.rule in ("trial-crashed", "bad-action")
    assert words in found.message
    assert "at the shapes of antmaze-large-navigate-singletask-v0" in found.message


def test_a_target_of_no_network_is_told_with_the_networks_that_there_are():
    with pytest.raises(ValueError, match=r"names 'critic'.*made: slow, fast"):
        learner_of(source_of(MIXED.replace('return ["slow"]', 'return ["critic"]')))


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ("observations[:, :1] if temperature == 0.0 else", "returned shape (16, 1); (16, 8)"),
        ("math.nan *", "returned nan as component 0 of an action"),
    ],
    ids=["shape when judged", "nan"],
)
def test_bad_actions_are_told_at_the_line_of_sample_actions(tmp_path, actions, words):
    text = MIXED.replace("return temperature *", f"return {actions} temperature *")
    found = tried(text, tmp_path)
    assert found.rule == "bad-action"
    assert f"sample_actions {words}" in found.message
    assert "def sample_actions" in found.text
    assert text.split("\n")[found.line - 1] == found.text


# ---- references learn what they should ----

TRANSITIONS = 1024
HELD_OUT = np.random.default_rng(1).uniform(-1, 1, (300, 2))


def tiny(**numbers):
    widths = {"actor_hidden_dims": (32, 32), "value_hidden_dims": (32, 32)}
    return table(2, 1, learning_rate=5e-3, **widths, **numbers)


def one_step(actions_of, rewards_of):
    """Transitions that end at once: what an action is worth is its reward."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (TRANSITIONS, 2))
    actions = actions_of(rng, observations)
    rewards = rewards_of(observations, actions)
    return rows(observations, actions, rewards, np.zeros(TRANSITIONS))


def two_modes(distance):
    """Either of two actions, by chance."""

    def actions(rng, observations):
        sides = rng.choice([-1.0, 1.0], len(observations))
        return distance * sides + 0.05 * rng.standard_normal(len(observations))

    return actions


def better_side(observations):
    return np.sign(observations[:, 0])


BANDIT = one_step(two_modes(0.5), lambda obs, act: np.sign(act) == better_side(obs))
"""Actions around -0.5 and 0.5; of one side, which the observation tells, each is worth 1."""
EQUAL = one_step(two_modes(0.7), lambda obs, act: np.ones(len(obs)))
"""Actions around -0.7 and 0.7, all of the same worth."""
CLEAR = HELD_OUT[np.abs(HELD_OUT[:, 0]) > 0.3]
"""Observations that are not at the border of the two sides."""


def towards_better(name, tmp_path, steps, **numbers):
    """Actions at CLEAR, positive where they are on the better side, (B,)."""
    environment = tiny(**numbers)
    run = train(reference(name), environment, BANDIT, tmp_path, steps)
    return ask(run, environment, CLEAR)[:, 0] * better_side(CLEAR)


def test_bc_goes_to_the_mean_action_of_the_data_in_each_state(tmp_path):
    environment = tiny()

    def wanted(observations):
        return 0.4 * observations[:, 0] - 0.3 * observations[:, 1]

    data = one_step(
        lambda rng, obs: wanted(obs) + rng.choice([-0.2, 0.2], len(obs)),
        lambda obs, act: act,  # is not looked at
    )
    run = train(reference("bc"), environment, data, tmp_path, 300)
    assert ask(run, environment, HELD_OUT)[:, 0] == pytest.approx(wanted(HELD_OUT), abs=0.15)


def test_of_two_actions_bc_takes_the_average_whatever_they_are_worth(tmp_path):
    assert np.abs(towards_better("bc", tmp_path, 200)).max() < 0.25


def test_awr_takes_the_better_of_two_actions_and_stays_with_the_data(tmp_path):
    actions = towards_better("awr", tmp_path, 300)
    assert np.mean(actions > 0.2) > 0.9
    assert 0.4 < actions.mean() < 0.75


def test_rebrac_takes_the_better_of_two_actions(tmp_path):
    actions = towards_better("rebrac", tmp_path, 300)
    assert np.mean(actions > 0.2) > 0.9


def test_fql_takes_the_better_of_two_actions(tmp_path):
    actions = towards_better("fql", tmp_path, 300, alpha=0.3)
    assert np.mean(actions > 0.2) > 0.9


def test_fql_takes_both_of_two_actions_that_are_worth_the_same(tmp_path):
    environment = tiny(alpha=3.0)
    run = train(reference("fql"), environment, EQUAL, tmp_path, 400)
    actions = ask(run, environment, np.repeat(HELD_OUT, 3, axis=0))
    assert np.mean(actions > 0.35) > 0.25
    assert np.mean(actions < -0.35) > 0.25
    assert np.mean(np.abs(actions) < 0.35) < 0.35


# ---- the task's tables ----


@pytest.mark.parametrize("id_", ALL)
def test_parameters_in_the_tables_are_those_of_the_largest_reference(id_):
    environment = ALL[id_]
    counts = [
        count_by_module(load_source(reference(name)).build(guest(environment)))
        for name in REFERENCES
    ]
    assert environment.reference_parameters == max(sum(each.values()) for each in counts)
    assert environment.reference_policy_parameters == max(each["policy"] for each in counts)


@pytest.mark.parametrize(
    "id_",
    [
        "antmaze-large-navigate-singletask-v0",
        "antmaze-large-navigate-singletask-task3-v0",
        "cube-single-play-100",
        "pointmaze-medium-navigate-5",
    ],
)
@pytest.mark.filterwarnings("ignore:.*precision lowered by casting to float32")
def test_shapes_bounds_and_time_limit_are_those_of_the_real_environment(id_):
    environment = ALL[id_]
    settings = family_of(environment).check(environment)
    assert settings["time_limit"] == environment.time_limit
    wrong = environment.model_copy(update={"time_limit": environment.time_limit + 1})
    if not id_.startswith("cube"):  # whose meshes take a second
        with pytest.raises(EnvironmentMismatch, match="time_limit is"):
            family_of(wrong).check(wrong)


def test_tables_of_one_simulator_agree():
    of_simulator = {}
    for each in ALL.values():
        told = (each.observation_dim, each.action_dim, each.max_action, each.time_limit)
        of_simulator.setdefault(each.simulator, set()).add((*told, each.evaluation_mib))
    assert all(len(each) == 1 for each in of_simulator.values())


def test_a_generated_dataset_has_a_thousand_transitions_an_episode():
    made = [each for each in ALL.values() if each.generator]
    assert {each.generator.seed for each in made} == {0, 1}  # visible ones, and held-out ones
    for each in made:
        assert each.transitions == 1000 * each.generator.episodes


# ---- other people's policies ----


def test_there_are_several_of_them_and_each_says_what_it_is():
    assert len(REGIONS) >= 8
    for path in REGIONS:
        assert path.read_text().startswith(("# ", '"""')), path.name
        assert path.stat().st_size < 8192, path.name


@pytest.mark.parametrize("path", REGIONS, ids=lambda path: path.stem)
def test_it_passes_at_every_shape_as_it_was_written(path):
    submission = accept(TASK_, path)
    assert submission.warnings == ()
    assert submission.notes == ()
    assert submission.region == path.read_bytes()
    trial = try_out(TASK_, HELDOUT, submission)
    assert trial.findings == ()
    assert {each.environment.id for each in trial.tried} == set(ALL)
    for each in trial.tried:
        # The critics alone are two thirds of the largest reference.
        assert 0.67 * each.environment.reference_parameters < each.parameters <= each.budget
        assert 0 < each.policy_bytes <= each.policy_cap


# ---- what a method may return ----


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("loss", "compute_actor_loss returned Tensor; a loss and a dict"),
        ("None", "compute_actor_loss returned NoneType; a loss and a dict"),
        ("(loss, None)", "compute_actor_loss returned NoneType for metrics"),
        ("(loss.item(), {})", "compute_actor_loss returned float for a loss"),
        ("(loss.detach(), {})", "compute_actor_loss returned a loss without gradients"),
        ("(loss * torch.ones(3), {})", r"compute_actor_loss returned a loss of shape \(3,\)"),
    ],
)
def test_a_loss_that_is_none_is_refused_by_the_methods_name(returned, words):
    learner = learner_of(source_of(LOSES.replace("RETURNED", returned)))
    with pytest.raises(TypeError, match=words):
        learner.update(single(batch()))


LOSES = """
class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.observation_dim, self.action_dim = observation_dim, action_dim

    def create_policy_networks(self):
        return nn.ModuleDict({"actor": nn.Linear(self.observation_dim, self.action_dim)})

    def compute_actor_loss(self, networks, batch, critic):
        loss = networks["actor"](batch.observations).square().mean()
        return RETURNED

    def sample_actions(self, networks, observations, temperature):
        return networks["actor"](observations)
"""


def test_a_module_dict_is_a_dict_and_the_loops_own_metrics_are_not_overwritten():
    region = LOSES.replace("RETURNED", '(loss, {"q": 8.0, "own": 7.0})')
    logged = learner_of(source_of(region)).update(single(batch()))
    assert logged["own"] == 7.0
    assert logged["q"] != 8.0
    assert logged.keys() == {"own", "q", "critic_loss", "actor_loss"}


@pytest.mark.parametrize("name", ["values", "q.1", ""])
def test_a_network_with_a_name_that_torch_does_not_take_is_refused_by_name(name):
    region = LOSES.replace('{"actor": ', f"{{{name!r}: ").replace("nn.ModuleDict({", "({")
    with pytest.raises(ValueError, match=f"a network cannot be called {name!r}"):
        learner_of(source_of(region))


def test_a_target_follows_the_buffers_of_its_network():
    region = """
class Normalised(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mean", torch.zeros(sizes[0]))

    def forward(self, observations):
        if self.training:
            self.mean.lerp_(observations.mean(dim=0), 0.1)
        return super().forward(observations - self.mean)


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.sizes = (observation_dim, action_dim)

    def create_policy_networks(self):
        return {"actor": Normalised(*self.sizes)}

    def get_target_update_modules(self):
        return "actor"

    def compute_actor_loss(self, networks, batch, critic):
        return networks["actor"](batch.observations).square().mean(), {}

    def sample_actions(self, networks, observations, temperature):
        return networks["actor"](observations)
"""
    learner = learner_of(source_of(region))
    for seed in range(3):
        learner.update(single(batch(seed)))
    mean = learner.policy.networks["actor"].mean
    assert mean.abs().min() > 0
    assert torch.equal(learner.targets["actor"].mean, mean)
    assert not torch.equal(learner.targets["actor"].weight, learner.policy.networks["actor"].weight)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("networks['actor'](observations)[0]", "shape"),
        ("networks['actor'](observations).numpy()", "ndarray; a tensor"),
    ],
)
def test_actions_of_another_kind_are_refused_in_training_too(returned, words):
    region = LOSES.replace("RETURNED", "(loss, {})")
    region = region.replace(
        '        return networks["actor"](observations)\n', f"        return {returned}\n"
    )
    with pytest.raises(BadAction, match=f"sample_actions returned {words}"):
        learner_of(source_of(region)).update(single(batch()))


def test_actions_in_double_precision_are_taken_as_single():
    region = LOSES.replace("RETURNED", "(loss, {})").replace(
        'return networks["actor"](observations)\n',
        'return networks["actor"](observations).double()\n',
    )
    assert learner_of(source_of(region)).update(single(batch()))
