"""The rules that a submission is held against: the one table of rule, reason and advice.

Checks name a rule by its id and say what they found; reason and advice stand here alone. Numbers
stand where they are held: a message gives them, and so does the rulebook.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """What a rule protects, and what to do when it is broken."""

    reason: str
    advice: str
    warns: bool = False
    """Said, and no ground for a refusal."""


FORMS = (
    "a region file (the code between the banner lines), a whole scaffold file, a unified diff "
    "against scaffold.py or a JSON list of edits"
)

_FILE: dict[str, Rule] = {
    "file-unreadable": Rule(
        "A submission is one file that this user can read.",
        "Check the path and its permissions.",
    ),
    "file-kind": Rule(
        "A submission is a regular file: pipes, devices and directories can block or never end.",
        "Save the submission as a file and name that file.",
    ),
    "file-size": Rule(
        "What is read of a submission is bounded; code needs far less.",
        f"Hand in {FORMS}, and nothing else.",
    ),
    "encoding": Rule(
        "Submissions are UTF-8 text.",
        "Save the file as UTF-8. In Windows PowerShell, `git diff > x.patch` writes UTF-16: use "
        "`git diff --output=x.patch`.",
    ),
    "control-characters": Rule(
        "Control characters can hide text from a reader, and colours break a diff.",
        "Remove the character. For a coloured diff: `git diff --no-color`; if U+0000 is in many "
        "places, the file is UTF-16: save it as UTF-8.",
    ),
    "line-endings": Rule(
        "Lines end in LF. A file that uses CRLF throughout is converted; a mixture is ambiguous.",
        "Convert the file to LF, for instance with `dos2unix`; write a CR in a string as \\r.",
    ),
    "empty": Rule(
        "A submission has to bring code.",
        f"Hand in {FORMS}.",
    ),
}

_FORM: dict[str, Rule] = {
    "whole-file": Rule(
        "Text with a banner line, or the scaffold's first lines, is a whole scaffold file: one "
        "region between two banner lines.",
        "Hand in the scaffold with both banner lines, once each, or only the lines between them, "
        "without the banners.",
    ),
    "json-edits": Rule(
        "JSON is read as a list of edits, and each says exactly what it replaces.",
        'Write [{"op": "replace", "filename": "scaffold.py", "start_line": 70, "end_line": 72, '
        '"content": "..."}], with the lines of your edit, or hand in another form.',
    ),
    "edit-range": Rule(
        "An edit replaces lines of the editable region, counted from 1 in the file as the edits "
        "before have left it; the region grows and shrinks with them.",
        "Correct the line numbers of this edit, or replace the region as a whole by one edit.",
    ),
    "wrong-file": Rule(
        "A submission changes one file, the scaffold of its task.",
        "Name this task's scaffold.py, by a path without `..` or `.git`: make the diff where both "
        "files lie, or name them by `diff -u --label scaffold.py --label mine.py`.",
    ),
    "markdown-fence": Rule(
        "A submission is code, without the markup of a chat or a web page.",
        "Remove the fence lines and whatever stands outside them.",
    ),
    "diff-kind": Rule(
        "Of the kinds of diff only the unified one is accepted.",
        "Make it with `git diff` or `diff -u`, without options that change its lines.",
    ),
}

_DIFF: dict[str, Rule] = {
    "diff-header": Rule(
        "A unified diff names its file (`--- scaffold.py`, `+++ ...`) before its first hunk "
        "(`@@ -start,count +start,count @@`).",
        "Make the diff with `git diff` or `diff -u` and leave its lines as they are.",
    ),
    "diff-several": Rule(
        "A submission changes one file, in one commit.",
        "Leave the other changes out: `git diff COMMIT -- path/to/scaffold.py`.",
    ),
    "diff-rename": Rule(
        "The scaffold keeps its name and its place.",
        "Change the file where it is; `git diff --no-renames` shows a change as a change.",
    ),
    "diff-mode": Rule(
        "The scaffold is neither made, deleted nor given another mode.",
        "Leave the mode alone (`git -c core.fileMode=false diff`) and diff against the scaffold "
        "of the task.",
    ),
    "diff-binary": Rule(
        "The scaffold is text.",
        "Make the diff with `git diff --text` from a UTF-8 file.",
    ),
    "diff-counts": Rule(
        "A hunk's header says how many lines it has; a wrong count hides what was meant.",
        "Make the diff anew with a tool; after editing one by hand, `recountdiff` corrects it.",
    ),
    "diff-order": Rule(
        "Hunks follow each other in the order of the file and do not overlap.",
        "Make the diff anew with `git diff` or `diff -u`.",
    ),
    "diff-placement": Rule(
        "A hunk stands where its old line numbers say; nothing is searched for or guessed.",
        "Make the diff against the scaffold of this version of the task.",
    ),
    "diff-newline": Rule(
        "Only the last line of a file can be without a line end.",
        "Remove the line `\\ No newline at end of file` or make the diff anew.",
    ),
    "diff-trailing": Rule(
        "After the last hunk only blank lines, git's trailers or a signature (`-- `) may follow, "
        "and no line that could be part of a hunk.",
        "Remove what follows the diff.",
    ),
}

_RESULT: dict[str, Rule] = {
    "outside-region": Rule(
        "A submission may change the editable region alone; the rest stays byte for byte.",
        "Take this change back. What you need can be defined inside the region.",
    ),
    "nothing-changed": Rule(
        "The result is the scaffold as it was.",
        "Fill the region with an algorithm.",
    ),
    "region-size": Rule(
        "The region's size is bounded, so that it cannot carry trained weights.",
        "Shorten the region.",
    ),
}

_TEXT: dict[str, Rule] = {
    "banner-line": Rule(
        "The banner lines mark the region's ends, once each, and belong to the fixed part.",
        "Remove the line.",
    ),
    "invisible-characters": Rule(
        "Characters that are invisible, change the direction or have no meaning make code read "
        "otherwise than it runs.",
        "Remove the character; inside a string, write it as an escape such as \\u200b.",
    ),
    "type-comment": Rule(
        "Where `torch.jit` is used, it evaluates what stands behind `# type:` in a line.",
        "Write the types as annotations; `# type: ignore[code]` may stand at a line's end.",
    ),
    "identifier": Rule(
        "Names are read as they look: in Latin letters, or Greek ones that resemble no Latin one.",
        "Write the name with ordinary letters.",
    ),
    "syntax": Rule(
        "The region has to be Python that parses on its own, without the lines around it.",
        "Correct the line, or what stands open before it.",
    ),
    "too-heavy": Rule(
        "The region is parsed under limits of memory and time.",
        "Simplify deeply nested or repeated expressions.",
    ),
    "too-deep": Rule(
        "The nesting of code is bounded, so that parsing it is, too.",
        "Split the expression or the chain of `elif` into several.",
    ),
    "carried-data": Rule(
        "Long literals and names, and many short ones, carry data, such as trained weights.",
        "Compute the values, or shorten what is written out; docstrings and comments may be long.",
    ),
}

_DEFINITIONS: dict[str, Rule] = {
    "missing-class": Rule(
        "The scaffold looks these classes up by name.",
        "Define the class at the top level of the region.",
    ),
    "missing-method": Rule(
        "The scaffold calls these methods.",
        "Define the method in the class, or in a class of the region that it derives from.",
    ),
    "fixed-name": Rule(
        "Names that the fixed part defines keep their meaning; importing the same module under "
        "the same name is fine.",
        "Choose another name.",
    ),
    "fixed-builtin": Rule(
        "The fixed part uses this builtin and must get Python's own.",
        "Choose another name, at the top level of the region; inside functions it is free.",
    ),
}

_LIBRARIES: dict[str, Rule] = {
    "import": Rule(
        "A region may import torch, numpy and a part of the standard library.",
        "Do without this module.",
    ),
    "import-form": Rule(
        "Imports say what they bring.",
        "Import the module, or the names that are needed, by absolute path.",
    ),
    "library-private": Rule(
        "What a library keeps for itself, its files and its tools lead past the other rules.",
        "Use the library's public, numerical part.",
    ),
    "module-value": Rule(
        "A module is used by attributes that are written out, so that a reader can see them.",
        "Write `torch.relu` where it is needed, or bind that: `relu = torch.relu`. Import modules "
        "outside of classes, each under a name of its own.",
    ),
    "fixed-attribute": Rule(
        "What the fixed part and the libraries define keeps its meaning, attributes included.",
        "Set it on an object of your own, or write a subclass or a function.",
    ),
}

_NAMES: dict[str, Rule] = {
    "refused-name": Rule(
        "This name runs text as code, reaches the interpreter or the machine.",
        "Do without it; if it is a name of your own, choose another.",
    ),
    "refused-attribute": Rule(
        "This attribute leads from a library to the interpreter or the machine.",
        "Do without it; if it is a name of your own, choose another.",
    ),
    "special-name": Rule(
        "Names with two underscores at both ends belong to Python; a region may define a list of "
        "them (`__init__`, `__call__`, `__len__`, ...), and read a shorter one.",
        "Do without it. `__copy__`, `__deepcopy__`, `__getstate__` and `__setstate__` say how an "
        "object is copied. In a method, `super().__setattr__(...)` reaches what the class defines; "
        "`super().__getstate__()` gives what `__dict__` holds.",
    ),
    "computed-attribute": Rule(
        "Attribute names are written out, so that a reader can see them.",
        'Give a literal name, `getattr(args, "gamma", 0.99)`, `case C(name=x)`, or use a dict or '
        "nn.ModuleDict.",
    ),
    "builtin-value": Rule(
        "Passed around, this builtin makes classes, sets attributes or catches signals unseen.",
        "Write `type(x)` with one argument, `isinstance(x, type)`, a base `object`, `Exception`; "
        "if it is a name of your own, choose another.",
    ),
    "call-form": Rule(
        "In other forms this function reads or sets attributes, or runs text, by computed names.",
        "Write `@dataclass` directly above its class, `name: type = field(...)` in such a class, "
        "`@functools.wraps(function)` above a `def`, `with warnings.catch_warnings():`, `super()`, "
        "`torch.compile(function)` with literal options, and an f-string for `format`.",
    ),
    "metaclass": Rule(
        "Classes are written as class statements, without metaclasses.",
        "Write an ordinary class and name its bases. Another object of x's class: `type(x)(a=1, "
        "b=2)`, or `type(self)(1, 2)`.",
    ),
    "broad-except": Rule(
        "A handler that catches everything, or a `finally` that is left before its end, also "
        "swallows the signals that end a run.",
        "Catch `Exception` or something narrower, and let `finally` run to its end.",
    ),
    "global-statement": Rule(
        "Functions do not rebind names of the module.",
        "Keep the value in an attribute of an object.",
    ),
}

_TRIAL: dict[str, Rule] = {
    "parameter-budget": Rule(
        "What an algorithm may hold is measured by the largest reference at the same shapes, every "
        "network counted, targets too.",
        "Make the named parts smaller, or do without one.",
    ),
    "policy-bytes": Rule(
        "The exported policy's bytes are capped: they bound what training can carry into "
        "evaluation.",
        "Make the policy smaller. It is exported with all that its attributes reach: keep other "
        "networks, replay data and optimizers out of it.",
    ),
    "trial-crashed": Rule(
        "A submission is tried on made-up data before it trains: built, updated a few times, "
        "exported and asked, at the shapes of every environment.",
        "Correct what the message or the traceback shows; do not exit. Sizes come from what the "
        "algorithm is built with alone: obs_dim and action_dim, envs, or observation_dim, "
        "action_dim and config.",
    ),
    "bad-action": Rule(
        "Actions are arrays of the shape and the kind of numbers that the task names.",
        "Return finite numbers, (action_dim,) from select_action and (B, action_dim) from "
        "get_action or sample_actions; where actions are numbered, integers (1,) from "
        "select_action, each from 0 to n - 1, and finite values (B, n) from QNetwork.",
    ),
    "reload-differs": Rule(
        "A policy is scored after its export, in another process that runs the same source.",
        "Keep all that acting needs in parameters, in buffers (`register_buffer`) or in plain "
        "attributes of the exported module, and no lambda among them; draw from numpy's or torch's "
        "global generators, or from one that is such an attribute.",
    ),
    "held-out-shapes": Rule(
        "A submission is tried at the shapes of held-out environments too, and nothing of them is "
        "shown to a submitter.",
        "Take sizes and bounds from what the algorithm is built with alone (obs_dim, action_dim "
        "and max_action, or envs), and nothing from a table; stay within the budget for larger and "
        "smaller ones.",
    ),
    "trial-protocol": Rule(
        "A submission talks to its host through the scaffold alone.",
        "Leave the guest's connection and its modules alone.",
    ),
    "trial-limits": Rule(
        "The trial's time and memory are bounded; a few updates at small batches need far less.",
        "Look at the line where it stood: make that part faster or smaller, or end its loop.",
    ),
}

_WARNINGS: dict[str, Rule] = {
    "repeated-definition": Rule(
        "Of two definitions of one name the later counts, silently: often the rest of an edit.",
        "Remove the one that is not meant, or give it another name.",
        warns=True,
    ),
    "undefined-name": Rule(
        "A name that is defined nowhere raises NameError when its line runs, which may be hours "
        "into a training.",
        "Correct the spelling, or define or import it.",
        warns=True,
    ),
    "unreachable-code": Rule(
        "What follows `return`, `raise`, `continue` or `break` in its block never runs.",
        "Remove it, or move it before that line.",
        warns=True,
    ),
}

GROUPS: dict[str, dict[str, Rule]] = {
    "The file": _FILE,
    "The form": _FORM,
    "A unified diff": _DIFF,
    "The result": _RESULT,
    "The region's text": _TEXT,
    "What the region defines": _DEFINITIONS,
    "Imports and libraries": _LIBRARIES,
    "Names and constructs": _NAMES,
    "The trial in a sandbox": _TRIAL,
    "Warnings": _WARNINGS,
}
"""The rules as a reader meets them, by what they are about."""

RULES = {name: rule for rules in GROUPS.values() for name, rule in rules.items()}
