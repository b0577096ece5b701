"""The payload log of a whole gateway: what stands in it for clients of every wire form."""

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.assembly import registry
from gateway.auth.keys import new_key, write_keys
from gateway.client import AsyncClient, ClientError
from gateway.observing.payload_log.calls import MAY_QUOTE
from gateway.runtime.app import Gateway
from gateway.runtime.app.replacing import ReloadError
from tests.interop.processes import free_port
from tests.limits import until
from tests.observing.payload_log.receiving import receiving
from tests.paused_server import INFER, held, port_of
from tests.running_gateway import config_of, running_gateway
from tests.tls.certificates import Authority

TEXT = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [PROTOCOL]}]
log: {payloads: {to: "PLACE", sample: 1, SETTINGS}}
reference: [{protocol: v2-grpc, bind: "127.0.0.1:BACKEND", models: [posterior, identity, count]}]
backends:
  b: {protocol: v2-grpc, endpoints: ["127.0.0.1:BACKEND"]}
routes:
  - match: {model: identity}
    backend: b
    signature:
      inputs: [{name: x, datatype: FP32, shape: [-1, 2]}]
      outputs: [{name: x, datatype: FP32, shape: [-1, 2]}]
  - match: {model: renamed}
    rewrite: {model: identity}
    translate: {rename: {inputs: [{client: number, backend: ssn}], outputs: [{client: answer, backend: ssn}]}}
    signature:
      inputs: [{name: ssn, datatype: FP32, shape: [-1, 2]}]
      outputs: [{name: ssn, datatype: FP32, shape: [-1, 2]}]
    backend: b
  - match: {model: "*"}
    backend: b
"""
X = np.array([[1.5, 2]], np.float32)


def configuration(place: str, protocol: str = "v2-grpc", settings: str = "", **more: str) -> str:
    text = TEXT.replace("PROTOCOL", protocol).replace("PLACE", place).replace("SETTINGS", settings or "max_bytes: 1KiB")
    for name, value in {"BACKEND": str(free_port()), **more}.items():
        text = text.replace(name, value)
    return text


@asynccontextmanager
async def running(text: str) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway, and the address of its listener. When it has ended, all is in its payload log."""
    async with running_gateway(text, drain=5) as gateway:
        yield gateway, gateway.state.listeners["in"].address


def client(protocol: str, address: str) -> AsyncClient:
    return AsyncClient(f"{protocol}://{address.rpartition('//')[2]}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The log."""
    return tmp_path / "log"


@asynccontextmanager
async def logging(text: str | Path, protocol: str = "v2-grpc") -> AsyncIterator[AsyncClient]:
    """A client of a gateway of this configuration, or of one that writes to this file."""
    text = configuration(str(text), protocol) if isinstance(text, Path) else text
    async with running(text) as (_, address), client(protocol, address) as caller:
        yield caller


async def stream(caller: AsyncClient, n: int) -> None:
    """Take all `n` responses of a stream; a negative one fails after so many."""
    async for _ in caller.stream("count", n=np.array([[n]], np.int32)):
        pass


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [each["type"].rpartition(".")[2] for each in events]


@pytest.mark.parametrize("protocol", sorted(registry.protocols()))
async def test_clients_of_every_wire_form_have_the_same_log(protocol: str, path: Path) -> None:
    text = configuration(str(path), protocol).replace("[mip]", "[mip], model: identity")
    async with logging(text, protocol) as caller:
        x = X[0] if protocol == "umbridge" else X
        await (caller.infer("identity", x) if protocol in UNNAMED else caller.infer("identity", x=x))
    request, reply = lines(path)
    assert kinds([request, reply]) == ["request", "response"]
    assert request["id"] == reply["id"]
    assert (request["protocol"], request["inferenceservicename"], request["route"], request["endpoint"]) == (
        protocol, "identity", "identity", "b",
    )  # fmt: skip
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, 2.0]}
    assert (request["data"]["inputs"], reply["data"]["outputs"]) == ([tensor], [tensor])
    assert (reply["status"], reply["complete"]) == ("OK", True)


UNNAMED = {"umbridge", "graphpipe", "mip"}


async def test_a_stream_is_a_request_and_numbered_replies(path: Path) -> None:
    async with logging(path) as caller:
        await stream(caller, 3)
        with pytest.raises(ClientError):
            await stream(caller, -1)
    whole, failed = lines(path)[:4], lines(path)[4:]
    assert kinds(whole) == ["request", *["response"] * 3]
    responses = [(each["sequence"], each["data"]["outputs"][0]["data"]) for each in whole[1:]]
    assert responses == [("1", [0]), ("2", [1]), ("3", [2])]
    assert len({each["id"] for each in whole}) == 1
    assert [(each["sequence"], each["status"]) for each in failed[1:]] == [("1", "OK"), ("2", "ABORTED")]
    assert "fails on request" in failed[2]["data"]["error"]


async def test_a_stream_without_a_response_is_its_request_alone(path: Path) -> None:
    async with logging(path) as caller:
        assert [each async for each in caller.stream("count", n=np.array([[0]], np.int32))] == []
    assert kinds(lines(path)) == ["request"]


