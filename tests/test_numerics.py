"""Backends change a run's speed and at most its rounding; a manifest names them and is obeyed."""

import csv
import json
import sys
import time

import pytest
import torch
from torch import nn

import harness.numerics
from harness import matmul_probe
from harness.evaluation import begin
from harness.executors.local import LocalExecutor
from harness.keys import fingerprint
from harness.layout import read_manifest
from harness.manifest import make_manifest, make_plan
from harness.numerics import STOCK, TUNED, choose, faster_matmul, variables
from harness.results.store import Store
from harness.training.run import train
from harness.training.workbench import Workbench
from sandbox.bubblewrap import Bubblewrap
from sandbox.guest import numerics
from tests.support import KEY, Lines, conditions, region, small_profile, unchecked

ONEDNN = {**TUNED, "matmul": "onednn"}


@pytest.fixture(autouse=True)
def _as_in_a_guest():
    """One thread, and torch's own backends until a test says otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    numerics.install({})
    yield
    numerics.install({})
    torch.set_num_threads(threads)


# ---- oneDNN for matrix products ----

ROUNDING = 1e-5
"""Of a product, in units of its largest element. Measured: 9e-7 at most."""


@pytest.fixture
def products(monkeypatch):
    """A list that grows by one for each product that oneDNN makes."""
    made = []
    product = numerics._product
    monkeypatch.setattr(numerics, "_product", lambda *x: made.append(1) or product(*x))
    return made


def normal(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=dtype)


def by_both(compute):
    """What `compute` returns with torch's default and with oneDNN."""
    numerics.install({})
    before = compute()
    numerics.install({"matmul": "onednn"})
    during = compute()
    numerics.install({})
    return before, during


def agree(one, other):
    assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
    return bool((one - other).abs().max() <= ROUNDING * one.abs().max())


def layer_and_gradients(shape, bias=True):
    """Output of nn.Linear and the gradients of its input, its weight and its bias."""
    torch.manual_seed(0)
    layer = nn.Linear(shape[-1], 200, bias=bias)
    inputs = normal(*shape).requires_grad_()
    outputs = layer(inputs)
    outputs.square().sum().backward()
    return [outputs.detach(), inputs.grad, *(each.grad for each in layer.parameters())]


@pytest.mark.parametrize(
    ("shape", "bias"), [((256, 300), True), ((256, 300), False), ((8, 64, 300), True)]
)
def test_a_linear_layers_outputs_and_gradients_are_torchs_to_rounding(shape, bias, products):
    default, ours = by_both(lambda: layer_and_gradients(shape, bias))
    assert len(products) == 3  # forward, and backward for the input and the weight
    assert all(agree(one, other) for one, other in zip(default, ours, strict=True))


def slope(outputs, inputs, **options):
    return torch.autograd.grad(outputs.sum(), inputs, **options)[0]


