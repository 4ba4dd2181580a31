"""The source rules: honest code passes, what opens a way out does not, and each refusal helps."""

import ast
import json
import subprocess
import sys
import time
from collections import Counter

import pytest

from harness.intake import trial
from harness.intake.refusals import MAX_FINDINGS, Refused, finding
from harness.intake.rules import data_rules, limited_child, rulebook, source_rules, text_rules
from harness.intake.rules.rule_tables import Found
from harness.intake.rules.table import GROUPS, RULES
from harness.task import REGION_ENDS, REPOSITORY, Task

TASK = Task.load("rl-offpolicy-continuous")
SCAFFOLD = TASK.scaffold.decode()
FIRST, LAST = TASK.region.first_line, TASK.region.last_line
CLASSES = TASK.region.classes


def check(region: str, classes: dict[str, tuple[str, ...]] | None = None) -> list[Found]:
    """But for undefined names: these pieces of regions use what a whole one would define."""
    found = source_rules.check(region + "\n", SCAFFOLD, FIRST, LAST, classes or {})
    return [each for each in found if each.rule != "undefined-name"]


def undefined(region: str) -> list[Found]:
    found = source_rules.check(region + "\n", SCAFFOLD, FIRST, LAST, {})
    return [each for each in found if each.rule == "undefined-name"]


def places(region: str, classes: dict[str, tuple[str, ...]] | None = None) -> set[tuple[str, int]]:
    return {(each.rule, each.line) for each in check(region, classes)}


# Honest code

