"""The blocks of commands without `$ `, which show no output: how each of them is run, or why it is not."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.commands import ENVIRON
from tests.documents.command_lines import PROGRAMS, SERVERS, whole_lines
from tests.documents.pages import ROOT, Block, blocks, blocks_of
from tests.interop.processes import free_port
from tests.limits import GENEROUS

SERVING = re.compile(r"(?:\.venv/bin/)?gateway (?:serve|record) ")
"""Commands that go on until they are stopped."""
NOT_HERE = ("docker", "helm", "hq", "kind", "kubectl", "make", "pip", "python", ".venv/bin/python", "ssh", *SERVERS)
"""Programs whose lines `test_clusters.py`, `examples.py` and `command_lines.py` check."""


@dataclass(frozen=True)
class Script:
    """How the lines of a block that are the gateway's, or curl's, are run."""

    demo: bool = False
    """`gateway demo` runs meanwhile."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """What is different here: names of a cluster, and numbers that would take long."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the reader would have; those that the page tells to save are there anyway."""
    prints: str = ""
    """A pattern in what the last line prints."""


POSTERIOR = '"name":"output0","datatype":"FP64","shape":\\[1,1\\],"data":\\[-5.0\\]'
SCRIPTS = {
    ("docs/bench.md", "gateway bench"): Script(
        demo=True, replaced={"--seconds 3": "--seconds 0.3 --warmup 0"}, prints=r"\nlatency \(ms\) "
    ),
    ("docs/deploy.md", "curl -s http://posterior-predictor/"): Script(
        demo=True, replaced={"posterior-predictor": "127.0.0.1:8080"}, prints=POSTERIOR
    ),
    ("docs/deploy.md", "docker compose"): Script(demo=True, prints=POSTERIOR),
    ("docs/policies/cache.md", "curl -X POST"): Script(demo=True, prints="backends.simulation"),
    ("docs/quick-start.md", ".venv/bin/gateway check"): Script(),
    ("docs/record-and-replay.md", "gateway record"): Script(files={"gateway.yaml": "config/gateway.yaml"}),
    ("docs/tutorials/laptop-to-cluster.md", "gateway serve"): Script(),
    ("docs/tutorials/v2-facade.md", "gateway check"): Script(),
}
"""By the page and the beginning of the block."""


def script_of(block: Block) -> Script | None:
    page = str(block.page.relative_to(ROOT))
    found = [each for (name, start), each in SCRIPTS.items() if name == page and block.text.startswith(start)]
    return found[0] if found else None


def blocks_without_output() -> list[Block]:
    """The scripts for a shell, and the blocks that begin with a command without `$ `, that are no file which the reader
    saves."""
    return [
        block
        for block in blocks()
        if not block.file and (block.language == "bash" or (block.language == "" and _lines(block)[0][0] in PROGRAMS))
    ]


def _lines(block: Block) -> list[list[str]]:
    """The words of each line that is no comment."""
    lines = (shlex.split(line, comments=True) for line in whole_lines(block.text.replace("\\\n", "  ")))
    return [words for words in lines if words] or [[""]]


def run_here(block: Block) -> bool:
    """Whether a line of the block is the gateway's, or curl's, or that of a program that is not known. Servers of the
    reader's own are started by `examples.py`."""
    return any(words[0] not in NOT_HERE and words[:2] != ["gateway", "reference"] for words in _lines(block))


class Shell:
    """Runs the lines of a block in a folder with the files of its page. Every address of this machine that the files
    name gets a free port."""

    def __init__(self, folder: Path, page: Path, script: Script) -> None:
        self.folder = folder
        self._ports: dict[str, str] = {}
        self._replaced = script.replaced
        for name in ("protos", "config", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "bin").mkdir()
        program = folder / "bin/gateway"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gateway "$@"\n')
        program.chmod(0o755)
        saved = {each.file: each.text for each in blocks_of(page) if each.file}
        given = {name: (ROOT / path).read_text() for name, path in script.files.items()}
        demo = {"demo.yaml": (ROOT / "gateway/demo.yaml").read_text()} if script.demo else {}
        for name, text in (saved | given | demo).items():
            (folder / name).write_text(self.here(text))

    def here(self, text: str) -> str:
        """`text` with the ports of this run."""
        for shown, own in self._replaced.items():
            text = text.replace(shown, own)
        return re.sub(r"127\.0\.0\.1:(\d+)", lambda at: f"127.0.0.1:{self._port(at[1])}", text)

    def _port(self, shown: str) -> str:
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def start(self, line: str) -> "subprocess.Popen[str]":
        text = self.here(line).replace(".venv/bin/gateway", "gateway")
        environment = {**ENVIRON, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "80"}
        return subprocess.Popen(
            ["bash", "-c", f"exec {text}" if SERVING.match(line) else text],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_as_it_is(self, line: str) -> str:
        """What a line prints that has the ports of this run already."""
        environment = {**ENVIRON, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=GENEROUS
        )
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def run(self, line: str) -> str:
        """What a line prints. One that serves is stopped when it is ready."""
        with self.start(line) as process:
            try:
                printed = until_ready(process) if SERVING.match(line) else ""
                if printed:
                    process.send_signal(signal.SIGTERM)
                rest, errors = process.communicate(timeout=GENEROUS)
            finally:
                process.kill()
        assert process.returncode == 0, f"{line}: {process.returncode}\n{printed}{rest}{errors}"
        return printed + rest


def until_ready(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    assert process.stderr
    printed = ""
    for line in process.stdout:
        printed += line
        if line == "ready\n":
            return printed
    raise AssertionError(f"it ended before it was ready: {printed}{process.stderr.read()}")


def lines_here(block: Block) -> list[str]:
    """The lines of a block that are run: those of programs in NOT_HERE are left out."""
    lines = whole_lines(block.text.replace("\\\n", "  "))
    return [
        line
        for line in lines
        if (words := shlex.split(line, comments=True)) and words[0] in PROGRAMS and words[0] not in NOT_HERE
    ]
