"""Diffs by the real programs."""

import subprocess
import tempfile
from pathlib import Path

GIT = ("git", "-c", "core.autocrlf=false", "diff", "--no-index", "--no-color")


def run_diff(*command: str, old: str, new: str, names: tuple[str, str] | None = None) -> str:
    """What `command old_name new_name` prints for two texts, scaffold.py and mine.py by default."""
    with tempfile.TemporaryDirectory() as directory:
        old_name, new_name = names or ("scaffold.py", "mine.py")
        for name, content in ((old_name, old), (new_name, new)):
            (Path(directory) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(directory) / name).write_bytes(content.encode())
        done = subprocess.run(
            [*command, old_name, new_name], cwd=directory, capture_output=True, check=False
        )
        assert done.returncode == 1, done.stderr
        return done.stdout.decode()