HONEST = {
    "modules, buffers and parameters": """
class Net(nn.Module):
    log_std_min: float = -5.0
    def __init__(self, d, *, hidden=256):
        super(Net, self).__init__()
        self.register_buffer("mean", torch.zeros(d))
        self.ps = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(2)])
        self.p = torch.nn.parameter.Parameter(torch.zeros(1))
        self.layers = nn.ModuleDict({"relu": nn.ReLU()})
        self.fns = {"relu": torch.relu, "mish": F.mish}
        self.activation = nn.Mish
        self.apply(self._init)
    def _init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.orthogonal_(m.weight, gain=nn.init.calculate_gain("relu"))
            m.bias.data.fill_(0.0)
    def forward(self, input):
        return self.layers["relu"](input)
    get_action = forward
    def eval(self):
        return super().eval()
    def load(self, x):
        self.load_state_dict(x)
""",
    "nested classes, properties and special methods": """
class Outer:
    __slots__ = ("_c", "data")
    class Inner(nn.Module):
        pass
    @staticmethod
    def a(): return 1
    @classmethod
    def b(cls): return cls()
    @property
    def c(self): return self._c
    @c.setter
    def c(self, value): self._c = value
    @c.deleter
    def c(self): del self._c
    def __repr__(self): return f"{type(self).__name__}({self.c!r})"
    def __getitem__(self, key): return self.data[key]
    def __len__(self): return len(self.data)
    def __iter__(self): return iter(self.data)
    def __eq__(self, other): return self is other
    def __hash__(self): return id(self)
    def __getattr__(self, name): raise AttributeError(name)
    def __divmod__(self, other): return round(self), other
    def __round__(self, digits=0): return 1
    def __deepcopy__(self, memo): return self
    def __getstate__(self): return super().__getstate__()
    def __private(self): return self.__private
""",
    "decorators of torch": """
@torch.no_grad()
def one(net, obs): return net(obs)
@torch.inference_mode()
def two(net, obs):
    with torch.enable_grad(), torch.autocast("cpu"):
        return net(obs)
@torch.jit.script
def three(x: torch.Tensor) -> torch.Tensor: return x * 2
@torch.compile
def four(x): return x
five = torch.compile(nn.Linear(1, 1), mode="reduce-overhead", fullgraph=True, dynamic=False)
""",
    "type hints, match, walrus and f-strings": """
def hints(x: "torch.Tensor | None", y: dict[str, float], z: type = int) -> tuple[int, ...]:
    w: int
    match x:
        case {"a": a, **rest} if a: return rest
        case [1, *others]: return others
        case int() | float(): return 1
        case str(s): return s
        case None: return 0
    if (n := len(y)) > 3:
        return [k for x in y if (k := x + n)]
    return f"{n:>{3}} {n!r} {n=}", "{:.2f} {} {name}".format(1, 2, name=3)
""",
    "dataclasses, named tuples and enums": """
from dataclasses import asdict, field, replace
from enum import Enum, IntEnum, auto
from typing import NamedTuple
@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    a: int = 1
    b: list = field(default_factory=list)
class Batch(NamedTuple):
    obs: torch.Tensor
    act: torch.Tensor
class Mode(Enum):
    A = auto()
    B = "b"
class Count(IntEnum):
    ONE = 1
Pair = collections.namedtuple("Pair", ["a", "b"]) if (collections := None) else None
modes = Mode.A.value, Mode["A"], Mode.A.name, asdict(replace(Config(), a=2))
""",
    "generators, context managers and closures": """
from contextlib import contextmanager, nullcontext, suppress
@contextmanager
def frozen(net):
    for p in net.parameters(): p.requires_grad_(False)
    try:
        yield net
    finally:
        for p in net.parameters(): p.requires_grad_(True)
def generate(n):
    yield from generate(n - 1)
    return n
def empty():
    return
    yield
def outer():
    n = 0
    def inner():
        nonlocal n
        n += 1
        return n
    return inner
class Timer:
    def __enter__(self): return self
    def __exit__(self, kind, error, where): return None
with Timer() as timer, nullcontext(), suppress(ValueError): pass
""",
    "exceptions and assertions": """
def safe(x):
    assert isinstance(x, (list, tuple)), f"bad {x}"
    try:
        y = x / 0
        del y
    except (ValueError, ZeroDivisionError) as error:
        raise RuntimeError(str(error)) from error
    except Exception:
        raise
    else:
        return 1
    finally:
        print("done")
try:
    from torch.func import vmap
except ImportError:
    vmap = None
""",
    "the standard library": """
import math, copy, typing, collections, itertools, functools, operator, enum, random, time, abc
import collections.abc, statistics, heapq, bisect, warnings
from copy import deepcopy
from functools import cached_property, lru_cache, partial, reduce, wraps
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Final, Generic, Optional, TypeVar, cast
T = TypeVar("T")
warnings.filterwarnings("ignore")
started = time.time(), time.perf_counter(), time.monotonic()
random.seed(1); random.choice([1])
q = collections.deque(maxlen=10); d = collections.defaultdict(list)
ps = list(itertools.chain([1], [2])); s = reduce(operator.mul, [1]); k = operator.itemgetter(1)
class Base(abc.ABC, Generic[T]):
    count: ClassVar[int] = 0
    @abc.abstractmethod
    def f(self) -> Optional[T]: ...
    @cached_property
    def g(self): return copy.deepcopy(self)
@lru_cache(maxsize=None)
def f(n): return cast(int, n)
def logged(function):
    @wraps(function)
    def inner(*args, **kwargs): return function(*args, **kwargs)
    return inner
if TYPE_CHECKING:
    from torch import Tensor
""",
    "distributions": """
from torch.distributions import Independent, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import AffineTransform
import torch.distributions as pyd
from torch import distributions as td
def sample(mu, std):
    base = Normal(mu, std)
    tanh = torch.distributions.transforms.TanhTransform(cache_size=1)
    d = Independent(torch.distributions.TransformedDistribution(base, [tanh]), 1)
    kl = kl_divergence(base, pyd.Normal(0, 1)) + torch.distributions.kl.kl_divergence(base, base)
    return d.rsample(), d.log_prob(mu).sum(-1), kl, td.Beta(1, 1)
class Tanh(torch.distributions.transforms.Transform):
    domain = torch.distributions.constraints.real
    codomain = torch.distributions.constraints.interval(-1.0, 1.0)
    bijective = True
    def __eq__(self, other): return isinstance(other, Tanh)
    def _call(self, x): return x.tanh()
    def log_abs_det_jacobian(self, x, y): return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))
class Squashed(pyd.transformed_distribution.TransformedDistribution):
    @property
    def mean(self):
        mu = self.loc
        for transform in self.transforms: mu = transform(mu)
        return mu
""",
    "functional calls over an ensemble": """
from torch.func import functional_call, grad, stack_module_state, vmap
def ensemble(models, x):
    params, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    def call(p, b, x): return torch.func.functional_call(base, (p, b), (x,))
    return torch.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
""",
    "an autograd function and an optimizer": """
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * (x.abs() <= 1)
y = Sign.apply(torch.ones(1))
class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99)):
        super().__init__(params, dict(lr=lr, betas=betas))
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] *= 0.99
            for p in group["params"]:
                if p.grad is None: continue
                state = self.state[p]
                state["exp_avg"] = torch.zeros_like(p)
                p.data.mul_(1 - group["lr"])
                p.add_(state["exp_avg"].sign_(), alpha=-group["lr"])
""",
    "utilities, schedules and special functions": """
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset
import torch.utils.checkpoint
def learn(net, target, opt, x):
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    v = torch.nn.utils.parameters_to_vector(net.parameters())
    torch.nn.utils.vector_to_parameters(v, net.parameters())
    a = nn.utils.parametrizations.spectral_norm(nn.Linear(1, 1))
    b = optim.lr_scheduler.LambdaLR(opt, lambda e: 1), torch.optim.AdamW(net.parameters())
    torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), 0.005)
    return torch.special.gammaln(x), torch.linalg.cholesky(x), torch.fft.rfft(x), F.huber_loss(x, v)
def devices():
    torch.manual_seed(0); torch.set_num_threads(1); torch.backends.cudnn.benchmark = True
    torch.autograd.grad(1, 2, create_graph=True)
    return torch.amp.GradScaler(), torch.cuda.is_available(), torch.finfo(torch.float32).eps
""",
    "random generators and numpy": """
import numpy
import numpy.typing as npt
from numpy.typing import NDArray
rng = np.random.default_rng(0); rng.normal(0, 1, size=3); np.random.RandomState(1)
generator = torch.Generator(device="cpu").manual_seed(1)
def f(x: npt.NDArray[np.float32]) -> NDArray:
    return np.lib.stride_tricks.sliding_window_view(x, 2) + np.random.normal(0, 1, size=x.shape)
""",
    "attributes by literal names": """
def f(self, args, x):
    a = getattr(args, "alpha", 1), hasattr(args, "beta"), type(x)(1), type(x).__name__
    setattr(x, "k", 1); delattr(x, "k")
    self.help, self.open, self.exit = 1, 2, 3
    return a, callable(x), [type(each) for each in x]
""",
    "names in Greek and with accents": "σ_max = μ = Δt = αβ = ε_θ = é = señal = übung = łódź = 1",
    "docstrings with odd characters": '''
def f():
    """σ² ≤ 1, “quotes”, naïve café, 强化学习, 👩\u200d🔬 \\N{GREEK SMALL LETTER ALPHA} { } %"""
    return "é" "ß", b"\\x00", r"\\d"
''',
    "modules of the fixed part, imported again": """
import copy, math, random, time, torch, torch.nn
import numpy as np
import torch.nn as nn
import torch.optim as optim
import torch.nn.functional as F
from torch import nn, optim
from torch.nn import functional as F
from dataclasses import dataclass
""",
    "names of the fixed part, inside functions": """
def f(np, torch=1, *build, **Args):
    range = isinstance = 1
    for act in [np]: pass
    with open_() as train: pass
    return [nn for nn in (lambda F: F)(act)]
class C:
    np = 1
    def train(self, min): return min
def open_(): ...
""",
    "libraries under other names": """
import warnings
import torch.optim.lr_scheduler as lrs
import torch.autograd.gradcheck
from torch.nn import init
from torch.nn.utils import parametrizations as pz
D = torch.distributions
try:
    import torch.func as tf
except ImportError:
    tf = None
def f(net, opt):
    T = torch.distributions.transforms
    init.zeros_(net.weight)
    torch.autograd.gradcheck(net, opt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
    with warnings.catch_warnings(record=True) as caught:
        print(caught)
    if getattr(torch.backends, "mps", None) is not None and torch.backends.mps.is_available():
        return D.Normal(0, 1), T.TanhTransform()
    return lrs.LambdaLR(opt, tf.vmap(f)), pz.spectral_norm(net)
""",
    "decorators around decorators, and fields": """
from dataclasses import dataclass as data, field
from functools import wraps
def logged(function):
    @wraps(function)
    @torch.no_grad()
    @torch.inference_mode()
    def inner(*args): return function(*args)
    return inner
@data(frozen=True)
class Settings(Args):
    sizes: "list[int]" = field(default_factory=list)
    rate: float = field(default=1.0, metadata={"unit": "1/s"})
    def f(self, rate=1): return self.sizes, rate, self.field
""",
    "another of the same class": """
class Box:
    def __init__(self, a, b, c): self.a, self.b, self.c = a, b, c
    def twice(self): return type(self)(self.a, self.b, self.c), self.__class__(1, 2, 3)
    def __deepcopy__(self, memo):
        cls = self.__class__
        other = cls.__new__(cls)
        cls.count = 1
        return other
    def __copy__(self): return Box(1, 2, 3)
class Single:
    __slots__ = ()
    def __new__(cls): return super().__new__(cls)
def moved(batch, net):
    kind = type(net)
    print(type(net), f"{type(net)}", {type(net): 1})
    if type(batch) is not tuple and isinstance(net, type(batch)):
        return type(batch)(*[each.cpu() for each in batch])
    return kind(1, 2), kind(1, 2, c=3), type(net)(1, 2, c=3), net.__class__.__name__
""",
    "comments about types": "x = []  # type: ignore[assignment]\n# type: Adam or Lion\n",
    "comments about types beside torch.jit": """
@torch.jit.script
def f(x): return x  # type: ignore[no-any-return]
y = f(1)  # type: ignore[arg-type, misc]  # as mypy says
""",
    "f-strings in Greek, about anything": 'y = f"{σ_max:.2f} ﬁ Αctor {é!r} {x} 变量"',
    "a main block and constants": 'if __name__ == "__main__": print("x")\n_P, EPS = object(), 1e-6',
}


