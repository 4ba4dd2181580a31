"""Intake: what gets in is the scaffold with another region; a refusal says where and why."""

import ast
import contextlib
import hashlib
import os
import resource
import socket
import subprocess
import symtable
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.intake.forms import diff_form, unified_diff
from harness.intake.forms.proposal import Scaffold
from harness.intake.refusals import Finding, Refused, finding, printable
from harness.intake.rules import limited_child, source_rules
from harness.intake.rules.module_scope import module_bindings
from harness.intake.rules.table import RULES
from harness.intake.submission import Submission, accept
from harness.intake.text import MAX_FILE_BYTES, split_lines
from harness.task import REGION_BEGINS, REGION_ENDS, Task
from tests.diffs import GIT, run_diff

PREFIX = f"""\
\"\"\"A scaffold.\"\"\"
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Args:
    gamma: float = 0.99


def soft_update(target, source, tau):
    for mine, theirs in zip(target, source):
        mine.lerp_(theirs, tau)


{REGION_BEGINS}
"""
REGION = """\
class Actor(nn.Module):
    def forward(self, obs):
        return obs


class Algorithm:
    def __init__(self, args):
        self.args = args

    def update(self, batch):
        return {}
"""
SUFFIX = f"""\
{REGION_ENDS}


def main(args: Args) -> None:
    algorithm = Algorithm(args)
    for step in range(10):
        print(step, len(algorithm.update(None)))


if __name__ == "__main__":
    main(Args())
"""
SCAFFOLD = PREFIX + REGION + SUFFIX
FIRST = PREFIX.count("\n") + 1
LAST = FIRST + REGION.count("\n") - 1
FILLED = REGION.replace("return {}", 'return {"loss": 0.0}')

TOML = f"""\
name = "toy"
version = 1
title = "A toy"
[region]
first_line = {FIRST}
last_line = {LAST}
max_bytes = 20000
[region.classes]
Actor = []
Algorithm = ["update"]
[budget]
factor = 1.05
artefact_allowance_bytes = 65536
[constants]
gamma = 0.99
[environments."Toy-v0"]
observation_dim = 3
action_dim = 1
max_action = 1.0
time_limit = 200
reference_parameters = 1000
reference_policy_parameters = 500
[profiles.smoke]
summary = "A toy"
ranked = false
table = false
environments = ["Toy-v0"]
seeds = [1]
total_timesteps = 10
learning_starts = 5
buffer_size = 10
eval_freq = 5
eval_episodes = 1
final_episodes = 1
confirm = false
steps_per_second = 100.0
steps_per_second_source = "made up"
[profiles.smoke.limits]
thinking_seconds = 10.0
thinking_source = "made up"
acting_milliseconds = 1.0
acting_source = "made up"
frame_seconds = 1.0
start_seconds = 10.0
memory_mib = 512
processes = 8
scratch_mib = 16
output_mib = 1
"""


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    root = tmp_path_factory.mktemp("tasks")
    (root / "toy").mkdir()
    (root / "toy" / "task.toml").write_text(TOML)
    (root / "toy" / "scaffold.py").write_text(SCAFFOLD)
    return Task.load("toy", root)


@pytest.fixture(scope="session")
def hand_in(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Submission]:
    path = tmp_path_factory.mktemp("submissions") / "mine.txt"

    def hand_in(content: str | bytes) -> Submission:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return accept(task, path)

    return hand_in


@pytest.fixture(scope="session")
def refused(hand_in: Callable[..., Submission]) -> Callable[..., list[tuple[str, int | None]]]:
    def refused(content: str | bytes) -> list[tuple[str, int | None]]:
        with pytest.raises(Refused) as caught:
            hand_in(content)
        return [(each.rule, each.line) for each in caught.value.findings]

    return refused


