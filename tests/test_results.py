"""Summary, report and leaderboard tell the same, the whole and nothing that they must not."""

import csv
import io
import json
import math
import re
import statistics
from collections.abc import Sequence

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from pydantic import ValidationError
from rich.console import Console
from scipy import stats

from harness.records import Manifest, Record
from harness.results.leaderboard import Current, build_board, file_name, to_csv, to_table
from harness.results.report.json_report import Report, build_report, to_json
from harness.results.report.markdown import to_markdown
from harness.results.summary import RecordsError, summarise
from harness.results.untrusted import csv_cell, fenced, lines, markdown, one_line
from tests.builders import evaluation, manifest, record, records, scale, second

CURRENT = Current("rl-offpolicy-continuous", 1, "full", "c" * 64, "d" * 64)
RETURNS: dict[str, list[float | None]] = {
    "Hopper-v4": [40.0, 60.0, 50.0],
    "Ant-v4": [90.0, None, 120.0],
    "Secret-v4": [10.0, 20.0, 30.0],
}
"""Floors 0, ceilings 100: means of z 0.5, 0.7, 0.2; score 46.667, visible 60, held-out 20."""

HOSTILE = (
    "\x1b[31m=cmd|' /C calc'!A0\x00\u202e<script>alert(1)</script> `x` | [a](http://b) \n# big"
)


def _path(each: Record) -> str:
    return f"runs/{each.environment}-s{each.seed}/{each.attempt}.json"


def _report(m: Manifest, rs: Sequence[Record], for_submitter: bool = False) -> Report:
    return build_report(m, rs, _path, for_submitter)