@pytest.mark.parametrize("code", HONEST.values(), ids=HONEST.keys())
def test_honest_code_breaks_no_rule(code):
    assert check(code) == []


def test_how_an_object_is_copied_may_be_defined():
    hooks = (
        "__copy__(self)",
        "__deepcopy__(self, memo)",
        "__getstate__(self)",
        "__setstate__(s, x)",
    )
    assert check("class C:\n" + "".join(f"    def {each}: ...\n" for each in hooks)) == []


def test_the_references_break_no_rule():
    for path in (REPOSITORY / "reference_algorithms" / TASK.name).glob("*.py"):
        assert check(path.read_text(), CLASSES) == []


# What the region defines

A_AND_F = {"A": ("f",)}


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    def f(self): ...",
        "class A:\n    async def f(self): ...",
        "class A:\n    def g(self): ...\n    f = g",
        "class A:\n    f: object = len",
        "class A:\n    from math import sqrt as f",
        "class A:\n    class f: ...",
        "class A:\n    if True:\n        def f(self): ...",
        "class A:\n    with open_() as f: ...",
        "class A:\n    try:\n        f = g\n    except NameError: ...",
        "class A:\n    for f in [len]: ...",
        "class A:\n    (f := len)",
        "class B:\n    def f(self): ...\nclass A(B): ...",
        "class C:\n    def f(self): ...\nclass B(C, nn.Module): ...\nclass A(nn.Module, B): ...",
        "class A(nn.Module):\n    def f(self): ...\nclass A(A): ...",
        "class B:\n    def f(self): ...\nA = B",
        "class A:\n    def __init__(self): self.f = self.g",
        "class A: ...\nA.f = len",
        # What can't be followed is for the trial to find.
        "class A(nn.Sequential): ...",
        "class B(nn.Sequential): ...\nclass A(B): ...",
        "from torch.optim import Optimizer\nclass A(Optimizer): ...",
        "class A(make()): ...",
        "@complete\nclass A: ...",
        "class A:\n    def __getattr__(self, name): ...",
    ],
)
def test_a_method_that_a_class_binds_or_may_inherit_is_not_missed(code):
    assert not {"missing-class", "missing-method"} & {each.rule for each in check(code, A_AND_F)}


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("class A: ...", 1),
        ("x = 1\n@f\nclass B: ...\nclass A:\n    def g(self):\n        def f(self): ...", 4),
        ("class A(nn.Module): ...", 1),
        ("class A(torch.nn.Module, object): ...", 1),
        ("import abc, typing\nclass A(abc.ABC, typing.Generic[typing.T]): ...", 2),
        ("from abc import ABC\nfrom typing import Protocol\nclass A(ABC, Protocol): ...", 3),
        ("class B:\n    def g(self): ...\nclass A(B): ...", 3),
        ("class A(B): ...\nclass B(A): ...", 1),
        ("def f(self): ...\nclass A: ...", 2),
    ],
)
def test_a_method_that_the_scaffold_calls_must_be_there(code, line):
    assert places(code, A_AND_F) == {("missing-method", line)}


def test_a_missing_method_is_named_with_the_signature_of_the_scaffold():
    actor = "class Actor(nn.Module):\n    def forward(self, obs): ...\nclass QNetwork: ..."
    [one] = check(actor, {"Actor": CLASSES["Actor"]})
    assert one.message == "class `Actor` does not define `get_action(self, obs)`"
    [two] = check("class Q: ...", {"Q": ("act",)})
    assert two.message == "class `Q` does not define `act`"


