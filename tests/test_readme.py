"""README's lists are complete, and the gateway prints what README shows; `tests/documents` runs its commands."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from gateway.cli import COMMANDS
from gateway.cli.options import catalog
from tests.cli.commands import ROOT, started
from tests.documents.grpcurl import main as grpcurl
from tests.interop.processes import free_port
from tests.limits import GENEROUS

README = (ROOT / "README.md").read_text()
DEFAULT = (ROOT / "config/gateway.yaml").read_text()
PORTS = re.findall(r'"\S*127\.0\.0\.1:(\d+)"', DEFAULT)


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
    (shown,) = re.findall(r"^```\n(listener http .*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert words(running[1]) == words(shown.splitlines())


def shell(command: str) -> str:
    """What it prints, without blank lines at the end."""
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=GENEROUS, check=True
    )
    return done.stdout.rstrip("\n")


@pytest.mark.real("curl")
def test_what_it_says_to_try_succeeds(running: tuple[Running, list[str]]) -> None:
    tried = [running[0].here(line).strip() for line in running[1] if line.startswith(("  curl ", "  grpcurl "))]
    assert len(tried) == 8
    for line in tried:
        program, *arguments = shlex.split(line)
        if program == "curl":
            assert shell(line.replace("curl", "curl --silent --fail", 1))
        else:
            assert "posterior" in grpcurl(arguments)


def test_every_command_is_in_the_overview_of_commands_and_readme_names_only_those() -> None:
    """`gateway keys` and the like are one command."""
    overview = re.findall(r"^\| \[`gateway ([a-z]+)`\]", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert sorted(overview) == sorted(COMMANDS)
    named = set(re.findall(r"^\| `gateway ([a-z]+)", README, re.MULTILINE))
    assert {"serve", "check", "call"} <= named <= set(COMMANDS)


def test_each_wire_form_is_in_readme_s_table() -> None:
    shown = re.findall(r"^\|[^|]*\| `([a-z0-9-]+)` \|", README, re.MULTILINE)
    assert sorted(shown) == sorted([*catalog().protocols, "json"])  # all forms together


# A row of the tables of ratios, and whom it is compared with: as `docs/benchmarks/results.json` calls them.
MEASURED = {
    "V2 REST to V2 gRPC": (
        "V2 REST to V2 gRPC",
        {"Envoy's gRPC-JSON transcoder, which uses its own JSON format": "Envoy's transcoder"},
    ),
    "V2 REST served by `gateway reference`": ("V2 REST served", {"MLServer": "MLServer"}),
    "V2 REST proxied": (
        "V2 REST to V2 REST",
        {"Envoy as an HTTP proxy": "Envoy as HTTP proxy", "nginx as an HTTP proxy": "nginx as HTTP proxy"},
    ),
    "V2 gRPC proxied": (
        "V2 gRPC to V2 gRPC",
        {"Envoy as a gRPC proxy": "Envoy as gRPC proxy", "nginx as a gRPC proxy": "nginx as gRPC proxy"},
    ),
}
SIZES = [10, 1_000, 10_000, 1_000_000]


@pytest.mark.parametrize("page", ["docs/performance.md", "docs/limits.md"])
def test_ratios_to_other_programs_are_those_of_the_published_run_flattering_or_not(page: str) -> None:
    rows = json.loads((ROOT / "docs/benchmarks/results.json").read_text())["rows"]
    published = {
        (row["pair"], row["size"], name): side["ratio"]
        for row in rows
        if row["in_flight"] == (1 if row["size"] == SIZES[-1] else 16)
        for name, side in row["sides"].items()
    }
    shown: dict[tuple[str, int, str], float] = {}
    for line in (ROOT / page).read_text().splitlines():
        work, *cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if work in MEASURED and len(cells) > 3:
            pair, others = MEASURED[work]
            figures = zip(SIZES, cells[1:], strict=False)
            shown |= {(pair, size, others[cells[0]]): float(figure) for size, figure in figures if figure}
    assert shown == {key: pytest.approx(published[key], abs=0.0051) for key in shown}
    same = ("V2 REST to V2 REST", "V2 gRPC to V2 gRPC")
    passed_on = {key for key in published if key[0] in same and "proxy" in key[2]}
    assert passed_on <= shown.keys(), "rows in which the gateway needs more are shown as well"
