"""Containers run as processes on this machine: every port that a file names becomes a free one of loopback."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cli.commands import ROOT
from tests.deploy.dockerfile import stages
from tests.interop.processes import Process, clean_environment, free_port
from tests.limits import GENEROUS

ENTRYPOINT = stages(ROOT / "deploy/Dockerfile")[-1].words("ENTRYPOINT")


class Ports:
    """Free ports in place of those that containers have. `hosts` are the containers' names on their network."""

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self._own: dict[str, int] = {}
        names = "|".join(["0.0.0.0", "127.0.0.1", *hosts])
        self._address = re.compile(rf"(?<![\w.-])(?:{names})(:|', )(\d+)")

    def own(self, port: object) -> int:
        """The port of this machine that `port` is."""
        return self._own.setdefault(str(port), free_port())

    def local(self, text: str) -> str:
        """A text with every address of a container, with those of this machine."""
        return self._address.sub(lambda found: f"127.0.0.1{found[1]}{self.own(found[2])}", text)


def started(
    arguments: Sequence[str], folder: Path, python: str, environment: Mapping[str, str] | None = None
) -> Process:
    """The image's entrypoint with `arguments`, in this environment's Python, once it is ready."""
    assert ENTRYPOINT == ["gateway"]
    command = [python, "-m", "gateway", *arguments]
    variables = clean_environment(PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1", **(environment or {}))
    process = Process(command, folder, variables)
    process.wait_until(lambda: f"\n{process.stdout()}".find("\nready") >= 0, seconds=GENEROUS)
    return process


def succeeds(command: Sequence[str]) -> bool:
    """Whether a container's health command does."""
    return subprocess.run(command, capture_output=True, env=clean_environment(), timeout=GENEROUS).returncode == 0