def test_the_methods_that_a_task_names_are_those_that_its_fixed_part_calls():
    tree = ast.parse(SCAFFOLD)
    fixed = [each for each in tree.body if not FIRST <= each.lineno <= LAST]
    called = {
        node.func.attr
        for each in fixed
        for node in ast.walk(each)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    wanted = {method for methods in CLASSES.values() for method in methods}
    assert wanted == {"get_action", "select_action", "update"}
    assert wanted <= called


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("class A:\n    a = 1\nclass A:\n    a = 2", 3),
        ("def f(): ...\n\ndef f(): ...", 3),
        ("def f(): ...\nclass f: ...", 2),
        ("class A:\n    def f(self): ...\n    def f(self): ...", 3),
        ("class A:\n    class B:\n        def f(self): ...\n        async def f(self): ...", 4),
        ("@torch.no_grad()\ndef f(): ...\n@torch.no_grad()\ndef f(): ...", 4),
    ],
)
def test_what_is_defined_twice_is_warned_of(code, line):
    assert places(code) == {("repeated-definition", line)}


def test_a_repetition_names_the_earlier_line():
    [found] = check("x = 1\n\ndef f(): ...\n\ndef f(): ...")
    assert found.message == "`f` is defined again: the `def` on {other} has no effect"
    assert found.other == 3


@pytest.mark.parametrize(
    "code",
    [
        "import typing\n@typing.overload\ndef f(x: int): ...\ndef f(x): ...",
        "class A:\n    @property\n    def f(self): ...\n    @f.setter\n    def f(self, x): ...",
        "if x:\n    def f(): ...\nelse:\n    def f(): ...",
        "class A:\n    def f(self): ...\nclass B:\n    def f(self): ...",
        "def f():\n    def g(): ...\ndef g(): ...",
        "def _(): ...\ndef _(): ...",
    ],
)
def test_definitions_that_belong_together_are_no_repetition(code):
    assert check(code) == []


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f():\n    return 1\n    x = 2\n    y = 3", 3),
        ("def f():\n    if a:\n        raise E\n        x = 2\n    return 1", 4),
        ("for x in y:\n    continue\n    z = 1", 3),
        ("while x:\n    try:\n        break\n        z = 1\n    finally:\n        pass", 4),
        ("def f():\n    with a:\n        return\n        return", 4),
        ("def f():\n    match x:\n        case 1:\n            return 1\n            y = 1", 5),
        ("def f():\n    try: ...\n    except E:\n        raise\n        x = 1", 5),
        ("def f():\n    for x in y: ...\n    else:\n        return\n        x = 1", 5),
    ],
)
def test_what_never_runs_is_warned_of_at_its_first_line(code, line):
    assert places(code) == {("unreachable-code", line)}


def test_warnings_refuse_nothing_and_displace_no_error():
    many = "def f(): ...\n" * 200 + "import os\n"
    answer = limited_child.check(many, SCAFFOLD, FIRST, LAST, {})
    assert (answer.found[0].rule, answer.found[0].line) == ("import", 201)
    assert answer.more == 200 - MAX_FINDINGS
    assert {RULES[each.rule].warns for each in answer.found[1:]} == {True}


def test_a_refusal_counts_errors_and_warnings_apart():
    warning = finding("repeated-definition", "f", 1, "m")
    errors = [finding("import", "f", line, "m") for line in (2, 3)]
    assert str(Refused([warning, *errors])).endswith("refused: 2 findings, 1 warning")
    assert [each.rule for each in Refused([warning, *errors]).findings][-1] == "repeated-definition"
    assert str(Refused([errors[0], warning, warning])).endswith("refused: 1 finding, 2 warnings")
    assert str(Refused(errors)).endswith("refused: 2 findings")
    assert str(Refused(errors * 30, 7)).endswith("refused: 50 findings, 17 more not shown")


def test_the_rules_on_text_report_a_bounded_number_each():
    found = text_rules.check([f" {REGION_ENDS}\n", "x = '\u200b'\n"] * 99)
    assert Counter(each.rule for each in found) == {
        "banner-line": MAX_FINDINGS,
        "invisible-characters": MAX_FINDINGS,
    }
    assert found[-1][1:3] == (2 * MAX_FINDINGS, 6)


# Names of the fixed part

BINDINGS = [
    "{} = 1", "{} += 1", "{}: int = 1", "{}: int", "a = {} = 1", "a, *{} = x", "[*{}] = x",
    "(a, [{}, b]) = x", "for {} in x: ...", "for a, (b, *{}) in x: ...", "with x as {}: ...",
    "with x as (a, {}): ...", "import math as {}", "from math import pi as {}", "del {}",
    "try: ...\nexcept E as {}: ...", "try: ...\nexcept* E as {}: ...", "def {}(): ...",
    "async def {}(): ...", "class {}: ...", "({} := 1)", "[a for a in x if ({} := a)]",
    "{{a: ({} := a) for a in x}}", "f'{{({} := 1)}}'", "def f(a=({} := 1)): ...",
    "def f(a: ({} := 1)): ...", "def f() -> ({} := 1): ...", "@({} := a)\ndef f(): ...",
    "lambda a=({} := 1): a", "class C(a := ({} := b)): ...", "x[({} := 1)] = 2",
    "({} := x).y = 1", "match x:\n    case {}: ...", "match x:\n    case [*{}]: ...",
    "match x:\n    case {{**{}}}: ...", "match x:\n    case C(a={}): ...",
    "match x:\n    case 1 | 2 as {}: ...", "while x: ...\nelse: {} = 1",
    "if x:\n    with y:\n        {} = 1", "assert ({} := 1)",
]  # fmt: skip


