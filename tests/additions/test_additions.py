"""A further policy is one file, and a further command one file and its line in GROUPS: tests a copy of the project
with both. (`tests/contract/test_toy.py` does the same with a protocol.)"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.exchanges import get, post
from tests.interop.processes import Process, clean_environment, free_port
from tests.limits import GENEROUS
from tests.peers.build import ROOT

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
MOST = 2
CONFIG = """
workers: {workers}
health: {{bind: "127.0.0.1:{health}"}}
admin: {{bind: "127.0.0.1:{admin}"}}
listeners: [{{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}]
reference: [{{protocol: v2-rest, bind: "127.0.0.1:{model}", models: [double]}}]
backends: {{lab: {{protocol: v2-rest, endpoints: ["127.0.0.1:{model}"], policies: [{{timeout: {{seconds: 60}}}}]}}}}
routes: [{{match: {{model: "*"}}, backend: lab, policies: [{{turnstile: {{most: {most}}}}}]}}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the additions."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "gateway", root / "gateway", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "turnstile.py", root / "gateway" / "policies")
    shutil.copy(HERE / "policies.py", root / "gateway" / "cli" / "commands")
    commands = root / "gateway" / "cli" / "__init__.py"
    text = commands.read_text("utf-8")
    commands.write_text(
        text.replace('"Operate": {\n', '"Operate": {\n        "policies": "Print the policies.",\n'), "utf-8"
    )
    return root


def environment(project: Path) -> dict[str, str]:
    return clean_environment(PYTHONPATH=str(project), PYTHONUNBUFFERED="1")


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments], cwd=project, capture_output=True, text=True, timeout=GENEROUS,
        check=False, env=environment(project),
    )  # fmt: skip


def test_the_command_is_listed_and_runs(project: Path) -> None:
    assert "  policies     Print the policies.\n" in run(project, "--help").stdout
    assert "turnstile" in run(project, "policies").stdout.split()


def test_the_policy_is_part_of_the_schema(project: Path) -> None:
    schema = run(project, "schema").stdout
    assert "The number of calls that pass." in schema


def configured(folder: Path, workers: int = 1, most: int = MOST) -> tuple[Path, dict[str, str]]:
    """A configuration file, and the URLs of its ports."""
    ports = {name: free_port() for name in ("health", "admin", "http", "model")}
    file = folder / "gateway.yaml"
    file.write_text(CONFIG.format(workers=workers, most=most, **ports))
    return file, {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}


def test_wrong_keys_of_the_policy_are_errors(project: Path, tmp_path: Path) -> None:
    file, _ = configured(tmp_path, most=-1)
    checked = run(project, "check", "--config", str(file))
    assert checked.returncode == 1
    assert "gateway.yaml:8:76: must be at least 0, got -1" in checked.stderr


@contextmanager
def served(project: Path, folder: Path, workers: int) -> Iterator[dict[str, str]]:
    file, urls = configured(folder, workers)
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
    process = Process(command, folder, environment(project))
    try:
        process.wait_until(lambda: "\nready" in process.stdout(), GENEROUS)
        yield urls
    finally:
        process.stop()
    assert "Traceback" not in process.output()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_policy_has_its_state_its_metrics_and_one_share_for_all_workers(
    project: Path, tmp_path: Path, workers: int
) -> None:
    x = {"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [1]}
    with served(project, tmp_path, workers) as urls:
        statuses = [post(urls["http"], "/v2/models/double/infer", inputs=[x])[0] for _ in range(MOST + 3)]
        assert statuses == [200] * MOST + [429] * 3
        found = states(urls)
        assert sum(each["passed"] for each in found) == MOST
        assert sum(each["refused"] for each in found) == 3
        assert set(metrics(urls)) == {
            f'gateway_turnstile_calls_total{{outcome="passed",owner="*"}} {MOST}.0',
            'gateway_turnstile_calls_total{outcome="refused",owner="*"} 3.0',
        }


def states(urls: dict[str, str]) -> list[dict[str, Any]]:
    """The states of the turnstile, one of each worker."""
    status, shown = get(urls["admin"], "/status")
    assert status == 200
    return [each["state"] for each in shown["policies"] if each["policy"] == "turnstile"]


def metrics(urls: dict[str, str]) -> list[str]:
    """The lines of its metrics."""
    _, page = get(urls["health"], "/metrics")
    return [each for each in page.splitlines() if each.startswith("gateway_turnstile_calls_total")]
