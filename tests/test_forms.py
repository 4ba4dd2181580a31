"""Forms of handing in: any of the four says the same thing, and nothing outside the region."""

import contextlib
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.intake.forms.canonical import canonical_patch
from harness.intake.forms.proposal import Scaffold
from harness.intake.refusals import Finding, Refused
from harness.intake.submission import HandedIn, Submission, assemble, judge, read
from harness.intake.text import split_lines
from harness.task import REGION_BEGINS, REGION_ENDS, REPOSITORY, Task
from tests.diffs import GIT, run_diff
from tests.support import TASK, TD3

task = Task.load(TASK)
scaffold = Scaffold.of(task)
PREFIX, REGION, SUFFIX = scaffold.prefix, scaffold.region, scaffold.suffix
SCAFFOLD = PREFIX + REGION + SUFFIX
FIRST, LAST = task.region.first_line, task.region.last_line
FILLED = TD3.read_text()
WHOLE = PREFIX + FILLED + SUFFIX

quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def handed_in(content: str | bytes) -> HandedIn:
    return HandedIn("mine", content if isinstance(content, bytes) else content.encode())


def taken(content: str | bytes) -> Submission:
    """Without the source rules, which are no affair of a form and cost a process each."""
    return assemble(task, handed_in(content))


def refusal(content: str | bytes) -> Finding:
    with pytest.raises(Refused) as caught:
        taken(content)
    return caught.value.findings[0]


def edit(start: object, end: object, content: object, **others: object) -> dict[str, object]:
    keys = {"op": "replace", "filename": "scaffold.py"}
    return {**keys, "start_line": start, "end_line": end, "content": content, **others}


def as_region(region: str) -> str:
    return region


def as_whole_file(region: str) -> str:
    return PREFIX + region + SUFFIX


def as_diff(region: str, context: int = 3) -> str:
    return run_diff("diff", f"-U{context}", old=SCAFFOLD, new=PREFIX + region + SUFFIX)


def as_edits(region: str) -> str:
    return json.dumps([edit(FIRST, LAST, region)])


FORMS: dict[str, Callable[[str], str]] = {
    "region file": as_region,
    "whole file": as_whole_file,
    "unified diff": as_diff,
    "list of edits": as_edits,
}

# What a form could take for its own, and what other programs take for the end of a line.
TRICKY = [
    "",
    " ",
    "-",
    "+x",
    "-- ",
    "--- x",
    "+++ y",
    "@@ -1 +1 @@",
    "diff --git a/scaffold.py b/scaffold.py",
    "From 0123456789abcdef Mon Sep 17",
    "*** Begin Patch",
    "12c12",
    "< x",
    "```",
    "[",
    '{"op": "replace"}',
    "\\ No newline at end of file",
    "a\x0bb\x0cc\x85d\u2028e",
    "\ufeff",
    "é\tΩ 👩",
    *REGION.split("\n"),
    *PREFIX.split("\n")[:6],
]
LINES = st.lists(
    st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=9),
    max_size=9,
)


def region_with(lines: list[str]) -> str:
    """The lines within a string, where a form must not take them for its own."""
    return 'X = """\n' + "".join(f"{line}\n" for line in lines) + '"""\n' + FILLED


# Accepting


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_accepted_and_named(form):
    accepted = judge(task, assemble(task, handed_in(FORMS[form](FILLED))))
    assert (accepted.form, accepted.notes) == (form, ())
    assert accepted.source == WHOLE.encode()


@given(LINES, st.integers(0, 4))
@quick
def test_the_four_forms_of_a_region_give_one_source_and_one_patch(lines, context):
    region = region_with(lines)
    source = (PREFIX + region + SUFFIX).encode()
    patch = canonical_patch(source, task)
    for content in (*(form(region) for form in FORMS.values()), as_diff(region, context), patch):
        accepted = taken(content)
        assert accepted.source == source
        assert canonical_patch(accepted.source, task) == patch
        assert len(accepted.where) == accepted.source.count(b"\n")


def with_bom(content: str) -> str:
    return "\ufeff" + content


def with_crlf(content: str) -> str:
    return content.replace("\n", "\r\n")


def without_final_lf(content: str) -> str:
    return content.removesuffix("\n")


SAVED = {"byte-order mark": with_bom, "CRLF": with_crlf, "no line end": without_final_lf}


@pytest.mark.parametrize("form", FORMS)
@given(LINES, st.sets(st.sampled_from(list(SAVED))))
@settings(quick, max_examples=12)
def test_what_an_editor_does_to_a_file_is_undone_and_said(form, lines, how):
    region = region_with(lines)
    content = FORMS[form](region)
    notes = set(how)
    for each in ("no line end", "CRLF", "byte-order mark"):
        if each in how:
            before, content = content, SAVED[each](content)
            # JSON on one line has no line end, and the end of a diff's last line is not a file's.
            if before == content or (each == "no line end" and form == "unified diff"):
                notes.discard(each)
    accepted = taken(content)
    assert accepted.source == (PREFIX + region + SUFFIX).encode()
    assert {each for each in SAVED if any(each in note for note in accepted.notes)} == notes


def test_lines_that_the_form_did_not_bring_are_found_in_the_scaffold():
    at = LAST - 2
    diff = as_diff(REGION.replace(split_lines(SCAFFOLD)[at - 1], "    x\n    y\n"))
    list_of_edits = json.dumps([edit(FIRST, FIRST, "# a\n# b"), edit(at + 1, at + 1, "  x\n  y")])
    for content, file, shift in ((diff, "mine", 0), (list_of_edits, "mine, edit 2", 1)):
        where = taken(content).where[
            FIRST - 1 : FIRST + len(split_lines(taken(content).region.decode())) - 1
        ]
        assert where[at - FIRST + shift].file == file
        assert where[-1] == ("scaffold.py", LAST)
        assert where[2 + shift] == ("scaffold.py", FIRST + 2)


# A whole file

MATH = "import math\n"
END = WHOLE.count("\n")
ENDS = (PREFIX + FILLED).count("\n") + 1
"""The line of the closing banner."""
LAST_LINE = SCAFFOLD.split("\n")[-2]
BEGIN = "EDITABLE REGION BEGINS ===="


