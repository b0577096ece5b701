"""What README shows is what there is: the commands are run, and print what stands below them."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from gateway.cli.options import catalog
from gateway.config import loads
from tests.cli.commands import ENVIRON, ROOT, started
from tests.interop.processes import free_port
from tests.peers.build import python_of, require

README = (ROOT / "README.md").read_text()
DEFAULT = (ROOT / "config/gateway.yaml").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PORTS = re.findall(r'"\S*127\.0\.0\.1:(\d+)"', DEFAULT)

with_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="README's commands are curl's")


def commands() -> Iterator[tuple[str, str]]:
    """Each command, on one or more lines, and the lines that it prints."""
    for _, block in BLOCKS:
        for example in block.split("$ ")[1:]:
            lines = example.strip().splitlines()
            command = next(text for text in accumulate(lines, "{}\n{}".format) if is_whole(text))
            yield command, "\n".join(lines[command.count("\n") + 1 :])


def is_whole(command: str) -> bool:
    """Whether a shell would run it, and not wait for more: its quotes are closed, and it is no open pipe."""
    try:
        return shlex.split(command)[-1] != "|"
    except ValueError:
        return False


def blocks(language: str) -> list[tuple[str, str]]:
    """The blocks in a language, each with the one after it."""
    return [(text, after) for (kind, text), (_, after) in pairwise(BLOCKS) if kind == language]


class Running:
    """`make run`, on ports of this test's own: `here` puts them into a text, and `there` README's."""

    def __init__(self) -> None:
        self._ports = [(port, str(free_port())) for port in set(PORTS)]

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
    path.write_text(ports.here(DEFAULT))
    with started("serve", "--config", str(path)) as (_, printed):
        yield ports, [ports.there(line) for line in printed]


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_make_run_prints_what_readme_shows(running: tuple[Running, list[str]]) -> None:
    (shown,) = [text for _, text in BLOCKS if text.startswith("listener http")]
    assert words(running[1]) == words(shown.splitlines())


def shell(command: str) -> str:
    """What it prints, without blank lines at the end. A command of `make setup` is the one of this environment."""
    command = command.replace(".venv/bin/gateway", f"{sys.executable} -m gateway")
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=ENVIRON, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return done.stdout.rstrip("\n")


@with_curl
@pytest.mark.parametrize(("command", "printed"), list(commands()))
def test_each_command_prints_what_readme_shows(running: tuple[Running, list[str]], command: str, printed: str) -> None:
    assert shell(running[0].here(command)) == printed


@with_curl
def test_what_it_says_to_try_succeeds(running: tuple[Running, list[str]]) -> None:
    tried = [line for line in running[1] if line.startswith("  curl ")]
    assert len(tried) == 5
    for line in tried:
        assert shell(running[0].here(line).replace("curl", "curl --silent --fail", 1))


def interpreter(program: str) -> Path:
    """Where the client is installed that a program imports: the peer's environment, or that of `make setup`."""
    for peer in ("umbridge", "tritonclient"):
        if f"import {peer}" in program or f", {peer}." in program:
            require(peer)
            return python_of(peer)
    return Path(sys.executable)


@pytest.mark.interop
@pytest.mark.parametrize(("program", "printed"), blocks("python"), ids=["umbridge", "tritonclient", "grpcio"])
def test_each_client_prints_what_readme_shows(running: tuple[Running, list[str]], program: str, printed: str) -> None:
    command: list[Path | str] = [interpreter(program), "-c", running[0].here(program)]
    assert subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60).stdout == printed


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def documented() -> Iterator[tuple[str, str]]:
    """The configurations that are shown; some are parts of one."""
    for path in PAGES:
        for text in re.findall(r"^```yaml\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
            if text.startswith("listeners:"):
                yield path.name, text


@pytest.mark.parametrize(("page", "text"), list(documented()))
def test_each_configuration_that_is_shown_is_right(page: str, text: str) -> None:
    assert loads(text, page, catalog(), {}).routes


def test_the_commands_are_all_there() -> None:
    """Every `make` target and every command that README names."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        if "://" not in link:
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not heading or heading in headings(target), link


def headings(page: Path) -> list[str]:
    """What links to a page's headings say."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in found]


def test_each_wire_form_is_in_readme_s_table() -> None:
    shown = re.findall(r"^\|[^|]*\| `([a-z0-9-]+)` \|", README, re.MULTILINE)
    assert sorted(shown) == sorted(catalog().protocols)
