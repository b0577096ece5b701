"""The independent C++-like UM-Bridge server, against what was observed of the original."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse

import pytest

from tests.limits import GENEROUS
from tests.peers.httplib import KEEP_ALIVE_REQUESTS, THREADS
from tests.peers.umbridge_cpp import CppServer, Gate, Model, serve


def crash(*arguments: object) -> list[list[float]]:
    raise RuntimeError("the model crashed on purpose")


MODELS = [
    Model("double", [2], [2], evaluate=lambda inputs, config: [[2 * number for number in inputs[0]]]),
    Model(
        "product",
        [1, 1],
        [1],
        evaluate=lambda inputs, config: [[inputs[0][0] * inputs[1][0]]],
        gradient=lambda out_wrt, in_wrt, inputs, sens, config: [sens[0] * inputs[1 - in_wrt][0]],
        apply_jacobian=lambda out_wrt, in_wrt, inputs, vec, config: [vec[0] * inputs[1 - in_wrt][0]],
        apply_hessian=lambda out, in1, in2, inputs, sens, vec, config: [sens[0] * vec[0] * (in1 != in2)],
    ),
    Model("sized", lambda config: [config["n"]], [1], evaluate=lambda inputs, config: [[sum(inputs[0])]]),
    Model("crash", [1], [1], evaluate=crash),
    Model("wrong", [1], [1], evaluate=lambda inputs, config: [[1.0, 2.0]]),
    Model("odd", [1], [3], evaluate=lambda inputs, config: [[math.nan, math.inf, inputs[0][0]]]),
]


@pytest.fixture(scope="module")
def server() -> Iterator[CppServer]:
    with serve(MODELS) as running:
        yield running


def connect(server: CppServer) -> HTTPConnection:
    return HTTPConnection(server.url.removeprefix("http://"), timeout=GENEROUS)


def request(server: CppServer, method: str, path: str, body: str | None = None) -> tuple[HTTPResponse, bytes]:
    connection = connect(server)
    try:
        connection.request(method, path, body, {"Connection": "close"})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def post(server: CppServer, path: str, **body: object) -> tuple[int, bytes]:
    response, answer = request(server, "POST", path, json.dumps(body))
    return response.status, answer


def test_info_gives_the_version_as_a_number(server: CppServer) -> None:
    response, body = request(server, "GET", "/Info")

    assert response.getheader("Content-Type") == "application/json"
    assert body == b'{"models":["double","product","sized","crash","wrong","odd"],"protocolVersion":1.0}'


def test_integers_come_back_as_doubles(server: CppServer) -> None:
    assert post(server, "/Evaluate", name="double", input=[[9, 1]], config={}) == (200, b'{"output":[[18.0,2.0]]}')


def test_what_json_has_no_number_for_becomes_null(server: CppServer) -> None:
    assert post(server, "/Evaluate", name="odd", input=[[1e300]]) == (200, b'{"output":[[null,null,1e+300]]}')


@pytest.mark.parametrize(
    ("path", "arguments", "output"),
    [
        ("/Gradient", {"outWrt": 0, "inWrt": 0, "sens": [2]}, b'{"output":[10.0]}'),
        ("/ApplyJacobian", {"outWrt": 0, "inWrt": 1.0, "vec": [2]}, b'{"output":[6.0]}'),
        ("/ApplyHessian", {"outWrt": 0, "inWrt1": 0, "inWrt2": 1, "sens": [2], "vec": [4]}, b'{"output":[8.0]}'),
    ],
)
def test_derivatives(server: CppServer, path: str, arguments: dict[str, object], output: bytes) -> None:
    assert post(server, path, name="product", input=[[3], [5]], **arguments) == (200, output)


def test_sizes_depend_on_the_config(server: CppServer) -> None:
    assert post(server, "/InputSizes", name="sized", config={"n": 4}) == (200, b'{"inputSizes":[4]}')
    assert post(server, "/OutputSizes", name="sized", config={"n": 4}) == (200, b'{"outputSizes":[1]}')


def test_support_is_what_the_model_has(server: CppServer) -> None:
    _status, body = post(server, "/ModelInfo", name="double")

    expected = {"Evaluate": True, "Gradient": False, "ApplyJacobian": False, "ApplyHessian": False}
    assert json.loads(body) == {"support": expected}


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/Evaluate", {"name": "nobody", "input": [["x"]]}, 400, "ModelNotFound"),
        ("/InputSizes", {"name": "nobody"}, 400, "ModelNotFound"),
        ("/Gradient", {"name": "double"}, 400, "UnsupportedFeature"),
        ("/Evaluate", {"name": "double"}, 400, "InvalidInput"),
        ("/Evaluate", {"name": "double", "input": [[1]]}, 400, "InvalidInput"),
        ("/Gradient", {"name": "product", "inWrt": -1, "outWrt": 0, "input": [], "sens": [1]}, 400, "InvalidInput"),
        (
            "/Gradient",
            {"name": "product", "inWrt": 0, "outWrt": 0, "input": [[1], [1]], "sens": []},
            400,
            "InvalidInput",
        ),
        ("/Evaluate", {"name": "wrong", "input": [[1]]}, 500, "InvalidOutput"),
    ],
)
def test_what_the_original_checks(
    server: CppServer, path: str, body: dict[str, object], status: int, kind: str
) -> None:
    answered, text = post(server, path, **body)

    assert (answered, json.loads(text)["error"]["type"]) == (status, kind)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("", "Expecting value"),
        ("[1]", "must be object"),
        ("{}", "must be string, but is null"),
        ('{"name": "crash", "input": [[1]]}', "the model crashed on purpose"),
        ('{"name": "double", "input": [1, 2]}', "must be array, but is number"),
        ('{"name": "double", "input": [[1, null]]}', "must be number, but is null"),
        ('{"name": "double", "input": [[1, NaN]]}', "invalid literal 'NaN'"),
        ('{"name": "double", "input": [[1, 1e999]]}', "number overflow"),
    ],
)
def test_an_exception_is_an_empty_500_with_its_text_in_a_header(server: CppServer, body: str, what: str) -> None:
    response, answer = request(server, "POST", "/Evaluate", body)

    assert (response.status, answer) == (500, b"")
    assert what in (response.getheader("EXCEPTION_WHAT") or "")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/Info"), ("GET", "/Evaluate"), ("GET", "/info"), ("GET", "/Info/"), ("GET", "/")]
)
def test_anything_else_is_an_empty_404(server: CppServer, method: str, path: str) -> None:
    response, body = request(server, method, path)

    assert (response.status, body) == (404, b"")


@pytest.mark.parametrize(
    "head", ["Transfer-Encoding: chunked\r\n\r\n19\r\n", "Content-Length: 25\r\nExpect: 100-continue\r\n\r\n"]
)
def test_bodies_may_be_chunked_or_announced(server: CppServer, head: str) -> None:
    body = '{"name":"sized","n":   1}'
    text = f"POST /ModelInfo?query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}{body}\r\n0\r\n\r\n"

    assert b"HTTP/1.1 200 OK" in talk(server, text.encode())


def test_a_post_without_a_length_lasts_until_the_connection_ends(server: CppServer) -> None:
    answer = talk(server, b'POST /ModelInfo HTTP/1.1\r\nHost: x\r\n\r\n{"name": "sized"}')

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in answer


def talk(server: CppServer, text: bytes) -> bytes:
    """Send everything, close that half, and read to the end."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=GENEROUS) as connection:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            return stream.read()


