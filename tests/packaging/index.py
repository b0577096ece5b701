"""Whether packages can be had here: some tests install what a user would."""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
LOCK = Path(__file__).parents[2] / "deploy/requirements.lock"


@cache
def _reachable() -> bool:
    """Whether one of the image's packages is to be had; a folder of wheels beside the index may hold other versions."""
    [package] = re.findall(r"^annotated-doc==\S+", LOCK.read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        command = [*PIP, "--retries=0", "--timeout=15", "download", "--no-deps", "--no-cache-dir", "--dest", folder]
        return subprocess.run([*command, package], capture_output=True).returncode == 0


def require_index() -> None:
    """Skip the test where pip reaches no package index. On a CI server that is a failure."""
    if not _reachable():
        assert "CI" not in os.environ, "pip reaches no package index"
        pytest.skip("pip reaches no package index")