def _frame(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


def _html(text: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(text)


# ---- summary ----


def test_a_summary_worked_out_by_hand():
    m = manifest()
    summary = summarise(m, records(m, RETURNS))
    assert summary.score == pytest.approx(100 * (0.5 + 0.7 + 0.2) / 3)
    assert summary.visible_score == pytest.approx(60.0)
    assert summary.heldout_score == pytest.approx(20.0)
    # Nine z: 0 .1 | .2 .3 .4 .5 .6 | .9 1.2: two go at each end, the mean of the rest is 0.4.
    assert summary.iqm == pytest.approx(40.0)
    ant = summary.environments[1]
    assert (ant.mean, ant.scored) == (105.0, 2)
    assert ant.std == pytest.approx(math.sqrt(2 * 15**2 / 1))
    assert [run.z for run in ant.runs] == [0.9, 0.0, 1.2]
    assert [run.verdict for run in ant.runs] == ["scored", "crashed", "scored"]
    assert (summary.runs_scored, summary.runs_planned, summary.attempts) == (8, 9, 9)
    assert summary.steps_per_second == 100.0
    assert summary.cpu_hours == pytest.approx(9 * 9.0 / 3600)
    assert summary.ranked
    assert summary.why_unranked == ""
    # Variances over 3: Hopper .01, Ant .39 (mean .7: .04 + .49 + .25 over 2), Secret .01.
    parts = [0.01 / 3, 0.39 / 3, 0.01 / 3]
    degrees = sum(parts) ** 2 / sum(each**2 / 2 for each in parts)
    assert degrees == pytest.approx(2.2073, abs=1e-3)
    half = 100 * math.sqrt(sum(parts)) / 3 * stats.t.ppf(0.975, degrees)
    assert summary.interval_high == pytest.approx(summary.score + half)
    assert summary.interval_low == 0.0


@pytest.mark.parametrize("missing", range(9))
def test_an_evaluation_with_an_unfinished_run_has_no_score_of_any_kind(missing):
    m = manifest()
    rs = records(m, RETURNS)
    del rs[missing]
    summary = summarise(m, rs)
    figures = (summary.score, summary.interval_low, summary.interval_high, summary.iqm)
    assert (*figures, summary.visible_score, summary.heldout_score) == (None,) * 6
    assert summary.why_no_score == "1 of 9 runs have not finished"
    assert not summary.finished
    assert not summary.ranked
    environment = summary.environments[missing // 3]
    assert (environment.mean, environment.std, environment.score) == (None, None, None)
    run = environment.runs[missing % 3]
    assert (run.verdict, run.z, run.attempt) == ("not finished", 0.0, 0)


@pytest.mark.parametrize("failing", range(9))
def test_failing_any_run_never_raises_the_score(failing):
    m = manifest()
    rs = records(m, RETURNS)
    whole = summarise(m, rs)
    rs[failing] = record(m, rs[failing].environment, rs[failing].seed, None, kind="timed-out")
    failed = summarise(m, rs)
    assert failed.score is not None
    assert whole.score is not None
    assert failed.score <= whole.score
    assert failed.score < whole.score or failing == 4  # which has failed already


def test_the_last_attempt_counts_even_when_it_is_the_worse_one_and_all_are_counted():
    m = manifest(visible=("Hopper-v4",), heldout=(), seeds=(7, 8))
    rs = [
        record(m, "Hopper-v4", 7, 30.0, attempt=3),
        record(m, "Hopper-v4", 7, 90.0, attempt=2),
        record(m, "Hopper-v4", 7, None, attempt=1),
        record(m, "Hopper-v4", 8, 50.0),
    ]
    summary = summarise(m, rs)
    assert summary.score == pytest.approx(40.0)
    assert summary.attempts == 4
    assert summary.cpu_hours == pytest.approx(4 * 9.0 / 3600)
    report = _report(m, rs)
    assert [(r.seed, r.attempt, r.counts) for r in report.runs] == [
        *((7, 1, False), (7, 2, False), (7, 3, True)),
        (8, 1, True),
    ]
    # A damaged record of an earlier attempt was set aside: the re-runs still show.
    assert summarise(m, [rs[0], rs[3]]).attempts == 4


def test_a_profile_without_scales_has_raw_means_and_no_score():
    m = manifest(scales={})
    summary = summarise(m, records(m, RETURNS))
    assert summary.score is None
    assert summary.why_no_score == "the profile has no scales to normalise by"
    assert summary.environments[0].mean == 50.0
    assert summary.environments[0].runs[0].z is None
    assert not summary.ranked


def test_one_environment_without_a_scale_leaves_no_score_of_the_others():
    m = manifest(scales={"Hopper-v4": scale(), "Secret-v4": scale()})
    summary = summarise(m, records(m, RETURNS))
    assert summary.score is None
    assert "Ant-v4" in summary.why_no_score


def test_a_provisional_ceiling_is_scored_and_not_ranked():
    scales = manifest().scales | {"Ant-v4": scale(provisional=True)}
    m = manifest(scales={id_: each.model_dump() for id_, each in scales.items()})
    summary = summarise(m, records(m, RETURNS))
    assert summary.score is not None
    assert not summary.ranked
    assert summary.why_unranked == "provisional ceiling for Ant-v4"
    assert "provisional ceiling" in to_markdown(_report(m, records(m, RETURNS)))


def test_one_seed_has_a_score_and_no_interval():
    m = manifest(seeds=(5,))
    rs = records(m, {id_: [50.0] for id_ in RETURNS})
    summary = summarise(m, rs)
    assert summary.score == pytest.approx(50.0)
    assert summary.interval_low is None
    assert "no interval" in to_markdown(_report(m, rs))
    assert summary.environments[0].std is None


def test_records_that_were_mixed_up_are_refused():
    m, other = manifest(), manifest(name="sac")
    rs = records(m, RETURNS)
    with pytest.raises(RecordsError, match="evaluation"):
        summarise(m, [*rs, record(other, "Ant-v4", 0, 1.0)])
    with pytest.raises(RecordsError, match="there are two"):
        summarise(m, [*rs, record(m, "Ant-v4", 0, 9000.0)])
    with pytest.raises(RecordsError, match="plans no such run"):
        summarise(m, [*rs, record(m, "Ant-v4", 99, 1.0)])
    with pytest.raises(RecordsError, match="plans no such run"):
        summarise(m, [*rs[1:], record(m, "Hopper-v4", 0, 40.0, heldout=True)])
    with pytest.raises(ValidationError, match="exactly where its verdict is scored"):
        record(m, "Hopper-v4", 0, 40.0, kind="crashed")
    with pytest.raises(RecordsError, match="source_sha256"):
        summarise(m, [*rs[1:], record(m, "Hopper-v4", 0, 40.0, source_sha256="0" * 64)])
    with pytest.raises(RecordsError, match="matrix"):
        summarise(manifest(runs=[run.model_dump() for run in m.runs[1:]]), [])


# ---- every output tells the same ----


def test_csv_json_and_records_agree():
    m = manifest()
    rs = records(m, RETURNS)
    row = _frame(to_csv(build_board(CURRENT, [(m, rs)]))).iloc[0]
    document = json.loads(to_json(_report(m, rs)))
    for id_ in RETURNS:
        raw = [statistics.fmean(r.final.returns) for r in rs if r.environment == id_ and r.final]
        in_json = next(e for e in document["summary"]["environments"] if e["id"] == id_)
        assert in_json["mean"] == pytest.approx(statistics.fmean(raw), rel=1e-12)
        assert row[f"{id_} mean"] == pytest.approx(statistics.fmean(raw), rel=1e-5)
        assert row[f"{id_} std"] == pytest.approx(statistics.stdev(raw), rel=1e-5)
        assert row[f"{id_} seeds"] == len(raw)
    z = {id_: [max(0.0, (x or 0.0) / 100) for x in values] for id_, values in RETURNS.items()}
    score = 100 * statistics.fmean(statistics.fmean(each) for each in z.values())
    assert document["summary"]["score"] == pytest.approx(score, rel=1e-12)
    for name in ("score", "interval_low", "interval_high", "heldout_score", "iqm", "cpu_hours"):
        assert row[name] == pytest.approx(document["summary"][name], rel=1e-5)
    assert row["evaluation"] == m.evaluation
    assert row["source_sha256"] == m.source_sha256
    ant = next(r for r in document["runs"] if r["environment"] == "Ant-v4" and r["seed"] == 0)
    assert ant["final"]["returns"] == [89.0, 91.0, 89.0, 91.0]
    assert [point["mean_return"] for point in ant["curve"]] == [1.0, 2.0, 4.0]
    assert ant["record"] == "runs/Ant-v4-s0/1.json"
    assert Report.model_validate(document) == _report(m, rs)


def test_the_page_shows_the_score_every_run_and_why_one_failed():
    m = manifest()
    rs = records(m, RETURNS)
    rs[4] = record(
        *(m, "Ant-v4", 1, None),
        kind="timed-out",
        verdict={
            "cause": "one answer took 31.5 s",
            "advice": "make act() faster",
            "step": 4321,
            "limit": "frame_seconds",
            "allowed": 30.0,
            "measured": 31.5,
            "log_tail": "first\nlast words",
        },
    )
    html = _html(to_markdown(_report(m, rs)))
    text = re.sub(r"<[^>]+>", " ", html)
    assert "Score 46.67" in text
    assert html.count("<td>scored</td>") == 8
    assert html.count("<td>timed-out</td>") == 1
    expected = (
        *("one answer took 31.5 s", "make act() faster", "step 4321", "limit frame_seconds"),
        *("allowed 30", "measured 31.5", "last words", m.source_sha256, "EPYC 9654", "▁▃█"),
    )
    for each in expected:
        assert each in text


def test_the_page_of_an_unfinished_evaluation_says_so_and_names_the_runs():
    m = manifest()
    page = to_markdown(_report(m, records(m, RETURNS)[:-2]))
    assert "**No score:** 2 of 9 runs have not finished." in page
    assert page.count("not finished | ") == 2
    assert "**Score" not in page


def test_the_same_records_in_another_order_give_the_same_outputs():
    m = manifest()
    rs = records(m, RETURNS)
    for render in (to_json, to_markdown):
        assert render(_report(m, rs)) == render(_report(m, rs[::-1]))


# ---- hostile text ----


def test_hostile_text_is_only_ever_text_on_the_page():
    m = manifest(name=HOSTILE)
    verdict = {
        "cause": HOSTILE,
        "advice": HOSTILE,
        "phase": HOSTILE,
        "detail": f"```\n<img src=x>\n````\n# heading\n{HOSTILE}",
        "log_tail": f"~~~\n```\n{HOSTILE}\r</code></pre><b>bold",
    }
    rs = [
        record(m, each.environment, each.seed, None, verdict=verdict)
        for each in records(m, RETURNS)
    ]
    page = to_markdown(_report(m, rs))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page)
    html = _html(page)
    tags = {each.lower() for each in re.findall(r"<\s*/?\s*([a-zA-Z!][\w]*)", html)}
    known = {"h1", "h2", "h3", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert tags <= known | {"ul", "li", "pre", "code"}
    assert html.count("<h1>") == 1
    assert html.count("<h3>") == 9
    assert html.count("<pre>") == 18
    assert "&lt;script&gt;alert(1)&lt;/script&gt; `x` | [a](http://b) # big" in html
    widths = {
        len(re.findall(r"<t[dh]", row)) for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL)
    }
    assert widths == {2, 5, 8, 9}  # facts, head, environments, runs: no cell was split


def test_hostile_text_survives_json_and_cannot_reach_a_terminal():
    m = manifest(name=HOSTILE)
    text = to_json(_report(m, records(m, RETURNS)))
    assert text.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    assert json.loads(text)["manifest"]["name"] == HOSTILE


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\x00=1", " =1", "\u200b=1", "=1", HOSTILE],
)
def test_a_name_is_never_a_formula_in_the_csv(name):
    m = manifest(name=name)
    text = to_csv(build_board(CURRENT, [(m, records(m, RETURNS))]))
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 2
    assert len(text.splitlines()) == 2
    cell = rows[1][rows[0].index("name")]
    assert cell.startswith("'")
    assert cell[1] in "=+-@="
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b\u202e]", cell)