def cpu_seconds() -> float:
    """Of this process and of the children that it has waited for: other work does not count."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def make_diff(new: str, context: int = 3, old: str = SCAFFOLD) -> str:
    """What `diff -u` prints, by the real program."""
    return run_diff("diff", f"-U{context}", old=old, new=new)


# Accepting


def test_a_region_file_becomes_the_scaffold_with_that_region(hand_in):
    accepted = hand_in(FILLED)
    assert accepted.form == "region file"
    assert accepted.source == (PREFIX + FILLED + SUFFIX).encode()
    assert accepted.region == FILLED.encode()
    assert accepted.sha256 == hashlib.sha256(accepted.source).hexdigest()
    assert accepted.original == FILLED.encode()
    assert accepted.notes == ()


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda text: "\ufeff" + text, "byte-order mark"),
        (lambda text: text.replace("\n", "\r\n"), "CRLF"),
        (lambda text: text.rstrip("\n"), "no line end"),
    ],
)
def test_what_is_repaired_is_said(hand_in, change, note):
    accepted = hand_in(change(FILLED))
    assert accepted.region == FILLED.encode()
    assert accepted.original == change(FILLED).encode()
    assert [note in each for each in accepted.notes] == [True]


def test_line_separators_of_unicode_end_no_line(hand_in):
    region = FILLED + "# a\u2028b\x0bc\x0cd\u0085e\n"
    assert hand_in(region).source == (PREFIX + region + SUFFIX).encode()


@pytest.mark.parametrize("context", [0, 1, 3, 1000])
def test_a_diff_with_any_context_gives_the_same_source_as_the_region_file(hand_in, context):
    accepted = hand_in(make_diff(PREFIX + FILLED + SUFFIX, context))
    assert accepted.form == "unified diff"
    assert accepted.source == hand_in(FILLED).source


GIT_SETTINGS = {
    "plain": (),
    "no prefix": ("--no-prefix",),
    "own prefixes": ("--src-prefix=i/", "--dst-prefix=w/"),
    "U0": ("-U0",),
    "patience": ("--patience",),
    "function context": ("-W",),
    "full index": ("--full-index",),
}


@pytest.mark.parametrize("options", GIT_SETTINGS.values(), ids=GIT_SETTINGS.keys())
def test_a_diff_of_git_is_read(hand_in, options):
    new = PREFIX + "import math\n" + FILLED.replace("obs\n", "math.tau * obs\n") + "\n" + SUFFIX
    diff = run_diff(*GIT, *options, old=SCAFFOLD, new=new)
    assert hand_in(diff).source == new.encode()


def test_a_commit_printed_as_a_mail_is_read(hand_in, tmp_path):
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode()

    git("init", "-q")
    path = tmp_path / "tasks" / "toy" / "scaffold.py"
    path.parent.mkdir(parents=True)
    for content in (SCAFFOLD, PREFIX + FILLED + SUFFIX):
        path.write_text(content)
        git("add", ".")
        git("commit", "-qm", "Try something\n\n- with a list\n+ of odd lines")
    mail = git("format-patch", "-1", "--stdout")
    assert mail.startswith("From ")
    assert "\n-- \n" in mail
    assert hand_in(mail).source == (PREFIX + FILLED + SUFFIX).encode()
    staged = git("-c", "diff.mnemonicPrefix=true", "diff", "HEAD~1")
    assert "--- c/tasks" in staged
    assert hand_in(staged).source == (PREFIX + FILLED + SUFFIX).encode()


def test_an_empty_context_line_may_have_lost_its_space(hand_in):
    diff = make_diff(PREFIX + FILLED + SUFFIX)
    stripped = "\n".join("" if line == " " else line for line in diff.split("\n"))
    assert stripped != diff
    assert hand_in(stripped).source == (PREFIX + FILLED + SUFFIX).encode()


def test_lines_outside_the_region_may_be_removed_and_added_again_unchanged(hand_in):
    old = split_lines(SCAFFOLD)
    new = split_lines(PREFIX + FILLED + SUFFIX)
    body = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    diff = f"--- scaffold.py\n+++ scaffold.py\n@@ -1,{len(old)} +1,{len(new)} @@\n" + "".join(body)
    assert hand_in(diff).source == (PREFIX + FILLED + SUFFIX).encode()


def test_counts_of_one_may_be_left_out(hand_in):
    line = LAST
    diff = (
        f"--- /home/me/scaffold.py\t2025-01-01\n+++ mine.py\n@@ -{line} +{line} @@ a heading\n"
        "-        return {}\n+        return {1: 2}\n"
    )
    assert hand_in(diff).region == REGION.replace("{}", "{1: 2}").encode()


@pytest.mark.parametrize(
    "code",
    [
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())\n"
        "        for m in self.modules():\n"
        "            if isinstance(m, nn.Linear):\n                nn.init.orthogonal_(m.weight)\n",
        "def f(input):\n    return F.relu(input)\n",
        "class A:\n    def __private(self):\n        return self.__private\n"
        "    @property\n    def p(self) -> float:\n        return self._q\n",
        "@torch.no_grad()\ndef act(net, obs):\n    net.eval()\n    return net(obs)\n",
        "from torch.distributions import Normal\nd = torch.distributions.Normal(0, 1)\n",
        "def g(m, p, x):\n    return torch.func.functional_call(m, p, (x,))\n",
        "class Sign(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return x.sign()\n    @staticmethod\n    def backward(ctx, g):\n        return g\n",
        "LOG_STD_MAX = 2\nimport math\nX = math.log(2)\n",
        "import copy, collections, functools, itertools\nfrom typing import Optional\n"
        "from collections import deque\nfrom dataclasses import dataclass, field\n"
        "@dataclass\nclass C:\n    x: list = field(default_factory=list)\n"
        "    def __post_init__(self): ...\n",
        "import torch\nimport torch.nn as nn\nfrom torch.nn import functional as F\n"
        "import numpy as np\nimport random\nimport torch.optim as optim\n",
        "def h(args):\n    return getattr(args, 'policy_frequency', 2), type(args)\n",
        "def k(x):\n    match x:\n        case [a, *b]:\n            return (n := a), f'{n}'\n"
        "    with torch.no_grad():\n        yield [np for np in x]\n"
        "    try:\n        pass\n    except ValueError as error:\n        print(error)\n",
        "class O(torch.optim.Optimizer):\n    def step(self, closure=None): ...\n",
        'def doc():\n    """α → β ' + "long " * 400 + '👩\u200d🔬"""\n',
        "def local():\n    np = range = soft_update = 1\n    return np, range, soft_update\n",
        "def σ(θ_max):\n    return lambda print: print(θ_max)\n",
    ],
)
def test_honest_code_is_accepted(hand_in, code):
    assert hand_in(FILLED + code).region == (FILLED + code).encode()


# Properties

_PIECES = st.sampled_from(
    ["x = 1", "# c\u2028d", "def f():\n    return 1", "\tbad", '"""', "\\", "@f", "(", "é = 'é'",
     "class Actor: ...", "class Algorithm: ...", "np = 1", REGION_ENDS, "\r", "\x00", "- ", "+++"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=6), st.booleans(), st.integers(0, 3))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_accepted_source_differs_inside_the_region_alone(hand_in, pieces, as_diff, context):
    region = FILLED + "".join(f"{each}\n" for each in pieces)
    content = make_diff(PREFIX + region + SUFFIX, context) if as_diff else region
    try:
        source = hand_in(content).source
    except Refused:
        return
    assert REGION_ENDS not in region
    assert source == (PREFIX + region + SUFFIX).encode()


