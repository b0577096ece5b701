"""UM-Bridge clients -> gateway -> UM-Bridge servers: the queue, the habits of real servers, and servers that fail.

That no answer and no error changes on the way is in test_chain.py.
"""

from __future__ import annotations

import json
import math
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Answer, Listen, exchange, get, post
from tests.interop.literal_server import literal_server
from tests.interop.processes import Server, eventually, start_umbridge
from tests.interop.rawhttp import posting
from tests.interop.real_clients import umbridge
from tests.paused_server import port_of
from tests.peers.umbridge_cpp import CppServer, Gate, Model, serve

CONFIG = """
listeners:
  - {{name: python, bind: "127.0.0.1:{python}", protocols: [umbridge]}}
  - {{name: cpp, bind: "127.0.0.1:{cpp}", protocols: [umbridge]}}
  - {{name: faulty, bind: "127.0.0.1:{faulty}", protocols: [umbridge]}}
  - {{name: own, bind: "127.0.0.1:{own}", protocols: [umbridge]}}
admin: {{bind: "127.0.0.1:{admin}"}}
backends:
  python: {{protocol: umbridge, endpoints: ["{python_server}"]}}
  cpp: {{protocol: umbridge, endpoints: ["{cpp_server}"]}}
  faulty: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{faulty_server}"]}}
  own: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{own_server}"]}}
routes:
  - {{match: {{listener: python, model: "*"}}, backend: python}}
  - {{match: {{listener: cpp, model: "*"}}, backend: cpp}}
  - {{match: {{listener: faulty, model: "*"}}, backend: faulty}}
  - {{match: {{listener: own, model: "*"}}, backend: own}}
"""


@pytest.fixture(scope="module")
def urls(listen: Listen, umbridge_server: str, cpp: CppServer) -> Addresses:
    """What listens for the clients of each server; and where a test starts servers of its own."""
    return listen(CONFIG, python_server=umbridge_server, cpp_server=cpp.url)


# --- A server with the habits of the C++ one; it computes in parallel, so that only the gateway holds calls back ---

GATES: dict[str, Gate] = {}
"""Calls whose config names a gate pass it."""
ORDER: list[list[float]] = []
"""The first inputs of the calls, in the order in which they passed."""


def double(inputs: list[list[float]], config: Any) -> list[list[float]]:
    gate = GATES.get(config.get("gate", ""))
    if gate is None:
        return [[2 * number for number in inputs[0]]]
    with gate.passing():
        ORDER.append(inputs[0])
        return [[2 * number for number in inputs[0]]]


def crash(inputs: list[list[float]], config: Any) -> list[list[float]]:
    raise RuntimeError("the solver did not converge")


CPP_MODELS = (
    Model("one", [1], [1], evaluate=double),
    Model("other", [1], [1], evaluate=double),
    Model("crash", [1], [1], evaluate=crash),
    Model("constant", [], [1], evaluate=lambda inputs, config: [[7.0]]),
    Model("empty", [0], [0], evaluate=lambda inputs, config: inputs),
    Model("infinite", [1], [1], evaluate=lambda inputs, config: [[math.inf]]),
)


@pytest.fixture(scope="module")
def cpp() -> Iterator[CppServer]:
    with serve(CPP_MODELS, parallel=True) as server:
        yield server


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as running:
        yield running


@pytest.fixture
def gate(threads: ThreadPoolExecutor) -> Iterator[Gate]:
    """It opens when the test is over, before the threads are waited for that hang at it."""
    ORDER.clear()
    GATES["closed"] = gate = Gate()
    yield gate
    gate.open()


def held(url: str, number: float, model: str = "one", client: str = "127.0.0.1") -> Answer:
    """An Evaluate that waits at the gate."""
    return post(url, "/Evaluate", client=client, name=model, input=[[number]], config={"gate": "closed"})


def backend(urls: Addresses, name: str) -> Any:
    return get(urls["admin"], "/status")[1]["backends"][name]


def waiting(urls: Addresses, calls: int) -> bool:
    """Wait until so many calls are in the gateway's queue."""
    return eventually(lambda: backend(urls, "cpp")["waiting"] == calls, seconds=60)


# --- One call at a time ---


def test_one_call_is_in_flight_per_server(urls: Addresses, threads: ThreadPoolExecutor, gate: Gate) -> None:
    answers = [threads.submit(held, urls["cpp"], number) for number in range(8)]
    assert waiting(urls, 7)
    assert gate.wait_entered(1)
    assert gate.entered == 1
    gate.open()

    assert [answer.result() for answer in answers] == [(200, {"output": [[2.0 * number]]}) for number in range(8)]
    assert gate.peak == 1