@pytest.mark.parametrize("form", BINDINGS)
def test_no_way_of_binding_takes_a_name_from_the_fixed_part(form):
    for name, rule in (("np", "fixed-name"), ("acting", "fixed-name"), ("min", "fixed-builtin")):
        assert rule in {each.rule for each in check(form.format(name))}, name
        assert rule not in {each.rule for each in check(form.format("mine"))}


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import torch.nn.functional as torch", "fixed-name"),
        ("from torch import nn as optim", "fixed-name"),
        ("from torch import torch", "fixed-name"),
        ("from time import time", "fixed-name"),
        ("class C:\n    global np\n    np = 1", "global-statement"),
        ("def f():\n    global np\n    np = 1", "global-statement"),
        ("__all__ = ['Actor']", "special-name"),
        # Changes of a fixed thing, under whatever expression it stands.
        ("[Args][0].gamma = 1", "fixed-attribute"),
        ("(Args, 1)[0].gamma = 1", "fixed-attribute"),
        ("(a := nn.Linear).forward = 1", "fixed-attribute"),
        ("(nn.Linear if x else y).forward = 1", "fixed-attribute"),
        ("(x or nn.Linear).forward = 1", "fixed-attribute"),
        ("soft_update.__code__ = f", "special-name"),
        ("build.cache = 1", "fixed-attribute"),
        ("setattr((x or F), 'relu', 1)", "fixed-attribute"),
    ],
)
def test_what_the_fixed_part_relies_on_keeps_its_meaning(code, rule):
    assert rule in {each.rule for each in check(code)}


def test_a_fixed_name_is_told_with_its_line_in_the_scaffold():
    [found] = check("def act(net, obs): return net(obs)")
    line = SCAFFOLD.split("\n").index("def act(actor: nn.Module, obs: torch.Tensor) -> np.ndarray:")
    assert found.message == f"`act` belongs to the fixed part (line {line + 1} of scaffold.py)"


# Attacks

WORD = "aGVsbG8gd29ybGQ"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        # Weights in what is written out, each and in all.
        (f"def {'a' * 101}(): ...", "carried-data"),
        (f"f({'a' * 101}=1)", "carried-data"),
        (f"x.{'a' * 101}", "carried-data"),
        (f"from math import {'a' * 101}", "carried-data"),
        ("f(" + "".join(f"{WORD}{each:03}=1," for each in range(500)) + ")", "carried-data"),
        ("class E:\n" + "".join(f" {WORD}{each:03}: int\n" for each in range(500)),
         "carried-data"),
        ("\n".join(f"x = [{'True,' * 900}]" for _ in range(3)), "carried-data"),
        ("\n".join(f"x = [{'a,b,' * 450}]" for _ in range(3)), "carried-data"),
        ("x = 0b" + "1" * 3400, "carried-data"),
        ("x = f'" + "A" * 1001 + "'", "carried-data"),
        ("x = 'A' '" + "B" * 1000 + "'", "carried-data"),
        # ... and what reads them back.
        ("x = f.__doc__", "special-name"),
        ("match f:\n    case object(__doc__=d): ...", "special-name"),
        ("'{0.__doc__}'.format(f)", "call-form"),
        ("'{a[0].x}'.format_map(f)", "call-form"),
        ("'{{{0.x}}}'.format(f)", "call-form"),
        ("'{:{0.x}}'.format(f)", "call-form"),
        ("('{0._' + '_doc__}').format(f)", "call-form"),
        ("str.format('{0.x}', f)", "call-form"),
        ("getattr('{0.x}', 'format')(f)", "call-form"),
        ("match '{0.x}':\n    case str(format=g): ...", "call-form"),
        # To the interpreter and the machine.
        ("[].__class__.__base__.__subclasses__()", "special-name"),
        ("x = next(iter([F]))", "module-value"),
        ("(nn if x else nn).modules", "module-value"),
        ("torch.nn.modules.module.torch", "library-private"),
        ("import torch.backends.xeon.run_cpu", "library-private"),
        ("torch.numa.binding", "library-private"),
        ("np.tests", "library-private"),
        ("nn.Module.__init__.__globals__", "special-name"),
        ("def g(): yield\ng().gi_frame.f_back", "refused-attribute"),
        ("try: ...\nexcept E as e: e.__traceback__.tb_frame", "special-name"),
        ("print.__self__", "special-name"),
        ("map(getattr, [x], ['os'])", "computed-attribute"),
        ("functools.reduce(getattr, ['os'], x)", "computed-attribute"),
        ("functools.partial(getattr, x)", "computed-attribute"),
        ("import operator\noperator.attrgetter('os')", "refused-attribute"),
        ("import collections\ncollections._sys", "refused-attribute"),
        ("import typing\ntyping.types", "library-private"),
        ("@eval\ndef f(): ...", "refused-name"),
        ("lambda eval: eval", "refused-name"),
        ("class M(type(nn.Module)): ...", "metaclass"),
        ("class M(nn.Module.__class__): ...", "metaclass"),
        ("torch.jit.CompilationUnit('def f(): ...')", "library-private"),
        ("x = __builtins__", "special-name"),
        ("__loader__", "special-name"),
        ("try: ...\nexcept KeyboardInterrupt: ...", "broad-except"),
        # Names that look like others, or hide something.
        ("Αctor = 1", "identifier"),
        ("nοt = 1", "identifier"),
        ("ɑctor = 1", "identifier"),
        ("ı = 1", "identifier"),
        ("x·y = 1", "identifier"),
        ("a\u0336b = 1", "identifier"),
        ("x\ufe00 = 1", "identifier"),
        ("e\u0301 = 1", "identifier"),
        ("µ = 1", "identifier"),
        ("变量 = 1", "identifier"),
        ("def f(*, gаmma=1): ...", "identifier"),
        ("x.аttr", "identifier"),
        ("f(аrg=1)", "identifier"),
        ("import math as mаth", "identifier"),
        ("match x:\n    case C(а=1): ...", "identifier"),
        ("x = 𝐞val", "refused-name"),
    ],
)  # fmt: skip
def test_an_attack_is_refused_by_the_rule_for_its_kind(code, rule):
    assert rule in {each.rule for each in check(code)}


