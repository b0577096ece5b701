"""What README shows is what there is: the commands are run, and print what stands below them."""

import asyncio
import re
import shlex
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.cli.options import catalog
from gateway.config import loads
from tests.cli.commands import ROOT, started
from tests.interop.processes import free_port
from tests.peers.build import python_of, require

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PORTS = ("8080", "4242", "8000", "9091", "9090")


def curls() -> Iterator[tuple[str, str]]:
    """Each command, on one or more lines, and the line that it prints."""
    for _, block in BLOCKS:
        for example in block.split("$ ")[1:]:
            command, printed = example.rstrip("\n").rsplit("\n", 1)
            yield command, printed


def blocks(language: str) -> list[tuple[str, str]]:
    """The blocks in a language, each with the one after it."""
    return [(text, after) for (kind, text), (_, after) in pairwise(BLOCKS) if kind == language]


class Running:
    """`make run`, on ports of this test's own: `here` puts them into a text, and `there` README's."""

    def __init__(self) -> None:
        self._ports = [(port, str(free_port())) for port in PORTS]

    def here(self, text: str) -> str:
        for port, own in self._ports:
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        return text

    def there(self, text: str) -> str:
        for port, own in self._ports:
            text = text.replace(f"127.0.0.1:{own}", f"127.0.0.1:{port}")
        return text


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, list[str]]]:
    """The default configuration, served, and what it printed."""
    ports = Running()
    path = tmp_path_factory.mktemp("readme") / "gateway.yaml"
    path.write_text(ports.here((ROOT / "config/gateway.yaml").read_text()))
    with started("serve", "--config", str(path)) as (_, printed):
        yield ports, [ports.there(line) for line in printed]


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_make_run_prints_what_readme_shows(running: tuple[Running, list[str]]) -> None:
    (shown,) = [text for _, text in BLOCKS if text.startswith("listener http")]
    assert words(running[1]) == words(shown.splitlines())


def curled(command: str) -> str:
    """What `curl -s URL [-d BODY]` prints."""
    match shlex.split(command):
        case ["curl", "-s", url]:
            body = None
        case ["curl", "-s", url, "-d", text]:
            body = text.encode()
        case other:
            raise AssertionError(f"README has a command that this test does not know: {other}")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body)) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.mark.parametrize(("command", "printed"), list(curls()))
def test_each_curl_prints_what_readme_shows(running: tuple[Running, list[str]], command: str, printed: str) -> None:
    assert curled(running[0].here(command)) == printed


async def prints(interpreter: Path, program: str) -> str:
    process = await asyncio.create_subprocess_exec(interpreter, "-c", program, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


@pytest.mark.interop
@pytest.mark.parametrize(
    ("program", "printed"), blocks("python"), ids=["umbridge", "tritonclient", "tritonclient-grpc"]
)
async def test_each_client_prints_what_readme_shows(
    running: tuple[Running, list[str]], program: str, printed: str
) -> None:
    peer = "umbridge" if "umbridge" in program else "tritonclient"
    require(peer)
    assert await prints(python_of(peer), running[0].here(program)) == printed


def documented() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for text in re.findall(r"^```yaml\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
            yield path.name, text


@pytest.mark.parametrize(("page", "text"), list(documented()))
def test_each_configuration_that_is_shown_is_right(page: str, text: str) -> None:
    assert loads(text, page, catalog(), {}).routes


def test_the_commands_are_all_there() -> None:
    """Every `make` target and every command that README names."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets
