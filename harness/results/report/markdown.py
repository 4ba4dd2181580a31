"""`report.md`: the page about one evaluation that people read and send to each other.

It is rendered from the document behind `report.json` and nothing else, so what a submitter must not
see cannot reach it. All text that is not ours passes through `untrusted`.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from harness.records import Evaluation, Verdict
from harness.results.report.json_report import CurvePoint, Report, RunReport
from harness.results.summary import Summary
from harness.results.untrusted import fenced, fenced_patch, lines, markdown

BLOCKS = "▁▂▃▄▅▆▇█"
PATCH_LINES = 5_000
"""Far more than an ordinary region has; the whole stands in the evaluation's directory."""
WIDTH = 24
"""Most characters of a sparkline."""

HOW_TO_READ_RETURNS = """\
- A return is the raw sum of rewards of an episode; a run's mean return is that of its final
  evaluation, made after training ended: the last policy's, never the best one's."""

HOW_TO_READ_SUCCESS = """\
- Success is that of an episode's last step, in percent of all episodes. A run's is that of its
  final evaluation, made after training ended: the mean over the exports that count, never the best
  one's. A policy that never succeeds has 0, which is a score."""

HOW_TO_READ = """\
- A run's normalised value is (return - floor) / (ceiling - floor), but at least 0; a run that ended
  without a score counts as 0. The floor is the better of a random and an idle policy, the ceiling
  the best reference algorithm.
- The score is 100 x the mean over environments of the mean over seeds. Its interval says how far
  other seeds would move it (Welch-Satterthwaite, 95 %); failures too rare to have been drawn are
  not in it. Two scores whose intervals overlap are not told apart.
- The interquartile mean leaves out the best and the worst quarter of all runs. It is shown for
  comparison with the literature and never ranked."""

HOW_TO_READ_THE_SECOND = """\
The same policies once more, with what is named under "changed". The final evaluation has no other
chance than its starts, so actions could be learned by heart; in the second one they lead elsewhere.
No score uses it. What is kept is (second - floor) / (first - floor), where the first lies above the
floor; near the floor it says little. Games that were stopped at their longest count as they stood;
those of an environment are its final evaluations'."""