@pytest.mark.parametrize("context", [0, 3])
def test_a_diff_says_the_same_as_its_result(context):
    # Without the source rules, which a random region seldom obeys: the forms alone.
    @given(st.lists(st.sampled_from(["a", "b", "", "c d", "-", "@@ -1 +1 @@", "é"]), max_size=12))
    @settings(max_examples=25, deadline=None)
    def check(lines):
        new = PREFIX + "".join(f"{each}\n" for each in lines) + SUFFIX
        if new == SCAFFOLD:
            return
        diff = make_diff(new, context).removesuffix("\n").split("\n")
        hunks = unified_diff.parse(diff, "x", "toy").hunks
        result = diff_form.apply(hunks, split_lines(SCAFFOLD), "x")
        assert "".join(each.text for each in result) == new

    check()


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_mutated_patch_changes_the_region_alone_or_is_refused(hand_in, data):
    lines = split_lines(data.draw(st.sampled_from(MUTATED_FROM)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.sampled_from(lines))
        match data.draw(st.sampled_from(["drop", "double", "swap", "sign", "number", "byte"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(at, other)
            case "swap":
                lines[at] = other
            case "sign":
                lines[at] = data.draw(st.sampled_from(" +-\\@")) + lines[at][1:]
            case "number":
                digit = data.draw(st.sampled_from("0123456789"))
                lines[at] = lines[at].replace(digit, data.draw(st.sampled_from("0179")), 1)
            case "byte":
                cut = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:cut] + data.draw(st.text(max_size=2)) + lines[at][cut:]
    mutated = "".join(lines).encode("utf-8", "surrogatepass")
    with contextlib.suppress(Refused):
        source = hand_in(mutated).source
        assert source.startswith(PREFIX.encode())
        assert source.endswith(SUFFIX.encode())
        assert source != SCAFFOLD.encode()


MUTATED_FROM = [make_diff(PREFIX + FILLED + "x = 1\n" + SUFFIX, context) for context in (0, 3)]

BINDING_FORMS = """\
a1 = a2 = 1; (a3, [*a4]) = 1, [2]; a5: int = 1; a6 += 1; a7.x = a8[0] = 1
def a9(b1, b2=(a10 := 1)): b3 = 1
@(a11 := staticmethod)
class a12((a13 := object), metaclass=(a14 := type)): b4 = 1
import a15.b5, b6 as a16
from b7 import b8 as a17, a18
for a19, a20 in []: pass
with open("") as (a21, a22): pass
try: pass
except E as a23: pass
match 0:
    case [a24, *a25] | {"x": a24, **a25}: pass
    case C(a26, k=a27) as a28: pass
del a29
[b9 for b9 in range((3)) if (a30 := b9)]
{b10: b11 for b10, b11 in []}; (lambda b12, b13=(a31 := 1): (b14 := 2))
async def a32(): b15 = 1
if a33 := 1:
    while True:
        a34 = 1
"""


def test_every_way_of_binding_in_the_module_is_seen():
    table = symtable.symtable(BINDING_FORMS, "x", "exec")
    oracle = {
        each.get_name()
        for each in table.get_symbols()
        if each.is_assigned()
        or each.is_imported()
        or each.is_namespace()
        # What := in a comprehension binds is marked so.
        or each.is_declared_global()
    }
    ours = {each.name for each in module_bindings(ast.parse(BINDING_FORMS).body)}
    assert ours == {f"a{n}" for n in range(1, 35)} - {"a7", "a8"}
    assert {each for each in oracle if each[0] == "a"} == ours


# Refusals: the file


def test_what_is_no_regular_file_is_refused_without_waiting(task, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(tmp_path / "socket"))
    started = time.process_time()
    for path, rule in (
        (tmp_path / "pipe", "file-kind"),
        (tmp_path, "file-kind"),
        (Path("/dev/zero"), "file-kind"),
        (tmp_path / "socket", "file-kind"),
        (tmp_path / "link", "file-unreadable"),
        (tmp_path / "none", "file-unreadable"),
        (tmp_path / "a\0b", "file-unreadable"),
        (Path("x" * 5000), "file-unreadable"),
    ):
        with pytest.raises(Refused) as caught:
            accept(task, path)
        assert [each.rule for each in caught.value.findings] == [rule]
    listener.close()
    assert time.process_time() - started < 1


def test_a_large_file_is_refused_by_its_size(task, tmp_path):
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 2 << 30)
    with pytest.raises(Refused, match="the file has more than 262,144 bytes"):
        accept(task, path)
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(Refused, match="the file has more than 262,144 bytes"):
        accept(task, path)


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        (FILLED.encode("utf-16"), "encoding", 1),
        (FILLED.encode("utf-16-be"), "control-characters", 1),
        (b"x = 1\ny = '\xe9'\n", "encoding", 2),
        (b"x = 1\n\xed\xa0\x80\n", "encoding", 2),
        (b"x = 1\n\x00\n", "control-characters", 2),
        ("x = 1\n\x1b[31m+y\x1b[0m\n", "control-characters", 2),
        ("x = 1\n# \x9b31m\n", "control-characters", 2),
        ("x = 1\r\ny = 2\r\nz = 3\n", "line-endings", 3),
        ("x = 1\ny = 2\nw = 3\nz = 3\r\n", "line-endings", 4),
        ("x = 1\r\ny = 2\n", "line-endings", 2),
        ("x = 1\ry = 2\n", "line-endings", 1),
        ("", "empty", None),
        ("\ufeff \n\n", "empty", None),
        ("```python\n" + FILLED + "```\n", "markdown-fence", 1),
        (FILLED + "```\n", "markdown-fence", FILLED.count("\n") + 1),
        (PREFIX.split(REGION_BEGINS)[0] + "x = 1\n", "whole-file", 1),
        (FILLED + f"  {REGION_ENDS}\n", "whole-file", FILLED.count("\n") + 1),
    ],
)
def test_text_that_is_no_region_is_refused(refused, content, rule, line):
    assert refused(content) == [(rule, line)]


