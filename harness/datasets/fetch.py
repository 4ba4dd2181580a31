"""Official files from wherever they can be had: OGBench's own directory, or the task's mirrors."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.datasets import checksums
from harness.datasets.check import Unfit, check
from harness.datasets.download import Failed, NoAnswer, download
from harness.datasets.places import DatasetError, Part, Say, Show, files
from harness.datasets.writing import alone, replacing
from harness.task import OfflineDataset


def ogbench_directory() -> Path:
    """Where OGBench's loader keeps what it downloaded, unless it was told another place."""
    return Path.home() / ".ogbench" / "data"


class Fetcher:
    """Gets official files into a root directory. A mirror that does not answer is asked once."""

    def __init__(self, root: Path, mirrors: Sequence[str], say: Say, show: Show) -> None:
        """`mirrors`: addresses of directories, tried in this order."""
        self._root = root
        self._mirrors = [each.rstrip("/") for each in mirrors]
        self._silent: dict[str, NoAnswer] = {}
        self._say = say
        self._show = show

    def fetch(self, environment: OfflineDataset) -> None:
        """Get those of its two files that are not there, each checked before it is.

        Raises DatasetError that says what to put where by hand, if they cannot be had.
        """
        wanted = files(environment, self._root)
        problems: list[str] = []
        for part, path in wanted.parts():
            if not path.exists():
                with alone(path, self._say):
                    if not path.exists():
                        problems += self._get(environment, part, path)
        missing = wanted.missing()
        if missing:
            raise DatasetError(_by_hand(missing, problems, self._root))

    def _get(self, environment: OfflineDataset, part: Part, path: Path) -> list[str]:
        """Why each source did not give it; nothing once the file is in its place."""
        problems = []
        own = ogbench_directory() / path.name
        if own.is_file():
            try:
                _check(own, environment, part)
            except Unfit as error:
                problems.append(f"{own}: {error}")
            else:
                self._say(f"{path.name}: copied from {own.parent}")
                with replacing(path) as temporary:
                    shutil.copyfile(own, temporary)
                checksums.keep(path, checksums.sha256_of(path))
                return []
        for mirror in self._mirrors:
            url = f"{mirror}/{path.name}"
            try:
                self._download(mirror, url, environment, part, path)
            except (Failed, Unfit) as error:
                problems.append(f"{url}: {error}")
            else:
                self._say(f"{path.name}: from {mirror}")
                return []
        return problems

    def _download(
        self, mirror: str, url: str, environment: OfflineDataset, part: Part, path: Path
    ) -> None:
        if mirror in self._silent:
            raise self._silent[mirror]
        partial = path.with_name(f"{path.name}.part")
        while True:
            resumed = partial.exists()
            try:
                download(url, partial, self._show)
            except NoAnswer as error:
                self._silent[mirror] = error
                raise
            try:
                _check(partial, environment, part)
                break
            except Unfit:
                partial.unlink()
                if not resumed:
                    raise
            # Its beginning was of another file, perhaps of another mirror: once more, from zero.
        with replacing(path) as temporary:
            partial.replace(temporary)
        checksums.keep(path, checksums.sha256_of(path))


def _check(path: Path, environment: OfflineDataset, part: Part) -> None:
    wanted = environment.sha256 if part is Part.TRAINING else environment.validation_sha256
    if wanted is not None and (found := checksums.sha256_of(path)) != wanted:
        raise Unfit(f"its SHA-256 is {found}, the task says {wanted}")
    check(path, environment, part)


def _by_hand(missing: Sequence[Path], problems: Sequence[str], root: Path) -> str:
    names = " and ".join(path.name for path in missing)
    looked = f"{root.absolute()}, {ogbench_directory()}"
    lines = [
        f"{names}: not to be had. Looked for in {looked} and at the task's mirrors:",
        *(f"    {each}" for each in problems or ("it names none",)),
        f"Put {'it' if len(missing) == 1 else 'them'} by hand, under the same name, into",
        f"    {missing[0].parent}{os.sep}",
        "and run the same command again: it checks and prepares what it finds there.",
    ]
    return "\n".join(lines)
