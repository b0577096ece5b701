"""The independent C++-like grps server, against what was observed of the original."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection

import grpc
import pytest
import yaml

from tests.limits import GENEROUS
from tests.peers.brpc_client import Client
from tests.peers.build import ROOT
from tests.peers.grps_client import Grpc, Rest
from tests.peers.grps_cpp import Server, serve
from tests.peers.grps_messages import SUCCESS, failure, tensor
from tests.peers.test_grps_messages import OK, X
from tests.peers.test_grps_python import DOUBLED, TWICE


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture
def rest(server: Server) -> Rest:
    return Rest(server.http.address)


@pytest.fixture
def remote(server: Server) -> Iterator[Grpc]:
    with Grpc(server.grpc.address) as client:
        yield client


def test_a_reply_byte_by_byte(rest: Rest) -> None:
    told = rest.ask("PUT", "/health/live")
    assert (told.status, told.kind, told.body) == (200, "application/json", OK + b"\n")
    assert "connection" not in told.headers


def test_connections_are_kept() -> None:
    with serve(grpc_port=None, brpc_port=None) as server:
        connection = HTTPConnection(server.http.address, timeout=GENEROUS)
        for _ in range(3):
            connection.request("GET", "/grps/v1/health/live")
            assert connection.getresponse().read() == OK + b"\n"
        connection.close()
        assert (server.http.connections, len(server.http.requests)) == (1, 3)


def test_tensors(rest: Rest) -> None:
    told = rest.predict({"model": "twice-1.0.0", "gtensors": {"tensors": [X]}})
    assert told.document["gtensors"]["tensors"] == [X | {"flat_float32": [2, 4, 6]}]
    assert b"\n     2,\n" in told.body
    both = rest.predict({"str_data": "lost", "gtensors": {"tensors": [X | {"flatFloat32": [9]}]}}).document
    assert both == {"status": SUCCESS, "gtensors": {"tensors": [X]}}
    nested = rest.predict({"ndarray": [[1, 2], [3, 6.1]]}, return_ndarray="true").document
    assert nested == {"status": SUCCESS, "ndarray": [[1, 2], [3, 6.099999904632568]]}
    wide = {"name": "d", "dtype": "DT_FLOAT64", "shape": [2], "flat_double": [1, 2]}
    ignored = rest.predict({"gtensors": {"tensors": [wide]}}).document["gtensors"]["tensors"]
    assert ignored == [{"name": "d", "dtype": "DT_FLOAT64", "shape": [2]}]


@pytest.mark.parametrize("name", ["str_data", "gmap"])
def test_empty_values_are_accepted(rest: Rest, name: str) -> None:
    empty: object = "" if name == "str_data" else {}
    assert rest.predict({name: empty}).document == {"status": SUCCESS, name: empty}


@pytest.mark.parametrize(
    ("body", "kind", "code", "text"),
    [
        (b"{}", None, 400, "Bad Request, err: Content type is not supported."),
        (b"{}", "application/json; charset=utf-8", 400, "Bad Request, err: Content type is not supported."),
        (b"", "application/json", 400, "Bad Request, err: Parse json failed."),
        (b"{", "application/json", 400, "Bad Request, err: Parse json failed."),
        (b'{"model": "x"}', "application/json", 400, "Bad Request, err: Have no legal member in json body."),
        (
            b'{"bin_data": "AA=="}',
            "application/json",
            400,
            "Bad Request, err: bin_data should use application/octet-stream format.",
        ),
        (b'{"str_data": "a", "model": "x"}', "application/json", 500, "[ExecutorException] Not found model: x"),
        (b'{"str_data": "a", "model": "crash-1.0.0"}', "application/json", 500, "the model broke"),
        (b'{"ndarray": [[1], [2, 3]]}', "application/json", 400, "Bad Request, err: Parse json failed."),
        (b'{"ndarray": []}', "application/json", 400, "Bad Request, err: Parse json failed."),
    ],
)
def test_errors_are_in_the_body_alone(rest: Rest, body: bytes, kind: str | None, code: int, text: str) -> None:
    told = rest.ask("POST", "/infer/predict", body, kind)
    assert (told.status, told.kind, told.document) == (200, kind, failure(code, text))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"str_data": "x"}, "No tensors in output. Cannot convert to ndarray."),
        ({"gtensors": {"tensors": [tensor("a", "DT_INT32", [1], [1])]}}, "NDArray only support float32"),
        ({"gtensors": {"tensors": [X, X]}}, "NDArray only support one tensor"),
    ],
)
def test_what_is_no_ndarray(rest: Rest, message: dict[str, object], text: str) -> None:
    assert rest.predict(message, return_ndarray="true").document == failure(500, text)


def test_streams_are_concatenated_and_bytes_are_raw(rest: Rest) -> None:
    told = rest.predict({"model": "count-1.0.0", "str_data": "2"}, streaming="true")
    message = OK[:-2] + b',\n "str_data": "%d"\n}\n'
    assert (told.kind, told.body) == ("application/octet-stream", message % 0 + message % 1)
    assert b"".join(rest.stream_bytes(b"2", model="count-1.0.0")) == b"\0\xff\0\0\xff\1"
    assert len(list(rest.stream({"model": "count-1.0.0", "str_data": "300"}))) == 300


def test_one_flag_for_all() -> None:
    with serve() as server:
        rest = Rest(server.http.address)
        with Grpc(server.grpc.address) as remote, Client(server.brpc.address) as framed:
            down, up = failure(503, "Service Unavailable"), {"status": SUCCESS}
            assert (rest.health("ready").status, rest.health("ready").document) == (200, down)
            assert remote.call("CheckReadiness") == framed.call("CheckReadiness").message == down
            rest.health("online")
            assert remote.call("CheckReadiness") == framed.call("CheckReadiness").message == up
            framed.call("Offline")
            assert rest.health("ready").document == down


def test_unknown_paths(rest: Rest) -> None:
    told = rest.ask("GET", "/nowhere")
    assert (told.status, told.kind, told.headers["x-bd-error-code"]) == (404, "text/plain", "1002")


def test_metadata_knows_the_first_model_only(rest: Rest, remote: Grpc) -> None:
    text = rest.server_metadata().document["str_data"]
    assert list(yaml.safe_load(text)) == [
        "interface",
        "max_connections",
        "max_concurrency",
        "gpu",
        "log",
        "models",
        "dag",
    ]
    assert remote.call("ServerMetadata") == {"str_data": text}
    assert rest.ask("PUT", "/metadata/model", b'{"str_data": "echo"}', "text/plain").document["status"] == SUCCESS
    assert rest.model_metadata("twice").document == failure(404, "Not Found")
    assert remote.call("ModelMetadata", {"str_data": "twice"}) == failure(404, "Not Found") | {"str_data": ""}


def test_grpc_byte_by_byte(remote: Grpc) -> None:
    assert remote.call_bytes("Predict", TWICE) == DOUBLED
    assert remote.call("Predict", {"model": "x"}) == failure(500, "[ExecutorException] Not found model: x")
    with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
        remote.call("PredictByHttp")


def test_it_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "tests.peers.grps_cpp", "--grpc", "0", "--brpc", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ports = json.loads(process.stdout.readline())
        try:
            assert Rest(f"127.0.0.1:{ports['http']}").health("live").status == 200
            with Client(f"127.0.0.1:{ports['brpc']}") as client:
                assert client.call("CheckLiveness").message == {"status": SUCCESS}
            assert ports["grpc"]
        finally:
            process.terminate()
        assert process.wait(GENEROUS) == 0