# Refusals: the diff

GOOD = make_diff(PREFIX + FILLED + SUFFIX)
GIT_HEADER = "diff --git a/scaffold.py b/scaffold.py\n"
AFTER = len(GOOD.split("\n"))
HEADER = "--- scaffold.py\n+++ scaffold.py\n"


def hunk(start: int, *lines: str) -> str:
    old = sum(line[0] in " -" for line in lines)
    new = sum(line[0] in " +" for line in lines)
    return f"@@ -{start},{old} +{start},{new} @@\n" + "".join(f"{line}\n" for line in lines)


INSIDE = hunk(LAST, "-        return {}", "+        return {1: 2}")


def test_the_hunk_of_these_tests_is_accepted_by_itself(hand_in):
    assert hand_in(HEADER + INSIDE).region == REGION.replace("{}", "{1: 2}").encode()


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        # Outside the region, by one line at either end, and far away.
        (HEADER + hunk(FIRST - 1, f"-{REGION_BEGINS}"), "outside-region", 4),
        (HEADER + hunk(LAST + 1, f"-{REGION_ENDS}"), "outside-region", 4),
        (HEADER + f"@@ -{FIRST - 2},0 +{FIRST - 1} @@\n+x = 1\n", "outside-region", 4),
        (HEADER + f"@@ -{LAST + 1},0 +{LAST + 2} @@\n+x = 1\n", "outside-region", 4),
        (HEADER + "@@ -0,0 +1 @@\n+import os\n" + INSIDE, "outside-region", 4),
        (HEADER + hunk(4, " ", "-import numpy as np", "+import numpy as np2"), "outside-region", 5),
        # Placement: by one line, past the end, with other text.
        (HEADER + INSIDE.replace(f"-{LAST},", f"-{LAST - 1},"), "diff-placement", 4),
        (HEADER + INSIDE.replace(f"-{LAST},", "-99999,"), "diff-placement", 4),
        (HEADER + "@@ -99999,0 +1 @@\n+x = 1\n", "diff-placement", 3),
        (HEADER + hunk(LAST, "-        return { }", "+x"), "diff-placement", 4),
        (HEADER + hunk(LAST, "-        return {} ", "+x"), "diff-placement", 4),
        # Counts.
        (HEADER + INSIDE.replace(",1 +", ",2 +"), "diff-counts", 3),
        (HEADER + INSIDE.replace(",1 @@", ",2 @@"), "diff-counts", 3),
        (HEADER + INSIDE + "+more\n", "diff-counts", 3),
        (HEADER + f"@@ -{LAST},0 +{LAST},0 @@\n", "diff-counts", 3),
        # Order.
        (HEADER + INSIDE + INSIDE, "diff-order", 6),
        (HEADER + INSIDE + hunk(FIRST, "-class Actor(nn.Module):", "+x"), "diff-order", 6),
        # Headers.
        (INSIDE, "diff-header", 1),
        (HEADER, "diff-header", 2),
        (HEADER + INSIDE.replace("@@ -", "@@ -x"), "diff-header", 3),
        ("--- " + " " * 200_000 + "x\n+++ x\n@@ -1 +1 @@\n", "wrong-file", 1),
        (HEADER + "@@ -0,1 +1 @@\n-x\n+y\n", "diff-header", 3),
        (HEADER + "@@ -" + "9" * 5000 + " +1 @@\n-x\n", "diff-header", 3),
        # Other files, several files, several commits.
        (GOOD.replace("--- scaffold.py", "--- scaffold.py.orig"), "wrong-file", 1),
        (GOOD.replace("--- ", "--- ../"), "wrong-file", 1),
        (GOOD.replace("+++ mine.py", "+++ b/.git/hooks/x"), "wrong-file", 2),
        (GOOD.replace("--- ", "--- a/tasks/other/"), "wrong-file", 1),
        (GOOD.replace("--- scaffold.py", "--- /dev/null"), "diff-mode", 1),
        (GOOD + "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", "diff-several", AFTER),
        (GOOD + "diff --git a/x b/x\nold mode 100644\n", "diff-several", AFTER),
        ("diff --git a/x b/x\ndiff --git a/scaffold.py b/scaffold.py\n" + GOOD, "diff-several", 2),
        (GOOD + f"From {'a' * 40} Mon Sep 17\n", "diff-several", AFTER),
        (GOOD + "-- \n2.39.5\n" + GOOD, "diff-several", AFTER + 2),
        # More than text.
        (GIT_HEADER + "old mode 100644\nnew mode 100755\n" + GOOD, "diff-mode", 2),
        (GIT_HEADER + "new file mode 120000\n" + GOOD, "diff-mode", 2),
        (GIT_HEADER + "similarity index 90%\nrename from scaffold.py\n" + GOOD, "diff-rename", 2),
        (GIT_HEADER + "copy from scaffold.py\n" + GOOD, "diff-rename", 2),
        (GIT_HEADER + "GIT binary patch\nliteral 3\n", "diff-binary", 2),
        (GIT_HEADER + "Binary files a/x and b/x differ\n", "diff-binary", 2),
        # Line ends and what follows.
        (HEADER + INSIDE + "\\ No newline at end of file\n", "diff-newline", 5),
        (HEADER + INSIDE.replace("@@\n", "@@\n\\ No newline\n"), "diff-newline", 4),
        (HEADER + INSIDE + "and so on\n", "diff-trailing", 6),
        # Other kinds.
        (
            "diff --cc scaffold.py\n--- a/scaffold.py\n+++ b/scaffold.py\n@@@ -1 -1 +1 @@@\n++x\n",
            "diff-kind",
            1,
        ),
        (run_diff("diff", "-c", old=SCAFFOLD, new=PREFIX + FILLED + SUFFIX), "diff-kind", 3),
        (run_diff("diff", old=SCAFFOLD, new=PREFIX + FILLED + SUFFIX), "diff-kind", 1),
        ("*** Begin Patch\n*** Update File: scaffold.py\n", "diff-kind", 1),
        # A second end of the region, inside it.
        (HEADER + INSIDE.replace(",1 @@", ",2 @@") + f"+{REGION_ENDS}\n", "banner-line", 6),
        # A change of nothing.
        (make_diff(SCAFFOLD[:-1]), "nothing-changed", None),
        (HEADER + hunk(LAST, "-        return {}", "+        return {}"), "nothing-changed", None),
    ],
)  # fmt: skip
def test_a_diff_that_is_not_plainly_a_change_of_the_region_is_refused(refused, content, rule, line):
    assert refused(content) == [(rule, line)]


