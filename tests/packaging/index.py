"""Whether packages can be had here: some tests install what a user would."""

import os
import subprocess
import sys
from functools import cache

import pytest

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


@cache
def _reachable() -> bool:
    asked = subprocess.run(
        [*PIP, "--retries", "0", "--timeout", "15", "index", "versions", "typer"], capture_output=True
    )
    return asked.returncode == 0


def require_index() -> None:
    """Skip the test where pip reaches no package index. On a CI server that is a failure."""
    if not _reachable():
        assert "CI" not in os.environ, "pip reaches no package index"
        pytest.skip("pip reaches no package index")
