"""What an evaluation is: made into a manifest at its first start, compared at every later one."""

import hashlib
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from harness import machine
from harness.intake.submission import Submission
from harness.numerics import STOCK
from harness.records import Manifest, Plan, PlannedRun
from harness.task import Environment, HeldOut, Planned, Profile, Task, content_hash, plan
from sandbox.base import Sandbox

_NOT_COMPARED = frozenset({"created", "form", "scales", "ranked", "ranked_reason", "numerics"})
"""Fields of a manifest that may differ between a start and its resume: dates, wording, and numeric
backends, which a resume takes from the manifest whatever it would choose itself. (The numbers of
scales are in the hashes of the profile and of the held-out list.)"""

_OF_THE_MACHINE = frozenset({"python", "packages", "datasets"})
"""Fields that matter as long as something is still to be run."""


class ManifestDiffers(Exception):
    """The evaluation was begun under other conditions; the message names each."""


class Conditions(NamedTuple):
    """Everything but the submission that an evaluation is begun with."""

    task: Task
    profile: Profile
    heldout: HeldOut | None
    heldout_kind: Literal["none", "example", "own"]
    sandbox: Sandbox
    device: str
    numerics: Mapping[str, str]
    datasets: Mapping[str, str] = {}
    """SHA-256 of each environment's training file, by its id, where the task is offline."""


def make_plan(conditions: Conditions) -> Plan:
    """What workers need to know, frozen."""
    return plan_of(conditions.task, conditions.profile, _environments(conditions))


def plan_of(task: Task, profile: Profile, environments: tuple[Planned, ...]) -> Plan:
    """The numbers of a task that bear on the runs of those environments."""
    return Plan(
        task=task.name,
        task_version=task.version,
        profile=profile,
        environments=environments,
        budget=task.budget,
        constants=task.constants,
    )


def evaluation_id(
    task: Task, profile: Profile, name: str, source_sha256: str, heldout: str, stock: bool
) -> str:
    """`<name>-<hash>`. `heldout` as in a manifest: "none", "example" or "own".

    Without the held-out list's hash: a submitter sees the id, and could confirm a guess with it.
    """
    identity = [task.name, task.version, profile.name, name, source_sha256, heldout]
    if stock:
        identity.append("stock")  # an evaluation of its own, beside the one that it is held against
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return f"{_safe(name)}-{digest[:12]}"


def make_manifest(
    conditions: Conditions, accepted: Submission, name: str, key_fingerprint: str
) -> Manifest:
    """What the evaluation is, under the present conditions."""
    task, profile = conditions.task, conditions.profile
    environments = _environments(conditions)
    heldout = conditions.heldout_kind if any(each.heldout for each in environments) else "none"
    sandbox, stock = conditions.sandbox, conditions.numerics == STOCK
    unranked = why_unranked(profile, sandbox.name, sandbox.confined, stock, environments)
    return Manifest(
        evaluation=evaluation_id(task, profile, name, accepted.sha256, heldout, stock),
        name=name,
        form=accepted.form,
        task=task.name,
        task_version=task.version,
        profile=profile.name,
        source_sha256=accepted.sha256,
        scaffold_sha256=hashlib.sha256(task.scaffold).hexdigest(),
        profile_sha256=profile_hash(task, profile),
        heldout=heldout,
        heldout_sha256=conditions.heldout.digest(profile.name) if conditions.heldout else None,
        key_fingerprint=key_fingerprint,
        sandbox=sandbox.name,
        confined=sandbox.confined,
        ranked=not unranked,
        ranked_reason=unranked,
        device=conditions.device,
        python=platform.python_version(),
        packages=machine.package_versions(),
        numerics=dict(conditions.numerics),
        runs=tuple(
            PlannedRun(environment=each.environment.id, heldout=each.heldout, seed=seed)
            for each in environments
            for seed in profile.seeds
        ),
        scales={each.environment.id: each.scale for each in environments if each.scale},
        datasets=dict(conditions.datasets),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def profile_hash(task: Task, profile: Profile) -> str:
    """SHA-256 of all that a profile fixes; held-out environments have a hash of their own."""
    return content_hash(plan_of(task, profile, plan(task, profile, None)))


def run_hash(plan: Plan, environment: Environment) -> str:
    """SHA-256 of what fixes a run's raw return beside its source: neither scales nor limits.

    So reference runs stay what they are when the scales are frozen from them.
    """
    several = {"scored_exports"} if plan.profile.scored_exports else set()
    fixed = {
        "task_version": plan.task_version,
        "constants": dict(plan.constants),
        "environment": environment.model_dump(
            exclude={
                *("reference_parameters", "reference_policy_parameters", "floor"),
                *("evaluation_mib", "sha256", "validation_sha256"),
            }
        ),
        "profile": plan.profile.model_dump(
            include={
                "total_timesteps",
                "learning_starts",
                "buffer_size",
                "eval_freq",
                "eval_episodes",
                "final_episodes",
            }
            | several
        ),
    }
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def obey(manifest: Manifest, fresh: Manifest, finished: bool) -> None:
    """Raises ManifestDiffers where the present conditions are not those that it was begun under."""
    before, now = manifest.model_dump(), fresh.model_dump()
    # Packages that it does not name were of no use to it then.
    kept = {name: now["packages"].get(name) for name in before["packages"]}
    changed = {name for name, version in kept.items() if version != before["packages"][name]}
    for each in (before, now):
        each["packages"] = {name: each["packages"].get(name) for name in sorted(changed)}
    for id_ in {*before["datasets"], *now["datasets"]}:
        if before["datasets"].get(id_) == now["datasets"].get(id_):
            before["datasets"].pop(id_, None)  # What differs is what is named.
            now["datasets"].pop(id_, None)
    ignored = _NOT_COMPARED | (_OF_THE_MACHINE if finished else frozenset())
    different = [
        f"  {field}: begun with {_short(before[field])}, now {_short(now[field])}"
        for field in before
        if field not in ignored and before[field] != now[field]
    ]
    if different:
        raise ManifestDiffers(
            f"{manifest.evaluation} was begun under other conditions:\n"
            + "\n".join(different)
            + "\nRestore them to go on with it, or evaluate under another name (NAME=...)."
        )


def _environments(conditions: Conditions) -> tuple[Planned, ...]:
    return plan(conditions.task, conditions.profile, conditions.heldout)


def why_unranked(
    profile: Profile,
    sandbox: str,
    confined: bool,
    stock: bool,
    environments: tuple[Planned, ...],
) -> str:
    """Why no such evaluation is ranked; empty where it is."""
    if not profile.ranked:
        return f"the profile {profile.name} is never ranked"
    if not confined:
        return f"the sandbox {sandbox} confines nothing"
    if stock:
        return "STOCK=1 is for comparison"
    if not any(each.heldout for each in environments):
        return "no held-out environments"
    without = [each.environment.id for each in environments if each.scale is None]
    if without:
        return f"no scale for {', '.join(without)}"
    provisional = [
        each.environment.id for each in environments if each.scale and each.scale.provisional
    ]
    if provisional:
        return f"the ceiling is provisional for {', '.join(provisional)}"
    return ""


def _safe(name: str) -> str:
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
    return kept.strip("-")[:40] or "submission"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
