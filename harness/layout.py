"""Where an evaluation's files lie: for those who write them and those who read them.

<store>/key                                  the operator's secret
<store>/<task>/<profile>/<evaluation>/       one evaluation
    manifest.json  plan.json  source.py  submission
    submission.patch                         the submission in its canonical form
    datasets.json                            where an offline task's data lie on this machine
    lock                                     held by the harness that is at it
    runs/<environment>-s<seed>/attempt-<n>/  a workbench (harness/training/workbench.py)
        record.json                          once the run has ended: immutable
    logs/                                    what workers and evaluators said, for an operator
    report.json  report.md  submitter-report.*   derived, made again at will
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from harness.files import write_durably
from harness.records import Manifest, Plan

MANIFEST = "manifest.json"
PLAN = "plan.json"
SOURCE = "source.py"
SUBMISSION = "submission"
PATCH = "submission.patch"
RECORD = "record.json"
KEY = "key"
LOCK = "lock"
DATASETS = "datasets.json"
LOGS = "logs"

_ATTEMPT = "attempt-"


def attempt_directory(evaluation: Path, run_id: str, attempt: int) -> Path:
    """One attempt's workbench; its record lies there too."""
    return evaluation / "runs" / run_id / f"{_ATTEMPT}{attempt}"


def attempts(evaluation: Path, run_id: str) -> list[int]:
    """The attempts at a run that were begun, ascending."""
    found = (evaluation / "runs" / run_id).glob(f"{_ATTEMPT}*")
    return sorted(int(path.name.removeprefix(_ATTEMPT)) for path in found)


def read_manifest(evaluation: Path) -> Manifest:
    """Raises OSError or pydantic's ValidationError."""
    return Manifest.model_validate_json((evaluation / MANIFEST).read_bytes())


def read_plan(evaluation: Path) -> Plan:
    """Raises OSError or pydantic's ValidationError."""
    return Plan.model_validate_json((evaluation / PLAN).read_bytes())


def write_datasets(evaluation: Path, files: Mapping[str, Path]) -> None:
    """Where each environment's dataset lies here, by its id; written anew at every start."""
    text = json.dumps({id_: str(path) for id_, path in files.items()}, indent=1)
    write_durably(evaluation / DATASETS, text.encode())


def dataset_of(evaluation: Path, environment: str) -> Path | None:
    """The file that its learners map; None where the task has no datasets. Raises OSError."""
    path = evaluation / DATASETS
    if not path.exists():
        return None
    return Path(json.loads(path.read_bytes())[environment])


def read_source(evaluation: Path, manifest: Manifest) -> bytes:
    """The accepted source. Raises OSError where it is not the one that the manifest names."""
    source = (evaluation / SOURCE).read_bytes()
    if hashlib.sha256(source).hexdigest() != manifest.source_sha256:
        raise OSError(f"{evaluation / SOURCE} is not the source that the manifest names")
    return source
