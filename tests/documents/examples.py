"""Runs the commands and programs in pages, and the gateway that they call; `test_pages` uses it.

Commands run against the last configuration above them on the page that has a `reference` section, or that follows the
start of a server, with the changes that the page describes. Without such a configuration, they run against `gateway
demo`. Every address in the configuration gets a free port.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, zip_longest
from pathlib import Path

from tests.cli.commands import ENVIRON, started
from tests.documents.command_lines import SERVERS
from tests.documents.pages import ROOT, Block, blocks_of, pages
from tests.interop.processes import Process, clean_environment, free_port, triton_binary, triton_environment
from tests.limits import GENEROUS
from tests.peers.build import python_of, require

DEMO = (ROOT / "config/gateway.yaml").read_text("utf-8")
PEERS = {
    "pymc": "recipes",
    **{name: name for name in ("umbridge", "tritonclient", "graphpipe", "kubemo", "tensorflow")},
    **dict.fromkeys(("openai", "boto3", "huggingface_hub"), "json-clients"),
    "mlflow": "json-servers",
}
"""For each package that programs import from the environment of a real client: the name of this environment."""
RECIPES = {**dict.fromkeys(("pymc", "emcee", "dynesty", "jax", "scipy"), "recipes"), "torch": "torch"}
"""The same for programs that also import the Python client."""
SERVING = (*SERVERS, "python server.py", "gateway reference")
"""The first words of commands that start real servers. They run in the environment of the peer `json-servers`,
tritonserver in `triton`, and the gateway's own commands in this environment."""
PORT = re.compile(r"(?<=port[ =])\d+|(?<=--bind 127\.0\.0\.1:)\d+")
"""Matches a port in such a command. A server can have several ports."""
ON_LOOPBACK = [f"--{each}-address=127.0.0.1" for each in ("http", "grpc", "metrics")]
"""Options that make Triton listen only on loopback, because it listens on all addresses by default."""
CHANGING = re.compile(r"gw_[\w-]{20,}|\b[0-9a-f]{12}\b|\d{4}-\d\d-\d\dT\d\d:\d\d(?::[\d.]+)?Z")
"""Matches output that differs between runs: API keys, their ids, and times."""
DURATION = re.compile(r"\b\d+\.\d+(?= ms\b)")


@dataclass(frozen=True)
class Command:
    """A command after `$ `, on one or more lines, and the output that the page shows below it."""

    text: str
    printed: str


@dataclass(frozen=True)
class Example:
    """A block to run: commands, or a Python program."""

    block: Block
    config: str
    """The configuration of the gateway that the example calls."""
    printed: str = ""
    """The output of a Python program, from the block after it."""
    servers: tuple[str, ...] = ()
    """The commands above the block that start servers."""

    @property
    def commands(self) -> list[Command]:
        return list(commands(self.block.text))


def commands(text: str) -> Iterator[Command]:
    """Return the commands of a block."""
    for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = example.strip().splitlines()
        command = next(text for text in accumulate(lines, "{}\n{}".format) if is_whole(text))
        yield Command(command, "\n".join(lines[command.count("\n") + 1 :]))


def is_whole(command: str) -> bool:
    """Return whether a shell would run the text without waiting for more: quotes are closed, and the end is not `|` or
    `\\`."""
    try:
        return shlex.split(command)[-1] != "|" and not command.endswith("\\")
    except ValueError:
        return False


def is_configuration(block: Block) -> bool:
    """Return whether a YAML block is a complete configuration file."""
    keys = re.findall(r"^(\w+):", block.text, re.MULTILINE)
    return block.language == "yaml" and {"listeners", "backends", "routes"} <= set(keys)


@cache
def examples() -> tuple[Example, ...]:
    """Return all blocks with commands or complete programs, in the order of the pages."""
    return tuple(example for page in pages() for example in _examples_of(page))


def _examples_of(page: Path) -> Iterator[Example]:
    config = DEMO
    servers: tuple[str, ...] = ()
    found = list(blocks_of(page))
    for block, after in zip_longest(found, found[1:]):
        if is_configuration(block) and (servers or re.search("^reference:", block.text, re.MULTILINE)):
            config = block.text
        elif block.changes == "gateway.yaml":
            config = with_sections(config, block.text)
        elif block.language == "" and block.text.startswith(SERVING):
            servers += tuple(block.text.splitlines())
        elif block.language in ("", "console") and block.text.startswith("$ "):
            yield Example(block, config, servers=servers)
        elif block.language == "python" and after is not None and _is_output(block, after):
            yield Example(block, config, after.text, servers)


def with_sections(config: str, changed: str) -> str:
    """Return a configuration in which the sections of `changed` replace the sections with the same names."""
    return "".join((_sections(config) | _sections(changed)).values())


def _sections(text: str) -> dict[str, str]:
    """Return the text of each top-level section of a configuration, by name."""
    return {part.partition(":")[0]: part for part in re.split(r"^(?=\w+:)", text, flags=re.MULTILINE) if part}


def _is_output(block: Block, after: Block) -> bool:
    """Return whether `after` follows `block` without a line of text between them."""
    end = block.line + block.text.count("\n") + 1
    return after.language == "" and after.line == end + 1 and not after.text.startswith("$ ")


def changed_configurations() -> Iterator[tuple[str, str]]:
    """Return the blocks that change a configuration, each with the complete configuration after the change."""
    for page in pages():
        config = ""
        for block in blocks_of(page):
            if is_configuration(block):
                config = block.text
            elif block.changes == "gateway.yaml":
                config = with_sections(config, block.text)
                yield block.place, config