PRODUCTS = {
    "mm": lambda a, b: torch.mm(a, b),
    "@": lambda a, b: a @ b,
    "both transposed": lambda a, b: torch.mm(a.t(), b.t()),
    "addmm": lambda a, b: torch.addmm(b[0], a, b),
    "second derivative": lambda a, b: slope(
        slope(torch.mm(a, b / 16).tanh(), a, create_graph=True).square(), a
    ),
    "vmap": lambda a, b: torch.vmap(torch.mm, in_dims=(0, None))(torch.stack([a, b]), b),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_torchs_to_rounding_and_made_by_onednn(name, products):
    a, b = normal(256, 256).requires_grad_(), normal(257, 256)[1:]
    default, ours = by_both(lambda: PRODUCTS[name](a, b).detach())
    assert products
    assert agree(default, ours)


VIEWS = {
    "a slice of columns": normal(256, 300)[:, 1:257],
    "every second row": normal(512, 256)[::2],
    "every second column": normal(256, 512)[:, ::2],
    "one row": normal(1, 256).expand(256, 256),
    "one column": normal(256, 1).expand(256, 256),
    "overlapping windows": normal(1024).unfold(0, 256, 1)[:256],
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_multiplied_as_torch_does_it_and_not_slower_by_orders(name, side):
    """A layer over a slice of its input multiplies by one in its backward pass."""
    view, dense = VIEWS[name], normal(256, 256)

    def timed():
        seconds = []
        for _ in range(3):
            began = time.process_time()
            product = torch.mm(view, dense) if side == "left" else torch.mm(dense, view)
            seconds.append(time.process_time() - began)
        return product, min(seconds)

    (default, usual), (ours, taken) = by_both(timed)
    assert agree(default, ours)
    assert taken < 20 * usual + 0.01


LEFT_TO_TORCH = {
    "small": lambda: torch.mm(normal(64, 64), normal(64, 64)),
    "a small layer": lambda: nn.functional.linear(normal(1, 17), normal(256, 17), normal(256)),
    "float64": lambda: torch.mm(
        normal(256, 256, dtype=torch.float64), normal(256, 256, dtype=torch.float64)
    ),
    "bfloat16": lambda: torch.mm(normal(256, 256).bfloat16(), normal(256, 256).bfloat16()),
    "a matrix added": lambda: torch.addmm(normal(256, 256), normal(256, 256), normal(256, 256)),
    "a row added": lambda: torch.addmm(normal(1, 256), normal(256, 256), normal(256, 256)),
    "beta": lambda: torch.addmm(normal(256), normal(256, 256), normal(256, 256), beta=0.5),
    "alpha": lambda: torch.addmm(normal(256), normal(256, 256), normal(256, 256), alpha=-2),
    "beta 0": lambda: torch.addmm(
        torch.full((256,), torch.nan), normal(256, 256), normal(256, 256), beta=0
    ),
    "no rows": lambda: torch.mm(normal(0, 2048), normal(2048, 1024)),
    "nothing to sum": lambda: torch.mm(normal(2048, 0), normal(0, 1024)),
    "nothing to sum, added": lambda: torch.addmm(normal(1024), normal(2048, 0), normal(0, 1024)),
}


@pytest.mark.parametrize("name", LEFT_TO_TORCH)
def test_small_and_unusual_products_stay_torchs_bit_for_bit(name, products):
    default, ours = by_both(LEFT_TO_TORCH[name])
    assert products == []
    assert ours.dtype == default.dtype
    assert torch.equal(default, ours)


def test_small_products_have_gradients(products):
    def gradient():
        x = normal(8, 8).requires_grad_()
        nn.functional.linear(x, normal(4, 8), normal(4)).square().sum().backward()
        return x.grad

    default, ours = by_both(gradient)
    assert torch.equal(default, ours)


@pytest.mark.parametrize(
    "bias",
    [normal(512)[::2], normal(256, 256)[:, 3], torch.ones(1).expand(256)],
    ids=["every second", "a column", "one number"],
)
def test_a_bias_that_is_not_contiguous_is_added_as_it_is(bias):
    default, ours = by_both(lambda: torch.addmm(bias, normal(256, 256), normal(256, 256)))
    assert agree(default, ours)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.mm(torch.ones(1024, 1024), torch.ones(1023, 1024)),
        lambda: torch.mm(torch.ones(3, 4), torch.ones(5, 6)),
        lambda: torch.mm(torch.ones(3, 4, 5), torch.ones(5, 6)),
        lambda: torch.mm(torch.ones(1024, 1024), torch.ones(1024, 1024, dtype=torch.float64)),
        lambda: torch.addmm(torch.ones(7), torch.ones(1024, 1024), torch.ones(1024, 1024)),
        lambda: torch.addmm(
            torch.ones(1024, dtype=torch.float64), torch.ones(1024, 1024), torch.ones(1024, 1024)
        ),
        lambda: nn.Linear(1024, 1024)(torch.ones(1024, 1023)),
    ],
)
def test_what_torch_refuses_is_refused_in_torchs_words(compute):
    def words():
        with pytest.raises(RuntimeError) as raised:
            compute()
        return str(raised.value)

    default, ours = by_both(words)
    assert default == ours


