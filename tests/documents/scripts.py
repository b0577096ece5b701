"""Runs the command blocks without `$ ` and output, or records why a block does not run; `test_scripts` uses it."""

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
"""Commands that run until they are stopped."""
NOT_HERE = ("docker", "helm", "hq", "kind", "kubectl", "make", "pip", "python", ".venv/bin/python", "ssh", *SERVERS)
"""Programs whose lines `test_clusters.py`, `examples.py` and `command_lines.py` check instead."""


@dataclass(frozen=True)
class Script:
    """The settings to run the `gateway` and `curl` lines of a block."""

    demo: bool = False
    """True if `gateway demo` must run in the background."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Replacements for this run, such as host names of a cluster, or numbers that would take too long."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the reader would already have, in addition to the files that the page tells to save."""
    prints: str = ""
    """A pattern that the output of the last line must match."""


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
"""The scripts, by page and beginning of the block."""


def script_of(block: Block) -> Script | None:
    page = str(block.page.relative_to(ROOT))
    found = [each for (name, start), each in SCRIPTS.items() if name == page and block.text.startswith(start)]
    return found[0] if found else None


def blocks_without_output() -> list[Block]:
    """Return the shell scripts, and the blocks that begin with a command without `$ `, except files that the reader
    saves."""
    return [
        block
        for block in blocks()
        if not block.file and (block.language == "bash" or (block.language == "" and _lines(block)[0][0] in PROGRAMS))
    ]


def _lines(block: Block) -> list[list[str]]:
    """Return the words of each line that is not a comment."""
    lines = (shlex.split(line, comments=True) for line in whole_lines(block.text.replace("\\\n", "  ")))
    return [words for words in lines if words] or [[""]]


def run_here(block: Block) -> bool:
    """Return whether the block has a line for `gateway`, `curl` or an unknown program. `examples.py` starts the
    reader's own servers."""
    return any(words[0] not in NOT_HERE and words[:2] != ["gateway", "reference"] for words in _lines(block))


class Shell:
    """Runs the lines of a block in a folder with the files of its page. Every local address in the files gets a free
    port."""

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
        """Return a text of the page with the ports of this run."""
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
        """Return the output of a line that already contains the ports of this run."""
        environment = {**ENVIRON, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=GENEROUS
        )
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def run(self, line: str) -> str:
        """Return the output of a line. A server is stopped when it is ready."""
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
    """Return the lines of a block to run, without the programs in NOT_HERE."""
    lines = whole_lines(block.text.replace("\\\n", "  "))
    return [
        line
        for line in lines
        if (words := shlex.split(line, comments=True)) and words[0] in PROGRAMS and words[0] not in NOT_HERE
    ]