def test_a_busy_server_still_describes_itself(urls: Addresses, threads: ThreadPoolExecutor, gate: Gate) -> None:
    threads.submit(held, urls["cpp"], 1)
    assert gate.wait_entered(1)

    assert post(urls["cpp"], "/InputSizes", name="other", config={"new": 1}) == (200, {"inputSizes": [1]})
    assert get(urls["cpp"], "/Info")[0] == 200


@pytest.mark.parametrize("late", [{"model": "other"}, {"client": "127.0.0.2"}], ids=str)
def test_a_backlog_does_not_hold_up_others(
    urls: Addresses, threads: ThreadPoolExecutor, gate: Gate, late: dict[str, str]
) -> None:
    """Who comes last with another model, or from another host, is served after one call of the backlog at most."""
    answers = []
    for number, call in enumerate([{}, {}, {}, {}, late]):
        answers.append(threads.submit(held, urls["cpp"], number, **call))
        assert gate.wait_entered(1)  # the first call is in the server, the others in the queue, in their order
        assert waiting(urls, number)
    gate.open()

    assert [answer.result()[0] for answer in answers] == [200] * 5
    assert [number for (number,) in ORDER] == [0, 1, 4, 2, 3]


def test_an_abandoned_call_keeps_its_slot_and_a_queued_one_is_dropped(
    urls: Addresses, threads: ThreadPoolExecutor, gate: Gate
) -> None:
    """The server computes on although nobody listens any more: another call would wait there, out of sight."""
    with leaving_client(urls["cpp"], 100) as running:
        assert gate.wait_entered(1)
        with leaving_client(urls["cpp"], 200):
            assert waiting(urls, 1)
            running.close()
    assert waiting(urls, 0)  # the gateway has seen the second one go, and the first before it

    answer = threads.submit(held, urls["cpp"], 300)
    assert waiting(urls, 1)
    assert backend(urls, "cpp")["endpoints"][0]["in_flight"] == 1
    assert gate.entered == 1
    gate.open()

    assert answer.result() == (200, {"output": [[600.0]]})
    assert ORDER == [[100.0], [300.0]]


def leaving_client(url: str, number: float) -> socket.socket:
    """A client that has sent its call, and will not wait for the answer."""
    body = json.dumps({"name": "one", "input": [[number]], "config": {"gate": "closed"}}).encode()
    connection = socket.create_connection(("127.0.0.1", port_of(url)))
    connection.sendall(posting("/Evaluate", body))
    return connection


# --- Habits of servers and clients ---


def test_every_call_has_a_connection_of_its_own(urls: Addresses, cpp: CppServer, threads: ThreadPoolExecutor) -> None:
    """Eight idle connections would shut everyone out of the C++ server for five seconds."""
    before = len(cpp.requests)
    answers = list(threads.map(lambda number: post(urls["cpp"], "/Evaluate", name="one", input=[[number]]), range(32)))

    assert answers == [(200, {"output": [[2.0 * number]]}) for number in range(32)]
    asked = cpp.requests[before:]
    assert {request.headers["connection"] for request in asked} == {"close"}
    assert len({request.connection for request in asked}) == len(asked) >= 32


def test_an_exception_is_told_as_the_server_words_it(urls: Addresses) -> None:
    error = {"type": "ModelError", "message": "the solver did not converge"}
    answers = [post(urls["cpp"], "/Evaluate", name="crash", input=[[1]]) for _ in range(3)]

    assert answers == [(500, {"error": error})] * 3  # and the server's only slot was free again each time


def test_null_is_no_number(urls: Addresses) -> None:
    """It is what the C++ server makes of infinity; the Python client would read a silent None."""
    status, document = post(urls["cpp"], "/Evaluate", name="infinite", input=[[1]])

    assert (status, document["error"]["type"]) == (500, "InvalidOutput")
    assert "backend 'cpp'" in document["error"]["message"]
    assert "null" in document["error"]["message"]


def test_models_of_no_numbers(urls: Addresses) -> None:
    assert post(urls["cpp"], "/InputSizes", name="constant") == (200, {"inputSizes": []})
    assert post(urls["cpp"], "/Evaluate", name="constant", input=[]) == (200, {"output": [[7.0]]})
    assert post(urls["cpp"], "/Evaluate", name="empty", input=[[]]) == (200, {"output": [[]]})
    status, document = post(urls["cpp"], "/Evaluate", name="constant", input=[[]])
    assert (status, document["error"]["type"]) == (400, "InvalidInput")


