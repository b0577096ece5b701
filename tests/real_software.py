"""The marker `real`, of tests that need more than the Python packages of the group `dev`: `make test` leaves them out.

`real()` needs what `make peers` builds, or a package index; `real("curl", "chromium or google-chrome")` needs these
programs as well, and is skipped with the reason where one is missing. A test without the marker finds the programs of
SHELL alone, so that one which needs more fails on every machine, also where that is installed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.build import PEERS, ROOT
from tests.peers.system import PATH

SHELL = """
awk basename bash cat chmod cp cut date dirname echo env expr false git grep head kill ln ls make mkdir mkfifo mktemp
mount mv ps pwd readlink rm sed seq sh sha256sum sleep sort stty tail tee test touch tr true umount uname unshare wc
"""
"""What a machine has on which `make` and `git` run."""


class OtherSoftware:
    """Hides the programs of the machine from tests without the marker."""

    def __init__(self) -> None:
        self._test = ""
        """The one without the marker that runs."""
        self._path = os.environ.get("PATH", "")
        self._folder = tempfile.mkdtemp(prefix="shell-")
        for name in SHELL.split():
            if program := shutil.which(name):
                os.symlink(program, f"{self._folder}/{name}")
        # Also while modules are imported, which keep copies of the environment.
        os.environ["PATH"] = self._folder
        sys.addaudithook(self._audit)

    def close(self) -> None:
        self._test = ""
        os.environ["PATH"] = self._path
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def as_marked(self, item: pytest.Item) -> Iterator[None]:
        real = item.get_closest_marker("real") is not None
        os.environ["PATH"] = self._path if real else self._folder
        self._test = "" if real else item.nodeid
        try:
            yield
        finally:
            self._test, os.environ["PATH"] = "", self._folder

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """PATH hides no program that is started by its whole path."""
        if event == "subprocess.Popen" and self._test:
            program = Path(os.fsdecode(arguments[0]))
            if program.is_absolute() and not _own(program):
                raise AssertionError(f"{self._test} starts {program}, which is in no package of .venv: mark it `real`")


def _own(program: Path) -> bool:
    """Whether it is of this environment or a file of the repository or of a test, or one of SHELL."""
    if program.is_relative_to(PEERS):
        return False
    own = (sys.prefix, sys.base_prefix, ROOT, tempfile.gettempdir())
    return program.name in SHELL.split() or any(program.is_relative_to(each) for each in own)


def missing(item: pytest.Item) -> list[str]:
    """The programs that a test needs and the machine has not."""
    needed = [str(each) for mark in item.iter_markers("real") for each in mark.args]
    return [each for each in needed if not any(shutil.which(name, path=PATH) for name in each.split(" or "))]
