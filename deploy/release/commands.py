"""Runs the programs that build and check a release."""

import os
import subprocess
from pathlib import Path

from deploy.release.version import ROOT


class ReleaseError(Exception):
    """A part could not be built, or is not as it should be."""


def run(command: list[str], cwd: Path | None = None, *, epoch: bool = False) -> str:
    """What a command prints. `epoch`: it writes the time of the last commit, not the time of the build.

    Raises:
        ReleaseError: it failed; the text has all that it printed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if epoch:
        environment.setdefault("SOURCE_DATE_EPOCH", _last_commit())
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _last_commit() -> str:
    """Seconds since 1970; 315532800, the first time that a zip file can have, outside a repository."""
    try:
        return subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "315532800"
