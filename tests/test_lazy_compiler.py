"""Keeping torch's compiler out of a guest: nothing changes but the time that it takes to start."""

import subprocess
import sys

import pytest

from harness.task import REPOSITORY

TRAINS = """
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
makers = (
    torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.Adamax, torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.ASGD,
    torch.optim.Rprop, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, nesterov=True),
    lambda p: torch.optim.Adam(p, fused=True), lambda p: torch.optim.Adam(p, foreach=True),
)
for make in makers:
    optimizer = make(net.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(16, 3)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
print(torch.nn.utils.parameters_to_vector(net.parameters()).tolist())
"""
COMPILER_IS_OUT = "print(isinstance(sys.modules['torch._dynamo'], lazy_compiler._StandIn))"


def run(program: str, *, lazy: bool = True) -> str:
    start = "import sys, torch\nfrom sandbox.guest import lazy_compiler\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", start + "lazy_compiler.install()\n" * lazy + program],
        env={"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_optimizer_trains_to_the_same_bits_and_never_loads_the_compiler():
    shown = run(TRAINS + COMPILER_IS_OUT)
    assert shown == run(TRAINS, lazy=False) + "True\n"


@pytest.mark.parametrize(
    "uses",
    [
        "f = torch.compile(lambda x: x + 1, backend='eager')\nassert f(torch.ones(2)).sum() == 4",
        "f = torch.compiler.disable(lambda x: x + 1)\nassert f(1) == 2",
        "torch.compiler.disable()(print)",
        "import torch._dynamo.config",
        "from torch._dynamo import is_compiling",
        "assert torch._dynamo.config is not None",
        "assert torch.func.vmap(torch.sum)(torch.ones(3, 2)).tolist() == [2, 2, 2]",
        "torch.jit.script(torch.nn.Linear(2, 2))",
    ],
)
def test_whoever_needs_the_compiler_gets_the_real_one(uses):
    adam = "torch.optim.Adam([torch.nn.Parameter(torch.ones(1))]).step()\n"
    run(adam + uses + "\n" + adam)
