"""grps clients that are not ours -> gateway -> the reference models; V2 and grps clients -> gateway -> grps servers
with the habits of the Python and of the C++ one, which are not ours either."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.interop.exchanges import Answer, gateway, get, post
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.peers import grps_cpp, grps_python
from tests.peers.brpc_client import Client
from tests.peers.grps_client import Grpc, Rest, concatenated
from tests.peers.grps_messages import SUCCESS, encode, failure, tensor
from tests.peers.grps_models import MODELS, Model, data_of
from tests.peers.protobuf import Document

REFERENCE = ("identity", "double", "add_sub", "upper", "fail", "count")
SERVED = ("echo", "twice", "upper", "add_sub", "fail", "crash", "nobody", "gated", "endless", "says", "silent")
BACKENDS = {
    "python-rest": "grps-rest",
    "python-grpc": "grps-grpc",
    "cpp-rest": "grps-rest",
    "cpp-grpc": "grps-grpc",
    "cpp-brpc": "grps-brpc",
}
X = tensor("x", "DT_FLOAT64", [1, 3], [1.0, 2.5, -0.5])
THREE = tensor("n", "DT_INT32", [1], [3])


SAID: dict[str, Document] = {
    "text": {"str_data": "abc"},
    "text as bytes": {"bin_data": b"abc"},
    "bytes": {"bin_data": b"\xff\0"},
    "no bytes": {"bin_data": b""},
    "gmap": {"gmap": {"s_s": {"a": "b"}, "s_b": {"b": b"b", "c": b"\0\xff"}, "s_d": {"d": 0.5}}},
    "empty gmap": {"gmap": {}},
    "named": {"gtensors": {"tensors": [tensor("y", "DT_STRING", [1], ["abc"])]}},
    "unnamed": {
        "gtensors": {
            "tensors": [
                {"dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [2.5]},
                {"dtype": "DT_STRING", "shape": [1], "flat_string": ["abc"]},
            ]
        }
    },
    "no tensors": {"gtensors": {}},
    "nothing": {},
}


def said(message: Document) -> Document:
    """What the request names, in whichever form it is one."""
    data = message.get("str_data") or message.get("bin_data") or message.get("gmap", {}).get("s_s", {}).get("say")
    if data is None:
        data = message["gtensors"]["tensors"][0]["flat_string"][0]
    return SAID[data.decode() if isinstance(data, bytes) else data]


class Streams:
    """Models that are held, and that never end, so that a test can look at what happens meanwhile without sleeping."""

    def __init__(self) -> None:
        self.gate, self.ended = threading.Event(), threading.Event()
        self.models = (Model("gated", data_of, self._gated), Model("endless", data_of, self._endless))

    def _gated(self, message: Document) -> Iterator[Document]:
        yield {"str_data": "first"}
        self.gate.wait(GENEROUS)
        yield {"str_data": "second"}

    def _endless(self, message: Document) -> Iterator[Document]:
        try:
            while True:
                yield {"str_data": "x" * 10_000}
        finally:
            self.ended.set()


@dataclass
class Site:
    http: str
    grpc: str
    brpc: str
    python: grps_python.Server
    cpp: grps_cpp.Server
    streams: Streams

    @property
    def rest(self) -> Rest:
        return Rest(self.http)

    def v2(self, model: str, *inputs: Document) -> Answer:
        return post(self.http, f"/v2/models/{model}/infer", inputs=inputs)

    def ready(self, model: str) -> bool:
        return get(self.http, f"/v2/models/{model}/ready")[0] == 200


def configuration(ports: dict[str, int], endpoints: dict[str, str]) -> dict[str, Any]:
    address = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    count = {"inputs": [{"name": "n", "datatype": "INT32", "shape": [1]}], "outputs": []}
    routes: list[Document] = [
        {"match": {"model": name}, "backend": "reference", "rewrite": {"version": ""}} for name in REFERENCE
    ]
    for back in endpoints:
        routes += [_route(back, model) for model in SERVED]
        routes += [_route(back, "count") | {"signature": count | {"outputs": [count["inputs"][0] | {"name": "i"}]}}]
        routes += [_route(back, "count", "raw_count")]
    return {
        "listeners": [
            {"name": "http", "bind": address["http"], "protocols": ["v2-rest", "grps-rest"], "allow_offline": True},
            {"name": "grpc", "bind": address["grpc"], "protocols": ["v2-grpc", "grps-grpc"]},
            {"name": "brpc", "bind": f"tcp://{address['brpc']}", "protocols": ["grps-brpc"]},
        ],
        "reference": [{"protocol": "v2-grpc", "bind": address["reference"], "models": REFERENCE}],
        "backends": {
            "reference": {"protocol": "v2-grpc", "endpoints": [address["reference"]]},
            **{
                back: {"protocol": BACKENDS[back], "endpoints": [endpoint], "policies": [{"timeout": {"seconds": 5}}]}
                for back, endpoint in endpoints.items()
            },
        },
        "routes": routes,
    }


def _route(back: str, model: str, name: str = "") -> Document:
    return {
        "match": {"model": f"{back}_{name or model}"},
        "backend": back,
        "rewrite": {"model": model, "version": "1.0.0"},
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    ports = {name: free_port() for name in ("http", "grpc", "brpc", "reference")}
    streams = Streams()
    models = (*MODELS, *streams.models, Model("says", said), Model("silent", data_of))
    with grps_python.serve(models) as python, grps_cpp.serve(models) as cpp:
        addresses = (python.http.url, python.grpc.address, cpp.http.url, cpp.grpc.address, cpp.brpc.address)
        config = configuration(ports, dict(zip(BACKENDS, addresses, strict=True)))
        http, grpc, brpc = (f"127.0.0.1:{ports[name]}" for name in ("http", "grpc", "brpc"))
        with gateway(json.dumps(config), tmp_path_factory.mktemp("gateway")):
            yield Site(http, grpc, brpc, python, cpp, streams)


@pytest.fixture
def remote(site: Site) -> Iterator[Grpc]:
    with Grpc(site.grpc) as client:
        yield client


@pytest.fixture
def framed(site: Site) -> Iterator[Client]:
    with Client(site.brpc) as client:
        yield client


# --- Rows: clients of grps in front of the reference models ---

DOUBLED = X | {"name": "y", "flat_float64": [2.0, 5.0, -1.0]}
EVERY_TYPE = [
    tensor("u8", "DT_UINT8", [2], [0, 255]),
    tensor("i8", "DT_INT8", [2], [-128, 127]),
    tensor("i16", "DT_INT16", [1], [-(2**15)]),
    tensor("i32", "DT_INT32", [1], [-(2**31)]),
    tensor("i64", "DT_INT64", [2], [-(2**63), 2**53 + 1]),
    tensor("f16", "DT_FLOAT16", [1], [0.5]),
    tensor("f32", "DT_FLOAT32", [2, 1], [3.5, -0.25]),
    tensor("f64", "DT_FLOAT64", [1], [0.1]),
    tensor("s", "DT_STRING", [2], ["", "é"]),
]
KINDS: dict[str, Document] = {
    "gtensors": {"gtensors": {"tensors": EVERY_TYPE}},
    "str_data": {"str_data": "é"},
    "bin_data": {"bin_data": b"\0\xff"},
    "gmap": {"gmap": {"s_s": {"a": "b"}, "s_i64": {"n": -5}, "s_d": {"d": 0.1}}},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["identity", "identity-1.0.0"])
def test_every_kind_of_data_comes_back(remote: Grpc, framed: Client, kind: str, name: str) -> None:
    sent = {"model": name, **KINDS[kind]}
    expected = {"status": SUCCESS, **sent}
    assert remote.call("Predict", sent) == expected
    assert framed.call("Predict", sent).message == expected


def test_every_kind_of_data_over_rest(site: Site) -> None:
    tensors = json.loads(json.dumps(EVERY_TYPE))
    told = site.rest.predict({"model": "identity-1.0.0", "gtensors": {"tensors": tensors}})
    longs = {"i64": ["-9223372036854775808", "9007199254740993"]}
    expected = [each | {"flat_int64": longs["i64"]} if each["name"] == "i64" else each for each in EVERY_TYPE]
    assert (told.status, told.document["gtensors"]["tensors"]) == (200, expected)
    raw = site.rest.predict_bytes(b"\0\xff", model="identity")
    assert (raw.status, raw.kind, raw.body) == (200, "application/octet-stream", b"\0\xff")
    assert site.rest.predict({"model": "upper", "str_data": "é"}).document["str_data"] == "É"
    gmap = {"s_s": {"a": "b"}, "s_b": {"b": "AP8="}, "s_i64": {"n": 5}}
    back = site.rest.predict({"model": "identity", "gmap": gmap}).document["gmap"]
    assert back == gmap | {"s_i64": {"n": "5"}}
    nested = site.rest.predict({"model": "double", "ndarray": [[1, 2.5, 3]]}, return_ndarray="TRUE")
    assert nested.document["ndarray"] == [[2, 5, 6]]


def test_an_unknown_model_in_every_form(site: Site, remote: Grpc, framed: Client) -> None:
    sent: Document = {"model": "nobody-1.0.0", "str_data": "x"}
    told, reply = site.rest.predict(sent), framed.call("Predict", sent)
    statuses = [told.document["status"], remote.call("Predict", sent)["status"], reply.message["status"]]
    assert (told.status, reply.code) == (404, 0)
    assert [(each["code"], each["status"]) for each in statuses] == [(404, "FAILURE")] * 3
    assert all("nobody" in each["msg"] for each in statuses)


def test_readiness_belongs_to_the_listener(site: Site, remote: Grpc) -> None:
    assert site.rest.health("offline").document == {"status": SUCCESS}
    told = site.rest.health("ready")
    assert (told.status, told.document["status"]["code"]) == (503, 503)
    assert remote.call("CheckReadiness") == {"status": SUCCESS}
    assert site.rest.health("online").status == 200
    assert site.rest.health("ready").document == {"status": SUCCESS}
    assert remote.call("Offline")["status"]["code"] == 403


def test_metadata_is_yaml_by_either_name(site: Site, remote: Grpc, framed: Client) -> None:
    for name in ("double", "double-1.0.0"):
        texts = (
            site.rest.model_metadata(name).document["str_data"],
            remote.call("ModelMetadata", {"str_data": name})["str_data"],
            framed.call("ModelMetadata", {"str_data": name}).message["str_data"],
        )
        for text in texts:
            told = yaml.safe_load(text)
            assert told["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, -1]}]
    assert "double" in [each["name"] for each in yaml.safe_load(remote.call("ServerMetadata")["str_data"])["models"]]


def test_streams_in_front_of_a_model_that_streams(site: Site, remote: Grpc) -> None:
    sent: Document = {"model": "count", "gtensors": {"tensors": [THREE]}}
    for streamed in (list(remote.stream(sent)), list(site.rest.stream(sent))):
        numbers = [each["gtensors"]["tensors"][0]["flat_int32"] for each in streamed]
        assert ([each["status"] for each in streamed], numbers) == ([SUCCESS] * 3, [[0], [1], [2]])


def test_an_attachment_is_refused_towards_servers_that_cannot_have_one(framed: Client) -> None:
    sent: Document = {"model": "double", "gtensors": {"tensors": [X]}}
    reply = framed.call("Predict", sent, attachment=b"12345678")
    assert (reply.code, reply.message["status"]["code"]) == (0, 400)
    assert "the request has a brpc attachment of 8 bytes, which" in reply.message["status"]["msg"]


# --- Columns: V2 in front of servers with upstream's habits ---

VALUES: dict[str, list[Any]] = {
    "UINT8": [0, 255], "INT8": [-128, 127], "INT16": [-(2**15), 1], "INT32": [-(2**31), 1],
    "INT64": [-(2**63), 2**53 + 1], "FP32": [3.0, 6.199999809265137], "FP64": [0.1, -1e300], "BYTES": ["", "é"],
}  # fmt: skip


def given(name: str, datatype: str, values: list[Any], shape: list[int] | None = None) -> Document:
    return {"name": name, "datatype": datatype, "shape": shape or [len(values)], "data": values}


@pytest.mark.parametrize("back", BACKENDS)
class TestColumn:
    def test_values_come_back_exactly(self, site: Site, back: str) -> None:
        for datatype, values in VALUES.items():
            _, told = site.v2(f"{back}_echo", given("x", datatype, values, [1, 2]))
            assert told["outputs"] == [given("x", datatype, values, [1, 2])]

    def test_models_compute(self, site: Site, back: str) -> None:
        numbers = np.array([1, 2, 3.1], np.float32)
        _, told = site.v2(f"{back}_twice", given("x", "FP32", numbers.tolist()))
        assert told["outputs"] == [given("x", "FP32", (2 * numbers).tolist())]
        assert site.v2(f"{back}_upper", given("s", "BYTES", ["ab"]))[1]["outputs"][0]["data"] == ["AB"]
        _, sums = site.v2(f"{back}_add_sub", given("INPUT0", "INT32", [5, 6]), given("INPUT1", "INT32", [1, 2]))
        assert sums["outputs"] == [given("OUTPUT0", "INT32", [6, 8]), given("OUTPUT1", "INT32", [4, 4])]

    @pytest.mark.parametrize(
        ("model", "status", "text"),
        [("fail", 500, "the model says no"), ("crash", 500, "the model broke"), ("nobody", 404, "nobody-1.0.0")],
    )
    def test_failures_without_paths(self, site: Site, back: str, model: str, status: int, text: str) -> None:
        answered, told = site.v2(f"{back}_{model}", given("x", "FP32", [1.0]))
        assert (answered, list(told)) == (status, ["error"])
        assert text in told["error"]
        assert "Traceback" not in told["error"]
        assert 'File "' not in told["error"]

    def test_every_kind_from_a_grps_client(self, site: Site, back: str, remote: Grpc, framed: Client) -> None:
        for kind, data in KINDS.items():
            sent = {"model": f"{back}_echo", **data}
            # bytes come over REST without anything beside them
            is_bare = (BACKENDS[back], kind) == ("grps-rest", "bin_data")
            expected = {"status": SUCCESS, **(data if is_bare else sent)}
            assert remote.call("Predict", sent) == expected
            assert framed.call("Predict", sent).message == expected
        failed = remote.call("Predict", {"model": f"{back}_fail", "str_data": "enough"})
        assert failed == failure(500, "enough")
        nested = site.rest.predict({"model": f"{back}_twice", "ndarray": [[1, 2], [3, 4]]}, return_ndarray="true")
        assert nested.document["ndarray"] == [[2, 4], [6, 8]]

    def test_a_model_chooses_the_form_of_its_reply(self, site: Site, back: str, remote: Grpc, framed: Client) -> None:
        for text, data in SAID.items():
            for asked in (
                {"str_data": text},
                {"bin_data": text.encode()},
                {"gtensors": {"tensors": [tensor("x", "DT_STRING", [1], [text])]}},
                {"gmap": {"s_s": {"say": text}}},
            ):
                sent: Document = {"model": f"{back}_says", **asked}
                assert remote.call("Predict", sent) == {"status": SUCCESS, **data}
                assert framed.call("Predict", sent).message == {"status": SUCCESS, **data}

    def test_the_form_of_a_reply_in_json_is_that_of_the_server(self, site: Site, back: str) -> None:
        """Of the C++ one where they differ: it has bytes without a status also where there are none."""
        assert site.cpp.http
        for text in SAID:
            given, direct = {"model": f"{back}_says", "str_data": text}, {"model": "says-1.0.0", "str_data": text}
            told, own = site.rest.predict(given), Rest(site.cpp.http.address).predict(direct)
            assert (told.status, told.kind) == (200, own.kind)
            if own.kind == "application/json":
                assert told.document == own.document
            else:
                assert told.body == own.body

    def test_a_stream_of_nothing_has_a_head(self, site: Site, back: str) -> None:
        if BACKENDS[back] == "grps-brpc":
            return
        asked = ("POST", "/infer/predict", b'{"str_data": "x"}', "application/json")
        own = Rest(site.cpp.http.address).ask(*asked, model="silent-1.0.0", streaming="true")
        told = site.rest.ask(*asked, model=f"{back}_silent", streaming="true")
        assert (told.status, told.kind, told.body) == (own.status, own.kind, own.body)
        assert (told.kind, told.headers["transfer-encoding"]) == ("application/octet-stream", "chunked")

    def test_streams(self, site: Site, back: str, remote: Grpc) -> None:
        """Over BRPC there are none: the one answer is the stream."""
        unary = BACKENDS[back] == "grps-brpc"
        for text, expected in (("3", ["3"] if unary else ["0", "1", "2"]), ("0", ["0"] if unary else [])):
            sent: Document = {"model": f"{back}_raw_count", "str_data": text}
            assert [each["str_data"] for each in remote.stream(sent)] == expected
            assert [each["str_data"] for each in site.rest.stream(sent)] == expected

    def test_generate_stream(self, site: Site, back: str) -> None:
        status, text = post(site.http, f"/v2/models/{back}_count/generate_stream", n=3)
        assert status == 200
        events = [json.loads(event.removeprefix("data:")) for event in text.split("\n\n") if event]
        expected = [3] if BACKENDS[back] == "grps-brpc" else [0, 1, 2]
        assert [each["i"] for each in events] == expected


STREAMING = [back for back, protocol in BACKENDS.items() if protocol != "grps-brpc"]


@pytest.mark.parametrize("front", ["rest", "grpc"])
@pytest.mark.parametrize("back", STREAMING)
def test_messages_arrive_while_the_model_still_computes(site: Site, back: str, front: str, remote: Grpc) -> None:
    site.streams.gate.clear()
    client = site.rest if front == "rest" else remote
    streamed = iter(client.stream({"model": f"{back}_gated", "str_data": "x"}))
    assert next(streamed)["str_data"] == "first"
    site.streams.gate.set()
    assert [each["str_data"] for each in streamed] == ["second"]


@pytest.mark.parametrize("front", ["rest", "grpc"])
@pytest.mark.parametrize("back", STREAMING)
def test_a_client_that_leaves_ends_the_stream(site: Site, back: str, front: str, remote: Grpc) -> None:
    site.streams.ended.clear()
    client = site.rest if front == "rest" else remote
    with closing(client.stream({"model": f"{back}_endless", "str_data": "x"})) as streamed:
        assert next(streamed)["str_data"]
    assert site.streams.ended.wait(GENEROUS)


@pytest.mark.parametrize("back", STREAMING)
def test_a_failure_within_a_stream(site: Site, back: str, remote: Grpc) -> None:
    sent: Document = {"model": f"{back}_raw_count", "str_data": "-2"}
    for streamed in (list(remote.stream(sent)), list(site.rest.stream(sent))):
        assert [each.get("str_data") for each in streamed] == ["0", "1", None]
        assert streamed[-1] == failure(500, "the stream broke")


def test_bytes_in_streams(site: Site, remote: Grpc) -> None:
    raw = [bytes((0, 255, number)) for number in range(2)]
    for back, expected in (("python-grpc", raw), ("cpp-grpc", raw), ("cpp-rest", [b"".join(raw)])):
        streamed = [each["bin_data"] for each in remote.stream({"model": f"{back}_raw_count", "bin_data": b"2"})]
        # Nothing on the C++ server's wire tells where one message ends.
        assert b"".join(streamed) == b"".join(expected)
        assert b"".join(site.rest.stream_bytes(b"2", model=f"{back}_raw_count")) == b"".join(expected)


def test_readiness_is_the_servers_own(site: Site) -> None:
    backs = list(BACKENDS)
    assert [site.ready(f"{back}_echo") for back in backs] == [False] * 5
    Rest(site.python.http.address).health("online")
    Rest(site.cpp.http.address).health("online")
    assert [site.ready(f"{back}_echo") for back in backs] == [True, False, True, True, True]
    with Grpc(site.python.grpc.address) as client:
        client.call("Online")
    assert site.ready("python-grpc_echo")


def test_what_is_sent_is_what_the_servers_take(site: Site) -> None:
    for server in (site.python.http, site.cpp.http):
        server.requests.clear()
        before = server.connections
        for _ in range(3):
            back = "python-rest" if server is site.python.http else "cpp-rest"
            assert site.v2(f"{back}_twice", given("x", "FP32", [1.0]))[0] == 200
        calls = list(server.requests)
        assert {each.headers["content-type"] for each in calls} == {"application/json"}
        assert not any("expect" in each.headers for each in calls)
        assert json.loads(calls[0].body) == {
            "model": "twice-1.0.0",
            "gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [1.0]}]},
        }
        # The Python server closes each of its connections, and the other one those that are idle for some seconds.
        assert (server.connections - before == 3) is (server is site.python.http)


def test_the_frames_that_are_sent(site: Site) -> None:
    site.cpp.brpc.requests.clear()
    site.v2("cpp-brpc_twice", given("x", "FP32", [1.0, 2.0, 3.0], [1, 3]))
    ((meta, body),) = site.cpp.brpc.requests
    names = {"service_name": "grps.protos.v1.GrpsBrpcService", "method_name": "Predict"}
    assert names.items() <= meta["request"].items()
    sent = tensor("x", "DT_FLOAT32", [1, 3], [1.0, 2.0, 3.0])
    assert body == encode({"model": "twice-1.0.0", "gtensors": {"tensors": [sent]}})


def test_a_stream_keeps_the_type_that_its_server_is_configured_to(tmp_path: Path) -> None:
    port = free_port()
    with grps_cpp.serve(stream_type="text/event-stream", grpc_port=None, brpc_port=None) as server:
        config = {
            "listeners": [{"name": "http", "bind": f"127.0.0.1:{port}", "protocols": ["grps-rest"]}],
            "backends": {"cpp": {"protocol": "grps-rest", "endpoints": [server.http.url]}},
            "routes": [{"match": {"model": "*"}, "backend": "cpp"}],
        }
        with gateway(json.dumps(config), tmp_path):
            asked = ("POST", "/infer/predict", b'{"str_data": "3"}', "application/json")
            own, told = (
                Rest(each).ask(*asked, model="count-1.0.0", streaming="True")
                for each in (server.http.address, f"127.0.0.1:{port}")
            )
    assert (told.status, told.kind) == (own.status, own.kind) == (200, "text/event-stream")
    documents = [list(concatenated(iter([each.body]))) for each in (told, own)]
    assert documents[0] == documents[1]
    assert [each["str_data"] for each in documents[0]] == ["0", "1", "2"]