def test_a_formula_does_not_hide_behind_another_separator():
    assert csv_cell("a;=cmd()") == "a;'=cmd()"
    assert csv_cell('a"; @x') == "a\"; '@x"
    assert csv_cell("td3 - fast, n = 5") == "td3 - fast, n = 5"


def test_negative_numbers_stay_numbers():
    m = manifest()
    rs = records(m, RETURNS | {"Ant-v4": [-1234.5, -10.0, -0.25]})
    text = to_csv(build_board(CURRENT, [(m, rs)]))
    frame = _frame(text)
    assert frame["Ant-v4 mean"].iloc[0] == pytest.approx(-414.917, rel=1e-5)
    assert "'" not in text
    texts = {
        "rank_range",
        "name",
        "profile",
        "sandbox",
        "hardware",
        "date",
        "source_sha256",
        "origin",
        "numerics",
    }
    texts |= {"evaluation", "ranked", "why_unranked"}
    numbers = frame.drop(columns=list(texts))
    assert all(pd.api.types.is_numeric_dtype(each) for each in numbers.dtypes)


def test_the_terminal_table_takes_names_as_plain_text():
    m = manifest(name="[bold red]x[/] \x1b[2J\x1b]8;;http://evil\x07link")
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(to_table(build_board(CURRENT, [(m, records(m, RETURNS))])))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold red]x[/] link" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]8" not in shown
    assert "46.7" in shown