@pytest.mark.parametrize(
    ("content", "rule", "line", "says"),
    [
        (SCAFFOLD, "nothing-changed", None, "unchanged"),
        # The prefix is compared from the top, the suffix from the bottom.
        (
            WHOLE.replace(MATH, "import os\n"),
            "outside-region",
            8,
            "line 8 of scaffold.py is `import",
        ),
        (WHOLE.replace(MATH, ""), "outside-region", 8, "line 8 of scaffold.py is `import math`"),
        (WHOLE.replace(MATH, "import math \n"), "outside-region", 8, "is `import math`"),
        (WHOLE.replace(MATH, f"\n{MATH}"), "outside-region", 8, "is `import math`"),
        ("\n" + WHOLE, "outside-region", 1, '1 of scaffold.py is `"""Off-policy'),
        (WHOLE + "x = 1\n", "outside-region", END + 1, f"is `{LAST_LINE}`"),
        (WHOLE + "\n", "outside-region", END + 1, f"is `{LAST_LINE}`"),
        (WHOLE.rsplit("\n", 2)[0], "outside-region", END - 1, f"is `{LAST_LINE}`"),
        (
            WHOLE.replace(f"{REGION_ENDS}\n\n", f"{REGION_ENDS}\n"),
            "outside-region",
            ENDS,
            "is empty",
        ),
        (WHOLE.replace(REGION_BEGINS, f" {REGION_BEGINS}"), "outside-region", FIRST - 1, BEGIN),
        # Banner lines.
        (WHOLE.replace(f"{REGION_BEGINS}\n", ""), "whole-file", ENDS - 1, f"{BEGIN}` is missing"),
        (WHOLE.replace(f"{REGION_ENDS}\n", ""), "whole-file", FIRST - 1, "ENDS ====` is missing"),
        (PREFIX.replace(REGION_BEGINS, "") + FILLED, "whole-file", 1, f"{BEGIN}` is missing"),
        (WHOLE + WHOLE, "whole-file", END + FIRST - 1, "stands here again"),
        (
            as_whole_file(f'"""\n{REGION_ENDS}\n"""\n' + FILLED),
            "whole-file",
            ENDS + 3,
            f"the first is line {FIRST + 1}",
        ),
        (f"{REGION_ENDS}\n{FILLED}{REGION_BEGINS}\n", "whole-file", 1, "stands before"),
        (f"{REGION_BEGINS}\n{FILLED}{REGION_ENDS}\n", "whole-file", 1, "without the scaffold"),
        (f"{FILLED}  {REGION_ENDS}", "whole-file", FILLED.count("\n") + 1, f"{BEGIN}` is missing"),
        # Another scaffold.
        (WHOLE.replace("continuous", "discrete", 1), "outside-region", 1, '`"""Off-policy'),
    ],
)
def test_a_whole_file_that_is_not_the_scaffold_around_a_region_is_refused(
    content, rule, line, says
):
    found = refusal(content)
    assert (found.rule, found.line) == (rule, line)
    assert says in found.message


def test_both_ends_of_a_whole_file_are_looked_at():
    with pytest.raises(Refused) as caught:
        taken(WHOLE.replace("import math\n", "import os\n") + "x = 1\n")
    assert [each.line for each in caught.value.findings] == [8, WHOLE.count("\n") + 1]


def test_a_broken_rule_in_a_whole_file_is_shown_at_the_line_of_that_file():
    with pytest.raises(Refused) as caught:
        judge(task, assemble(task, handed_in(as_whole_file(FILLED + "import os\n"))))
    assert [(each.rule, each.file, each.line) for each in caught.value.findings] == [
        ("import", "mine", (PREFIX + FILLED).count("\n") + 1)
    ]


@pytest.mark.parametrize("form", [each for each in FORMS if each != "list of edits"])
def test_another_line_that_a_finding_names_is_a_line_of_the_file_that_was_handed_in(form):
    def first_definition() -> int:
        return content[: content.index("def f()")].count("\n") + 1

    content = FORMS[form](FILLED + "def f(): ...\n\ndef f(): ...\n")
    [warning] = judge(task, taken(content)).warnings
    assert warning.message.endswith(f"the `def` on line {first_definition()} has no effect")
    assert warning.line == first_definition() + 2
    content = FORMS[form](FILLED + "def f():\nx = 1\n")
    with pytest.raises(Refused, match=f"function definition on line {first_definition()} "):
        judge(task, taken(content))


def test_another_line_that_a_finding_names_is_told_with_its_edit():
    first, *_ = split_lines(FILLED)
    content = [
        edit(FIRST, LAST, FILLED + "def f(): ...\n"),
        edit(FIRST, FIRST, f"def f(): ...\n{first}"),
    ]
    [warning] = judge(task, taken(json.dumps(content))).warnings
    assert (warning.file, warning.line) == ("mine, edit 1", FILLED.count("\n") + 1)
    assert warning.message.endswith("the `def` on line 1 of mine, edit 2 has no effect")


def test_braces_of_a_submission_in_a_message_are_text():
    with pytest.raises(Refused, match=r"'\{' was never closed"):
        judge(task, taken(FILLED + "x = {other\n"))


# A list of edits


@given(st.lists(st.tuples(st.integers(-2, 12), st.integers(-1, 12), LINES, st.booleans())))
@quick
def test_edits_do_what_they_do_to_a_plain_list_of_lines(replacements):
    lines = SCAFFOLD.split("\n")[:-1]
    made = []
    last, fits = LAST, True
    for offset, count, new, ends in replacements:
        start, end = FIRST + offset, FIRST + offset + count
        made.append(edit(start, end, "\n".join(new) + "\n" * (ends and bool(new))))
        fits = fits and FIRST <= start <= end <= last
        # One blank line cannot be told from nothing, and is nothing.
        new = [] if new == [""] and not ends else new
        # Nor can a blank line at the end from a line end at the end.
        new = new[:-1] if len(new) > 1 and new[-1] == "" and not ends else new
        lines[start - 1 : end] = new
        last += len(new) - (end - start + 1)
    expected = "".join(f"{line}\n" for line in lines)
    try:
        source = taken(json.dumps(made)).source
    except Refused as refused:
        [found] = refused.findings
        assert found.rule == "edit-range" if not fits else found.rule == "nothing-changed"
    else:
        assert fits
        assert source == expected.encode()


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("x", ["x"]),
        ("x\n", ["x"]),
        ("x\n\n", ["x", ""]),
        ("\n", [""]),
        ("", []),
        ("x\r\ny\r\n", ["x", "y"]),
        ("x\r\ny", ["x", "y"]),
        ("\u2028\u0085", ["\u2028\u0085"]),
    ],
)
def test_a_line_end_at_the_end_of_the_content_adds_no_line(content, lines):
    kept = REGION.split("\n")[1:]
    assert taken(json.dumps([edit(FIRST, FIRST, content)])).region.decode().split("\n") == [
        *lines,
        *kept,
    ]


