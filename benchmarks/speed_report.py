"""From the raw figures of the speed benchmark to ratios, targets and Markdown."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.cores import DISTURBING_CORES
from benchmarks.measuring import DQN, FQL, SUBJECTS, TD3

MEGABYTE = 1_000_000


class Ratio(NamedTuple):
    """Steps/s of one contender, in units of another's in the same round."""

    over: str
    under: str
    what: str
    target: float | None


class Section(NamedTuple):
    """What is particular to the figures of one task."""

    file: str
    """Of the raw figures, in benchmarks/."""
    made_by: str
    """The command that prints it."""
    note: str
    """What a step is, and the data; empty where that needs no word."""
    ratios: tuple[Ratio, ...]
    memory_target_bytes: int | None
    """Of a learner without what holds its transitions."""
    held_by: str = "replay buffer"
    """What holds them."""


SANDBOX_COST = Ratio(
    "sandboxed", "bare", "in the sandbox against the same loop in one process", 0.93
)
BACKENDS = Ratio("sandboxed", "stock", "tuned numeric backends against stock ones", None)

SECTIONS: Mapping[str, Section] = {
    TD3.task: Section(
        "speed.json",
        "python -m benchmarks.speed render",
        "",
        (
            Ratio("sandboxed", "sb3", "TD3 in the sandbox against Stable-Baselines3's", 1.3),
            SANDBOX_COST,
            Ratio(
                "pair", "sandboxed", "two runs at once against one, both runs' steps together", 1.8
            ),
            BACKENDS,
        ),
        1_000 * MEGABYTE,
    ),
    DQN.task: Section(
        "speed-atari.json",
        "python -m benchmarks.speed render --task rl-value-atari",
        " A step is four frames of the game; every fourth brings an update. Epsilon has come to its"
        " end before the measured ones, and the replay buffer holds as many transitions as there"
        " are steps.",
        (
            Ratio("sandboxed", "sb3", "DQN in the sandbox against Stable-Baselines3's", 1.3),
            Ratio("sandboxed", "script", "in the sandbox against a plain script", 0.93),
            SANDBOX_COST._replace(target=None),
            BACKENDS,
        ),
        None,
    ),
    FQL.task: Section(
        "speed-offline.json",
        "python -m benchmarks.speed render --task rl-offline-policy",
        " A step is a gradient step, of the critic and the policy. The data are random numbers in"
        " that dataset's shapes.",
        (
            Ratio("sandboxed", "script", "in the sandbox against a plain script", 0.97),
            SANDBOX_COST._replace(target=None),
            BACKENDS,
        ),
        None,
        "dataset",
    ),
}

NAMES = {
    "sandboxed": "{} in the sandbox",
    "sb3": "Stable-Baselines3's {}",
    "script": "{} in a plain script of one process",
    "bare": "{} without a sandbox, in one process",
    "stock": "{} in the sandbox, stock numeric backends",
    "pair": "two {} in two sandboxes at once, together",
}
"""By contender; the algorithm stands in the braces."""

SAME_TRAINING = ("sandboxed", "bare", "script")
"""Contenders that train the same network from the same seed, if each does what it should."""

Figures = Sequence[float]
"""One a round, in order."""


def rates(content: Mapping[str, Any], contender: str) -> dict[int, float]:
    """Steps/s by round."""
    return {
        each["round"]: each["steps"] / each["seconds"]
        for each in content["measurements"]
        if each["contender"] == contender
    }


def ratios(content: Mapping[str, Any], ratio: Ratio) -> list[float]:
    """One for each round in which both were measured."""
    over, under = rates(content, ratio.over), rates(content, ratio.under)
    return [over[number] / under[number] for number in sorted(over.keys() & under.keys())]


def learner_bytes(content: Mapping[str, Any]) -> list[int]:
    """Peak memory of each sandboxed learner without its replay buffer, one for each round."""
    return [
        each["peak_memory_bytes"] - each["replay_buffer_bytes"]
        for each in content["measurements"]
        if each["contender"] == "sandboxed"
    ]


def disturbed(content: Mapping[str, Any]) -> list[str]:
    """What else ran during which measurement; empty on a machine that was idle."""
    return [
        f"{each['contender']} in round {each['round']}: "
        f"{each['others_before']:.2f} cores before, {each['others_meanwhile']:.2f} meanwhile"
        for each in content["measurements"]
        if max(each["others_before"], each["others_meanwhile"]) > DISTURBING_CORES
    ]


def trained(content: Mapping[str, Any]) -> dict[str, str]:
    """Who ended with which network, by its hash: one entry where all did the same work."""
    who: dict[str, set[str]] = {}
    for each in content["measurements"]:
        if each["contender"] in SAME_TRAINING and "weights_sha256" in each:
            who.setdefault(each["weights_sha256"], set()).add(each["contender"])
    return {digest: " and ".join(sorted(names)) for digest, names in who.items()}


def verdict(measured: float, target: float, more_is_better: bool = True) -> str:
    """ "met, by 12 %" or "NOT MET, by 3 %"."""
    gap = measured / target - 1
    met = gap >= 0 if more_is_better else gap < 0
    return f"{'met' if met else '**NOT MET**'}, by {abs(gap) * 100:.1f} %"