def test_shared_memory_is_never_used(urls: Addresses, cpp: CppServer) -> None:
    """The probe of a client on the server's machine would succeed, and from then on no number pass the gateway."""
    before = len(cpp.requests)
    probed = post(urls["cpp"], "/TestShMem", tid=0, shmem_name="/umbridge", shmem_num_inputs=1, shmem_size_0=1)
    (evaluated,) = umbridge(
        f"http://{urls['cpp']}", {"op": "evaluate", "model": "one", "input": [[21]], "use_shmem": True}
    )
    refused = [post(urls["cpp"], f"/{word}ShMem", name="one")[:1] for word in OPERATIONS]

    assert probed == (200, {})
    assert evaluated == [[42.0]]
    assert refused == [(400,)] * 4
    assert not [request.target for request in cpp.requests[before:] if "ShMem" in request.target]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("POST", "/Evaluate", "", 400, "InvalidInput"),
        ("POST", "/Evaluate", "{", 400, "InvalidInput"),
        ("POST", "/Evaluate", "[]", 400, "InvalidInput"),
        ("POST", "/Evaluate", '{"name": "one"}', 400, "InvalidInput"),
        ("POST", "/Evaluate", '{"name": "one", "input": [1, "2"]}', 400, "InvalidInput"),
        ("POST", "/Evaluate", '{"name": "nobody"}', 400, "ModelNotFound"),
        (
            "POST",
            "/Gradient",
            '{"name": "one", "input": [], "outWrt": "0", "inWrt": 0, "sens": []}',
            400,
            "UnsupportedFeature",
        ),
        ("POST", "/Gradient", '{"name": "one", "input": [], "outWrt": 0, "sens": []}', 400, "UnsupportedFeature"),
        ("POST", "/nowhere", "{}", 404, "UnsupportedFeature"),
        ("GET", "/Evaluate", None, 405, "UnsupportedFeature"),
        ("PUT", "/Info", "{}", 405, "UnsupportedFeature"),
    ],
)
def test_every_error_is_an_object(urls: Addresses, method: str, path: str, body: str, status: int, kind: str) -> None:
    answered, document = exchange(urls["cpp"], method, path, body)

    assert (answered, document["error"]["type"], list(document)) == (status, kind, ["error"])
    assert document["error"]["message"]


# --- What UM-Bridge's conformity suite wants of a server, and of a gateway in front of one ---

OPERATIONS = ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")
FIRST = {"python": ("posterior", [2], [1]), "cpp": ("one", [1], [1])}


@pytest.fixture(params=FIRST)
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_info_has_the_version_as_a_number(urls: Addresses, server: str) -> None:
    status, info = get(urls[server], "/Info")

    assert (status, sorted(info)) == (200, ["models", "protocolVersion"])
    assert (type(info["protocolVersion"]), info["protocolVersion"]) == (float, 1.0)
    assert info["models"][0] == FIRST[server][0]


def test_answers_have_no_other_properties(urls: Addresses, server: str) -> None:
    url, (model, inputs, outputs) = urls[server], FIRST[server]
    status, info = post(url, "/ModelInfo", name=model)
    assert (status, list(info), sorted(info["support"])) == (200, ["support"], sorted(OPERATIONS))
    assert {type(claimed) for claimed in info["support"].values()} == {bool}

    assert post(url, "/InputSizes", name=model) == (200, {"inputSizes": inputs})
    assert post(url, "/OutputSizes", name=model, config={}) == (200, {"outputSizes": outputs})

    point: dict[str, Any] = {"name": model, "input": [[0.0] * inputs[0]], "config": {}}
    status, evaluated = post(url, "/Evaluate", **point)
    assert (status, list(evaluated), [len(vector) for vector in evaluated["output"]]) == (200, ["output"], outputs)


