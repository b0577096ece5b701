"""A test without the marker `real` finds no software beside the environment, wherever it is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRON
from tests.peers.build import PEERS


@pytest.mark.parametrize("environment", [None, ENVIRON], ids=["own", "copied"])
def test_no_program_is_found_but_those_that_make_itself_needs(environment: dict[str, str] | None) -> None:
    assert shutil.which("git") is not None
    assert shutil.which("pip") is None
    done = subprocess.run(["sh", "-c", "pip --version"], env=environment, capture_output=True)
    assert done.returncode == 127


@pytest.mark.parametrize("program", [PEERS / "grpc/bin/python", Path("/usr/sbin/nginx")], ids=lambda each: each.name)
def test_a_whole_path_leads_to_an_error_that_says_what_to_do(program: Path) -> None:
    with pytest.raises(AssertionError, match=f"starts {program}, .* mark it `real`"):
        subprocess.run([program, "--version"])


@pytest.mark.real
def test_a_test_with_the_marker_finds_all() -> None:
    assert shutil.which("ls", path=None) is not None
    assert "shell-" not in str(shutil.which("ls"))


@pytest.mark.real("absent-program or other-absent-program")
def test_one_whose_program_is_missing_is_skipped() -> None:
    pytest.fail("it ran without its program")