def test_install_of_nothing_takes_everything_back(products):
    def everything():
        network = nn.Linear(2, 2)
        numerics.soft_update(network, nn.Linear(2, 2), 0.5)
        with numerics.acting():
            inference = torch.is_inference_mode_enabled()
        fused = numerics.adam(network.parameters(), 1e-3).defaults["fused"]
        return inference, fused, layer_and_gradients((256, 300))

    inference, fused, before = everything()
    assert (inference, fused, products) == (False, None, [])
    numerics.install(ONEDNN)
    inference, fused, _ = everything()
    assert (inference, fused, len(products)) == (True, True, 3)
    numerics.install({})
    inference, fused, after = everything()
    assert (inference, fused, len(products)) == (False, None, 3)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


# ---- the other backends ----


@pytest.mark.parametrize(("backends", "fused"), [({}, None), (STOCK, None), (TUNED, True)])
def test_adam_is_fused_where_chosen_and_passes_options_on(backends, fused):
    numerics.install(backends)
    options = {"betas": (0.5, 0.9), "eps": 1e-5, "weight_decay": 0.1, "amsgrad": True}
    optimizer = numerics.adam(nn.Linear(2, 2).parameters(), 0.01, **options)
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.defaults | options | {"lr": 0.01, "fused": fused} == optimizer.defaults
    assert numerics.adam(nn.Linear(2, 2).parameters(), lr=0.01).defaults["lr"] == 0.01
    own_choice = numerics.adam(nn.Linear(2, 2).parameters(), 0.01, fused=False)
    assert own_choice.defaults["fused"] is False


def test_fused_adam_takes_the_same_steps_to_rounding():
    def stepped(backends):
        numerics.install(backends)
        weight = nn.Parameter(normal(50, 50))
        optimizer = numerics.adam([weight], 1e-3, weight_decay=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            (weight**3).sum().backward()
            optimizer.step()
        return weight.detach()

    default, ours = stepped(STOCK), stepped(TUNED)
    assert (default - normal(50, 50)).abs().max() > 0.01
    assert (default - ours).abs().max() < 1e-6  # measured: one unit in the last place, 2.4e-7


def networks(*seeds):
    for seed in seeds:
        torch.manual_seed(seed)
        yield nn.Sequential(nn.Linear(17, 256), nn.ReLU(), nn.Linear(256, 6))


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.7, 1.0])
def test_both_soft_updates_give_the_same_bits_and_leave_the_source_alone(tau):
    def updated(backends):
        numerics.install(backends)
        target, source, untouched = networks(0, 1, 1)
        numerics.soft_update(target, source, tau)
        assert all(map(torch.equal, source.parameters(), untouched.parameters()))
        assert all(each.requires_grad and each.grad_fn is None for each in target.parameters())
        return list(target.parameters())

    (old, new), one, other = networks(0, 1), updated(STOCK), updated(TUNED)
    assert all(map(torch.equal, one, other))
    for before, towards, after in zip(old.parameters(), new.parameters(), one, strict=True):
        assert torch.allclose(after, (1 - tau) * before + tau * towards, rtol=0, atol=1e-7)


@pytest.mark.parametrize("backends", [STOCK, TUNED])
def test_a_soft_update_between_modules_of_different_lengths_raises(backends):
    numerics.install(backends)
    with_bias, without = nn.Linear(3, 2), nn.Linear(3, 2, bias=False)
    for target, source in ((with_bias, without), (without, with_bias)):
        with pytest.raises(ValueError, match="parameters in the target"):
            numerics.soft_update(target, source, 0.5)