def test_the_pieces_of_escaping():
    assert one_line("a\n\n b\tc\x1b[1;31md\x9b2Je\x07") == "a b cde"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    assert lines("a\r\nb\rc\n\n\n") == ["a", "b", "c"]
    assert lines("\n".join(str(i) for i in range(100)), last=2) == ["98", "99"]
    assert fenced("``````").splitlines()[0] == "```````text"
    assert _html("x " + markdown("http://a.b www.a.b *c* _d_ $e$ ~~f~~ &amp; <g>")) == (
        "<p>x http://a.b www.a.b *c* _d_ $e$ ~~f~~ &amp;amp; &lt;g&gt;</p>\n"
    )


# ---- what a submitter may see ----


def _secretive() -> tuple[Manifest, list[Record]]:
    """An evaluation whose held-out records hold a marker in every text and telling numbers."""
    m = manifest(ranked=False, ranked_reason="provisional ceiling for Secret-v4")
    texts = dict.fromkeys(("cause", "advice", "phase", "limit", "detail", "log_tail"), "LEAK")
    secret = texts | {"allowed": 987654.0, "measured": 987654.0, "step": 987654}
    rs = records(m, {id_: RETURNS[id_] for id_ in ("Hopper-v4", "Ant-v4")})
    rs.append(record(m, "Secret-v4", 0, 33.123456789, curve=(987654.0,), verdict=secret))
    for seed in (1, 2):
        training = {
            "parameters": 987654,
            "steps": 987654,
            "wall_seconds": 987654.0,
            "cpu_seconds": 987654.0,
            "ended": "2987-01-01T00:00:00+00:00",
            "started": "1987-01-01T00:00:00+00:00",
            "environment_settings": {"LEAK": "LEAK"},
            "provenance": rs[0].training.provenance.model_dump() | {"cpu": "LEAK"},
        }
        rs.append(record(m, "Secret-v4", seed, None, verdict=secret, training=training))
    return m, rs