def render(content: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    window, rounds = content["window"], len({each["round"] for each in content["measurements"]})
    random = f"{window['learning_starts']:,} random ones and " if window["learning_starts"] else ""
    section, algorithm = SECTIONS[content["task"]], SUBJECTS[content["task"]].algorithm
    lines = [
        f"<!-- Made by `{section.made_by}` from benchmarks/{section.file}. -->",
        "",
        f"{algorithm} on {content['environment']}, the constants of `{content['profile']}`, one"
        f" thread a learner. Measured are {window['steps']:,} steps of the learning phase, after"
        f" {random}{window['settling']:,} to settle; {rounds} round(s), medians, with the range"
        f" over rounds. Ratios are of the same round.{section.note}",
        "",
    ]
    lines += _warnings(content)
    lines += table(
        ("target", "wanted", "measured", "range", "verdict"),
        [*_targets(content), *_memory(content)],
    )
    lines += table(
        ("contender", "steps/s", "range"),
        [
            (NAMES[name].format(algorithm), *_median_and_range(list(measured.values()), ".1f"))
            for name in NAMES
            if (measured := rates(content, name))
        ],
    )
    lines += _facts(content)
    return "\n".join(lines) + "\n"


def _warnings(content: Mapping[str, Any]) -> list[str]:
    lines = []
    if others := disturbed(content):
        lines += [
            "**DISTURBED: other programs ran on this machine, so these figures are worth nothing.**"
            f" Of {len(content['measurements'])} measurements, {len(others)}:",
            "",
            *(f"- {each}" for each in others),
            "",
        ]
    used, probed = content["numerics"]["matmul"], content["matmul_probed_now"]
    if used != probed:
        lines += [
            f"**This machine's kept choice for matrix products is {used}, and a fresh probe says"
            f" {probed}**: remove touchstone/matmul.json from the cache to choose again.",
            "",
        ]
    if content["machine"]["threads_of_one_core"]:
        lines += ["**The two cores are two threads of one**: two runs at once share it.", ""]
    if len(trained(content)) > 1:
        lines += [
            "**Not all of ours trained the same network from the same seed**, so they did not do"
            " the same work: " + "; ".join(sorted(trained(content).values())) + ".",
            "",
        ]
    return lines


def _targets(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for ratio in SECTIONS[content["task"]].ratios:
        measured = ratios(content, ratio)
        wanted = "" if ratio.target is None else f"≥ {ratio.target:.2f}"
        if not measured:
            rows.append((ratio.what, wanted, "not measured", "", ""))
            continue
        judged = "" if ratio.target is None else verdict(median(measured), ratio.target)
        rows.append((ratio.what, wanted, *_median_and_range(measured, ".3f"), judged))
    return rows


def _memory(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    section = SECTIONS[content["task"]]
    what = f"learner's memory without its {section.held_by} (the most)"
    target = section.memory_target_bytes
    wanted = "" if target is None else f"< {target / MEGABYTE:,.0f} MB"
    measured = learner_bytes(content)
    if not measured:
        return [(what, wanted, "not measured", "", "")]
    megabytes = [each / MEGABYTE for each in measured]
    judged = "" if target is None else verdict(max(measured), target, more_is_better=False)
    _, span = _median_and_range(megabytes, ",.0f")
    return [(what, wanted, f"{max(megabytes):,.0f} MB", span, judged)]


def _facts(content: Mapping[str, Any]) -> list[str]:
    sandboxes = {listed(each["sandbox"]) for each in content["measurements"] if "sandbox" in each}
    peers: dict[str, str] = {}
    for each in content["measurements"]:
        if each["contender"] == "sb3":
            peers["stable_baselines3"] = each["version"]
            if opencv := each.get("configuration", {}).get("opencv"):
                peers["opencv"] = opencv
    return [
        f"- Measured: {content['began']} to {content['ended']}, commit {content['commit'] or '?'}",
        *machine_lines(content["machine"], peers),
        f"- Numeric backends: {listed(content['numerics'])}",
        *([f"- Dataset: {rows:,} transitions"] if (rows := content.get("transitions")) else []),
        *(f"- Sandbox: {each}" for each in sorted(sandboxes)),
    ]


def disturbance(measured: Mapping[str, Any]) -> list[str]:
    """A paragraph that says so, of times that were taken alone; nothing on a machine idle else."""
    before, meanwhile = measured["others_before"], measured["others_meanwhile"]
    if max(before, meanwhile) <= DISTURBING_CORES:
        return []
    return [
        f"**DISTURBED: other programs kept {before:.2f} cores busy before and {meanwhile:.2f}"
        " meanwhile.** They can only have made what is measured slower.",
        "",
    ]


def machine_lines(machine: Mapping[str, Any], packages: Mapping[str, str]) -> list[str]:
    """What `cores.facts` found, and versions of what a contender brought along."""
    versions = {**machine["packages"], **packages}
    return [
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['cores_used']} of them"
        f" used, {machine['memory_bytes'] / (1 << 30):.1f} GiB, Linux {machine['kernel']}",
        f"- Python {machine['python']}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]


def listed(mapping: Mapping[str, str]) -> str:
    """In a line, each with its name."""
    return ", ".join(f"{name}: {value}" for name, value in mapping.items())


def _median_and_range(figures: Figures, form: str) -> tuple[str, str]:
    return f"{median(figures):{form}}", f"{min(figures):{form}} to {max(figures):{form}}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """In Markdown; the first column holds words, the others figures."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(each)} |" for each in (head, ruler, *rows)] + [""]
