"""A new protocol needs only one new folder: runs commands in a copy of the package with one more protocol folder."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.flavors import DIALECTS
from tests.contract.installed import TOYS
from tests.interop.exchanges import get, post
from tests.interop.processes import Process, clean_environment, free_port
from tests.limits import GENEROUS
from tests.peers.build import ROOT

pytestmark = pytest.mark.long

NAME = "abacus"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with the toy protocol's folder next to the other protocols."""
    root = tmp_path_factory.mktemp("project")
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gateway", root / "gateway", ignore=without)
    shutil.copytree(TOYS / NAME, root / "gateway" / "protocols" / NAME, ignore=without)
    return root


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", *arguments]


def run(project: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        command(*arguments), cwd=project, input=given, capture_output=True, text=True, timeout=GENEROUS, check=False,
        env=environment(project),
    )  # fmt: skip


def environment(project: Path) -> dict[str, str]:
    return clean_environment(PYTHONPATH=str(project), PYTHONUNBUFFERED="1")


def started(project: Path, folder: Path, *arguments: str) -> Process:
    """Start a command that serves, and wait until it is ready."""
    process = Process(command(*arguments), folder, environment(project))
    process.wait_until(lambda: "\nready" in process.stdout(), GENEROUS)
    return process


def test_the_contract_and_the_matrix_have_picked_it_up() -> None:
    assert NAME in DIALECTS


# --- gateway check ---

CONFIG = """
listeners: [{{name: http, bind: "127.0.0.1:{http}", protocols: [umbridge, v2-rest, {name}]}}]
reference:
  - {{protocol: {name}, bind: "127.0.0.1:{counting}", models: [posterior, double]}}
  - {{protocol: umbridge, bind: "127.0.0.1:{science}", models: [posterior]}}
backends:
  counting: {{protocol: {name}, endpoints: ["127.0.0.1:{counting}"], policies: [{{timeout: {{seconds: 60}}}}]}}
  science: {{protocol: umbridge, endpoints: ["127.0.0.1:{science}"]}}
routes:
  - {{match: {{protocol: {name}, model: posterior}}, backend: science}}
  - {{match: {{model: "*"}}, backend: counting}}
"""


def configured(folder: Path, name: str = NAME) -> tuple[Path, int]:
    """Return a configuration file, and the port of its listener."""
    ports = {place: free_port() for place in ("http", "counting", "science")}
    file = folder / "gateway.yaml"
    file.write_text(CONFIG.format(name=name, **ports))
    return file, ports["http"]


def test_yaml_accepts_its_name(project: Path, tmp_path: Path) -> None:
    file, _ = configured(tmp_path)
    checked = run(project, "check", "--config", str(file))
    assert (checked.returncode, checked.stderr) == (0, "")


def test_yaml_suggests_its_name(project: Path, tmp_path: Path) -> None:
    file, _ = configured(tmp_path, "abakus")
    checked = run(project, "check", "--config", str(file))
    assert checked.returncode == 1
    assert "unknown protocol 'abakus'; did you mean 'abacus'?" in checked.stderr


# --- gateway serve ---


@dataclass
class Served:
    """A running gateway: its address and its output."""

    url: str
    printed: str


@pytest.fixture(scope="module")
def served(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`gateway serve` with two routes: from other clients to a toy server, and from toy clients to another server."""
    folder = tmp_path_factory.mktemp("serve")
    file, port = configured(folder)
    process = started(project, folder, "serve", "--config", str(file))
    try:
        yield Served(f"http://127.0.0.1:{port}", process.stdout())
    finally:
        process.stop()
    assert "Traceback" not in process.output()


def beads(name: str, *row: float) -> dict[str, object]:
    return {"name": name, "kind": "FP64", "shape": [1, len(row)], "data": list(row)}


def test_it_is_shown_to_people(served: Served) -> None:
    assert "umbridge, v2-rest, abacus" in served.printed
    assert f"curl {served.url}/abacus/posterior\n" in served.printed


def test_other_clients_reach_a_server_of_it(served: Served) -> None:
    assert post(served.url, "/Evaluate", name="posterior", input=[[1, 2]], config={}) == (200, {"output": [[-5.0]]})
    theta = {"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}
    status, answer = post(served.url, "/v2/models/posterior/infer", inputs=[theta])
    assert (status, answer["outputs"][0]["data"]) == (200, [-5.0])


def test_its_clients_reach_another_server(served: Served) -> None:
    answer = post(served.url, "/abacus/posterior/infer", beads=[beads("input0", 1, 2)])
    assert answer == (200, {"beads": [{"name": "output0", "kind": "FP64", "shape": [1, 1], "data": [-5.0]}]})


def test_its_derivatives_are_operations_on_both_sides(served: Served) -> None:
    answer = post(served.url, "/Gradient", name="posterior", outWrt=0, inWrt=0, input=[[1, 2]], sens=[1], config={})
    assert answer == (200, {"output": [20.0, -10.0]})
    status, answer = post(served.url, "/abacus/posterior/gradient", beads=[beads("input0", 1, 2), beads("sens", 1)])
    assert (status, answer["beads"][0]["data"]) == (200, [20.0, -10.0])
    status, told = get(served.url, "/abacus/posterior")
    assert (status, told["does"]) == (200, ["apply_hessian", "apply_jacobian", "gradient", "infer"])


def test_its_errors_and_those_of_the_listener_are_in_its_form(served: Served) -> None:
    status, answer = post(served.url, "/abacus/double/infer", beads=[beads("input0", 1, 2)])
    assert (status, answer["reason"]) == (400, "invalid-input")
    assert get(served.url, "/abacus/a/b/c")[1]["reason"] == "path-not-found"
    status, answer = post(served.url, "/Evaluate", name="nobody", input=[[1, 2]], config={})
    assert (status, answer["error"]["type"]) == (400, "ModelNotFound")


# --- gateway reference, gateway call ---


def test_a_reference_server_speaks_it_and_call_asks_it(project: Path, tmp_path: Path) -> None:
    arguments = ("--protocol", NAME, "--bind", "127.0.0.1:0", "--model", "double")
    process = started(project, tmp_path, "reference", *arguments)
    try:
        [address] = re.findall(r"abacus on (\S+): double", process.stdout())
        status, told = get(f"http://{address}", "/abacus/double")
        assert (status, told["takes"]) == (200, [{"name": "x", "kind": "FP64", "shape": [-1, -1]}])
        asked = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2.5]}]}
        called = run(
            project, "call", "--protocol", NAME, "--address", address, "--model", "double", "-", given=json.dumps(asked)
        )
        assert json.loads(called.stdout)["outputs"][0]["data"] == [2.0, 5.0]
    finally:
        process.stop()