def _submitters_outputs(m: Manifest, rs: list[Record]) -> dict[str, str]:
    board = build_board(CURRENT, [(m, rs)], for_submitter=True)
    console = Console(file=io.StringIO(), width=200)
    console.print(to_table(board))
    return {
        "json": to_json(_report(m, rs, for_submitter=True)),
        "markdown": to_markdown(_report(m, rs, for_submitter=True)),
        "csv": to_csv(board),
        "board": repr((board.rows, board.left_out)),
        "terminal": console.file.getvalue(),  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("finished", [True, False])
def test_a_submitters_outputs_hold_nothing_of_held_out_runs(finished):
    m, rs = _secretive()
    if not finished:
        rs.pop()
    outputs = _submitters_outputs(m, rs)
    for where, text in outputs.items():
        for marker in ("Secret", "LEAK", "987654", "2987", "1987", "33.12", "d" * 64):
            assert marker not in text, (where, marker)
    operators = to_json(_report(m, rs)) + to_markdown(_report(m, rs))
    assert "LEAK" in operators
    assert "Secret-v4" in operators


def test_a_submitter_still_learns_verdict_kinds_and_aggregates():
    m, rs = _secretive()
    document = json.loads(to_json(_report(m, rs, for_submitter=True)))
    assert document["heldout"] == {"planned": 3, "verdicts": {"crashed": 2, "scored": 1}}
    assert document["summary"]["heldout_score"] == 11.04  # 33.123456789 / 3, rounded
    assert document["summary"]["visible_score"] == pytest.approx(60.0)
    assert document["summary"]["runs_planned"] == 9
    assert [each["environment"] for each in document["runs"]] == ["Hopper-v4"] * 3 + ["Ant-v4"] * 3
    assert "3 runs, 2 crashed, 1 scored" in to_markdown(_report(m, rs, for_submitter=True))


def test_before_the_end_a_submitter_learns_nothing_of_how_held_out_runs_go():
    m, rs = _secretive()
    without = [each for each in rs if not each.heldout]
    for render in (to_json, to_markdown):
        assert render(_report(m, rs[:-1], True)) == render(_report(m, without, True))


# ---- second evaluations ----


def _played_twice(**changes: object) -> tuple[Manifest, list[Record]]:
    """Two games, one of them held out, floors 0 and -21, each with its first and second mean.

    Breakout keeps 90 % and 30 %. Pong is the one that a submitter does not see: 18 of 31 and none.
    """
    m = manifest(
        visible=("Breakout",),
        heldout=("Pong",),
        seeds=(0, 1),
        scales={"Breakout": scale().model_dump(), "Pong": scale(floor=-21.0, ceiling=21.0)},
        **changes,  # type: ignore[arg-type]
    )
    rs = [
        record(m, "Breakout", 0, 50.0, second=second(45.0, stopped=1)),
        record(m, "Breakout", 1, 40.0, second=second(12.0), final=evaluation(40.0, stopped=3)),
        record(m, "Pong", 0, 10.0, second=second(-3.0, floor=-21.0)),
        record(
            *(m, "Pong", 1, 20.0),
            second=second(-21.0, floor=-21.0, how="LEAK", stopped=4),
            final=evaluation(20.0, stopped=2),
        ),
    ]
    return m, rs


def _without_second(rs: Sequence[Record], *environments: str) -> list[Record]:
    """Those environments' records as of a task that has no second evaluation."""
    return [
        each.model_copy(
            update={
                "second": None,
                "final": each.final and each.final.model_copy(update={"stopped": 0}),
            }
        )
        if each.environment in environments
        else each
        for each in rs
    ]


def test_what_is_kept_is_measured_from_the_floor_and_not_from_zero():
    pong = second(-3.0, floor=-21.0)
    assert pong.kept(10.0) == pytest.approx(18 / 31)
    assert not pong.memorised(10.0)
    assert second(-6.0, floor=-21.0).kept(10.0) == pytest.approx(15 / 31)
    assert second(-6.0, floor=-21.0).memorised(10.0)
    assert second(-30.0, floor=-21.0).memorised(10.0)


def test_a_run_that_keeps_just_half_is_not_flagged():
    assert second(-5.5, floor=-21.0).kept(10.0) == 0.5
    assert not second(-5.5, floor=-21.0).memorised(10.0)


@pytest.mark.parametrize("first", [-21.0, -21.5])
def test_no_run_is_flagged_that_was_worth_nothing_in_the_first_place(first):
    m = manifest(visible=("Pong",), heldout=(), seeds=(0,), scales={})
    rs = [record(m, "Pong", 0, first, second=second(-40.0, floor=-21.0))]
    (run,) = _report(m, rs).runs
    assert (run.kept, run.memorised) == (None, False)
    assert summarise(m, rs).memorised_runs == 0
    assert "Memorised?" not in to_markdown(_report(m, rs))


def test_a_summary_holds_the_second_evaluation_of_each_run_and_environment():
    m, rs = _played_twice()
    summary = summarise(m, rs)
    breakout, pong = summary.environments
    assert [run.second_return for run in breakout.runs] == [45.0, 12.0]
    assert [run.memorised for run in (*breakout.runs, *pong.runs)] == [False, True, False, True]
    assert [run.stopped for run in (*breakout.runs, *pong.runs)] == [0, 3, 0, 2]
    assert (breakout.mean, breakout.second_mean) == (45.0, 28.5)
    assert (breakout.memorised_runs, breakout.stopped_games) == (1, 3)
    assert (pong.second_mean, pong.memorised_runs, pong.stopped_games) == (-12.0, 1, 2)
    assert (summary.second_evaluations, summary.memorised_runs, summary.stopped_games) == (4, 2, 5)


def test_no_score_uses_the_second_evaluation():
    m, rs = _played_twice()

    def scores(records: Sequence[Record]) -> tuple[object, ...]:
        summary = summarise(m, records)
        assert summary.score is not None
        return (
            summary.model_dump(exclude={"environments"}),
            [(each.mean, each.std, each.score) for each in summary.environments],
            [run.z for each in summary.environments for run in each.runs],
        )

    assert scores(rs) == scores(_without_second(rs, "Breakout", "Pong"))


def test_an_environment_has_a_second_mean_only_of_the_very_runs_that_its_mean_is_of():
    m, rs = _played_twice()
    assert summarise(m, rs[1:]).environments[0].second_mean is None  # one has not finished
    failed = [record(m, "Breakout", 0, None), *rs[1:]]
    assert summarise(m, failed).environments[0].mean == 40.0
    assert summarise(m, failed).environments[0].second_mean == 12.0
    mixed = [record(m, "Breakout", 0, 50.0), *rs[1:]]
    assert summarise(m, mixed).environments[0].second_mean is None


def test_the_page_shows_both_evaluations_what_was_changed_and_a_flag_in_words():
    page = to_markdown(_report(*_played_twice()))
    assert "**Memorised?** In 2 of 4 runs more than half of the return above the floor" in page
    section = page.split("## Second evaluation")[1].split("\n## ")[0]
    for row in (
        "| Breakout | sticky actions (0.25) | 0 | 45 | 28.5 | 1 of 2 runs | 3 |",
        "| Breakout | 0 | 1 | 50 | 0 of 4 | 45 | 1 of 4 | 90.0 % |",
        "| Breakout | 1 | 1 | 40 | 3 of 4 | 12 | 0 of 4 "
        "| 30.0 %. **Memorised?** More than half is gone |",
        "| Pong | 0 | 1 | 10 | 0 of 4 | -3 | 0 of 4 | 58.1 % |",
    ):
        assert row in section.splitlines()
    assert "count as they stood" in " ".join(section.split())
    assert _html(page).count("<table>") == 6


def test_a_replaced_attempt_shows_its_second_evaluation_too_and_is_not_counted():
    m, rs = _played_twice()
    rs.append(record(m, "Breakout", 1, 40.0, attempt=2, second=second(40.0)))
    page = to_markdown(_report(m, rs))
    assert "In 1 of 4 runs" in page
    assert "| Breakout | 1 | 1 (replaced) | 40 | 3 of 4 | 12 |" in page
    assert "| Breakout | 1 | 2 | 40 | 0 of 4 | 40 | 0 of 4 | 100.0 % |" in page


def test_a_page_without_second_evaluations_is_the_one_with_them_less_what_they_add():
    m, rs = _played_twice()
    plain = to_markdown(_report(m, _without_second(rs, "Breakout", "Pong")))
    page = to_markdown(_report(m, rs))
    page = re.sub(r"## Second evaluation\n.*?(?=## )", "", page, flags=re.DOTALL)
    page = re.sub(r"\*\*Memorised\?\*\* In .*\n\n", "", page)
    assert plain == page
    for word in ("emorised", "econd ev", "stopped", "sticky"):
        assert word not in plain


def test_how_an_evaluation_was_changed_is_only_ever_text_on_the_page():
    m = manifest(visible=("Pong",), heldout=(), seeds=(0,), scales={})
    rs = [record(m, "Pong", 0, 10.0, second=second(0.0, how=HOSTILE))]
    html = _html(to_markdown(_report(m, rs)))
    assert "<script>" not in html
    assert html.count("<h1>") == 1


def test_the_json_report_holds_the_second_evaluation_with_every_game():
    m, rs = _played_twice()
    document = json.loads(to_json(_report(m, rs)))
    run = document["runs"][1]
    assert run["second"]["how"] == "sticky actions (0.25)"
    assert run["second"]["evaluation"]["returns"] == [11.0, 13.0, 11.0, 13.0]
    assert (run["final"]["stopped"], run["kept"], run["memorised"]) == (3, 0.3, True)
    breakout = document["summary"]["environments"][0]
    assert (breakout["second_mean"], breakout["memorised_runs"]) == (28.5, 1)
    assert breakout["runs"][1]["second_return"] == 12.0
    assert Report.model_validate(document) == _report(m, rs)
    plain = json.loads(to_json(_report(m, _without_second(rs, "Breakout", "Pong"))))
    assert (plain["runs"][1]["second"], plain["runs"][1]["kept"]) == (None, None)


def test_a_board_counts_memorised_runs_and_stopped_games_where_there_are_second_evaluations():
    m, rs = _played_twice()
    other = manifest(name="idle", visible=("Breakout",), heldout=("Pong",), seeds=(0, 1))
    failed = [record(other, run.environment, run.seed, None) for run in other.runs]
    board = build_board(CURRENT, [(m, rs), (other, failed)])
    frame = _frame(to_csv(board)).set_index("name")
    assert (frame["memorised_runs"]["td3"], frame["stopped_games"]["td3"]) == (2, 5)
    assert frame.loc["idle", ["memorised_runs", "stopped_games"]].isna().all()
    console = Console(file=io.StringIO(), width=200)
    console.print(to_table(board))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"memorised\? ┃ +stopped ┃", shown)
    assert re.search(r"td3 .* 4/4 │ +2 │ +5 │", shown)
    assert re.search(r"idle .* 0/4 │ +- │ +- │", shown)