async def test_a_stream_of_http_that_its_client_leaves_has_an_error_at_its_end(path: Path) -> None:
    many = np.array([[100_000]], np.int32)
    async with logging(path, "v2-rest") as caller, aclosing(caller.stream("count", n=many)) as responses:
        await anext(responses)
    events = lines(path)
    assert kinds(events[:2]) == ["request", "response"]
    assert events[-1]["status"] == "CANCELLED"
    assert int(events[-1]["sequence"]) == len(events) - 1


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-brpc"])
async def test_an_error_stands_in_place_of_the_reply(protocol: str, path: Path) -> None:
    async with logging(path, protocol) as caller:
        with pytest.raises(ClientError):
            await caller.infer("count", n=np.array([[1]], np.int32))
    request, reply = lines(path)
    assert kinds([request, reply]) == ["request", "response"]
    assert (reply["status"], reply["reason"]) == ("UNIMPLEMENTED", "unsupported")
    assert "streams its responses" in reply["data"]["error"]


async def test_a_client_that_leaves_has_an_error_in_place_of_the_reply(path: Path) -> None:
    async with held() as server:
        text = configuration(str(path), "v2-rest", BACKEND=str(server.port)).replace(
            "{protocol: v2-grpc, endpoints", "{protocol: v2-rest, flavor: plain, endpoints"
        )
        text = re.sub("reference: .*\n", "", text)
        async with running(text) as (gateway, address):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(address))
            writer.write(INFER)
            await server.arrived.wait()
            writer.transport.abort()
            listener = gateway.state.listeners["in"]
            await until(lambda: not listener.unanswered_requests)
    request, reply = lines(path)
    assert kinds([request, reply]) == ["request", "response"]
    assert reply["status"] == "CANCELLED"
    assert "the client has disconnected" in reply["data"]["error"]


async def test_hidden_tensors_are_hidden_for_clients_of_every_kind(tmp_path: Path) -> None:
    for protocol, name in (("v2-grpc", "number"), ("umbridge", ""), ("graphpipe", ""), ("v1-rest", "number")):
        path = tmp_path / protocol
        text = configuration(str(path), protocol, "hide: [ssn]")
        async with logging(text, protocol) as caller:
            x = X[0] if protocol == "umbridge" else X
            await (caller.infer("renamed", inputs={name: x}) if name else caller.infer("renamed", x))
        request, reply = lines(path)
        times = [each.pop("time") for each in (request, reply)]
        assert all(times)
        assert "1.5" not in json.dumps([request, reply])
        assert request["data"]["inputs"][0]["name"] == "number"
        assert reply["data"]["outputs"][0]["name"] == "answer"
        assert request["data"]["inputs"][0]["parameters"]["log.left_out"].startswith("hidden")
        assert not request["complete"]


@pytest.mark.parametrize(("hide", "is_shown"), [("n", False), ("other", True)])
async def test_the_text_of_an_error_may_quote_a_hidden_value(hide: str, is_shown: bool, path: Path) -> None:
    async with logging(configuration(str(path), settings=f"hide: [{hide}]")) as caller:
        with pytest.raises(ClientError):
            await stream(caller, -1)
        with pytest.raises(ClientError):
            await caller.infer("count", n=np.array([[987654321]], np.int32))
    errors = [each for each in lines(path) if each.get("status", "OK") != "OK"]
    assert [each["status"] for each in errors] == ["ABORTED", "UNIMPLEMENTED"]
    assert [("model 'count'" in each["data"]["error"]) for each in errors] == [is_shown] * 2
    assert (MAY_QUOTE in path.read_text()) != is_shown  # noqa: ASYNC240


async def test_inputs_whose_names_nobody_knows_are_hidden_where_anything_is(path: Path) -> None:
    text = configuration(str(path), "graphpipe", "hide: [ssn]").replace("v2-grpc", "graphpipe")
    text = text.replace('{model: "*"}', "{model: other}\n    rewrite: {model: identity}")
    async with logging(text, "graphpipe") as caller:
        await caller.infer("other", X)
    request, reply = lines(path)
    for tensor in (request["data"]["inputs"][0], reply["data"]["outputs"][0]):
        assert tensor["parameters"] == {"log.left_out": "hidden, its name is unknown (8 bytes)"}


async def test_a_large_message_is_told_of_without_its_values(path: Path) -> None:
    async with running(configuration(str(path))) as (gateway, address), client("v2-grpc", address) as caller:
        await caller.infer("identity", x=np.ones((2**19, 2), np.float32))
    request, reply = lines(path)
    for tensor in (request["data"]["inputs"][0], reply["data"]["outputs"][0]):
        assert tensor == {
            "name": "x", "shape": [2**19, 2], "datatype": "FP32",
            "parameters": {"log.left_out": "too large (4194304 bytes)"},
        }  # fmt: skip
    assert not request["complete"]
    assert gateway.observing.payload_logs.counts.sent == 2


