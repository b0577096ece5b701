"""A client that gives its request up, or goes away: the real Triton stops computing it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.interop.exchanges import Addresses, Listen
from tests.interop.processes import Triton, eventually
from tests.interop.rawhttp import posting
from tests.interop.real_clients import Step, elements, infer, status_of, stream, tensor, tritonclient_grpc

CONFIG = """
listeners:
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-grpc]}}
  - {{name: rest, bind: "127.0.0.1:{rest}", protocols: [v2-rest]}}
backends:
  triton: {{protocol: v2-grpc, endpoints: ["{triton}"]}}
  impatient: {{protocol: v2-grpc, endpoints: ["{triton}"], policies: [{{timeout: {{seconds: 2}}}}]}}
routes:
  - {{match: {{model: impatient}}, backend: impatient, rewrite: {{model: cancellable}}}}
  - {{match: {{model: last}}, backend: triton, rewrite: {{model: cancellable}}, translate: {{stream: last}}}}
  - {{match: {{model: "*"}}, backend: triton}}
"""


@pytest.fixture(scope="module")
def fronts(listen: Listen, triton: Triton) -> Addresses:
    return listen(CONFIG, triton=triton.grpc)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the model tells what became of its request."""
    return tmp_path / "file"


def step(file: Path, model: str = "cancellable", **options: object) -> Step:
    return infer(model, tensor("file", "BYTES", [1], elements(str(file).encode())), **options)


def is_cancelled(file: Path) -> bool:
    return eventually(lambda: file.exists() and file.read_text() == "cancelled", seconds=60)


@pytest.mark.parametrize(
    ("op", "model"),
    [("cancel", "cancellable"), ("cancel_stream", "cancellable"), ("cancel", "last")],
    ids=["call", "stream", "stream made one response"],
)
def test_a_grpc_client_that_cancels(fronts: Addresses, file: Path, op: str, model: str, kind: str) -> None:
    tritonclient_grpc(fronts["grpc"], kind, {"op": op, "request": step(file, model), "file": str(file)})

    assert is_cancelled(file)


def test_a_deadline_that_passes(fronts: Addresses, file: Path, kind: str) -> None:
    (result,) = tritonclient_grpc(fronts["grpc"], kind, step(file, client_timeout=2))

    assert status_of(result) == "DEADLINE_EXCEEDED"
    assert is_cancelled(file)


def test_a_streams_deadline_that_passes(fronts: Addresses, file: Path, kind: str) -> None:
    (responses,) = tritonclient_grpc(fronts["grpc"], kind, stream(step(file), client_timeout=2))

    assert list(map(status_of, responses)) == ["DEADLINE_EXCEEDED"]
    assert is_cancelled(file)


def test_the_timeout_parameter_and_that_of_the_route(fronts: Addresses, file: Path, tmp_path: Path) -> None:
    """V2's `timeout` is in microseconds; Triton itself takes it for no more than the time in its queue."""
    other = tmp_path / "other"
    parameter, policy = tritonclient_grpc(
        fronts["grpc"], "sync", step(file, timeout=2_000_000), step(other, "impatient")
    )

    assert [status_of(parameter), status_of(policy)] == ["DEADLINE_EXCEEDED"] * 2
    assert is_cancelled(file)
    assert is_cancelled(other)


@pytest.mark.parametrize("model", ["cancellable", "last"])
def test_a_rest_client_that_goes_away(fronts: Addresses, file: Path, model: str) -> None:
    given = {"name": "file", "datatype": "BYTES", "shape": [1], "data": [str(file)]}
    host, _, port = fronts["rest"].partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(posting(f"/v2/models/{model}/infer", json.dumps({"inputs": [given]}).encode()))
        assert eventually(lambda: file.exists() and file.read_text() == "started", seconds=60)

    assert is_cancelled(file)