def test_a_board_without_second_evaluations_has_no_columns_for_them():
    m, rs = _played_twice()
    whole = build_board(CURRENT, [(m, rs)])
    plain = build_board(CURRENT, [(m, _without_second(rs, "Breakout", "Pong"))])
    added = [name for name in _frame(to_csv(whole)) if name not in _frame(to_csv(plain))]
    assert added == ["memorised_runs", "stopped_games"]
    assert [each.header for each in to_table(plain).columns][-1] == "scored"
    assert "memorised" not in str(to_table(plain).caption)


@pytest.mark.parametrize("finished", [True, False])
def test_a_submitter_learns_of_no_second_evaluation_and_no_stopped_game_of_held_out_runs(finished):
    m, rs = _played_twice()
    if not finished:
        rs.pop()
    shown = _submitters_outputs(m, rs)
    assert shown == _submitters_outputs(m, _without_second(rs, "Pong"))
    assert "In 1 of 2 visible runs" in shown["markdown"]
    if finished:
        row = _frame(shown["csv"]).iloc[0]
        assert (row["memorised_runs"], row["stopped_games"]) == (1, 3)
    for text in shown.values():
        assert "LEAK" not in text
        assert "Pong" not in text


# ---- leaderboard ----


def _entry(name: str, level: float, **changes: object) -> tuple[Manifest, list[Record]]:
    m = manifest(name=name, **changes)  # type: ignore[arg-type]
    seeds = (level - 1, level, level + 1)
    return m, records(m, dict.fromkeys(RETURNS, seeds))