def test_a_misplaced_hunk_is_told_where_it_would_fit(hand_in):
    with pytest.raises(Refused, match=f"it would fit at line {LAST}\\b"):
        hand_in(HEADER + INSIDE.replace(f"-{LAST},", f"-{LAST - 3},"))


def test_wrong_counts_are_named_as_declared_and_found(hand_in):
    with pytest.raises(Refused, match="declares 7 old and 1 new lines, 1 and 1 are there"):
        hand_in(HEADER + INSIDE.replace(",1 +", ",7 +") + "-- \n2.39\n")


def test_a_broken_rule_in_a_diff_is_shown_at_the_line_of_the_diff(hand_in):
    diff = make_diff(PREFIX + "import math\nimport os\n" + FILLED + SUFFIX, 1)
    with pytest.raises(Refused) as caught:
        hand_in(diff)
    [each] = caught.value.findings
    assert (each.rule, each.line, each.text) == (
        "import",
        diff.split("\n").index("+import os") + 1,
        "import os",
    )


# Refusals: the region


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        # It parses alone.
        ("x = (", "syntax"),
        ('x = """', "syntax"),
        ("x = 1 \\", "syntax"),
        ("@torch.no_grad()", "syntax"),
        ("if True:", "syntax"),
        ("  x = 1", "syntax"),
        ("return 1", "syntax"),
        ("def f(a, a): ...", "syntax"),
        ("x = 1\u00a0", "syntax"),
        # Names of the fixed part, each way of binding one, and builtins that it uses.
        ("np = 1", "fixed-name"),
        ("def soft_update(a, b): ...", "fixed-name"),
        ("class Args: ...", "fixed-name"),
        ("import numpy.random as np", "fixed-name"),
        ("from numpy import random", "fixed-name"),
        ("for main in []: pass", "fixed-name"),
        ("with x as F: pass", "fixed-name"),
        ("[y for y in x if (nn := y)]", "fixed-name"),
        ("try: pass\nexcept E as torch: pass", "fixed-name"),
        ("match 0:\n    case {**torch}: pass", "fixed-name"),
        ("match 0:\n    case torch: pass", "fixed-name"),
        ("del np", "fixed-name"),
        ("def f(x=(np := 1)): ...", "fixed-name"),
        ("range = 1", "fixed-builtin"),
        ("def print(*a): ...", "fixed-builtin"),
        ("def zip(*a): ...", "fixed-builtin"),
        ("__name__ = 1", "special-name"),
        ("def __getattr__(name): ...", "special-name"),
        # Imports.
        ("import os", "import"),
        ("import gymnasium", "import"),
        ("import mujoco.viewer", "import"),
        ("from sys import argv", "import"),
        ("from __future__ import annotations", "import"),
        ("import torch.utils.cpp_extension", "refused-attribute"),
        ("from torch import os", "refused-attribute"),
        ("from random import _os as x", "refused-attribute"),
        ("from torch.nn import *", "import-form"),
        ("from . import x", "import-form"),
        # Ways to the interpreter.
        ("exec('1')", "refused-name"),
        ("e = eval", "refused-name"),
        ("compile('1', '', 'exec')", "refused-name"),
        ("__import__('os')", "special-name"),
        ("__builtins__", "special-name"),
        ("x = input()", "refused-name"),
        ("torch.os", "refused-attribute"),
        ("t = torch; t.os.system('x')", "refused-attribute"),
        ("().__class__.__subclasses__()", "special-name"),
        ("f.__globals__", "special-name"),
        ("getattr(torch, 'os')", "refused-attribute"),
        ("getattr(torch, 'o' + 's')", "computed-attribute"),
        ("g = getattr", "computed-attribute"),
        ("match torch:\n    case object(os=x): pass", "refused-attribute"),
        ("ｅｘｅｃ('1')", "refused-name"),
        ("class M(type): ...", "metaclass"),
        ("class M(metaclass=X): ...", "metaclass"),
        ("M = type('M', (), {})", "metaclass"),
        ("try: pass\nexcept: pass", "broad-except"),
        ("try: pass\nexcept (ValueError, BaseException): pass", "broad-except"),
        ("def f():\n    global x", "global-statement"),
        # Weights in the source.
        (f"w = '{'A' * 1001}'", "carried-data"),
        (f"w = b'{'A' * 1001}'", "carried-data"),
        (f"w = 'A' {'A' * 1000!r}", "carried-data"),
        (f"w = 0x{'F' * 1000}", "carried-data"),
        (f"w = [{'1,' * 1001}]", "carried-data"),
        # Characters.
        ("x = 1 # \u202e", "invisible-characters"),
        ("x = 'a\u200bb'", "invisible-characters"),
        ("x = 'a\u3164b' # \u00ad", "invisible-characters"),
        ("аctor = 1", "identifier"),
        ("ﬁt = 1", "identifier"),
        # Heavy to parse.
        ("x = " + "(" * 150 + ")" * 150 + "." + "a." * 400 + "a", "too-deep"),
    ],
)
def test_a_region_that_breaks_a_rule_is_refused_at_its_line(refused, code, rule):
    found = refused(FILLED + code + "\n")
    first = FILLED.count("\n") + 1
    lines = range(first, first + code.count("\n") + 2)
    assert any(each == rule and line in lines for each, line in found), found


