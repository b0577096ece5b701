"""The commands and programs of the pages, and the gateway that each page runs them against.

A page's commands run against the last configuration above them that has a `reference` section or follows a server that
is started, with the changes that the page tells to make; if there is none, against `gateway demo`. Every address of the
configuration gets a free port of this machine.
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
"""The packages that programs import from the environment of a real client, and which that is."""
RECIPES = {**dict.fromkeys(("pymc", "emcee", "dynesty", "jax", "scipy"), "recipes"), "torch": "torch"}
"""The same of programs that import the client for Python as well."""
SERVING = (*SERVERS, "python server.py", "gateway reference")
"""What the commands that start real servers begin with. Their environment is the peer `json-servers`, for tritonserver
`triton`, and for the gateway's own this one."""
PORT = re.compile(r"(?<=port[ =])\d+|(?<=--bind 127\.0\.0\.1:)\d+")
"""In such a command; a server may have several."""
ON_LOOPBACK = [f"--{each}-address=127.0.0.1" for each in ("http", "grpc", "metrics")]
"""A Triton listens on all addresses unless it is told otherwise."""
CHANGING = re.compile(r"gw_[\w-]{20,}|\b[0-9a-f]{12}\b|\d{4}-\d\d-\d\dT\d\d:\d\d(?::[\d.]+)?Z")
"""What differs from run to run: API keys and their ids, and times."""
DURATION = re.compile(r"\b\d+\.\d+(?= ms\b)")


@dataclass(frozen=True)
class Command:
    """A command after `$ `, on one or more lines, and what the page shows below it."""

    text: str
    printed: str


@dataclass(frozen=True)
class Example:
    """A block that can be run: commands, or a Python program."""

    block: Block
    config: str
    """The configuration of the gateway that it is run against."""
    printed: str = ""
    """What a Python program prints, from the block after it."""
    servers: tuple[str, ...] = ()
    """The commands above it that start servers."""

    @property
    def commands(self) -> list[Command]:
        return list(commands(self.block.text))


def commands(text: str) -> Iterator[Command]:
    """The commands of a block."""
    for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = example.strip().splitlines()
        command = next(text for text in accumulate(lines, "{}\n{}".format) if is_whole(text))
        yield Command(command, "\n".join(lines[command.count("\n") + 1 :]))


def is_whole(command: str) -> bool:
    """Whether a shell would run it without waiting for more: its quotes are closed, and it ends in no `|` or `\\`."""
    try:
        return shlex.split(command)[-1] != "|" and not command.endswith("\\")
    except ValueError:
        return False


def is_configuration(block: Block) -> bool:
    """Whether a YAML block is a whole file and not a part of one."""
    keys = re.findall(r"^(\w+):", block.text, re.MULTILINE)
    return block.language == "yaml" and {"listeners", "backends", "routes"} <= set(keys)


@cache
def examples() -> tuple[Example, ...]:
    """All blocks with commands or complete programs, in the order of the pages."""
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
    """A configuration whose sections of the names that `changed` has are those of `changed`."""
    return "".join((_sections(config) | _sections(changed)).values())


def _sections(text: str) -> dict[str, str]:
    """The text of each section at the top of a configuration, by its name."""
    return {part.partition(":")[0]: part for part in re.split(r"^(?=\w+:)", text, flags=re.MULTILINE) if part}


def _is_output(block: Block, after: Block) -> bool:
    """Whether `after` follows `block` without a line between them."""
    end = block.line + block.text.count("\n") + 1
    return after.language == "" and after.line == end + 1 and not after.text.startswith("$ ")


def changed_configurations() -> Iterator[tuple[str, str]]:
    """Where a page tells to change a configuration, and the whole of it then."""
    for page in pages():
        config = ""
        for block in blocks_of(page):
            if is_configuration(block):
                config = block.text
            elif block.changes == "gateway.yaml":
                config = with_sections(config, block.text)
                yield block.place, config


class Gateways:
    """Runs examples; one gateway at a time, which stays while the examples want the same configuration."""

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
        """Make sure that a gateway with the configuration of `example` runs."""
        if example.block.page != self._page:
            self.close()
            self._page, self._config, self._ports, self._changed = example.block.page, "", {}, {}
            self._save_files(example.block.page)
        if example.config != self._config:
            self._stack.close()  # its ports may be those of the servers
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
        """The port of this run that stands for one of the page."""
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def _started(self, command: str) -> Process:
        """A real server that the page's reader would start; it is ready when it accepts connections."""
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
        """Write the files that the page tells its reader to save, except configurations: `serve` writes those."""
        for block in blocks_of(page):
            if block.file and not is_configuration(block):
                (self.folder / block.file).write_text(block.text)

    def here(self, text: str) -> str:
        """`text` with the ports, and with the keys and times, of this run."""
        for shown, own in self._changed.items():
            text = text.replace(shown, own)
        return re.sub(r"127\.0\.0\.1:(\d+)", lambda at: f"127.0.0.1:{self._ports.get(at[1], at[1])}", text)

    def there(self, text: str, shown: str) -> str:
        """`text`, which a command printed, with the ports, and with the keys and times, of the page."""
        ports = {own: port for port, own in self._ports.items()}
        text = re.sub(r"127\.0\.0\.1:(\d+)", lambda at: f"127.0.0.1:{ports.get(at[1], at[1])}", text)
        changed = dict(zip(CHANGING.findall(shown), CHANGING.findall(text), strict=False))
        self._changed.update(changed)
        for theirs, own in changed.items():
            text = text.replace(own, theirs)
        durations = iter(DURATION.findall(shown))
        return DURATION.sub(lambda own: next(durations, own[0]), text)

    def run(self, command: Command) -> str:
        """What the command prints on a terminal, as the page would show it."""
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
        """What a Python program prints, as the page would show it."""
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
    """Whether something listens at a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _write_program(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def _peer(program: str) -> str | None:
    """The peer whose package a program imports; None if it needs only the packages of `make setup`."""
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
    """Whether it is run by, or against, software of `make peers`."""
    return bool(example.servers) or _peer(example.block.text) is not None