@pytest.mark.parametrize(("backends", "inference"), [({}, False), (STOCK, False), (TUNED, True)])
def test_acting_has_no_gradients_in_either_mode(backends, inference):
    numerics.install(backends)
    with numerics.acting():
        outputs = nn.Linear(2, 2)(torch.ones(1, 2))
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() is inference
    assert not outputs.requires_grad
    assert torch.is_grad_enabled()


# ---- the choice, once a machine ----


@pytest.fixture
def probes(monkeypatch):
    """Stands in for the probe: a list that grows by one each time it is asked."""
    made = []
    seconds = {"torch": 2.0, "onednn": 1.0}
    monkeypatch.setattr(harness.numerics, "_probe", lambda: made.append(1) or dict(seconds))
    return made


def test_stock_is_chosen_without_a_probe(probes, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert choose(stock=True) == STOCK
    assert probes == []
    assert list(tmp_path.iterdir()) == []


def test_the_choice_is_tuned_with_the_faster_product_and_is_kept_in_the_users_cache(
    probes, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert choose(stock=False) == ONEDNN
    assert choose(stock=False) == ONEDNN
    assert len(probes) == 1
    assert [path.name for path in (tmp_path / "cache" / "touchstone").iterdir()] == ["matmul.json"]


@pytest.mark.parametrize(
    ("onednn", "faster"), [(0.5, "onednn"), (0.9, "onednn"), (0.92, "torch"), (1.5, "torch")]
)
def test_onednn_must_be_faster_by_more_than_a_probes_noise(onednn, faster, monkeypatch, tmp_path):
    seconds = {"torch": 1.0, "onednn": onednn}
    monkeypatch.setattr(harness.numerics, "_probe", lambda: seconds)
    assert faster_matmul(tmp_path) == faster
    assert json.loads((tmp_path / "matmul.json").read_text())["seconds"] == seconds


@pytest.mark.parametrize(
    ("name", "value"), [("cpu_model", lambda: "another"), ("version", lambda package: "9.9")]
)
def test_another_cpu_or_torch_is_probed_anew(name, value, probes, monkeypatch, tmp_path):
    faster_matmul(tmp_path)
    monkeypatch.setattr(harness.numerics, name, value)
    faster_matmul(tmp_path)
    assert len(probes) == 2
    faster_matmul(tmp_path)
    assert len(probes) == 2


def changed(content, **changes):
    return json.dumps(json.loads(content) | changes).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"\xff\xfe\x00garbage",
        lambda content: content[:-10],
        lambda content: b"null",
        lambda content: b'"a string"',
        lambda content: b"[1, 2]",
        lambda content: b"{}",
        lambda content: changed(content, faster="mkl"),
        lambda content: changed(content, faster=["onednn"]),
        lambda content: changed(content, faster=None),
        lambda content: changed(content, subject="this machine"),
    ],
)
def test_a_damaged_answer_is_probed_anew_and_replaced(damage, probes, tmp_path):
    faster_matmul(tmp_path)
    path = tmp_path / "matmul.json"
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert faster_matmul(tmp_path) == "onednn"
    assert len(probes) == 2
    assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written_costs_a_probe_and_a_remark(probes, tmp_path, capsys):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")
    assert [faster_matmul(in_the_way), faster_matmul(in_the_way)] == ["onednn", "onednn"]
    assert len(probes) == 2
    assert in_the_way.read_text() == "not a directory"
    assert "cannot be kept" in capsys.readouterr().err


def test_a_real_probe_measures_both_backends():
    seconds = harness.numerics._probe()
    assert seconds.keys() == {"torch", "onednn"}
    assert all(0 < each < 60 for each in seconds.values())