NUMBERS = "w = [" + "1.5, " * 900 + "]"
TEXT = f"w = '{'A' * 900}'"


@pytest.mark.parametrize(
    ("code", "rule", "line", "honest"),
    [
        # Hooks may be defined; few may be read, and the rest of super() alone.
        (
            "def f(x):\n    return x.__getstate__()",
            "special-name",
            2,
            "class C:\n    def __getstate__(self):\n        return super().__getstate__()\n"
            "    def __setstate__(self, s): ...\n    def __deepcopy__(self, memo): ...",
        ),
        ("torch.__getstate__()", "special-name", 1, "torch.__version__"),
        ("np.__getattr__('f2py')", "special-name", 1, "x = 1\nx.__class__.__name__"),
        ("getattr(x, '__getstate__')", "special-name", 1, "getattr(x, '__class__')"),
        ("match x:\n    case C(__getattr__=g): pass", "special-name", 2, "x.__call__(1)"),
        (
            "nn.Module.__setattr__(x, 'a' + 'b', 1)",
            "special-name",
            1,
            "class C(nn.Module):\n    def __init__(self):\n        nn.Module.__init__(self)\n"
            "    def __setattr__(self, name, value):\n"
            "        super().__setattr__(name, value)\n"
            "    def __getattr__(self, name):\n        return super().__getattr__(name)",
        ),
        (
            "def f(x):\n    super(C, x).__getattr__('o' + 's')",
            "special-name",
            2,
            "class C:\n    def f(self):\n        super(C, self).__init__()",
        ),
        ("def super(): return x", "refused-name", 1, "def supper(): ..."),
        ("import torch.nn as super", "refused-name", 1, "import torch.nn as nn2"),
        ("def f(super): ...", "refused-name", 1, "def f(supper): ..."),
        ("s = super", "call-form", 1, "class C:\n    def f(self): return super().f()"),
        ("class C:\n    __class__ = 1", "special-name", 2, "class C:\n    __slots__ = ()"),
        ("x.__class__ = C", "special-name", 1, "def f(g):\n    g.__name__ = 'a'"),
        ("class C:\n    __annotations__ = {}", "special-name", 2, "class C:\n    a: int = 1"),
        ("def f(__match_args__): ...", "special-name", 1, "def f(_a, __b): ..."),
        # What libraries keep for themselves.
        ("import dataclasses\ndataclasses._create_fn()", "library-private", 2, "self._private"),
        ("np.testing.runstring('x', {})", "refused-attribute", 1, "np.linalg.norm(x)"),
        ("torch.fx.x", "library-private", 1, "torch.func.vmap(x)"),
        ("from torch.fx import x", "library-private", 1, "from torch.func import vmap"),
        ("import torch.utils.bottleneck", "library-private", 1, "import torch.utils.data"),
        ("D = torch.nn\nD._x", "library-private", 2, "D = torch.distributions\nD.Normal(0, 1)"),
        ("def f():\n    import torch as t\n    t._C", "library-private", 3, "torch._foreach_mul_"),
        ("getattr(torch, '_C')", "library-private", 1, "getattr(F, 'relu')"),
        ("from enum import Enum\nclass E(Enum): ...\nE._convert_('a', 'os', f)",
         "refused-attribute", 3, "from enum import Enum\nclass E(Enum):\n    A = 1"),
        ("torch.load('x')", "library-private", 1, "def f(x): x.load(1), x.save(2), self.load()"),
        ("np.save('x', x)", "library-private", 1, "optimizer.load_state_dict(x)"),
        ("x.tofile('y')", "refused-attribute", 1, "x.tolist()"),
        ("torch.from_file('x')", "refused-attribute", 1, "torch.from_numpy(x)"),
        ("torch.jit.load('x')", "library-private", 1, "@torch.jit.script\ndef f(x): return x"),
        ("torch.utils.data.datapipes", "refused-attribute", 1, "torch.utils.data.DataLoader(x)"),
        ("import warnings\nwarnings.formatwarning('', x, '/etc/passwd', 1)",
         "refused-attribute", 2, "import warnings\nwarnings.warn('x')"),
        ("import contextlib\nclass R(contextlib.redirect_stdout): ...", "refused-attribute", 2,
         "import contextlib\nwith contextlib.suppress(ValueError): pass"),
        ("import typing\ntyping.get_args(x)", "refused-attribute", 2,
         "import typing\nx: typing.Optional['Actor'] = None"),
        ("from functools import singledispatch", "refused-attribute", 1,
         "from functools import partial, lru_cache"),
        ("x = torch", "module-value", 1, "relu = F.relu"),
        ("def f(m=np): ...", "module-value", 1, "def f(np): return np"),
        ("f([torch.nn])", "module-value", 1, "f([torch.nn.ReLU, torch.float32])"),
        # Computed names of attributes.
        ("from dataclasses import make_dataclass", "refused-attribute", 1,
         "from dataclasses import dataclass, replace, asdict"),
        ("match x:\n    case C(m): pass", "computed-attribute", 2,
         "match x:\n    case int(m) | C(a=m): pass"),
        ("dataclass(C)", "call-form", 1, "@dataclass(frozen=True)\nclass C:\n    a: int"),
        ("@dataclass\n@f\nclass C: ...", "call-form", 1, "@f\n@dataclass\nclass C: ..."),
        ("import functools\nfunctools.wraps(x, assigned=['o' + 's'])", "call-form", 2,
         "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g(): ...\n    return g"),
        ("torch.compile(f, backend=g)", "call-form", 1, "@torch.compile\ndef f(x): return x"),
        ("x._evaluate({}, {}, frozenset())", "refused-attribute", 1, "self.evaluate()"),
        ("np.lib.format.read_array(x, allow_pickle=True)", "library-private", 1,
         "np.lib.stride_tricks.sliding_window_view(x, 2)"),
        ("from torch.nn.functional import torch as t", "library-private", 1,
         "import numpy.typing as npt"),
        ("class C:\n    lib = nn.functional", "module-value", 2, "class C:\n    act = nn.ReLU"),
        # Builtins as values.
        ("object.__setattr__(C, 'a' + 'b', 1)", "builtin-value", 1,
         "class C:\n    def f(self): object.__setattr__(self, 'a', 1)"),
        ("type.__setattr__(C, 'a', 1)", "builtin-value", 1, "type(x) is int"),
        ("B = BaseException", "builtin-value", 1, "try: pass\nexcept Exception: pass"),
        ("T = type", "builtin-value", 1, "isinstance(x, (type, int))"),
        ("type.__new__(x, 'X', (), {})", "builtin-value", 1, "class C(object): ..."),
        ("o = [object]", "builtin-value", 1, "o = object()\ndef f(c: type, o: object): ..."),
        ("def f():\n    try: pass\n    finally: return 1", "broad-except", 3,
         "def f():\n    try: return 1\n    finally:\n        for a in b: break"),
        # Changes of what is fixed.
        ("Args.__init__ = f", "special-name", 1, "class Mine(Args):\n    x: int = 1"),
        ("Args.gamma = 1", "fixed-attribute", 1, "def f(args): args.gamma = 1"),
        ("np.random.normal = f", "fixed-attribute", 1, "np.random.normal()"),
        ("torch.nn.Linear.forward = f", "fixed-attribute", 1, "self.layer = nn.Linear(1, 1)"),
        ("def f():\n    F.relu = 1", "fixed-attribute", 2,
         "def f(F):\n    F.x = 1\n    random = [0]\n    random[0] = 1"),
        ("from torch import nn as n\nn.x[0] += 1", "fixed-attribute", 2, "x.y[0] += 1"),
        ("del F.relu", "fixed-attribute", 1, "del x.y"),
        ("for Args.gamma in x: pass", "fixed-attribute", 1, "for x.y in z: pass"),
        ("with x as F.relu: pass", "fixed-attribute", 1, "with x as y.z: pass"),
        ("(a, F.relu) = 1, 2", "fixed-attribute", 1, "a.b, c.d = 1, 2"),
        ("M = F\nM.relu = 1", "fixed-attribute", 2, "M = torch.nn.Linear(1, 1)\nM.x = 1"),
        ("L = nn.Linear\nL.forward = 1", "fixed-attribute", 2, "L = nn.Linear"),
        ("setattr(Args, 'gamma', 1)", "fixed-attribute", 1, "setattr(self, 'gamma', 1)"),
        ("delattr(nn.Linear, 'forward')", "fixed-attribute", 1, "delattr(self, 'x')"),
        ("type(x).forward = 1", "fixed-attribute", 1, "type(self).count = 1"),
        ("x.__class__.y = 1", "fixed-attribute", 1, "self.__class__.count += 1"),
        ("setattr(getattr(nn, 'Linear'), 'y', 1)", "fixed-attribute", 1,
         "torch.backends.cudnn.deterministic = True"),
        # Data in pieces.
        ("\n".join([TEXT] * 5), "carried-data", 5, "\n".join([TEXT] * 4)),
        ("\n".join([NUMBERS] * 3), "carried-data", 3, "\n".join([NUMBERS] * 2)),
        ("\n".join([f"x = 0x{'F' * 800}"] * 20), "carried-data", 20,
         f'x = 0xFF\n"""{"A" * 9000}"""'),
    ],
)  # fmt: skip
def test_what_opens_a_way_is_refused_and_its_honest_neighbour_is_not(code, rule, line, honest):
    def check(region: str) -> list[tuple[str, int]]:
        found = source_rules.check(region, SCAFFOLD, FIRST, LAST, {})
        # Pieces of regions use names that a whole one would define.
        return [(each.rule, each.line) for each in found if each.rule != "undefined-name"]

    assert (rule, line) in check(code + "\n")
    assert check(honest + "\n") == []


