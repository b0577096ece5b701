"""README's lists are complete, and the gateway prints what README shows; `tests/documents` runs its commands."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from gateway.cli import COMMANDS
from gateway.cli.options import catalog
from tests.cli.commands import ENVIRON, ROOT, started
from tests.documents.grpcurl import main as grpcurl
from tests.interop.processes import free_port

README = (ROOT / "README.md").read_text()
DEFAULT = (ROOT / "config/gateway.yaml").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PORTS = re.findall(r'"\S*127\.0\.0\.1:(\d+)"', DEFAULT)

with_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="README's commands are curl's")


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
    """What it prints, without blank lines at the end."""
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=ENVIRON, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return done.stdout.rstrip("\n")


@with_curl
def test_what_it_says_to_try_succeeds(running: tuple[Running, list[str]]) -> None:
    tried = [running[0].here(line).strip() for line in running[1] if line.startswith(("  curl ", "  grpcurl "))]
    assert len(tried) == 7
    for line in tried:
        program, *arguments = shlex.split(line)
        if program == "curl":
            assert shell(line.replace("curl", "curl --silent --fail", 1))
        else:
            assert "posterior" in grpcurl(arguments)


def test_every_command_is_in_readme_s_table() -> None:
    """`gateway keys` and the like are one command."""
    shown = set(re.findall(r"^\| `gateway ([a-z]+)", README, re.MULTILINE))
    assert shown == set(COMMANDS), "README's table of commands has a row for each command of `gateway`"


def test_every_make_target_that_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets


def test_each_wire_form_is_in_readme_s_table() -> None:
    shown = re.findall(r"^\|[^|]*\| `([a-z0-9-]+)` \|", README, re.MULTILINE)
    assert sorted(shown) == sorted(catalog().protocols)