FIELD = "from dataclasses import field, KW_ONLY\n"
IN_DATACLASS = f"{FIELD}@dataclass\nclass A:\n    x: int = field()\n"


@pytest.mark.parametrize(
    ("code", "rule", "line"),
    [
        # A module as a value, by whatever path.
        ("x = [torch.nn.modules.module][0]", "module-value", 1),
        ("import torch.nn.modules.module as mm\nf(mm)", "module-value", 2),
        ("import torch.optim.adamw as a\n[a]", "module-value", 2),
        ("from torch.nn.modules import module\nx = {1: module}", "module-value", 2),
        ("match torch.nn.modules.module:\n    case object(torch=t): ...", "module-value", 1),
        ("getattr(torch.nn.modules, 'module')", "module-value", 1),
        ("class C:\n    import torch as t", "module-value", 2),
        ("class C:\n    if x:\n        lib = torch.nn", "module-value", 3),
        ("def f():\n  x = 0\n  def g():\n    nonlocal x\n    import torch as x", "module-value", 5),
        ("def f():\n  x = 0\n  def g():\n    nonlocal x\n    x = torch.nn", "module-value", 5),
        ("import torch.utils as u\nu.x\nimport math as u", "module-value", 1),
        ("D = torch.nn\nD = torch.utils\nD.x", "module-value", 2),
        ("torch.autograd.graph.logging.FileHandler('x')", "library-private", 1),
        ("from torch.utils.data.dataloader import dist", "library-private", 1),
        ("import dataclasses\ndataclasses.re", "library-private", 2),
        ("import warnings\nwarnings.catch_warnings()._module", "call-form", 2),
        ("import warnings\nwith warnings.catch_warnings(module=x): ...", "call-form", 2),
        ("from warnings import catch_warnings as c\nc()", "call-form", 2),
        ("try: ...\nexcept AttributeError as e: e.obj", "refused-attribute", 2),
        ("match e:\n    case AttributeError(obj=m): ...", "refused-attribute", 2),
        # Attributes copied by computed names.
        ("import functools\nfunctools.wraps(x)(mine)", "call-form", 2),
        ("from functools import wraps as w\nw(x)(mine)", "call-form", 2),
        ("from contextlib import wraps\ny = wraps(x)(mine)", "call-form", 2),
        ("import functools\n@functools.wraps(x)\n@mine\ndef f(): ...", "call-form", 2),
        ("import functools\n@functools.wraps(x)\nclass C: ...", "call-form", 2),
        ("import functools\ngetattr(functools, 'wraps')(x)", "call-form", 2),
        # Text that dataclass runs.
        ("import dataclasses\ndataclasses.fields(A)[0].name = 'x'", "library-private", 2),
        ("from dataclasses import Field", "library-private", 1),
        (f"{FIELD}f = field()", "call-form", 2),
        (f"{FIELD}g = field", "call-form", 2),
        (f"{FIELD}class A:\n    x: int = field()", "call-form", 3),
        (f"{FIELD}@dataclass\nclass A:\n    x = field()", "call-form", 4),
        (f"{FIELD}@dataclass\nclass A:\n    x: int = f(field())", "call-form", 4),
        (f"{FIELD}@dataclass\nclass A:\n    _: KW_ONLY = field()", "call-form", 4),
        (f"{IN_DATACLASS}    y = x", "call-form", 4),
        (f"{IN_DATACLASS}    def f(self, x=x): ...", "call-form", 4),
        (f"{IN_DATACLASS}class B:\n    def __init_subclass__(cls): ...", "call-form", 4),
        (f"{IN_DATACLASS}class B:\n    def __set_name__(self, c, name): ...", "call-form", 4),
        ("from dataclasses import dataclass as d\nd(C)", "call-form", 2),
        # The class of a class.
        ("T = type(nn.Module)\nT('C', (), {})", "metaclass", 1),
        ("(1).__class__.__class__('C', (), {})", "metaclass", 1),
        ("class A: ...\nT = A.__class__", "metaclass", 2),
        ("int.__class__", "metaclass", 1),
        ("type(type(x))", "metaclass", 1),
        ("getattr(type(x), '__class__')", "metaclass", 1),
        ("def f(x):\n    T = type(x)\n    T('C', (), {})", "metaclass", 3),
        ("def f(x):\n    T = x.__class__\n    def g():\n        T('C', (), {})", "metaclass", 4),
        ("def f(x):\n    T = x.__class__\n    return T.__class__", "metaclass", 3),
        ("def f(x):\n    T = x.__class__\n    class M(T): ...", "metaclass", 3),
        ("def f(x):\n    return type(x)('C', (), {})", "metaclass", 2),
        ("def f(x):\n    return (T := type(x))('C', (), {})", "metaclass", 2),
        ("match x:\n    case object(__class__=c): ...", "special-name", 2),
        ("import typing\ntyping.NamedTupleMeta", "refused-attribute", 2),
        # Attributes set by a copy.
        ("class C:\n    def __reduce__(self): ...", "special-name", 2),
        ("class C:\n    def __reduce_ex__(self, n): ...", "special-name", 2),
        ("class C:\n    __getnewargs__ = f", "special-name", 2),
        ("class C:\n    def __new__(c): ...\n    def __getstate__(self): ...", "special-name", 3),
        ("class C:\n    __slots__ = f('x')\n    def __new__(c): ...", "special-name", 2),
        # Comments that torch.jit evaluates.
        ("@torch.jit.script\ndef f(x):\n    # type: (int) -> x\n    ...", "type-comment", 3),
        ("from torch.jit import script as s\nx = '# type: (int) -> x'", "type-comment", 2),
        ("from torch import jit\nx = 1  # type: ignore[x] -> y", "type-comment", 2),
        ("torch.jit\nx = '(y) -> z  # type: ignore[a, b]'", "type-comment", 2),
        # Names inside f-strings.
        ('f"{(аctor := 1)}"', "identifier", 1),
        ('x = 1\nf"{ﬁt}"', "identifier", 2),
        ("f'{x·y}'", "identifier", 1),
        ("rf\"\"\"\n{f'{аctor}'}\"\"\"", "identifier", 1),
    ],
)  # fmt: skip
def test_a_way_around_a_rule_is_refused_at_its_line(code, rule, line):
    assert (rule, line) in places(code)