def test_the_classes_of_the_task_are_defined_at_the_top_level(refused):
    code = "class Actor: ...\nif True:\n    class Algorithm: ...\n"
    assert refused(code) == [("missing-class", 3)]
    assert refused("class Actor: ...\n") == [("missing-class", None)]


def test_a_region_that_python_cannot_parse_for_its_depth_is_refused(refused):
    assert refused(FILLED + "x = " + "-" * 5000 + "1\n") == [("too-deep", None)]


def test_a_region_has_a_bounded_size(refused):
    assert refused(FILLED + "# comment\n" * 2000) == [("region-size", None)]


def test_all_findings_come_at_once_in_the_order_of_the_lines(refused):
    code = "import os\nx = eval('1')\nnp = 2\n"
    assert refused(code + FILLED) == [("import", 1), ("refused-name", 2), ("fixed-name", 3)]


def test_thousands_of_findings_are_counted_and_not_shown(hand_in):
    with pytest.raises(Refused, match="refused: 50 findings, 3850 more not shown"):
        hand_in(FILLED + "eval\n" * 3900)


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "(1, " * 90 + ")" * 90 + "\n" + "x = [\n" + "[],\n" * 4000 + "]\n",
        "x = " + "[" * 9000 + "\n",
        "x = '" + "{" * 1000 + "'\nx = f'" + "{f'" * 3000 + "\n",
        "x = " + " if 1 else ".join("1" * 1500) + "\n",
        "x = " + "lambda: " * 2000 + "1\n",
        "if 1: pass\n" + "elif 1: pass\n" * 1400,
        "x = 9 ** 9 ** 9 ** 9\ny = 'a' * 10 ** 12\n",
        "a" + ".a" * 9000 + "\n",
        "match x:\n  case " + "[" * 900 + "]" * 900 + ": pass\n",
        "".join(" " * n + "try: pass\n" + " " * n + "finally:\n" for n in range(60))
        + " " * 60
        + "f()\n",
        "with " + "a as b, " * 1900 + "a: pass\n",
    ],
)
def test_no_source_makes_the_host_slow(hand_in, code):
    started = cpu_seconds()
    with contextlib.suppress(Refused):
        hand_in(FILLED + code)
    assert cpu_seconds() - started < 3