async def test_a_share_of_the_calls_is_logged_in_pairs(path: Path) -> None:
    async with logging(configuration(str(path)).replace("sample: 1", "sample: 0.5")) as caller:
        for _ in range(100):
            await caller.infer("identity", x=X)
    ids = Counter(each["id"] for each in lines(path))
    assert set(ids.values()) == {2}
    assert 20 < len(ids) < 80


async def test_only_the_named_routes_are_logged(path: Path) -> None:
    async with logging(configuration(str(path), settings="routes: [identity]")) as caller:
        await caller.infer("identity", x=X)
        await caller.infer("posterior", theta=np.ones((1, 2)))
        await caller.signature("identity")
    assert [each["inferenceservicename"] for each in lines(path)] == ["identity", "identity"]


async def test_neither_principals_nor_headers_are_in_it(path: Path) -> None:
    keys = path.with_name("keys.yaml")
    key, entry = new_key("alice")
    keys.write_text(write_keys([entry]))
    text = configuration(str(path), "v2-rest").replace("protocols: [v2-rest]", "protocols: [v2-rest], auth: {}")
    text += f"auth: {{keys: {{file: {keys}}}}}\nprincipals: {{alice: {{permissions: [all]}}}}\n"
    async with running(text) as (_, address):
        address = f"v2-rest://{address.rpartition('//')[2]}"
        async with AsyncClient(address, key=key, headers={"x-own": "own header"}) as caller:
            await caller.infer("identity", x=X)
            with pytest.raises(ClientError):
                await caller.infer("count", n=np.array([[1]], np.int32))
    logged = path.read_text()  # noqa: ASYNC240
    assert len(logged.splitlines()) == 4
    assert not [each for each in ("alice", key, "own header", "127.0.0.1") if each in logged]


async def test_events_reach_a_receiver() -> None:
    async with receiving() as receiver:
        text = configuration(receiver.url, settings="headers: {authorization: Bearer hidden}, source: lab")
        async with running(text) as (gateway, address), client("v2-grpc", address) as caller:
            await caller.infer("identity", x=X)
            await receiver.arrived.wait()
    assert [each.headers["ce-source"] for each in receiver.requests] == ["lab", "lab"]
    assert gateway.observing.payload_logs.counts.sent == 2


async def test_a_receiver_is_trusted_by_the_ca_that_is_named(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    async with receiving(tls=context) as receiver:
        for tls, sent in ((f"tls: {{ca: {files.ca}}}", 2), ("timeout: 0.1", 0)):
            text = configuration(receiver.url, settings=tls)
            async with running(text) as (gateway, address), client("v2-grpc", address) as caller:
                await caller.infer("identity", x=X)
            counts = gateway.observing.payload_logs.counts
            assert (counts.sent, counts.dropped) == (sent, 2 - sent)
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("answer", [None, 0, 500])
async def test_clients_do_not_notice_a_receiver_that_fails(answer: int | None) -> None:
    async with receiving(answer) as receiver:
        text = configuration(receiver.url, settings="timeout: 0.05, memory: 10KiB")
        async with running(text) as (gateway, address), client("v2-grpc", address) as caller:
            for _ in range(20):
                assert (await caller.infer("identity", x=X))["x"].tolist() == [[1.5, 2]]
    counts = gateway.observing.payload_logs.counts
    assert (counts.sent, counts.dropped) == (0, 40)


async def test_a_graph_is_logged_and_its_steps_are_not(path: Path) -> None:
    async with logging(configuration(str(path)) + GRAPH) as caller:
        await caller.infer("twice", x=X)
    request, reply = lines(path)
    assert (request["route"], request["inferenceservicename"]) == ("models.twice", "twice")
    assert reply["data"]["outputs"][0]["data"] == [1.5, 2.0]


GRAPH = """
models:
  twice:
    inputs: {x: "FP32 [-1, 2]"}
    steps:
      first: {model: identity, inputs: {x: $x}}
      second: {model: identity, inputs: {x: $first.x}}
    outputs: {y: $second.x}
"""


async def test_a_reload_changes_the_log_and_reopening_follows_a_renamed_file(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    text = configuration(str(path))
    async with running(text) as (gateway, address), client("v2-grpc", address) as caller:
        await caller.infer("identity", x=X)
        await gateway.reload(config_of(text.replace(f'"{path}"', f'"{other}"')))
        await caller.infer("identity", x=X)
        with pytest.raises(ReloadError, match=r"cannot open log\.payloads\.to '/none/log': No such file"):
            await gateway.reload(config_of(text.replace(f'"{path}"', '"/none/log"')))
        other.rename(tmp_path / "renamed")
        gateway.reopen_logs()
        await caller.infer("identity", x=X)
        without = text.replace(re.search("log: .*\n", text)[0], "")  # type: ignore[index]
        await gateway.reload(config_of(without))
        await caller.infer("identity", x=X)
        await until(lambda: gateway.observing.payload_logs.counts.sent >= 6)
    written = [(tmp_path / name).read_bytes().count(b"\n") for name in ("log", "other", "renamed")]
    assert sum(written) == 6
    assert written[0] == 2
    assert written[1] >= 2