@pytest.mark.parametrize(
    ("path", "arguments", "length"),
    [
        ("/Gradient", {"outWrt": 0, "inWrt": 0, "sens": [1]}, 2),
        ("/ApplyJacobian", {"outWrt": 0, "inWrt": 0, "vec": [1, 2]}, 1),
        ("/ApplyHessian", {"outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": [1], "vec": [1, 2]}, 2),
    ],
)
def test_derivatives_have_the_length_they_should(
    urls: Addresses, path: str, arguments: dict[str, Any], length: int
) -> None:
    status, document = post(urls["python"], path, name="posterior", input=[[0.5, 1]], **arguments)
    unclaimed, error = post(urls["cpp"], path, name="one", input=[[1]], **{**arguments, "vec": [1]})

    assert (status, list(document), len(document["output"])) == (200, ["output"], length)
    assert (unclaimed, error["error"]["type"]) == (400, "UnsupportedFeature")


# --- Servers that fail ---

OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


def ok(body: bytes) -> bytes:
    return OK % (len(body), body)


def described(size: int) -> dict[str, bytes]:
    return {
        "/Info": ok(b'{"protocolVersion": 1.0, "models": ["m"]}'),
        "/ModelInfo": ok(b'{"support": {"Evaluate": true}}'),
        "/InputSizes": ok(b'{"inputSizes": [%d]}' % size),
        "/OutputSizes": ok(b'{"outputSizes": [%d]}' % size),
    }


def faulty_server(address: str, replies: dict[str, bytes]) -> AbstractContextManager[object]:
    return literal_server(address, replies.__getitem__)


FAULTS: dict[str, tuple[bytes, int, str, str]] = {
    "closed at once": (b"", 503, "UpstreamUnavailable", ""),
    "closed in the head": (b"HTTP/1.1 200 OK\r\nContent-", 503, "UpstreamUnavailable", ""),
    "closed in the body": (b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"out', 503, "UpstreamUnavailable", ""),
    "no HTTP": (b"\x16\x03\x01 garbage \xff\r\n\r\n", 500, "InvalidOutput", ""),
    "no JSON": (ok(b"<html>"), 500, "InvalidOutput", "not JSON"),
    "half of it": (ok(b'{"output": [[1, 2]'), 500, "InvalidOutput", "not JSON"),
    "nothing": (ok(b""), 500, "InvalidOutput", ""),
    "another document": (ok(b"[[1, 2]]"), 500, "InvalidOutput", "object"),
    "no output": (ok(b'{"outputs": [[1, 2]]}'), 500, "InvalidOutput", '"output"'),
    "null": (ok(b'{"output": null}'), 500, "InvalidOutput", "list of vectors"),
    "null within": (ok(b'{"output": [[1, null]]}'), 500, "InvalidOutput", "null"),
    "a string": (ok(b'{"output": [[1, "2"]]}'), 500, "InvalidOutput", ""),
    "a boolean": (ok(b'{"output": [[1, true]]}'), 500, "InvalidOutput", ""),
    "too short": (ok(b'{"output": [[1]]}'), 500, "InvalidOutput", "output 'output0'"),
    "too long": (ok(b'{"output": [[1, 2, 3]]}'), 500, "InvalidOutput", "output 'output0'"),
    "too many": (ok(b'{"output": [[1, 2], [3]]}'), 500, "InvalidOutput", "2 outputs, expected 1"),
    "too few": (ok(b'{"output": []}'), 500, "InvalidOutput", "0 outputs, expected 1"),
    "ragged": (ok(b'{"output": [[1, [2]]]}'), 500, "InvalidOutput", ""),
    "beyond the limit": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 500, "InvalidOutput", "limits"),
}