def test_the_board_is_sorted_by_score_with_rank_ranges_whatever_the_order_it_was_given():
    # Standard error sqrt(3 x 1/3) / 3 = 1/3, 6 degrees of freedom: half width 2.447 / 3 = 0.816.
    entries = [_entry("c", 40.0), _entry("a", 80.0), _entry("b", 81.0), _entry("d", 10.0)]
    text = to_csv(build_board(CURRENT, entries))
    frame = _frame(text)
    assert list(frame["name"]) == ["b", "a", "c", "d"]
    assert list(frame["rank_range"]) == ["1 to 2", "1 to 2", "3 to 3", "4 to 4"]
    assert frame["interval_high"].iloc[0] == pytest.approx(81 + 2.44691 / 3, rel=1e-5)
    assert to_csv(build_board(CURRENT, entries[::-1])) == text


def test_what_does_not_compare_is_listed_below_without_a_rank_and_with_the_reason():
    entries = [
        _entry("good", 50.0),
        _entry("old", 90.0, task_version=2),
        _entry("elsewhere", 91.0, heldout_sha256="9" * 64),
        _entry("open", 92.0, ranked=False, ranked_reason="it ran without a sandbox"),
        _entry("longer", 93.0, profile_sha256="9" * 64),
    ]
    frame = _frame(to_csv(build_board(CURRENT, entries)))
    assert list(frame["name"]) == ["good", "longer", "open", "elsewhere", "old"]
    assert list(frame["rank_range"].fillna("")) == ["1 to 1", "", "", "", ""]
    assert list(frame["ranked"]) == ["yes", "no", "no", "no", "no"]
    assert list(frame["why_unranked"].fillna("")) == [
        "",
        "another edition of the profile",
        "it ran without a sandbox",
        "other held-out environments",
        "task version 2, now 1",
    ]


def test_a_source_ranks_once_by_its_first_evaluation():
    source = {"source_sha256": "5" * 64}
    entries = [
        _entry("again", 60.0, **source, created="2026-03-02T00:00:00+00:00"),
        _entry("first", 50.0, **source, created="2026-03-01T00:00:00+00:00"),
    ]
    frame = _frame(to_csv(build_board(CURRENT, entries)))
    assert list(frame["name"]) == ["first", "again"]
    assert list(frame["rank_range"].fillna("")) == ["1 to 1", ""]
    assert "first-0123456789ab" in frame["why_unranked"].iloc[1]


def test_unfinished_and_mixed_up_evaluations_do_not_appear_but_are_named():
    whole, unfinished, mixed = _entry("whole", 50.0), _entry("part", 99.0), _entry("mixed", 99.0)
    unfinished[1].pop()
    mixed[1].append(mixed[1][0])
    elsewhere = _entry("quick", 99.0, profile="quick")
    board = build_board(CURRENT, [whole, unfinished, mixed, elsewhere])
    assert list(_frame(to_csv(board))["name"]) == ["whole"]
    assert len(board.left_out) == 2
    assert any("part-0123456789ab: 1 of 9 runs" in each for each in board.left_out)
    assert any("mixed-0123456789ab: " in each for each in board.left_out)