class Gateways:
    """Runs examples against one gateway at a time. The gateway keeps running while examples use the same
    configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("protos", "config", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "bin").mkdir()
        _write_program(folder / "bin/gateway", f'exec {shlex.quote(sys.executable)} -m gateway "$@"')
        _write_program(folder / "bin/grpcurl", f'exec {shlex.quote(sys.executable)} -m tests.documents.grpcurl "$@"')
        self._stack = ExitStack()
        self._servers: dict[str, Process] = {}
        self._page: Path | None = None
        self._config = ""
        self._ports: dict[str, str] = {}
        self._changed: dict[str, str] = {}

    def close(self) -> None:
        self._stack.close()
        for server in self._servers.values():
            server.signal(signal.SIGTERM)  # they end at the same time
        for server in self._servers.values():
            server.stop()
        self._servers = {}

    def serve(self, example: Example) -> None:
        """Ensure that a gateway with the configuration of `example` is running."""
        if example.block.page != self._page:
            self.close()
            self._page, self._config, self._ports, self._changed = example.block.page, "", {}, {}
            self._save_files(example.block.page)
        if example.config != self._config:
            self._stack.close()  # the servers can use the same ports
        for command in example.servers:
            if command not in self._servers:
                self._servers[command] = self._started(command)
        if example.config == self._config:
            return
        self._config = example.config
        for port in re.findall(r"127\.0\.0\.1:(\d+)", example.config):
            self._port(port)
        path = self.folder / "gateway.yaml"
        path.write_text(self.here(example.config))
        self._stack.enter_context(started("serve", "--config", str(path), folder=self.folder))

    def _port(self, shown: str) -> str:
        """Return the port that replaces a port of the page in this run."""
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def _started(self, command: str) -> Process:
        """Start a real server that the page's reader would start, and wait until it accepts connections."""
        ports = [int(self._port(port)) for port in PORT.findall(command)]
        assert ports, f"no port in `{command}`"
        program, *arguments = shlex.split(PORT.sub(lambda port: self._port(port[0]), command))
        if program == "tritonserver":
            home = require("triton")
            first = [str(triton_binary(home)), f"--backend-directory={home / 'backends'}", *ON_LOOPBACK]
            environment = triton_environment(home)
        elif program == "gateway":
            first = [sys.executable, "-m", "gateway"]
            environment = ENVIRON
        else:
            home = require("json-servers")
            first = [str(home / "bin" / program)]
            environment = clean_environment(PATH=f"{home / 'bin'}:/usr/bin:/bin", BENTOML_DO_NOT_TRACK="True")
        server = Process([*first, *arguments], self.folder, environment)
        server.wait_until(lambda: all(map(_accepts, ports)), GENEROUS)
        return server

    def _save_files(self, page: Path) -> None:
        """Write the files that the page tells its reader to save, except configurations, which `serve` writes."""
        for block in blocks_of(page):
            if block.file and not is_configuration(block):
                (self.folder / block.file).write_text(block.text)

    def here(self, text: str) -> str:
        """Return a text of the page with the ports, keys and times of this run."""
        for shown, own in self._changed.items():
            text = text.replace(shown, own)
        return re.sub(r"127\.0\.0\.1:(\d+)", lambda at: f"127.0.0.1:{self._ports.get(at[1], at[1])}", text)

    def there(self, text: str, shown: str) -> str:
        """Return the output of a command with the ports, keys and times of the page."""
        ports = {own: port for port, own in self._ports.items()}
        text = re.sub(r"127\.0\.0\.1:(\d+)", lambda at: f"127.0.0.1:{ports.get(at[1], at[1])}", text)
        changed = dict(zip(CHANGING.findall(shown), CHANGING.findall(text), strict=False))
        self._changed.update(changed)
        for theirs, own in changed.items():
            text = text.replace(own, theirs)
        durations = iter(DURATION.findall(shown))
        return DURATION.sub(lambda own: next(durations, own[0]), text)

    def run(self, command: Command) -> str:
        """Return the terminal output of a command, in the form that the page shows."""
        environment = {**ENVIRON, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "80"}
        text = self.here(command.text).replace(".venv/bin/gateway", "gateway")
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=GENEROUS,
        )
        return self.there(done.stdout.rstrip("\n"), command.printed)

    def run_program(self, program: str, shown: str) -> str:
        """Return the output of a Python program, in the form that the page shows."""
        done = subprocess.run(
            [_interpreter(program), "-c", self.here(program)],
            cwd=self.folder,
            env=ENVIRON if _peer(program) in (None, *RECIPES.values()) else None,
            stdout=subprocess.PIPE,
            text=True,
            timeout=GENEROUS,
        )
        return self.there(done.stdout, shown)


def _accepts(port: int) -> bool:
    """Return whether a server listens on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _write_program(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def _peer(program: str) -> str | None:
    """Return the peer whose package a program imports, or None if it needs only the packages of `make setup`."""
    imported = set(re.findall(r"^(?:import|from) (\w+)|, (\w+)\.\w+ as", program, re.MULTILINE))
    names = {name for pair in imported for name in pair}
    peers = RECIPES if "gateway" in names else PEERS
    return next((peer for package, peer in peers.items() if package in names), None)


def _interpreter(program: str) -> Path:
    peer = _peer(program)
    if peer is None:
        return Path(sys.executable)
    require(peer)
    return python_of(peer)


def needs_peer(example: Example) -> bool:
    """Return whether the example needs software that `make peers` installs."""
    return bool(example.servers) or _peer(example.block.text) is not None