def test_a_child_beyond_its_limits_is_a_finding_and_not_a_wait(monkeypatch):
    arguments = ("x = 1\n", SCAFFOLD, FIRST, LAST, {})
    assert limited_child.check(*arguments).found == ()
    for program in (
        "x = bytearray(1 << 40)",
        "while True: print('x' * 9999)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import time; time.sleep(60)",
        "import os, time; os.close(1); time.sleep(60)",
        'print(\'{"found": [["no-such-rule", 1, 1, "", 0]], "more": 0}\')',
        'print(\'{"found": [["syntax", "1", 1, "", 0]], "more": 0}\')',
        'print(\'{"found": [["syntax", 1, 1, "", true]], "more": 0}\')',
        'print(\'{"found": [["syntax", 1, 1, ""]], "more": 0}\')',
        "print('[' * 100000)",
    ):
        monkeypatch.setattr(limited_child, "_PROGRAM", program)
        monkeypatch.setattr(limited_child, "WALL_SECONDS", 0.6)
        started = time.monotonic()
        answer = limited_child.check(*arguments)
        assert [each.rule for each in answer.found] == ["too-heavy"], program
        # Far from the minute that some of them sleep, also beside other work.
        assert time.monotonic() - started < 20


# How a refusal reads


def test_a_refusal_shows_file_line_caret_rule_and_help(task, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILLED + "\u03b8 = torch.os\n")
    with pytest.raises(Refused) as caught:
        accept(task, path)
    number = FILLED.count("\n") + 1
    assert str(caught.value).startswith(
        "error[refused-attribute]: `os` is not available as an attribute\n"
        f"  --> {path}:{number}\n"
        "   |\n"
        f"{number} | θ = torch.os\n"
        "   |           ^\n"
        "   = why: "
    )
    assert "   = help: " in str(caught.value)
    assert str(caught.value).endswith("refused: 1 finding")


def test_nothing_of_a_submission_reaches_the_terminal_unescaped(task, tmp_path):
    path = tmp_path / "\x1b[31m\u202e\udcff.py"
    path.write_bytes(b"x = 1\n" + b"\x1b]0;title\x07" * 1000)
    with pytest.raises(Refused) as caught:
        accept(task, path)
    shown = str(caught.value)
    assert "\\x1b[31m\\u202e\\udcff.py:2" in shown
    assert all(each.isprintable() for each in shown.replace("\n", ""))
    assert max(map(len, shown.split("\n"))) < 700


def test_a_long_line_is_cut_around_its_fault():
    shown = finding("syntax", "f", 1, "m", text="\t" * 500 + "X" + "é" * 5000, column=501)
    assert shown.column is not None
    assert shown.text[shown.column - 1] == "X"
    assert len(shown.text) < 400


def test_printable_is_bounded_after_escaping():
    assert printable("\x1b" * 1000, 10) == "\\x1b\\x1b\\…"
    assert printable("plain", 5) == "plain"


def test_every_rule_says_why_and_what_to_do():
    for rule in RULES.values():
        assert rule.reason.endswith(".")
        assert rule.advice.endswith(".")
    assert Finding.__dataclass_params__.frozen


def test_the_scaffold_is_cut_at_its_banners(task):
    scaffold = Scaffold.of(task)
    assert (scaffold.prefix, scaffold.region, scaffold.suffix) == (PREFIX, REGION, SUFFIX)
    assert (scaffold.first, scaffold.last) == (FIRST, LAST)


@pytest.mark.parametrize("region", ["", "x\n", REGION, PREFIX, SUFFIX, SCAFFOLD])
def test_a_source_has_the_region_that_was_put_into_it(task, region):
    scaffold = Scaffold.of(task)
    assert scaffold.region_of(scaffold.with_region(region)) == region


@pytest.mark.parametrize(
    "source",
    ["", PREFIX, PREFIX + SUFFIX[1:], PREFIX[1:] + SUFFIX, PREFIX + "x" + SUFFIX, SCAFFOLD + "\n"],
)
def test_a_source_with_another_fixed_part_has_no_region(task, source):
    assert Scaffold.of(task).region_of(source) is None


def test_a_refusal_and_an_acceptance_answer_at_once(hand_in):
    def fastest(content: str) -> float:
        times = []
        for _ in range(5):
            started = cpu_seconds()
            with contextlib.suppress(Refused):
                hand_in(content)
            times.append(cpu_seconds() - started)
        return min(times)

    assert fastest(FILLED + "# comment\n" * 1500) < 0.4
    assert fastest(FILLED + "eval(x)\n" * 1500) < 0.4