def test_an_unranked_profile_has_a_table_without_ranks():
    quick = CURRENT._replace(profile="quick")
    reason = {"ranked": False, "ranked_reason": "profile quick is not ranked"}
    frame = _frame(to_csv(build_board(quick, [_entry("x", 5.0, profile="quick", **reason)])))
    assert frame["rank_range"].isna().all()
    assert list(frame["ranked"]) == ["no"]
    assert list(frame["why_unranked"]) == ["profile quick is not ranked"]
    assert frame["score"].iloc[0] == pytest.approx(5.0)


def test_an_evaluation_without_scales_is_listed_last_with_raw_means():
    entries = [_entry("raw", 50.0, scales={}), _entry("scored", 1.0)]
    frame = _frame(to_csv(build_board(CURRENT, entries)))
    assert list(frame["name"]) == ["scored", "raw"]
    assert math.isnan(frame["score"].iloc[1])
    assert frame["Hopper-v4 mean"].iloc[1] == 50.0


def test_an_empty_board_has_its_header():
    text = to_csv(build_board(CURRENT, []))
    assert text.startswith("rank_range,name,score,")
    assert text.count("\n") == 1


def test_a_board_file_is_named_after_its_task_and_profile():
    assert file_name("rl-x", "full") == "rl-x.csv"
    assert file_name("rl-x", "quick") == "rl-x.quick.csv"


def test_rounded_scores_change_neither_order_nor_ranks_for_a_submitter():
    # Half widths are 0.81564: b begins at 50.81736, above the ends of a, 50.81564, and c, 50.81664;
    # rounded, all three are 50.82 and would touch.
    entries = [_entry("a", 50.0), _entry("b", 51.633), _entry("c", 50.001)]
    shown = _frame(to_csv(build_board(CURRENT, entries, for_submitter=True)))
    exact = _frame(to_csv(build_board(CURRENT, entries)))
    assert list(shown["name"]) == list(exact["name"]) == ["b", "c", "a"]
    assert list(exact["rank_range"]) == ["1 to 1", "2 to 3", "2 to 3"]
    assert list(shown["rank_range"]) == list(exact["rank_range"])
    assert list(shown["score"]) == [51.63, 50.0, 50.0]
    assert [name for name in exact if name not in shown] == [
        "Secret-v4 mean",
        "Secret-v4 std",
        "Secret-v4 seeds",
    ]


PATCH = """\
--- a/tasks/toy/scaffold.py
+++ b/tasks/toy/scaffold.py
@@ -1,1 +1,1 @@
+x = 1
"""


def reported(patch: str) -> list[str]:
    """The lines of the report's fenced patch, as Markdown and Python split them."""
    report = _report(manifest(), []).model_copy(update={"patch": patch})
    return to_markdown(report).split("## The change")[1].split("\n")


def test_the_report_shows_the_submission_as_a_patch_that_can_be_folded_away():
    shown = reported(PATCH)
    assert shown[shown.index("```diff") + 1 :][:4] == PATCH.split("\n")[:4]
    assert "<details>" in shown
    assert "The change" not in to_markdown(_report(manifest(), []))


@pytest.mark.parametrize(
    ("hostile", "escaped"),
    [
        ("+# a\u2028@@ -9,3 +9,4 @@\u2028-    obs = 1", "\\u2028@@ -9,3"),
        ("+# a\x0c-b\x0b-c\x85-d\u2029-e", "\\x0c-b\\x0b-c\\x85-d\\u2029-e"),
        ("+# a\u202eb\ue000c\u0378", "\\u202eb\\ue000c\\u0378"),
        ("+# a\x1b[31mred", "\\x1b[31mred"),
    ],
)
def test_no_line_of_a_patch_is_forged_or_dropped_in_the_report(hostile, escaped):
    shown = reported(f"{PATCH}{hostile}\n")
    (line,) = [each for each in shown if each.startswith("+# a")]
    assert escaped in line


def test_a_patch_neither_ends_its_fence_nor_hides_its_head_or_the_end_of_a_line():
    shown = reported(PATCH + "+````\n+</details>\n" + f"+x = 1{' ' * 400}; hidden()\n")
    fence = next(each for each in shown if each.endswith("diff"))
    assert fence == "`````diff"
    assert shown.index("`````") > shown.index("+</details>")
    assert any(each.endswith("; hidden()") for each in shown)
    shown = reported(PATCH + "+#\n" * 6000)
    assert "+x = 1" in shown
    assert "... 1,004 more lines" in shown