@pytest.mark.parametrize(
    "character",
    [
        "\U000e0100",
        "\U000e01ef",
        "\U0001d173",
        "\U0001bca0",
        "\U00013430",
        "\U000110bd",
        "\u0600",
        "\u06dd",
        "\u070f",
        "\ue000",
        "\U000f0000",
        "\u0378",
        "\u2800",
        "\ufff0",
        "\U000e0080",
        "\ufe0f",
        "\u200d",
        "\u034f",
        "\u2066",
        "\uffff",
        "é\u200d\u200dé",
        "❤\ufe0f\ufe0f",
    ],
)
def test_a_character_that_shows_nothing_or_has_no_meaning_is_refused(character):
    [found, *_] = text_rules.check([f"x = 1  # a{character}b\n"])
    assert (found.rule, found.line) == ("invisible-characters", 1)
    assert found.column in (11, 12, 13)


@pytest.mark.parametrize(
    "text",
    ["می‌خواهم", "❤️‍🔥 👩🏽‍🔬 1️⃣ ©️ ☎︎ 🫨", "\u0600\u0661\u0662 \u06dd\u0663", "a\u00a0b\u3000c\u2028d",
     "क्‍ष é ÿ 强化 \U00031350", "≤ ∇ ⟨x⟩ 𝔼 → ½"],
)  # fmt: skip
def test_a_character_that_is_seen_may_stand_in_a_comment(text):
    assert text_rules.check([f"# {text}\n"]) == []


def test_the_rules_on_text_take_no_longer_for_odd_text():
    started = time.process_time()
    for line in ("\u200d" * 10_000, "é" * 16_000, "\U000e0100" * 8_000, "❤\ufe0f" * 5_000):
        text_rules.check([f"# {line}\n"])
        text_rules.check([f"{each}\n" for each in line])
    assert time.process_time() - started < 1


def test_the_list_of_the_libraries_modules_is_current():
    command = [sys.executable, "-m", "harness.intake.rules.list_modules"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
    path = REPOSITORY / "harness/intake/rules/library_modules.py"
    assert listed.decode() == path.read_text(), "stale: list_modules.py prints it"


ENDINGS = [
    "x = (", "x = [1,", "x = {", "x = '", 'x = """', 'x = f"""{', "x = b'\\", "x = 1 \\", "\\",
    "@a", "if x:", "else: ...", "elif x: ...", "try: ...", "except E: ...", "finally: ...",
    "class A:", "def f():", "for x in y:", "with x:", "match x:", "match x:\n    case 1:", "x =",
    "x = 1 if y", "lambda:", "async", "return", "yield 1", "await x", "break", " x", "\tx",
    "if x:\n\ty\n        z", "x = 1 # \\", "# coding: latin-1", "pass;", "if x:\n    y",
    "while x:\n    y", "try:\n    x\nfinally:\n    y", "match x:\n    case 1: y", "'''a'''", "...",
    "x = '''\n'''", "def f():\n    x\n\n\n    ", "\x0cx = 1", "if x: y\n\x0c", "'a' \\\n'b'",
]  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_ending_of_a_region_reaches_into_the_lines_after_it(ending):
    lines = SCAFFOLD.split("\n")
    pristine = ast.parse(SCAFFOLD).body
    suffix = [ast.dump(each) for each in pristine if each.lineno > LAST]
    region = f"class A: ...\n{ending}"
    if {each.rule for each in check(region)} & {"syntax"}:
        return
    whole = ast.parse("\n".join([*lines[: FIRST - 1], region, *lines[LAST:]])).body
    assert [ast.dump(each) for each in whole[-len(suffix) :]] == suffix


@pytest.mark.parametrize(
    "code",
    [
        "class A: ...\n" + "A = A\n" * 5000,
        "class A: ...\nclass B: ...\n" + "A = B\nB = A\n" * 2000,
        "class A: ...\n" * 900 + "class Actor(" + "A," * 9000 + "): ...",
        "".join(f"class C{n}(C{n - 1 if n else n}): ...\n" for n in range(1300)),
        "class C:\n" + " def f(): 0\n" * 2500,
        "def f():\n" + " return\n" * 4000,
        "import torch." + ".".join("a" * 15000),
        ("x = torch" + ".a" * 180 + "\n") * 80,
        "(" + "a if b else " * 180 + "c).x = 1",
        "x = '" + "{" * 950 + "'.format\n" + "'{a'.format\n" * 2000,
        "[" + "F," * 900 + "][0].x = 1",
        "f(" + ",".join(f"a{n}=1" for n in range(3500)) + ")",
        "a" + "\u0301" * 15000 + " = 1",
        f"{FIELD}@dataclass\nclass A:\n"
        + "".join(f" a{n}:n=field()\n a{n}\n" for n in range(1200)),
        "from functools import wraps\n"
        + "@wraps(f)\n" * 1600
        + "@torch.a\n" * 1600
        + "def f(): ...",
        "def f(x):\n T = x.__class__\n" + " T(a,b,c)\n class B(T): ...\n" * 1000,
        "x = x" + ".__class__" * 180 + "\n" + "class A(a.__class__): ...\n" * 1000,
        "f'{é}{é}'\n" * 2500,
        "x = f'" + "{é}" * 6000 + "'",
        "import torch.nn as a\n" * 1600,
        "torch.jit\n" + "# type: x\n" * 3000,
    ],
)
def test_no_region_takes_the_rules_long(code):
    answer = limited_child.check(
        code[:32768] + "\n", SCAFFOLD, FIRST, LAST, {"Actor": ("f",), "A": ("f",)}
    )
    assert not {"too-heavy", "syntax"} & {each.rule for each in answer.found}


# What a reader is told


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("from __future__ import annotations", "works at the top of a file alone"),
        ("x = (", "'(' was never closed (read as Python 3."),
        ("if x:\n  y\n z", "unindent does not match any outer indentation level"),
        ("if x:\ny", "expected an indented block after 'if' statement on {other} (read as"),
        ("s = super", "`super` is used without being called"),
        ("dataclass(C)", "`dataclass` is not the decorator directly above a class"),
        ("import functools\nfunctools.wraps(f, a)", "`wraps` is not a decorator above a `def`"),
        (
            "from dataclasses import fields",
            "; `asdict`, `astuple` and `replace` of `dataclasses` are",
        ),
        ("torch.nn.modules.linear.init", "is the module `torch.nn.init`, to be named so"),
        ("torch.utils.checkpoint.uuid", "is the module `uuid`, which is not available"),
        ("class C:\n    import math", "the module `math` is imported inside a class"),
        ("def f(x): return type(x)(1, 2, 3)", "give them by name"),
        ("f'{аctor}'", "`аctor` holds CYRILLIC SMALL LETTER A"),
        ("torch.compile(f, backend=g)", "`torch.compile` is used as a value, or with options"),
        ("x.format(1)", "`format` of a text that does not stand here"),
        ("class C(metaclass=M): ...", "class `C` is given a metaclass"),
        ("Αctor = 1", "`Αctor` holds GREEK CAPITAL LETTER ALPHA"),
    ],
)
def test_a_message_says_what_is_wrong_and_nothing_else_is_found(code, message):
    [found] = check(code)
    assert message in found.message


