"""From the raw figures of the speed benchmark to ratios, targets and Markdown."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

DISTURBING_CORES = 0.10
"""More than this of a core, used by other programs, and a figure is called disturbed."""
MEGABYTE = 1_000_000
MEMORY_TARGET_BYTES = 1_000 * MEGABYTE


class Ratio(NamedTuple):
    """Steps/s of one contender, in units of another's in the same round."""

    over: str
    under: str
    what: str
    target: float | None


RATIOS = (
    Ratio("sandboxed", "sb3", "TD3 in the sandbox against Stable-Baselines3's", 1.3),
    Ratio("sandboxed", "bare", "in the sandbox against the same loop in one process", 0.93),
    Ratio("pair", "sandboxed", "two runs at once against one, both runs' steps together", 1.8),
    Ratio("sandboxed", "stock", "tuned numeric backends against stock ones", None),
)

NAMES = {
    "sandboxed": "TD3 in the sandbox",
    "sb3": "Stable-Baselines3's TD3",
    "bare": "TD3 without a sandbox, in one process",
    "stock": "TD3 in the sandbox, stock numeric backends",
    "pair": "two TD3 in two sandboxes at once, together",
}

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


def verdict(measured: float, target: float, more_is_better: bool = True) -> str:
    """ "met, by 12 %" or "NOT MET, by 3 %"."""
    gap = measured / target - 1
    met = gap >= 0 if more_is_better else gap < 0
    return f"{'met' if met else '**NOT MET**'}, by {abs(gap) * 100:.1f} %"


def render(content: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    window, rounds = content["window"], len({each["round"] for each in content["measurements"]})
    lines = [
        "<!-- Made by `python -m benchmarks.speed render` from benchmarks/speed.json. -->",
        "",
        f"TD3 on {content['environment']}, the constants of `{content['profile']}`, one thread a"
        f" learner. Measured are {window['steps']:,} steps of the learning phase, after"
        f" {window['learning_starts']:,} random ones and {window['settling']:,} to settle;"
        f" {rounds} round(s), medians, with the range over rounds. Ratios are of the same round.",
        "",
    ]
    lines += _warnings(content)
    lines += _table(
        ("target", "wanted", "measured", "range", "verdict"),
        [*_targets(content), *_memory(content)],
    )
    lines += _table(
        ("contender", "steps/s", "range"),
        [
            (NAMES[name], *_median_and_range(list(measured.values()), ".1f"))
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
    return lines


def _targets(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for ratio in RATIOS:
        measured = ratios(content, ratio)
        wanted = "" if ratio.target is None else f"≥ {ratio.target:.2f}"
        if not measured:
            rows.append((ratio.what, wanted, "not measured", "", ""))
            continue
        judged = "" if ratio.target is None else verdict(median(measured), ratio.target)
        rows.append((ratio.what, wanted, *_median_and_range(measured, ".3f"), judged))
    return rows


def _memory(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    what, wanted = "learner's memory without its replay buffer (the most)", "< 1,000 MB"
    measured = learner_bytes(content)
    if not measured:
        return [(what, wanted, "not measured", "", "")]
    megabytes = [each / MEGABYTE for each in measured]
    judged = verdict(max(measured), MEMORY_TARGET_BYTES, more_is_better=False)
    _, span = _median_and_range(megabytes, ",.0f")
    return [(what, wanted, f"{max(megabytes):,.0f} MB", span, judged)]


def _facts(content: Mapping[str, Any]) -> list[str]:
    machine = content["machine"]
    packages = dict(machine["packages"])
    sandboxes = {_listed(each["sandbox"]) for each in content["measurements"] if "sandbox" in each}
    for each in content["measurements"]:
        if each["contender"] == "sb3":
            packages["stable_baselines3"] = each["version"]
    return [
        f"- Measured: {content['began']} to {content['ended']}, commit {content['commit'] or '?'}",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['cores_used']} of them"
        f" used, {machine['memory_bytes'] / (1 << 30):.1f} GiB, Linux {machine['kernel']}",
        f"- Python {machine['python']}, "
        + ", ".join(f"{name} {version}" for name, version in packages.items()),
        f"- Numeric backends: {_listed(content['numerics'])}",
        *(f"- Sandbox: {each}" for each in sorted(sandboxes)),
    ]


def _listed(mapping: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in mapping.items())


def _median_and_range(figures: Figures, form: str) -> tuple[str, str]:
    return f"{median(figures):{form}}", f"{min(figures):{form}} to {max(figures):{form}}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(each)} |" for each in (head, ruler, *rows)] + [""]