def to_markdown(report: Report) -> str:
    """The page, as GitHub-flavoured Markdown; the same text for the same document."""
    sections = [
        _head(report),
        _environments(report),
        _runs(report),
        _second_evaluation(report),
        _exports(report),
        _data(report),
        _failures(report.runs),
        _how_it_was_made(report),
        _change(report.patch),
        f"## How to read this\n\n{_how_to_read_means(report)}\n{HOW_TO_READ}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(report: Report) -> str:
    summary, manifest = report.summary, report.manifest
    parts = [
        f"# Touchstone: {markdown(manifest.name, 80) or '(no name)'}",
        f"Task {markdown(manifest.task)}, version {manifest.task_version}, "
        f"profile {markdown(manifest.profile)}.",
        _verdict_line(summary),
        "Ranked." if summary.ranked else f"Not ranked: {markdown(summary.why_unranked)}.",
        *_warning(report),
        _table(
            ("visible score", "held-out score", "interquartile mean", "runs scored", "attempts"),
            [
                (
                    _number(summary.visible_score),
                    _number(summary.heldout_score),
                    _number(summary.iqm),
                    f"{summary.runs_scored} of {summary.runs_planned}",
                    str(summary.attempts),
                )
            ],
        ),
    ]
    return "\n\n".join(parts)


def _verdict_line(summary: Summary) -> str:
    if summary.score is None:
        return f"**No score:** {markdown(summary.why_no_score)}."
    if summary.interval_low is None or summary.interval_high is None:
        interval = "no interval, as there is one seed only"
    else:
        interval = f"95 % interval {summary.interval_low:.2f} to {summary.interval_high:.2f}"
    return f"**Score {summary.score:.2f}**, {interval}. 100 is the best reference, 0 the floor."


def _warning(report: Report) -> list[str]:
    """One paragraph where a run's return may be learned by heart, else none."""
    summary = report.summary
    if not summary.memorised_runs:
        return []
    runs = "visible runs" if report.audience == "submitter" and report.heldout else "runs"
    return [
        f"**Memorised?** In {summary.memorised_runs} of {summary.second_evaluations} {runs} more "
        "than half of the return above the floor is gone in the second evaluation, below."
    ]


def _environments(report: Report) -> str:
    rows = [
        (
            markdown(each.id),
            "held-out" if each.heldout else "visible",
            f"{each.scored} of {len(each.runs)}",
            _number(each.mean),
            _number(each.std),
            _number(each.score),
            _number(each.scale.floor if each.scale else None),
            _number(each.scale.ceiling if each.scale else None),
        )
        for each in report.summary.environments
    ]
    header = (
        *("environment", "", "runs scored", _mean(report), "std", "score", "floor", "ceiling"),
    )
    text = (
        "## Environments\n\nMean and standard deviation are of the runs with a score; "
        f"the score counts the others as 0.\n\n{_table(header, rows)}"
    )
    if report.audience == "submitter" and report.heldout:
        verdicts = ", ".join(f"{count} {kind}" for kind, count in report.heldout.verdicts.items())
        text += (
            f"\n\nHeld-out: {report.heldout.planned} runs, "
            f"{verdicts or 'shown when all runs have finished'}."
        )
    provisional = [
        f"- {markdown(each.id)}: provisional ceiling, {markdown(each.scale.ceiling_source)}"
        for each in report.summary.environments
        if each.scale and each.scale.provisional
    ]
    return "\n".join([text, "", *provisional]) if provisional else text


def _runs(report: Report) -> str:
    ranges: dict[str, list[float]] = {}
    for run in report.runs:
        ranges.setdefault(run.environment, []).extend(each.mean_return for each in run.curve)
    rows: list[tuple[str, ...]] = [
        (
            markdown(run.environment),
            str(run.seed),
            _attempt(run),
            run.verdict.kind,
            _number(run.mean_return),
            _number(run.z),
            _sparkline(run.curve, ranges[run.environment]),
            _first_to_last(run.curve),
            markdown(run.record),
        )
        for run in report.runs
    ]
    rows += [
        (markdown(run.environment), str(run.seed), "", "not finished", "", "", "", "", "")
        for each in report.summary.environments
        for run in each.runs
        if not run.attempt
    ]
    header = (
        *("environment", "seed", "attempt", "verdict", _mean(report), "normalised"),
        *("learning curve", "first to last", "record"),
    )
    return (
        "## Runs\n\nCurves of one environment share a scale, from the lowest to the highest point "
        f"of any of its runs.\n\n{_table(header, rows)}"
    )


def _second_evaluation(report: Report) -> str:
    """Beside the first, and nothing for a task that has none."""
    again = [(run, run.final, run.second) for run in report.runs if run.final and run.second]
    if not again:
        return ""
    changed: dict[str, set[str]] = {}
    floors: dict[str, set[float]] = {}
    for run, _, second in again:
        changed.setdefault(run.environment, set()).add(second.how)
        known = set() if second.floor is None else {second.floor}
        floors.setdefault(run.environment, set()).update(known)
    environments = [
        (
            markdown(each.id),
            markdown(_listed(sorted(changed[each.id]))),
            _listed(_number(floor) for floor in sorted(floors[each.id])),
            _number(each.mean),
            _number(each.second_mean),
            f"{each.memorised_runs} of {each.scored} runs" if each.memorised_runs else "",
            str(each.stopped_games),
        )
        for each in report.summary.environments
        if each.id in changed
    ]
    runs = [
        (
            markdown(run.environment),
            str(run.seed),
            _attempt(run),
            _number(first.mean),
            _stopped(first),
            _number(second.evaluation.mean),
            _stopped(second.evaluation),
            _kept(run),
        )
        for run, first, second in again
    ]
    by_environment = (
        *("environment", "changed", "floor", "mean return", "second mean", "memorised?"),
        "games stopped",
    )
    by_run = (
        *("environment", "seed", "attempt", "mean return", "games stopped", "second mean"),
        *("games stopped", "kept"),
    )
    return (
        f"## Second evaluation\n\n{HOW_TO_READ_THE_SECOND}\n\n"
        f"{_table(by_environment, environments)}\n\n{_table(by_run, runs)}"
    )


def _is_offline(report: Report) -> bool:
    return bool(report.manifest.datasets) or any(run.data for run in report.runs)


def _mean(report: Report) -> str:
    """What a column of means is called."""
    return "success, %" if _is_offline(report) else "mean return"


def _how_to_read_means(report: Report) -> str:
    return HOW_TO_READ_SUCCESS if _is_offline(report) else HOW_TO_READ_RETURNS


def _exports(report: Report) -> str:
    """Each of the exports that count together; nothing where the last alone counts."""
    several = [(run, run.final) for run in report.runs if run.final and run.final.by_export]
    if not several:
        return ""
    rows = [
        (
            markdown(run.environment),
            str(run.seed),
            _attempt(run),
            ", ".join(f"{_number(each.mean)} (step {each.step:,})" for each in final.by_export),
            _number(final.mean),
        )
        for run, final in several
    ]
    header = ("environment", "seed", "attempt", "by export", _mean(report))
    return (
        "## Exports that count\n\nA run's result is the mean over these policies, each of which "
        f"played its share of the final episodes.\n\n{_table(header, rows)}"
    )


def _data(report: Report) -> str:
    """What was learned from; nothing for a task with environments in training."""
    used = {(run.environment, run.data) for run in report.runs if run.data}
    if not used:
        return ""
    order = {each.id: index for index, each in enumerate(report.summary.environments)}
    rows = [
        (
            markdown(environment),
            markdown(data.dataset),
            f"{data.transitions:,}",
            "OGBench's file"
            if data.generator_seed is None
            else f"made here: seed {data.generator_seed}, {data.episodes} episodes",
            markdown(data.sha256),
        )
        for environment, data in sorted(used, key=lambda each: order[each[0]])
    ]
    made_here = any(data.generator_seed is not None for _, data in used)
    note = (
        "Data that were made here are not OGBench's files, and fewer: what is reached on them "
        "compares with nothing that is published.\n\n"
        if made_here
        else ""
    )
    header = ("environment", "dataset", "transitions", "where from", "training file, SHA-256")
    return f"## Data\n\n{note}{_table(header, rows)}"


def _attempt(run: RunReport) -> str:
    return str(run.attempt) if run.counts else f"{run.attempt} (replaced)"


def _stopped(evaluation: Evaluation) -> str:
    return f"{evaluation.stopped} of {len(evaluation.returns)}"


def _kept(run: RunReport) -> str:
    if run.kept is None:
        return ""
    share = f"{100 * run.kept:.1f} %"
    return f"{share}. **Memorised?** More than half is gone" if run.memorised else share


def _failures(runs: Iterable[RunReport]) -> str:
    failures = [_failure(run) for run in runs if run.verdict.kind != "scored"]
    return "\n\n".join(["## What went wrong", *failures]) if failures else ""


def _failure(run: RunReport) -> str:
    verdict = run.verdict
    parts = [
        f"### {markdown(run.environment)}, seed {run.seed}, attempt {run.attempt}: {verdict.kind}",
        f"- Cause: {markdown(verdict.cause, 1000)}\n- Advice: {markdown(verdict.advice, 1000)}\n"
        f"- Where: {markdown(_where(verdict))}",
    ]
    for title, text in (("Its own account", verdict.detail), ("End of its log", verdict.log_tail)):
        if lines(text):
            parts.append(f"{title} (written by the submission):\n\n{fenced(text)}")
    return "\n\n".join(parts)


def _where(verdict: Verdict) -> str:
    where = verdict.phase if verdict.step is None else f"{verdict.phase}, step {verdict.step}"
    if verdict.limit is not None:
        where += f"; limit {verdict.limit}"
        where += f", allowed {verdict.allowed:g}" if verdict.allowed is not None else ""
        where += f", measured {verdict.measured:g}" if verdict.measured is not None else ""
    return where


def _how_it_was_made(report: Report) -> str:
    manifest, summary = report.manifest, report.summary
    seeds = sorted({run.seed for run in manifest.runs})
    episodes = sorted({len(run.final.returns) for run in report.runs if run.final})
    versions = {f"{run.harness_version} {run.harness_commit}".strip() for run in report.runs}
    facts = [
        ("evaluation", manifest.evaluation),
        ("handed in as", manifest.form),
        ("profile", manifest.profile),
        ("seeds", _listed(seeds)),
        ("final episodes a run", _listed(episodes)),
        ("held-out environments", manifest.heldout),
        ("parameters, largest, as reported", _listed([summary.parameters])),
        ("sandbox", f"{summary.sandbox}{'' if manifest.confined else ' (not confined)'}"),
        ("device", manifest.device),
        ("hardware", summary.hardware),
        ("training speed, median", _with_unit(summary.steps_per_second, "steps/s")),
        ("wall time of all trainings", f"{summary.wall_hours:.3g} h"),
        ("CPU time of all learners", f"{summary.cpu_hours:.3g} h"),
        ("first training started", summary.started),
        ("last training ended", summary.date),
        ("harness", _listed(sorted(versions))),
        ("Python", manifest.python),
        ("packages", _pairs(manifest.packages.items())),
        ("numerics", _pairs(manifest.numerics.items())),
        ("accepted source, SHA-256", manifest.source_sha256),
        ("scaffold, SHA-256", manifest.scaffold_sha256),
        ("profile, SHA-256", manifest.profile_sha256),
        ("held-out file, SHA-256", manifest.heldout_sha256 or ""),
        ("key fingerprint", manifest.key_fingerprint),
    ]
    rows = [(name, markdown(value, 1000)) for name, value in facts if value]
    note = (
        "Costs and hardware are those of the visible runs.\n\n"
        if report.audience == "submitter" and report.heldout
        else ""
    )
    return f"## How it was made\n\n{note}{_table(('what', 'value'), rows)}"


def _change(patch: str) -> str:
    if not patch:
        return ""
    return (
        "## The change\n\n<details>\n<summary>against the scaffold</summary>\n\n"
        f"{fenced_patch(patch, PATCH_LINES)}\n\n</details>"
    )


def _sparkline(curve: Sequence[CurvePoint], scale: Sequence[float]) -> str:
    """At most WIDTH blocks, evenly spaced over the curve's points, between the scale's extremes."""
    if not curve:
        return ""
    chosen = np.linspace(0, len(curve) - 1, min(WIDTH, len(curve))).round().astype(int)
    values = np.array([curve[index].mean_return for index in chosen], dtype=np.float64)
    low, high = min(scale), max(scale)
    span = high - low if high > low else 1.0
    levels = ((values - low) / span * (len(BLOCKS) - 1)).round().astype(int)
    return "".join(BLOCKS[level] for level in levels)


def _first_to_last(curve: Sequence[CurvePoint]) -> str:
    if not curve:
        return ""
    return f"{_number(curve[0].mean_return)} to {_number(curve[-1].mean_return)}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are safe already."""
    ruler = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def _with_unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.4g} {unit}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values if value is not None)


def _pairs(items: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(items))
