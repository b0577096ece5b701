"""The independent Python-like grps server, against what was observed of the original."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection

import grpc
import pytest

from tests.limits import GENEROUS
from tests.peers.grps_client import Grpc, Rest
from tests.peers.grps_messages import SUCCESS, failure
from tests.peers.grps_python import Server, serve
from tests.peers.test_grps_messages import OK, X

TWICE = bytes.fromhex("120b74776963652d312e302e302a180a160a017810071a0103520c0000803f0000004000004040")
DOUBLED = bytes.fromhex("0a0908c80112024f4b18012a180a160a017810071a0103520c00000040000080400000c040")
PREDICT = "/infer/predict"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(customized_path="/v1/own") as running:
        yield running


@pytest.fixture
def rest(server: Server) -> Rest:
    return Rest(server.http.address)


@pytest.fixture
def remote(server: Server) -> Iterator[Grpc]:
    with Grpc(server.grpc.address) as client:
        yield client


def test_a_reply_byte_by_byte(rest: Rest) -> None:
    told = rest.health("live")
    assert (told.status, told.kind, told.body) == (200, "application/json;charset=utf-8", OK)
    assert told.headers["connection"] == "close"


def test_tensors_by_name_and_number_camel_case_and_ndarray(rest: Rest) -> None:
    camel = {"name": "x", "dtype": 7, "shape": [3], "flatFloat32": [1, 2, 3]}
    told = rest.predict({"model": "twice-1.0.0", "gtensors": {"tensors": [camel]}}, model="nobody")
    unfolded = told.document["gtensors"]["tensors"]
    assert unfolded == [X | {"flat_float32": [2.0, 4.0, 6.0]}]
    assert b"\n     2.0,\n" in told.body
    nested = rest.predict({"ndarray": [[1, 2], [3, 6.1]]}, return_ndarray="True").document
    assert nested == {"status": SUCCESS, "model": "", "ndarray": [[1, 2], [3, 6.099999904632568]]}


@pytest.mark.parametrize(
    ("body", "kind", "code", "text"),
    [
        (b"{}", None, 400, "No content type in headers."),
        (b"{}", "text/plain", 400, "Unsupported content type."),
        (b"{}", "application/json; charset=utf-8", 400, "Unsupported content type."),
        (b"", "application/json", 400, "The http body is empty."),
        (b"{", "application/json", 500, "JSONDecodeError"),
        (b'{"model": "x"}', "application/json", 500, "No legal field in json."),
        (b'{"str_data": ""}', "application/json", 500, "No legal field in json."),
        (b'{"bin_data": "AA=="}', "application/json", 500, "bin_data should use application/octet-stream format."),
        (b'{"str_data": "a", "gmap": {"s_s": {"a": "b"}}}', "application/json", 500, "data_oneof"),
        (b'{"str_data": "a", "model": "nobody-1"}', "application/json", 500, "RuntimeError: Model nobody-1"),
        (b'{"str_data": "a", "model": "echo"}', "application/json", 500, "RuntimeError: Model echo"),
        (b'{"ndarray": [[1], [2, 3]]}', "application/json", 500, "inhomogeneous"),
    ],
)
def test_errors(rest: Rest, body: bytes, kind: str | None, code: int, text: str) -> None:
    told = rest.ask("POST", PREDICT, body, kind)
    status = told.document["status"]
    assert (told.status, status["code"], status["status"]) == (code, code, "FAILURE")
    assert text in status["msg"]
    assert ('File "' in status["msg"]) == (code == 500)


def test_a_models_own_error_is_bare_and_others_are_tracebacks(rest: Rest, remote: Grpc) -> None:
    failed = rest.predict({"model": "fail-1.0.0", "str_data": "enough"})
    assert (failed.status, failed.document) == (500, failure(500, "enough"))
    assert remote.call("Predict", {"model": "fail-1.0.0", "str_data": "enough"}) == failure(500, "enough")
    crashed = remote.call("Predict", {"model": "crash-1.0.0", "str_data": "x"})
    assert crashed["status"]["msg"].startswith("Traceback (most recent call last):\n  File ")


def test_streaming_with_ndarray_is_refused(rest: Rest) -> None:
    told = rest.predict({"str_data": "x"}, streaming="TRUE", return_ndarray="true")
    text = "Bad Request, err: Streaming and ret ndarray are not supported at the same time."
    assert told.document == failure(400, text)


def test_bytes_are_answered_as_bytes_and_no_bytes_as_json(rest: Rest) -> None:
    told = rest.predict_bytes(b"\0a", model="upper-1.0.0")
    assert (told.status, told.kind, told.body) == (200, "application/octet-stream", b"\0A")
    number = rest.predict({"model": "count-1.0.0", "str_data": "3"})
    assert number.document == {"status": SUCCESS, "str_data": "3"}


def test_streams_are_concatenated_with_two_spaces(rest: Rest) -> None:
    message = {"model": "count-1.0.0", "str_data": "-2"}
    told = rest.predict(message, streaming="true")
    assert (told.status, told.kind) == (200, "application/octet-stream")
    first = (
        b'{\n  "status": {\n    "code": 200,\n    "msg": "OK",\n    "status": "SUCCESS"\n  },\n  "str_data": "0"\n}{'
    )
    assert told.body.startswith(first)
    assert told.body.endswith(b"}")
    streamed = list(rest.stream(message))
    assert [each.get("str_data") for each in streamed] == ["0", "1", None]
    assert streamed[-1] == failure(500, "the stream broke")
    assert list(rest.stream({"str_data": "not streamed"})) == []


def test_bytes_in_streams_are_destroyed(rest: Rest) -> None:
    assert b"".join(rest.stream_bytes(b"2", model="count-1.0.0")) == rb"b'\x00\xff\x00'b'\x00\xff\x01'"


def test_messages_are_lost_when_asked_for() -> None:
    with serve(loses=True) as server:
        assert len(list(Rest(server.http.address).stream({"model": "count-1.0.0", "str_data": "500"}))) == 1
        with Grpc(server.grpc.address) as remote:
            assert len(list(remote.stream({"model": "count-1.0.0", "str_data": "500"}))) == 1


def test_readiness_has_two_flags() -> None:
    with serve() as server:
        rest = Rest(server.http.address)
        with Grpc(server.grpc.address) as remote:
            ready = rest.health("ready")
            assert (ready.status, ready.document) == (503, failure(503, "Service Unavailable"))
            assert rest.predict({"str_data": "offline too"}).status == 200
            assert rest.health("online").status == 200
            assert rest.health("ready").status == 200
            assert remote.call("CheckReadiness")["status"]["code"] == 403
            assert remote.call("Online") == {"status": SUCCESS}
            assert remote.call("CheckReadiness") == {"status": SUCCESS}
            assert rest.health("offline").status == 200
            assert remote.call("CheckReadiness") == {"status": SUCCESS}
            assert rest.health("ready").status == 503


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("GET", PREDICT, None, 405),
        ("PUT", "/health/online", None, 405),
        ("POST", "/metadata/model", "text/plain", 415),
    ],
)
def test_pages_of_http(rest: Rest, method: str, path: str, kind: str | None, status: int) -> None:
    told = rest.ask(method, path, b"{}", kind)
    assert (told.status, told.kind) == (status, "text/html; charset=utf-8")


def test_metadata(rest: Rest, remote: Grpc) -> None:
    server = rest.server_metadata().document["str_data"]
    assert server.startswith("#")
    assert all(f"\n{key}:" in f"\n{server}" for key in ("interface", "max_connections", "gpu", "log", "models", "dag"))
    model = rest.model_metadata("twice").document["str_data"]
    assert model.startswith("batching:")
    assert "\nname: twice\nversion: 1.0.0\n" in model
    assert rest.model_metadata("twice-1.0.0").document == failure(404, "Model not found.")
    assert rest.model_metadata("").document == failure(400, "No model name.")
    assert remote.call("ModelMetadata") == failure(400, "The model name is empty.")
    assert remote.call("ServerMetadata")["status"] == SUCCESS


def test_grpc_byte_by_byte(remote: Grpc) -> None:
    assert remote.call_bytes("Predict", TWICE) == DOUBLED
    assert [each.get("str_data") for each in remote.stream({"model": "count-1.0.0", "str_data": "3"})] == [*"012"]
    with pytest.raises(grpc.RpcError, match="Exception deserializing request!"):
        remote.call_bytes("Predict", b"\xff")


def test_the_package_without_a_version_is_unknown(server: Server) -> None:
    with (
        Grpc(server.grpc.address, "grps.protos.GrpsService") as client,
        pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"),
    ):
        client.call("Predict")


def test_customized_paths() -> None:
    with serve(customized_path="/v1/own", customized_body=True) as server:
        own = Rest(server.http.address, root="/v1")
        told = own.ask("POST", "/own", b"<a/>", "text/xml", model="echo-1.0.0")
        assert (told.status, told.kind, told.body) == (200, "text/xml", b"<a/>")
        streamed = own.ask("POST", "/own", b"a\nb", "text/plain", streaming="true")
        assert (streamed.kind, streamed.body) == ("text/event-stream", b"data: a\n\ndata: b\n\n")
        assert own.ask("POST", "/own", b"x", "text/xml", model="fail-1.0.0").body == b""
        assert own.ask("POST", "/own", b"x", "text/xml", model="crash-1.0.0").status == 500
        assert Rest(server.http.address).ask("POST", PREDICT, b"raw", "text/plain").body == b"raw"


def test_the_same_body_at_an_own_path(server: Server) -> None:
    told = Rest(server.http.address, root="/v1").ask("POST", "/own", b'{"str_data": "x"}', "application/json")
    assert told.document == {"status": SUCCESS, "str_data": "x"}


def test_chunked_requests(server: Server) -> None:
    connection = HTTPConnection(server.http.address, timeout=GENEROUS)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/grps/v1/infer/predict", iter([b'{"str_data":', b' "x"}']), headers)
    assert json.loads(connection.getresponse().read()) == {"status": SUCCESS, "str_data": "x"}
    assert server.http.requests[-1].headers["transfer-encoding"] == "chunked"
    connection.close()


def test_the_metrics_page(server: Server) -> None:
    page, series = (
        Rest(server.http.address, root="").ask("GET", path) for path in ("/", "/grps/v1/monitor/series?name=*qps")
    )
    assert page.kind == "text/html; charset=utf-8"
    assert json.loads(series.body) == {"label": "trend", "data": [[0, 0], [1, 0.5]]}