def test_a_connection_ends_after_five_requests() -> None:
    with serve(MODELS) as server:
        connection = connect(server)
        headers = []
        for _ in range(KEEP_ALIVE_REQUESTS + 1):
            connection.request("GET", "/Info")
            response = connection.getresponse()
            response.read()
            headers.append(response.getheader("Connection") or response.getheader("Keep-Alive"))
        connection.close()

    assert headers == ["timeout=5, max=5"] * 4 + ["close", "timeout=5, max=5"]
    assert server.connections == 2
    assert [received.connection for received in server.requests] == [1] * 5 + [2]


def test_idle_connections_hold_the_threads() -> None:
    with serve(MODELS, keep_alive=60) as server, ThreadPoolExecutor() as pool:
        idle = [connect(server) for _ in range(THREADS)]
        for connection in idle:
            connection.request("GET", "/Info")
            connection.getresponse().read()
        late = pool.submit(request, server, "GET", "/Info")
        # The late one is answered no sooner than one of the idle ones leaves, whatever the timing.
        assert len(server.requests) == THREADS
        idle[0].close()
        assert late.result(10)[0].status == 200
        for connection in idle:
            connection.close()


@pytest.mark.parametrize(("parallel", "peak"), [(False, 1), (True, 3)])
def test_one_model_call_at_a_time(parallel: bool, peak: int) -> None:
    gate = Gate()
    gated = Model("gated", [1], [1], evaluate=lambda inputs, config: inputs, gate=gate)
    with serve([gated], parallel=parallel) as server, ThreadPoolExecutor() as pool:
        calls = [pool.submit(post, server, "/Evaluate", name="gated", input=[[number]]) for number in range(3)]
        assert gate.wait_entered(peak)
        gate.open()
        assert [call.result(10)[0] for call in calls] == [200] * 3

    assert (gate.entered, gate.peak) == (3, peak)


def test_stopping_leaves_no_thread() -> None:
    before = threading.active_count()
    gate = Gate()
    with serve([Model("gated", [1], [1], evaluate=lambda inputs, config: inputs, gate=gate)]) as server:
        connection = connect(server)
        connection.request("POST", "/Evaluate", '{"name": "gated", "input": [[1]]}')
        assert gate.wait_entered(1)
    connection.close()

    assert threading.active_count() == before
    assert server.open_connections == 0