@pytest.mark.parametrize(("reply", "status", "kind", "text"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_the_backend(urls: Addresses, reply: bytes, status: int, kind: str, text: str) -> None:
    with faulty_server(urls["faulty_server"], {**described(2), "/Evaluate": reply}):
        answered, document = post(urls["faulty"], "/Evaluate", name="m", input=[[1, 2]])

    assert (answered, document["error"]["type"]) == (status, kind)
    assert "backend 'faulty'" in document["error"]["message"]
    assert text in document["error"]["message"]


JULIA = ok(b'{"error": {"type": "InvalidGradient", "message": "why"}}')
TEXT = b"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nwhy"
HEADER = b"HTTP/1.1 500 No\r\nEXCEPTION_WHAT: why\r\nContent-Length: 0\r\n\r\n"
PROXY = b"HTTP/1.1 502 No\r\nContent-Length: 11\r\n\r\nBad Gateway"
ERRORS: dict[str, tuple[bytes, int, str, str]] = {
    "an error under 200": (ok(b'{"error": {"type": "InvalidInput", "message": "why"}}'), 400, "InvalidInput", "why"),
    "of Julia": (JULIA, 500, "InvalidOutput", "InvalidGradient: why"),
    "a text": (TEXT, 500, "ModelError", "why"),
    "a header": (HEADER, 500, "ModelError", "why"),
    "of a proxy": (PROXY, 503, "UpstreamUnavailable", "Bad Gateway"),
}


@pytest.mark.parametrize(("reply", "status", "kind", "text"), ERRORS.values(), ids=ERRORS)
def test_errors_of_other_servers(urls: Addresses, reply: bytes, status: int, kind: str, text: str) -> None:
    with faulty_server(urls["faulty_server"], {**described(2), "/Evaluate": reply}):
        answer = post(urls["faulty"], "/Evaluate", name="m", input=[[1, 2]])

    assert answer == (status, {"error": {"type": kind, "message": text}})


@pytest.mark.parametrize(
    "body", [b"{}", b"no", *(b'{"inputSizes": %b}' % sizes for sizes in (b"2", b"[-1]", b"[2.5]", b'["2"]'))]
)
def test_sizes_that_are_none_are_not_remembered(urls: Addresses, body: bytes) -> None:
    model = f"sizes {body!r}"
    with faulty_server(urls["faulty_server"], {**described(2), "/InputSizes": ok(body)}):
        status, document = post(urls["faulty"], "/InputSizes", name=model)
    with faulty_server(urls["faulty_server"], described(2)):
        assert post(urls["faulty"], "/InputSizes", name=model) == (200, {"inputSizes": [2]})

    assert (status, document["error"]["type"]) == (500, "InvalidOutput")
    assert "backend 'faulty'" in document["error"]["message"]


def test_a_server_that_comes_back_is_used_again(urls: Addresses) -> None:
    """On the same port, and perhaps with another model: what was known of the old one is forgotten."""
    body: dict[str, Any] = {"name": "back", "input": [[1, 2]]}
    with faulty_server(urls["faulty_server"], {**described(2), "/Evaluate": ok(b'{"output": [[3, 4]]}')}):
        first = post(urls["faulty"], "/Evaluate", **body)
    down = [post(urls["faulty"], path, **body) for path in ("/Evaluate", "/Evaluate", "/ModelInfo")]
    listed = get(urls["faulty"], "/Info")
    with faulty_server(urls["faulty_server"], {**described(1), "/Evaluate": ok(b'{"output": [[5]]}')}):
        get(urls["faulty"], "/ModelInfo")
        sizes = post(urls["faulty"], "/InputSizes", name="new")
        second = post(urls["faulty"], "/Evaluate", name="back", input=[[1]])

    assert first == (200, {"output": [[3, 4]]})
    for status, document in down[:2]:
        assert (status, document["error"]["type"]) == (503, "UpstreamUnavailable")
        assert "backend 'faulty'" in document["error"]["message"]
        assert "connection refused" in document["error"]["message"]
    assert listed[0] == 200
    assert sizes == (200, {"inputSizes": [1]})
    assert second == (200, {"output": [[5]]})


@pytest.fixture
def start_own(urls: Addresses, tmp_path: Path) -> Iterator[Callable[[], Server]]:
    """Start the real server again and again on one port."""
    with ExitStack() as running:

        def start() -> Server:
            folder = tmp_path / f"umbridge-{len(list(tmp_path.iterdir()))}"
            return running.enter_context(start_umbridge(folder, port_of(urls["own_server"])))

        yield start


def test_a_server_that_is_killed_in_a_call(
    urls: Addresses, threads: ThreadPoolExecutor, start_own: Callable[[], Server]
) -> None:
    server = start_own()
    slow: dict[str, Any] = {"name": "slow", "input": [[1]], "config": {"file": "/never/there"}}
    running = threads.submit(post, urls["own"], "/Evaluate", **slow)
    assert eventually(lambda: backend(urls, "own")["endpoints"][0]["in_flight"] == 1, seconds=60)
    queued = threads.submit(post, urls["own"], "/Evaluate", **slow)
    assert eventually(lambda: backend(urls, "own")["waiting"] == 1, seconds=60)
    server.process.signal(signal.SIGKILL)

    for answer in (running, queued):
        status, document = answer.result()
        assert (status, document["error"]["type"]) == (503, "UpstreamUnavailable")
        assert "backend 'own'" in document["error"]["message"]
    server.stop()
    start_own()
    assert post(urls["own"], "/Evaluate", name="evaluate_only", input=[[21]]) == (200, {"output": [[42]]})