def test_the_editable_range_grows_and_shrinks_and_its_start_stays():
    grown = [edit(FIRST, FIRST, "a\nb\nc")]
    for last, accepted in ((LAST + 2, True), (LAST + 3, False)):
        content = json.dumps([*grown, edit(last, last, "x")])
        if accepted:
            assert taken(content).region.endswith(b"\nx\n")
        else:
            found = refusal(content)
            assert (found.rule, found.file) == ("edit-range", "mine, edit 2")
            assert found.message == (
                f"lines {last} to {last} exceed the editable range; "
                f"lines {FIRST} to {LAST + 2} can be edited now"
            )
    nothing_left = [edit(FIRST, LAST, ""), edit(FIRST, FIRST, "x")]
    assert "no line that can be edited" in refusal(json.dumps(nothing_left)).message
    assert (
        f"lines {FIRST} to {LAST} can" in refusal(json.dumps([edit(FIRST - 1, FIRST, "x")])).message
    )


def test_one_edit_may_stand_without_a_list_and_text_around_json_may_be_blank():
    content = json.dumps(edit(FIRST, LAST, FILLED), indent=2)
    assert taken(f"\n  {content}\n\n").source == WHOLE.encode()
    assert taken(with_crlf(f"\n  {content}\n")).source == WHOLE.encode()


GOOD_EDIT = json.dumps(edit(FIRST, FIRST, "x"))
DEEP = 100_000


