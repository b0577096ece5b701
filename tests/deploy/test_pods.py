"""The pods that the chart makes, run on this machine: they start, their probes answer, and `helm test` passes.

How they end is in test_rollout.py.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.pods import run_to_the_end, running
from tests.deploy.rendered import needed, render, rendered
from tests.limits import GENEROUS

pytestmark = pytest.mark.long

RUN = ["everything", "demo-values", "existing-values", "v2-facade", "umbridge-to-triton"]
"""The values files whose backends are all here: the demo's, and the stand-ins of docs/deploy.md."""

DOUBLED = [[2.0, 4.0, 6.0]]
WIRE_FORMS = 10


def outputs(text: str) -> dict[str, Any]:
    """The outputs that `gateway call` printed, by name."""
    return {each["name"]: each["data"] for each in json.loads(text)["outputs"]}


@pytest.fixture(scope="module")
def passed() -> list[Any]:
    """The pods of `helm test` that have run: those of the demo and of `everything` send the same."""
    return []


@pytest.mark.parametrize("name", RUN)
def test_a_pod_starts_answers_its_probes_and_passes_helm_test(name: str, tmp_path: Path, passed: list[Any]) -> None:
    release = rendered(name)
    with running(release, needed(release), tmp_path) as (cluster, gateway):
        assert [gateway.probe(each) for each in ("startup", "readiness", "liveness")] == [200, 200, 200]
        for each in release.all("Pod"):
            if each["spec"] in passed:
                continue
            passed.append(each["spec"])
            results = run_to_the_end(cluster, each, tmp_path / "test")
            ((status, text),) = results.values()
            assert status == 0, text
            check_outputs(text)


def check_outputs(text: str) -> None:
    """`helm test` goes by the exit status; that the numbers are right, too, is seen here."""
    lines = text.splitlines()
    assert len(lines) == 2 * len([each for each in lines if each.endswith(":")]), "a name and a reply for each call"
    for reply in lines[1::2]:
        values = list(outputs(reply).values())
        assert values in ([DOUBLED[0]], DOUBLED, [[-5.0]], [["class_1"], [pytest.approx(0.9362, abs=1e-4)]]), text


@pytest.mark.parametrize("name", ["demo-values", "everything"])
def test_helm_test_asks_over_every_wire_form(name: str) -> None:
    # `helm test --logs` names no container, which Kubernetes takes for a pod with a single one only.
    (container,) = rendered(name).one("Pod")["spec"]["containers"]
    (script,) = container["args"]
    assert len(set(re.findall(r" ([a-z0-9-]+)://", script))) == WIRE_FORMS


def test_there_is_no_test_without_anything_to_ask() -> None:
    release = rendered("minimal-values")
    assert not release.all("Pod")
    assert "`helm test` has nothing to send" in release.notes


def test_helm_test_fails_where_a_protocol_does_not_answer(tmp_path: Path) -> None:
    release = render(
        """
        demo: {enabled: true}
        test:
          requests:
            - model: absent
              protocols: [v2-rest, v2-grpc]
              inputs: [{name: x, datatype: FP64, shape: [1], data: [1]}]
        """
    )
    with running(release, [], tmp_path) as (cluster, _):
        results = run_to_the_end(cluster, release.one("Pod"), tmp_path / "test")
    ((status, text),) = results.values()
    assert status == 1
    assert "no answer: http-v2-rest-0 grpc-v2-grpc-0" in text
    assert "absent" in text


def commands(notes: str) -> list[str]:
    return [line.strip() for line in notes.splitlines() if line.strip().startswith("curl ")]


@pytest.mark.real("curl")
def test_the_calls_that_the_notes_show_succeed(tmp_path: Path) -> None:
    release = rendered("demo-values")
    with running(release, [], tmp_path) as (_, gateway):
        shown = commands(release.notes)
        assert len(shown) == 5
        for command in shown:
            for port in gateway.container["ports"]:
                command = command.replace(f"127.0.0.1:{port['containerPort']}", gateway.address(port["name"]))
            done = subprocess.run(
                ["sh", "-c", command.replace("curl", "curl -sf", 1)], capture_output=True, timeout=GENEROUS
            )
            assert done.returncode == 0, command