def test_the_probe_times_products_of_the_forward_and_the_backward_pass(
    products, monkeypatch, capsys
):
    monkeypatch.setattr(matmul_probe, "ROUNDS", 1)
    matmul_probe.main()
    assert set(json.loads(capsys.readouterr().out)) == {"torch", "onednn"}
    rounds = 2  # with the warm-up
    layers = rounds * matmul_probe.REPETITIONS * len(matmul_probe.WIDTHS)
    assert len(products) == 3 * layers


@pytest.mark.parametrize("program", ["/bin/false", "/bin/echo", "/nowhere"])
def test_a_probe_that_fails_is_an_oserror_and_no_answer(program, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(OSError, match=r"probe of matrix products failed|/nowhere"):
        faster_matmul(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tuned_keeps_freed_memory_and_stock_sets_nothing():
    assert set(variables(TUNED)) == {
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_TOP_PAD_",
    }
    assert all(int(value) > 0 for value in variables(TUNED).values())
    assert variables(ONEDNN) == variables(TUNED)
    assert variables(STOCK) == variables({}) == {}


# ---- what a manifest says is what a guest gets ----

PROFILE = small_profile(total_timesteps=1, learning_starts=0)  # step 0 is logged

SEES = """\
import os
from sandbox.guest import numerics as backends

made, product = [], backends._product
backends._product = lambda *x: made.append(1) or product(*x)


def seen():
    with acting():
        inference = torch.is_inference_mode_enabled()
    malloc = {name: float(os.environ[name]) for name in os.environ if name.startswith("MALLOC_")}
    fused = adam([nn.Parameter(torch.zeros(1))], 1e-3).defaults["fused"]
    return malloc | {"fused": bool(fused), "inference": inference, "onednn": len(made) > 0}


"""
LOOKING = unchecked(region(("        return metrics\n", "        return seen()\n"), before=SEES))


def under(backends):
    return conditions(PROFILE)._replace(numerics=backends)


def seen_by_learner(bench):
    with bench.metrics.open(newline="") as file:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(file)}


def test_a_resume_obeys_the_backends_of_the_manifest_down_to_the_guest(tmp_path):
    store = Store(tmp_path / "store")
    lines = Lines()
    with begin(under(ONEDNN), LOOKING, "test", store, lines.say) as evaluation:
        evaluation.start()
    with begin(under(TUNED), LOOKING, "test", store, lines.say) as resumed:
        assert resumed.directory == evaluation.directory
        assert resumed.manifest.numerics == ONEDNN
        resumed.run(LocalExecutor(resumed.directory, store.key_file, 1), lines)
    assert read_manifest(evaluation.directory).numerics == ONEDNN
    (record,) = store.load(evaluation.directory, pytest.fail).records
    assert record.verdict.kind == "scored", record.verdict
    assert record.training.provenance.numerics == ONEDNN
    assert record.evaluator.numerics == ONEDNN
    (metrics,) = evaluation.directory.glob("runs/*/*/metrics.csv")
    malloc = {name: float(value) for name, value in variables(ONEDNN).items()}
    expected = malloc | {"fused": True, "inference": True, "onednn": True}
    assert seen_by_learner(Workbench(metrics.parent)) == expected


def test_a_stock_guest_has_no_backend_but_torchs_and_glibcs(tmp_path):
    manifest = make_manifest(under(STOCK), LOOKING, "test", fingerprint(KEY))
    plan, bench = make_plan(under(STOCK)), Workbench(tmp_path / "bench")
    with bench.worker_lock():
        training = train(manifest, plan, manifest.runs[0], 1, LOOKING.source, Bubblewrap(), bench)
    assert training.verdict is None, training.verdict
    assert training.provenance.numerics == STOCK
    assert seen_by_learner(bench) == {"fused": False, "inference": False, "onednn": False}


def test_stock_is_an_evaluation_of_its_own_and_other_choices_are_one(tmp_path):
    def id_(backends):
        return make_manifest(under(backends), LOOKING, "test", fingerprint(KEY)).evaluation

    assert id_(TUNED) == id_(ONEDNN) != id_(STOCK)