@pytest.mark.parametrize(
    ("content", "rule", "says"),
    [
        ("[]", "nothing-changed", "unchanged"),
        ("{}", "json-edits", "lacks `op`, `filename`"),
        ("[[]]", "json-edits", "is an object"),
        ("[null]", "json-edits", "is an object"),
        ('[1, "a"]', "json-edits", "is an object"),
        (json.dumps([edit(1, 1, "x", submit=True)]), "json-edits", "unknown key `submit`"),
        (json.dumps([edit(1, 1, "x", op="insert")]), "json-edits", 'only `op` is "replace"'),
        (json.dumps([edit(1, 1, "x", op=None)]), "json-edits", "the only `op` is"),
        (json.dumps([edit(True, 1, "x")]), "json-edits", "`start_line` has to be an integer"),
        (json.dumps([edit(1.0, 1, "x")]), "json-edits", "`start_line` has to be an integer"),
        (json.dumps([edit(1, "1", "x")]), "json-edits", "`end_line` has to be an integer"),
        (json.dumps([edit(1, 1, ["x"])]), "json-edits", "`content` has to be a string"),
        (json.dumps([edit(1, 1, None)]), "json-edits", "`content` has to be a string"),
        (GOOD_EDIT.replace(f": {FIRST}", ": 1e999", 1), "json-edits", "has to be an integer"),
        (GOOD_EDIT.replace(f": {FIRST}", ": NaN", 1), "json-edits", "NaN is no number"),
        (GOOD_EDIT.replace(f": {FIRST}", ": -Infinity", 1), "json-edits", "Infinity is no number"),
        (GOOD_EDIT.replace(f": {FIRST}", ": " + "9" * 10_000, 1), "json-edits", "10,000 digits"),
        (GOOD_EDIT.replace(f": {FIRST}", ": " + "9" * 18, 1), "edit-range", "lies behind"),
        (GOOD_EDIT.replace('{"op', '{"op": "replace", "op'), "json-edits", "`op` stands twice"),
        ("[" * DEEP + "]" * DEEP, "json-edits", "nested too deeply"),
        ('{"op":' * 20_000 + "1" + "}" * 20_000, "json-edits", "nested too deeply"),
        # Ranges.
        (json.dumps([edit(FIRST, FIRST - 1, "x")]), "edit-range", "lies behind"),
        (json.dumps([edit(-1, FIRST, "x")]), "edit-range", "exceed"),
        (json.dumps([edit(0, 0, "x")]), "edit-range", "exceed"),
        (json.dumps([edit(LAST + 1, LAST + 1, "x")]), "edit-range", "exceed"),
        # Files.
        *((json.dumps([edit(FIRST, FIRST, "x", filename=name)]), "wrong-file", says)
          for name, says in [
              ("", "this names ``"), ("mine.py", "`mine.py`"), ("scaffold.py/", "``"),
              ("scaffold.py\0", "scaffold.py\\x00"), ("SCAFFOLD.PY", "SCAFFOLD.PY"),
              ("../scaffold.py", "`..`"), ("a\\..\\scaffold.py", "`..`"),
              (".git/scaffold.py", "`.git`"), ("tasks/other/scaffold.py", "`other`"),
              ("\ud800", "\\ud800"),
          ]),
        # Content obeys the rules of text.
        (json.dumps([edit(FIRST, FIRST, "x\0")]), "control-characters", "U+0000"),
        (json.dumps([edit(FIRST, FIRST, "x\x1b[31m")]), "control-characters", "U+001B"),
        (json.dumps([edit(FIRST, FIRST, "x\ud800")]), "encoding", "U+D800"),
        (json.dumps([edit(FIRST, FIRST, "x\ry")]), "line-endings", "stands alone"),
        (json.dumps([edit(FIRST, FIRST, "x\r\ny\nz\n")]), "line-endings", "ends in CRLF"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_edits_is_refused_and_says_what_is_wrong(content, rule, says):
    found = refusal(content)
    assert found.rule == rule
    assert says in found.message


@pytest.mark.parametrize(
    ("content", "line", "column", "says"),
    [
        (f"[{GOOD_EDIT},\n]", 2, 1, "Expecting value"),
        (f"[{GOOD_EDIT}\n {GOOD_EDIT}]", 2, 2, "Expecting ',' delimiter"),
        (f"{GOOD_EDIT}\n{GOOD_EDIT}\n", 2, 1, "Extra data"),
        (f"[{GOOD_EDIT}\n", 2, 1, "Expecting ',' delimiter"),
        ("[{'op': 'replace'}]", 1, 3, "double quotes"),
        ('[{"content": "class Actor\n"}]', 1, 26, "a line end is written \\n"),
        ("[\u2028", 1, 2, "Expecting value"),
    ],
)
def test_an_error_of_json_is_shown_at_its_line_and_column(content, line, column, says):
    found = refusal(content)
    assert (found.rule, found.line, found.column) == ("json-edits", line, column)
    assert says in found.message


def test_a_fault_in_an_edit_is_shown_at_the_line_of_its_content():
    content = json.dumps(
        [edit(FIRST, LAST, FILLED), edit(FIRST, FIRST, "x = 1\nimport os\nclass Actor(nn.Module):")]
    )
    with pytest.raises(Refused) as caught:
        judge(task, assemble(task, handed_in(content)))
    assert ("import", "mine, edit 2", 2, "import os") in [
        (each.rule, each.file, each.line, each.text) for each in caught.value.findings
    ]
    found = refusal(json.dumps([edit(FIRST, FIRST, "x\n\0")]))
    assert (found.file, found.line) == ("mine, edit 1", 2)


# A unified diff


def test_a_diff_of_files_that_use_crlf_is_read():
    old, new = with_crlf(SCAFFOLD), with_crlf(WHOLE)
    for sides in ((old, new), (SCAFFOLD, new), (old, WHOLE)):
        for command in (("diff", "-u"), ("diff", "-U0"), GIT):
            diff = run_diff(*command, old=sides[0], new=sides[1])
            assert diff.count("\n") > diff.count("\r\n") > 10
            accepted = taken(diff)
            assert accepted.source == WHOLE.encode()
            assert ["CRLF" in note for note in accepted.notes] == [True]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_diff_of_files_whose_last_line_does_not_end_is_read(ends):
    open_end = {each: each.removesuffix("\n").replace("\n", ends) for each in (SCAFFOLD, WHOLE)}
    for old, new, said in (
        (SCAFFOLD.replace("\n", ends), open_end[WHOLE], True),
        (open_end[SCAFFOLD], WHOLE.replace("\n", ends), False),
        (open_end[SCAFFOLD], open_end[WHOLE], False),
    ):
        diff = run_diff("diff", "-U500", old=old, new=new)
        assert "\\ No newline" in diff
        accepted = taken(diff)
        assert accepted.source == WHOLE.encode()
        assert any("got one" in note for note in accepted.notes) == said


@pytest.mark.parametrize(
    ("region", "context", "lost"),
    [
        (REGION.replace('raise NotImplementedError("write update")', "return {}"), 1, "1 blank"),
        (REGION.replace('raise NotImplementedError("write update")', "return {}"), 2, "2 blank"),
        (REGION + "x = 1\n", 3, "2 blank"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_blank_context_lines_that_a_diff_lost_at_its_end_are_supplied_and_said(
    region, context, lost, ends
):
    stripped = as_diff(region, context).rstrip()
    for content in (stripped, stripped + "\n"):
        accepted = taken(content.replace("\n", ends))
        assert accepted.source == as_whole_file(region).encode()
        assert any(f"{lost} context line" in note for note in accepted.notes)
    old, new = (text.replace("\n", ends) for text in (SCAFFOLD, as_whole_file(region)))
    content = run_diff("diff", f"-U{context}", old=old, new=new).rstrip()
    assert taken(content).source == as_whole_file(region).encode()


def test_a_diff_with_both_line_ends_on_one_side_is_refused_at_the_rarer():
    mixed = WHOLE.replace("import os", "").replace("    POLICY_NOISE", "\r\n    POLICY_NOISE", 1)
    diff = run_diff("diff", "-u", old=SCAFFOLD, new=mixed)
    found = refusal(diff)
    assert (found.rule, found.line) == ("line-endings", diff.split("\n").index("+\r") + 1)
    assert found.message == "this line ends in CRLF, others of the new file in LF"
    tie = f"{HEADER}@@ -{LAST},0 +{LAST + 1},2 @@\n+a\r\n+b\n"
    assert (refusal(tie).rule, refusal(tie).line) == ("line-endings", 5)
    assert refusal(as_diff(FILLED + "x = 1\n").replace("+x = 1", "+x = 1\ry")).message == (
        "a carriage return stands alone"
    )


HEADER = "--- scaffold.py\n+++ scaffold.py\n"
HUNKS = as_diff(FILLED).split("\n", 2)[2]

PREAMBLES = {
    "svn": f"Index: scaffold.py\n{'=' * 67}\n"
    "--- scaffold.py\t(revision 12)\n+++ scaffold.py\t(working copy)\n",
    "hg": "diff -r 5f1cdb5a6b2d tasks/scaffold.py\n"
    "--- a/tasks/scaffold.py\tThu Jan 01 00:00:00 1970 +0000\n"
    "+++ b/tasks/scaffold.py\tMon Feb 02 10:00:00 2026 +0100\n",
    "hg export": "# HG changeset patch\n# User A\n# Date 0 0\nclass Actor grows\n\n"
    "diff -r 5f1 scaffold.py\n--- a/scaffold.py\n+++ b/scaffold.py\n",
    "git log": f"commit {'a' * 40}\nAuthor: A <a@b.c>\n\n    Say diff --git and @@ -1 +1 @@\n\n"
    "diff --git a/scaffold.py b/scaffold.py\nindex 0123..4567 100644\n"
    "--- a/scaffold.py\n+++ b/scaffold.py\n",
    "mail": f"From {'a' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\nSubject: [PATCH] x\n\n"
    "class Actor: wider\n---\n scaffold.py | 2 +-\n\n"
    "diff --git a/scaffold.py b/scaffold.py\n--- a/scaffold.py\n+++ b/scaffold.py\n",
    "mail's subject": "[PATCH] faster\n---\n" + HEADER,
    "words before it": "This is my patch; it is good.\n\n" + HEADER,
    "diff -r": "diff -ru old/scaffold.py new/scaffold.py\n"
    "--- old/scaffold.py\t2026-01-01 00:00:00.0 +0000\n+++ new/scaffold.py\t2026-01-01\n",
    "mnemonic prefixes": "--- i/tasks/x/../../scaffold.py\n".replace("x/../../", f"{TASK}/")
    + f"+++ w/tasks/{TASK}/scaffold.py\n",
    "an absolute path": "--- /home/me/tasks/second try/scaffold.py\n+++ /tmp/mine.py\n",
    "a path of Windows": "--- C:\\work\\scaffold.py\n+++ C:\\work\\mine.py\n",
    "a quoted path": '--- "a/\\303\\274b \\"er/scaffold.py"\n+++ "b/\\303\\274b/scaffold.py"\n',
    "spaces and a timestamp without tabs": "--- my dir/scaffold.py 2026-01-01 00:00:00 +0100\n"
    "+++ my dir/mine.py 2026-01-01 00:00:00\n",
}


@pytest.mark.parametrize("preamble", PREAMBLES.values(), ids=PREAMBLES.keys())
def test_a_diff_is_read_whoever_printed_its_header(preamble):
    assert taken(preamble + HUNKS).source == WHOLE.encode()
    assert taken(with_crlf(preamble) + HUNKS).source == WHOLE.encode()
    assert taken(preamble + HUNKS + "\n-- \n2.39.5\n\n").source == WHOLE.encode()


@pytest.mark.parametrize("keepends", [False, True])
def test_a_diff_that_difflib_made_and_a_join_spoiled_is_told_how_to_join(keepends):
    old, new = (text.splitlines(keepends) for text in (SCAFFOLD, WHOLE))
    lines = list(difflib.unified_diff(old, new, "scaffold.py", "scaffold.py"))
    found = refusal("\n".join(lines))
    assert (found.rule, found.line) == ("diff-header", 1)
    assert 'lineterm=""' in found.message
    good = difflib.unified_diff(old, new, "scaffold.py", "x.py", lineterm="\n" if keepends else "")
    assert taken(("" if keepends else "\n").join(good)).source == WHOLE.encode()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A real one with two commits, the scaffold and the filled one; called, it is `git`."""
    root = tmp_path_factory.mktemp("répo")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments],
            cwd=root,
            env=environment | {"GIT_CONFIG_GLOBAL": os.devnull},
            capture_output=True,
            check=True,
        )
        return done.stdout.decode()

    git("init", "-q")
    path = root / "tasks" / TASK / "scaffold.py"
    path.parent.mkdir(parents=True)
    (root / "täsks").symlink_to("tasks")
    for content in (SCAFFOLD, WHOLE):
        path.write_text(content)
        git("add", ".")
        git("commit", "-qm", "Fill\n\nclass Actor: a new one\n--- old\n@@ words @@")
    return git


@pytest.mark.parametrize(
    "command",
    [
        "show",
        "log -p -1",
        "show --pretty=email",
        "show --stat -p",
        "show --raw -p",
        "diff HEAD~1 -U0 --inter-hunk-context=0",
        "diff HEAD~1 -U500",
        "diff HEAD~1 --no-prefix --histogram",
        "diff HEAD~1 --src-prefix=old/ --dst-prefix=new/ --full-index --binary",
        "-c diff.noprefix=true diff HEAD~1 --minimal",
        "-c diff.mnemonicPrefix=true diff HEAD~1 --anchored=x",
        "format-patch -1 --stdout --no-signature",
        "format-patch -1 --stdout --base=HEAD~1",
    ],
)
def test_a_patch_is_read_whatever_command_of_git_printed_it(repository, command):
    assert taken(repository(*command.split())).source == WHOLE.encode()


def test_a_diff_of_git_with_a_quoted_name_is_read():
    names = ("ü\tber/scaffold.py", "ü\tber/mine.py")
    diff = run_diff(*GIT, old=SCAFFOLD, new=WHOLE, names=names)
    assert '--- "a/\\303\\274\\tber/scaffold.py"' in diff
    assert taken(diff).source == WHOLE.encode()


@pytest.mark.parametrize(
    "options", ["--label scaffold.py --label x", "-p", "-F class", "-d", "-H", "-a"]
)
def test_a_diff_is_read_whatever_options_of_diff_kept_its_lines(options):
    diff = run_diff("diff", "-u", *options.split(), old=SCAFFOLD, new=WHOLE)
    assert taken(diff).source == WHOLE.encode()


def test_a_diff_may_remove_every_line_of_the_region():
    assert taken(run_diff("diff", "-u", old=SCAFFOLD, new=PREFIX + SUFFIX)).region == b""


OTHER_KINDS = {
    "context": ("diff", "-c"),
    "plain": ("diff",),
    "ed": ("diff", "-e"),
    "RCS": ("diff", "-n"),
    "words": (*GIT, "--word-diff"),
}


@pytest.mark.parametrize("command", OTHER_KINDS.values(), ids=OTHER_KINDS.keys())
def test_another_family_of_diff_is_refused_with_what_is_accepted(command):
    found = refusal(run_diff(*command, old=SCAFFOLD, new=WHOLE))
    assert found.rule == "diff-kind"
    assert "unified" in found.reason
    assert "`diff -u`" in found.advice


QUOTED = {
    "a mail's quotation": "> ",
    "a quotation of a quotation": ">> ",
    "git log --graph": "| ",
    "git log --line-prefix": "it: ",
    "an indented block": "    ",
}


@pytest.mark.parametrize("prefix", QUOTED.values(), ids=QUOTED.keys())
def test_a_diff_whose_lines_all_have_a_prefix_is_refused_with_the_prefix(prefix):
    lines = as_diff(FILLED).split("\n")[:-1]
    for opening in ([], [f"* commit {'a' * 40}"], ["On Monday A wrote:", ""]):
        found = refusal("".join(f"{each}\n" for each in (*opening, *(prefix + x for x in lines))))
        assert (found.rule, found.line) == ("diff-kind", len(opening) + 1)
        assert found.message.startswith(f"`{prefix}` stands before each line")


def test_the_graph_of_git_is_refused_as_such(repository):
    for command in ("log -p --graph -1", "log -p --graph", "log -p -1 --line-prefix=it:"):
        assert "stands before each line" in refusal(repository(*command.split())).message


@pytest.mark.parametrize("prefix", QUOTED.values(), ids=QUOTED.keys())
def test_code_may_quote_a_diff_behind_a_prefix(prefix):
    quoted = "".join(f"{prefix}{each}\n" for each in as_diff(INSIDE, 1).split("\n"))
    for region in (f'NOTE = """\n{quoted}"""\n{FILLED}', f'{FILLED}NOTE = """\n{quoted}"""\n'):
        assert taken(region).form == "region file"


# Code that talks about other things


@pytest.mark.parametrize(
    "text",
    [
        "@@ -1 +1 @@",
        "diff --git a/scaffold.py b/scaffold.py",
        "--- x\n+++ y\n@@ -1 +1 @@\n-a\n+b",
        "*** Begin Patch",
        "***************\n*** 1,2 ****",
        "12c12\n< a\n---\n> b",
        "From 0123456789abcdef Mon Sep 17",
        "Index: scaffold.py",
        "```python\nx = 1\n```",
        "~~~",
        '[{"op": "replace"}]',
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_code_may_quote_a_diff_a_fence_or_json_in_a_string(form, text):
    for region in (f'"""\n{text}\n"""\n{FILLED}', f'{FILLED}NOTE = """\n{text}\n"""\n'):
        accepted = taken(FORMS[form](region))
        assert (accepted.form, accepted.region) == (form, region.encode())


@pytest.mark.parametrize("opening", ["Subject: str", "From: str", "Index: int", "# HG wells: str"])
def test_code_may_begin_like_a_mail_and_quote_a_diff_below(opening):
    region = f'{opening} = "x"\n{FILLED}NOTE = """\n--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n"""\n'
    accepted = taken(region)
    assert (accepted.form, accepted.region) == ("region file", region.encode())


MAIL = (
    f"From {'a' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\nSubject: [PATCH] x\n\n"
    "{}\n---\n scaffold.py | 2 +-\n\n"
    "diff --git a/scaffold.py b/scaffold.py\n--- a/scaffold.py\n+++ b/scaffold.py\n"
)


@pytest.mark.parametrize(
    "message",
    [
        "Run it:\n\n```python\nx = 1\n```\n\nAs before.",
        "@@ -1 +1 @@\n-a\n+b",
        "@@ -70,7 +70,7 @@ is where it is",
        "rename from a\nBinary files a and b differ",
    ],
)
def test_the_message_of_a_mail_may_hold_anything(message):
    mail = MAIL.replace("{}", message)
    for content in (mail, mail.split("\n", 2)[2], with_crlf(mail)):
        assert taken(content + HUNKS + "-- \n2.39.5\n\n").source == WHOLE.encode()


def test_a_hunk_that_stands_in_no_message_is_not_overlooked():
    hidden = "@@ -1 +1 @@\n-a\n+b\n"
    assert refusal(hidden + HEADER + HUNKS).rule == "diff-header"
    assert refusal(MAIL.replace("\n---\n", f"\n---\n{hidden}") + HUNKS).rule == "diff-header"


@pytest.mark.parametrize(
    "marked",
    [
        "```python\n{}```\n",
        "```\n{}",
        "{}```\n",
        "~~~\n{}~~~",
        "My code:\n\n```py\n{}```\nHope it helps!",
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_in_a_fence_of_markdown_is_refused(form, marked):
    content = FORMS[form](FILLED).removesuffix("\n") + "\n"
    assert refusal(marked.replace("{}", content)).rule == "markdown-fence"


# Nothing changed


@pytest.mark.parametrize(
    "content",
    [
        REGION,
        "\n\n" + REGION.rstrip("\n"),
        with_crlf(REGION),
        SCAFFOLD,
        "[]",
        json.dumps([edit(FIRST, LAST, REGION)]),
        f"{HEADER}@@ -{FIRST} +{FIRST} @@\n-class Actor(nn.Module):\n+class Actor(nn.Module):\n",
        as_diff(without_final_lf(REGION) + "\n\n"),
    ],
)
def test_the_scaffolds_own_region_is_refused_as_such(content):
    assert refusal(content).rule == "nothing-changed"


# The canonical patch


@pytest.mark.parametrize(
    "command",
    [("git", "apply"), ("patch", "-p1", "--fuzz=0", "-s", "-i")],
)
@given(LINES, LINES, st.integers(0, 40))
@settings(quick, max_examples=12)
def test_the_canonical_patch_applies_to_a_checkout_with_real_programs(command, head, tail, kept):
    lines = split_lines(REGION)[: kept or None]
    region = "".join(f"{line}\n" for line in head) + "".join(lines)
    region += "".join(f"{line}\n" for line in tail) or "x\n"
    source = (PREFIX + region + SUFFIX).encode()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tasks" / TASK / "scaffold.py"
        path.parent.mkdir(parents=True)
        path.write_bytes(SCAFFOLD.encode())
        patch = Path(directory) / "canonical.patch"
        patch.write_bytes(canonical_patch(source, task))
        done = subprocess.run([*command, patch.name], cwd=directory, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), done
        assert path.read_bytes() == source
        assert sorted(each.name for each in path.parent.iterdir()) == ["scaffold.py"]


def test_the_canonical_patch_names_the_task_and_nothing_of_the_machine():
    region = REGION.replace("class Actor(", "x = 1\nclass Actor(")
    assert canonical_patch((PREFIX + region + SUFFIX).encode(), task).decode() == (
        f"--- a/tasks/{TASK}/scaffold.py\n+++ b/tasks/{TASK}/scaffold.py\n"
        f"@@ -{FIRST - 3},6 +{FIRST - 3},7 @@\n"
        + "".join(f" {line}" for line in split_lines(PREFIX)[-3:])
        + "+x = 1\n"
        + "".join(f" {line}" for line in split_lines(REGION)[:3])
    )


def test_the_canonical_patch_of_something_else_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="not the scaffold"):
        canonical_patch(b"import os\n" + WHOLE.encode(), task)


@pytest.mark.parametrize(
    "line", ["\n", REGION, SCAFFOLD, "\nx\n" + 200 * "{}\n", REGION[::-1].strip() + "\n"]
)
def test_the_canonical_patch_of_a_hostile_region_comes_at_once(line):
    counted = (line.replace("{}", str(number)) for number in range(task.region.max_bytes))
    region, size = "", task.region.max_bytes
    for each in counted:
        if len(region) + len(each) > size:
            break
        region += each
    source = (PREFIX + region + SUFFIX).encode()
    started = time.process_time()
    patch = canonical_patch(source, task)
    assert time.process_time() - started < 0.3
    assert taken(patch).source == source


# Whatever is handed in


MUTATED_FROM = {form: make(FILLED + "# é\n") for form, make in FORMS.items()} | {
    "without context": as_diff(FILLED, 0),
    "several edits": json.dumps(
        [edit(FIRST, LAST, FILLED), edit(FIRST, FIRST, "x\n"), edit(FIRST + 1, FIRST + 2, "")],
        indent=0,
    ),
    "of git": run_diff(*GIT, old=SCAFFOLD, new=WHOLE),
    "canonical": canonical_patch(WHOLE.encode(), task).decode(),
}  # fmt: skip
VALUES = [
    *("0", "-1", "true", "null", "1.0", "1e999", "NaN", '""', "[]", "{}", "9" * 5000),
    *('"\\ud800"', '"\\u0000"', '"../scaffold.py"', str(FIRST - 1), str(LAST), str(LAST + 1)),
]
PIECES = [*'\n\r\x00\ufeff\u2028\x0c+- "\\', "", "\r\n", "@@"]


@pytest.mark.parametrize("form", MUTATED_FROM)
@given(st.data())
@settings(quick, max_examples=40)
def test_a_mutated_form_changes_the_region_alone_or_is_refused(form, data):
    content = MUTATED_FROM[form]
    for _ in range(data.draw(st.integers(1, 3))):
        lines = split_lines(content) or [""]
        at = data.draw(st.integers(0, len(lines) - 1))
        cut = data.draw(st.integers(0, len(lines[at])))
        match data.draw(st.sampled_from(["drop", "double", "swap", "piece", "number", "value"])):
            case "drop":
                del lines[at]
            case "double":
                lines.insert(at, data.draw(st.sampled_from(lines)))
            case "swap":
                lines[at] = data.draw(st.sampled_from(lines))
            case "piece":
                lines[at] = (
                    lines[at][:cut] + data.draw(st.sampled_from(PIECES)) + lines[at][cut + 1 :]
                )
            case "number":
                digit = data.draw(st.sampled_from("0123456789"))
                lines[at] = lines[at].replace(digit, data.draw(st.sampled_from("0179")), 1)
            case "value":
                parts = lines[at].split(": ")
                parts[-1] = (
                    data.draw(st.sampled_from(VALUES))
                    + ("," if data.draw(st.booleans()) else "")
                    + "\n"
                )
                lines[at] = ": ".join(parts)
        content = "".join(lines)
    try:
        accepted = taken(content.encode("utf-8", "surrogatepass"))
    except Refused as refused:
        for found in refused.findings:
            assert found.render().replace("\n", "").isprintable()
        return
    assert accepted.source == PREFIX.encode() + accepted.region + SUFFIX.encode()
    if accepted.form in ("region file", "whole file"):
        read_as = accepted.source if accepted.form == "whole file" else accepted.region
        plain = content.removeprefix("\ufeff").replace("\r\n", "\n")
        assert read_as.decode() == plain.removesuffix("\n") + "\n"
    assert accepted.region.endswith(b"\n") or not accepted.region
    assert taken(canonical_patch(accepted.source, task)).source == accepted.source


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(quick, max_examples=100)
def test_no_bytes_raise_anything_but_a_refusal(content):
    with contextlib.suppress(Refused):
        taken(content)
    with contextlib.suppress(Refused):
        taken(as_edits(FILLED).encode()[:-40] + content)


@pytest.mark.parametrize(
    "content",
    [
        "\n" * 250_000 + "x",
        "[" + "{},\n" * 60_000 + "{}]",
        "[" + ",".join([json.dumps(edit(FIRST, FIRST, "\n" * 80))] * 800) + "]",
        "{" + ",".join(f'"{number}": 1' for number in range(20_000)) + "}",
        HEADER + "@@ -1 +1 @@\n" * 15_000,
        HEADER + "@@ -1,9 +1,9 @@\n" + "[-{+" * 50_000 + "\n",
        "diff --git a/scaffold.py b/scaffold.py\n" * 5_000,
        "--- " + '"' + "\\303" * 50_000 + '"\n+++ x\n@@ -1 +1 @@\n-x\n',
        "Binary files " * 19_000,
        HEADER + "@@ -1,262144 +1,262144 @@\n" + "\n" * 262_000,
        HEADER + "@@ -1,9 +1,9 @@\n" + " \n" * 130_000,
        HEADER + "@@ -1,50000 +1,50000 @@\n" + "\n" * 49_999 + "+\n" * 100_000,
        "> @@ -1 +1 @@\n" * 18_000,
        f"From {'a' * 40}\n" + "@@ -1 +1 @@\n" * 20_000,
        f"{REGION_BEGINS}\n" * 7_000,
        PREFIX + "\n" * 240_000 + SUFFIX,
    ],
)
def test_no_form_makes_the_host_slow(content):
    started = time.process_time()
    with contextlib.suppress(Refused):
        taken(content)
    assert time.process_time() - started < 2


# Attacks: lines outside the region


INSIDE = REGION.replace('"write update"', '"x"')


@pytest.mark.parametrize("by", [-1, 1, -40, 40])
@pytest.mark.parametrize("context", [0, 3])
def test_a_hunk_that_drifted_is_refused_and_told_where_it_fits(by, context):
    before, start, after = re.split(r"(?<=@@ -)(\d+)", as_diff(INSIDE, context), maxsplit=1)
    found = refusal(f"{before}{int(start) + by}{after}")
    assert found.rule == "diff-placement"
    assert found.message.endswith(f"it would fit at line {start}")


def test_the_numbers_of_a_hunk_are_written_in_ascii():
    diff = as_diff(INSIDE)
    fullwidth = str.maketrans("0123456789", "０１２３４５６７８９")
    [header] = re.findall("@@ .*", diff)
    assert refusal(diff.replace(header, header.translate(fullwidth))).rule == "diff-header"


def test_a_hunk_of_more_lines_than_any_region_has_is_refused_by_its_header():
    found = refusal(f"{HEADER}@@ -1,262144 +1,262144 @@\n" + "\n" * 261_000)
    assert (found.rule, found.line) == ("diff-counts", 3)
    assert "declares 262,144 lines; at most 50,000" in found.message


def test_more_than_blank_lines_at_the_end_of_a_diff_is_not_supplied():
    added = "".join(f"+{number}\n" for number in range(4))
    for counts in (f"-{LAST},4 +{LAST},8", f"-{LAST},1 +{LAST},6", f"-{LAST},3 +{LAST},6"):
        assert refusal(f"{HEADER}@@ {counts} @@\n{added}").rule == "diff-counts"
    assert refusal(f"{HEADER}@@ -1 +1 @@\n").rule == "diff-counts"
    # What is supplied has to stand in the scaffold as well.
    cut = as_diff(INSIDE).rstrip().rsplit("\n", 1)[0]
    assert refusal(cut).rule == "diff-placement"


def test_context_that_almost_fits_is_refused():
    diff = as_diff(INSIDE)
    assert refusal(diff.replace(" raise", "  raise")).rule == "diff-placement"
    assert refusal(diff.replace("\n \n", "\n+\n", 1)).rule == "diff-counts"


def outside(change: Callable[[str], str]) -> list[str]:
    return [
        run_diff("diff", f"-U{context}", old=SCAFFOLD, new=change(WHOLE)) for context in (0, 1, 3)
    ] + [change(WHOLE)]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("import math\n", "import math, os\n", 1),
        lambda text: text.replace("import math\n", "", 1),
        lambda text: text.replace(f"\n{REGION_BEGINS}", f"\nx = 1\n{REGION_BEGINS}"),
        lambda text: text.replace(f"{REGION_ENDS}\n", f"{REGION_ENDS}\nx = 1\n"),
        lambda text: text.replace(f"{REGION_ENDS}\n\n", f"{REGION_ENDS}\n"),
        lambda text: "\ufeff" + text,
        lambda text: text + "x = 1\n",
        lambda text: text.replace("\ndef act(", "\u2028def act("),
        lambda text: text.replace("    env.export(", "\tenv.export("),
    ],
)
def test_a_line_outside_the_region_is_refused_in_every_form(change):
    for content in outside(change):
        if content == "\ufeff" + WHOLE:
            continue  # A byte-order mark of the file itself is dropped and said.
        assert refusal(content).rule == "outside-region"


# Attacks: line counts


@pytest.mark.parametrize("forged", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
@pytest.mark.parametrize("form", FORMS)
def test_other_separators_are_text_and_end_no_line(form, forged):
    region = FILLED + f"# a{forged}{REGION_ENDS}{forged}b\n"
    accepted = taken(FORMS[form](region))
    assert accepted.source == (PREFIX + region + SUFFIX).encode()
    assert len(accepted.where) == accepted.source.count(b"\n")


@pytest.mark.parametrize(
    ("forge", "rule"),
    [
        (lambda text: text.replace(b"TD3", b"T\x00", 1), "control-characters"),
        (lambda text: text.replace(b"TD3", b"T\r3", 1), "line-endings"),
        (lambda text: text.replace(b"TD3", b"T\xff3", 1), "encoding"),
        (lambda text: text.replace(b"TD3", b"T\xed\xa0\x803", 1), "encoding"),
        (lambda text: text.replace(b"TD3", b"T\x1b[0m", 1), "control-characters"),
        (lambda text: text.decode().encode("utf-16"), "encoding"),
        (lambda text: text.decode().encode("utf-16-le"), "control-characters"),
        (lambda text: b"\xff\xfe\x00\x00" + text.decode().encode("utf-32-le"), "encoding"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_bytes_that_are_no_plain_text_are_refused_in_every_form(form, forge, rule):
    assert refusal(forge(FORMS[form](FILLED).encode())).rule == rule


@pytest.mark.parametrize("form", [each for each in FORMS if each != "list of edits"])
def test_one_crlf_among_lf_is_refused_in_every_form(form):
    content = FORMS[form](FILLED)
    lines = split_lines(content)
    at = next(number for number, line in enumerate(lines) if "NOISE_CLIP = " in line)
    found = refusal("".join([*lines[:at], with_crlf(lines[at]), *lines[at + 1 :]]))
    assert (found.rule, found.line) == ("line-endings", at + 1)


# Attacks: other files


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../scaffold.py", "`..`"),
        ("a/b/../../scaffold.py", "`..`"),
        ("/../scaffold.py", "`..`"),
        ("..\\scaffold.py", "`..`"),
        ('"a/\\056\\056/scaffold.py"', "`..`"),
        (".git/scaffold.py", "`.git`"),
        ("/home/me/.git/scaffold.py", "`.git`"),
        ('"a/.\\147it/scaffold.py"', "`.git`"),
        ("a/tasks/rl-value-atari/scaffold.py", "`rl-value-atari`"),
        ("task.toml", "`task.toml`"),
        ("/etc/passwd", "`passwd`"),
        ("scaffold.pyc", "`scaffold.pyc`"),
        ("Scaffold.py", "`Scaffold.py`"),
        ("scaffold.py/", "``"),
        ("xscaffold.py", "`xscaffold.py`"),
    ],
)
def test_no_other_file_is_changed_in_any_form(name, says):
    content = f"--- {name}\n+++ scaffold.py\n{HUNKS}"
    assert (refusal(content).rule, refusal(content).line) == ("wrong-file", 1)
    assert says in refusal(content).message
    if not name.startswith('"'):
        content = json.dumps([edit(FIRST, LAST, FILLED, filename=name)])
        assert refusal(content).rule == "wrong-file"
        assert says in refusal(content).message


GIT_HEADER = "diff --git a/scaffold.py b/scaffold.py\n"


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (GIT_HEADER + "similarity index 90%\n", "diff-rename"),
        (GIT_HEADER + "rename from x.py\nrename to scaffold.py\n", "diff-rename"),
        (GIT_HEADER + "copy from x.py\ncopy to scaffold.py\n", "diff-rename"),
        (GIT_HEADER + "dissimilarity index 90%\n", "diff-rename"),
        (GIT_HEADER + "old mode 100644\nnew mode 100755\n", "diff-mode"),
        (GIT_HEADER + "new file mode 120000\n", "diff-mode"),
        (GIT_HEADER + "deleted file mode 100644\n", "diff-mode"),
        (GIT_HEADER + "GIT binary patch\n", "diff-binary"),
        (GIT_HEADER + "Binary files a/scaffold.py and b/scaffold.py differ\n", "diff-binary"),
        ("Binary files old/weights and new/weights differ\n", "diff-binary"),
        ("Binary file weights.npz has changed\n", "diff-binary"),
        ("diff --git a/../x b/../x\n", "wrong-file"),
        ("diff --git a/setup.py b/setup.py\n", "wrong-file"),
        ("diff --git a/scaffold.py.orig b/xscaffold.py\n", "wrong-file"),
        ("diff --git a/.git/config b/.git/config\n", "wrong-file"),
        (f"diff --git a/x b/x\n{GIT_HEADER}", "diff-several"),
    ],
)  # fmt: skip
def test_a_patch_that_asks_for_more_than_text_is_refused_whole(content, rule):
    assert refusal(content + HEADER + HUNKS).rule == rule


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", "diff-several"),
        ("diff --git a/x b/x\nnew file mode 100644\n", "diff-several"),
        (f"From {'a' * 40} Mon Sep 17 00:00:00 2001\n", "diff-several"),
        (f"\ncommit {'a' * 40}\nAuthor: A\n", "diff-several"),
        ("\nProperty changes on: scaffold.py\n" + "_" * 67 + "\nAdded: svn:special\n", "diff-mode"),
        ("Only in new: weights.npz\n", "diff-trailing"),
        ("```\n", "markdown-fence"),
        ("Hope this helps!\n", "diff-trailing"),
        ("-- \n2.39.5\n+import os\n", "diff-trailing"),
        ("--\n-x\n+y\n", "diff-trailing"),
        ("-- \n2.39.5\n--- x\n", "diff-trailing"),
    ],
)
def test_what_follows_a_patch_is_refused_whole(content, rule):
    assert refusal(HEADER + HUNKS + content).rule == rule


def test_no_path_that_is_named_is_opened(tmp_path, monkeypatch):
    """A link named scaffold.py, where the patch says that it is: nobody looks."""
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "scaffold.py").symlink_to("secret")
    monkeypatch.chdir(tmp_path)
    content = f"--- {tmp_path}/scaffold.py\n+++ scaffold.py\n{HUNKS}"
    assert taken(content).source == WHOLE.encode()
    assert (tmp_path / "secret").read_text() == "kept"


# Attacks: the file itself


def test_what_is_judged_is_what_was_read_whatever_becomes_of_the_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILLED)
    once = read(path)
    path.write_text("import os\n")
    accepted = judge(task, assemble(task, once))
    path.unlink()
    path.symlink_to("/dev/zero")
    assert accepted.source == WHOLE.encode()
    assert accepted.original == FILLED.encode()


def test_a_link_leads_to_a_file_and_to_nothing_else(tmp_path):
    (tmp_path / "mine.py").write_text(FILLED)
    os.mkfifo(tmp_path / "pipe")
    for target, rule in (("mine.py", None), ("pipe", "file-kind"), ("/dev/zero", "file-kind"),
                         ("/", "file-kind"), ("link", "file-unreadable")):  # fmt: skip
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        if rule is None:
            assert read(tmp_path / "link").content == FILLED.encode()
            continue
        with pytest.raises(Refused) as caught:
            read(tmp_path / "link")
        assert caught.value.findings[0].rule == rule


def read_standard_input(redirection: str, content: bytes = b"") -> str:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from harness.intake.refusals import Refused\n"
        "from harness.intake.submission import read\n"
        "try: print(len(read(Path('-')).content))\n"
        "except Refused as refused: print(refused)\n"
    )
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, program],
        input=content,
        capture_output=True,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("redirection", "content", "says"),
    [
        ("", FILLED.encode(), str(len(FILLED.encode()))),
        ("", b"", "0"),
        ("", b"#" * 300_000, "error[file-size]"),
        ("<&-", b"", "standard input is closed"),
        ("</dev/zero", b"", "error[file-size]"),
    ],
)
def test_standard_input_is_read_to_its_end_or_refused(redirection, content, says):
    assert says in read_standard_input(redirection, content)
