"""What a submitter may see of an evaluation: the one place where held-out runs are taken out.

Of held-out runs a submitter learns, once every run has finished, how many ended with which verdict
and the aggregate scores. Everything else about them could carry their observations or shapes out:
names, logs, causes, returns, seeds by environment, but also parameter counts, speed and times, and
the far digits of a score. So those are taken from visible runs alone, and scores are rounded.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.records import Manifest, Record
from harness.results.summary import RecordsError, Run, Summary, costs, last_attempts
from harness.task import Model

DECIMALS = 2
"""Of the scores that held-out runs enter."""


class HeldOutRuns(Model):
    """All that a report says of held-out runs beside their aggregate scores."""

    planned: int
    verdicts: Mapping[str, int]
    """How many runs ended with which verdict; empty until every run has finished."""


def visible_records(records: Sequence[Run]) -> list[Run]:
    """The records of visible runs."""
    return [record for record in records if not record.heldout]


def heldout_runs(manifest: Manifest, records: Sequence[Record]) -> HeldOutRuns | None:
    """How the held-out runs ended; None for an evaluation without any."""
    planned = sum(run.heldout for run in manifest.runs)
    if not planned:
        return None
    last = last_attempts(manifest, records)
    verdicts = Counter(record.verdict.kind for record in last.values() if record.heldout)
    finished = len(last) == len(manifest.runs)
    return HeldOutRuns(planned=planned, verdicts=dict(sorted(verdicts.items())) if finished else {})


def manifest_for_submitter(manifest: Manifest) -> Manifest:
    """The manifest with visible runs, scales and datasets only, and without the hash of the
    held-out file, by which a guess at that file could be confirmed."""
    visible = {run.environment for run in manifest.runs if not run.heldout}
    return manifest.model_copy(
        update={
            "runs": tuple(run for run in manifest.runs if not run.heldout),
            "scales": {id_: each for id_, each in manifest.scales.items() if id_ in visible},
            "datasets": {id_: each for id_, each in manifest.datasets.items() if id_ in visible},
            "heldout_sha256": None,
            "ranked_reason": _without_names(manifest.ranked_reason, manifest),
        }
    )


def summary_for_submitter(manifest: Manifest, records: Sequence[Run], summary: Summary) -> Summary:
    """The summary as a submitter may see it.

    `runs_planned` still counts all runs. Before every run has finished, finished runs, scored runs
    and attempts count visible ones only. Second evaluations and stopped games are those of visible
    runs, always: they follow from the environments.
    """
    seen = visible_records(records)
    environments = tuple(each for each in summary.environments if not each.heldout)
    if not environments:
        raise RecordsError(f"{manifest.evaluation} has no visible runs to show to a submitter")
    update: dict[str, object] = {
        "environments": environments,
        "why_no_score": _without_names(summary.why_no_score, manifest),
        "why_unranked": _without_names(summary.why_unranked, manifest),
        **costs(manifest, seen)._asdict(),
    }
    if summary.finished:
        for name in ("score", "interval_low", "interval_high", "heldout_score", "iqm"):
            value = getattr(summary, name)
            update[name] = None if value is None else round(value, DECIMALS)
    else:
        runs = [run for each in environments for run in each.runs]
        unfinished = "some runs have not finished"
        update |= {
            "runs_finished": sum(run.attempt > 0 for run in runs),
            "runs_scored": sum(run.mean_return is not None for run in runs),
            "attempts": sum(run.attempt for run in runs),
            "why_no_score": unfinished,
            "why_unranked": _without_names(
                summary.why_unranked.replace(summary.why_no_score, unfinished), manifest
            ),
        }
    return summary.model_copy(update=update)


def _without_names(text: str, manifest: Manifest) -> str:
    """`text` with each held-out environment's name replaced."""
    names = {run.environment for run in manifest.runs if run.heldout}
    # Longest first, as one name may be part of another.
    for name in sorted(names, key=lambda each: (-len(each), each)):
        text = text.replace(name, "a held-out environment")
    return text