def test_one_fault_is_told_once():
    for code in ("from os import path", "import torch.utils.collect_env", "__all__ = []"):
        assert len(check(code)) == 1, code


# The rulebook


def test_every_rule_stands_in_one_group():
    names = [name for rules in GROUPS.values() for name in rules]
    assert sorted(names) == sorted(RULES)
    assert len(set(names)) == len(names)


def test_the_rulebook_holds_every_rule_list_and_size_in_each_form():
    text, page, book = rulebook.to_text(), rulebook.to_markdown(), json.loads(rulebook.to_json())
    unwrapped = " ".join(text.split())
    for name, rule in RULES.items():
        assert f"{name} " in unwrapped
        assert rule.reason in unwrapped
        assert f"-> {rule.advice}" in unwrapped
        assert f"| `{name}` |" in page
    assert {each["id"]: each["advice"] for each in book["rules"]} == {
        name: rule.advice for name, rule in RULES.items()
    }
    assert {each["id"] for each in book["rules"] if each["level"] == "warning"} == {
        "repeated-definition",
        "undefined-name",
        "unreachable-code",
    }
    assert "heapq" in book["words"]["imports"]
    assert f"{data_rules.MAX_CHARACTERS:,} characters" in page
    assert "class Actor with get_action" in text
    assert f"{TASK.region.max_bytes:,} bytes" in page
    assert f"at most {TASK.budget.factor} times the parameters" in page
    assert f"| the thinking time of the trial | {trial.SECONDS:.0f} seconds |" in page


def test_the_rulebook_fits_a_terminal():
    assert max(map(len, rulebook.to_text().split("\n"))) <= 100


def test_the_page_of_rules_is_current():
    page = (REPOSITORY / "docs" / "rules.md").read_text()
    assert page == rulebook.to_markdown(), f"docs/rules.md is stale; run: {rulebook.COMMAND}"


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    if x > 5000:\n        return undefined_thing\n    return x",
        "class C:\n    y = undefined_thing",
        "f = lambda x: [undefined_thing for y in x]",
        "def f():\n    def g():\n        return undefined_thing\n    return g",
        "print(undefined_thing)",
        "def f():\n    undefined_thing += 1\n    return f'{undefined_thing2}'",
        "def f(x):\n    return f'{x + undefined_thing}'",
    ],
)
def test_a_name_that_is_defined_nowhere_is_warned_of_where_it_stands(code):
    (found,) = undefined(code)
    assert "undefined_thing" in code.split("\n")[found.line - 1]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f():\n    loss = 1\n    return loss\ndef g():\n    return loss", 5),
        ("class C:\n    width = 64\n    def f(self):\n        return width", 4),
        ("def f():\n    zed: int\n    zed = 1\ndef g():\n    return zed", 5),
        ("f = lambda x: x\ng = lambda y: x", 2),
        ("[a for a in ()]\nprint(a)", 2),
    ],
)
def test_a_name_that_is_defined_elsewhere_alone_is_warned_of_where_it_is_missing(code, line):
    assert [each.line for each in undefined(code)] == [line]


@pytest.mark.parametrize(
    "code",
    [
        "class C:\n    print(__qualname__, __name__)",
        "def f():\n    return later()\ndef later(): ...",
        "def f(x):\n    try:\n        y = x\n    except ValueError as e:\n        print(e, y)",
        "def f(x):\n    def g():\n        nonlocal x\n        x += 1\n    return [x for x in ()]",
        "class C:\n    def f(self):\n        return __class__, super().f, self",
        "for i in range(3):\n    K = i\nprint(K)",
        "with torch.no_grad() as g:\n    print(g)",
        "if (n := len('abc')) > 2:\n    print(n)",
        "match [1]:\n    case [a, *b]:\n        print(a, b)",
        "from math import tau\nimport copy as c\nprint(tau, c.copy, __name__)",
        "x: int = 1\nprint(x, np, torch, F, nn, acting, Args)",
        "def f(*args, **kwargs):\n    return args, kwargs, NotImplemented, Ellipsis",
    ],
)
def test_a_name_that_is_defined_somewhere_is_not_warned_of(code):
    assert undefined(code) == []
