"""Requests of the playground through every listener, and what is shown of them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import orjson
import pytest

from gateway.admin.playground import sending
from gateway.admin.playground.api import AT_ONCE
from gateway.admin.playground.form import PlaygroundForm, PlaygroundFormError, read_request
from gateway.admin.playground.sending import PlaygroundResult, play, prepare
from gateway.admin.playground.shown import shown_message
from gateway.assembly.registry import protocols
from gateway.core.errors import Reason
from gateway.core.messages import Message
from gateway.core.requests import Request
from gateway.core.tasks import spawn
from tests.admin.playground.gateways import CONFIG, DOUBLE, HOSTILE, POSTERIOR, UPPER, RunningPlayground, played
from tests.limits import GENEROUS
from tests.paused_server import http, listening, read_message
from tests.policies.states import mirrors
from tests.running_gateway import config_of, reference
from tests.tls.certificates import Authority

WAYS = [
    ("http", "v2-rest"), ("http", "v1-rest"), ("http", "umbridge"), ("http", "graphpipe"), ("http", "grps-rest"),
    ("grpc", "v2-grpc"), ("grpc", "grps-grpc"), ("grpc", "tfs-grpc"), ("brpc", "grps-brpc"), ("mip", "mip"),
]  # fmt: skip


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningPlayground]:
    async with played(tmp_path) as found:
        yield found


def values(sent: dict[str, Any]) -> list[Any]:
    return [orjson.loads(each["values"]) for each in sent["outputs"][0]]


async def test_a_request_goes_through_every_listener_over_its_own_protocol(gateway: RunningPlayground) -> None:
    assert {protocol for _, protocol in WAYS} == set(protocols())
    for listener, protocol in WAYS:
        sent = await gateway.ask("send", {**DOUBLE, "listener": listener, "protocol": protocol})
        assert (sent["status"], sent["error"]) == ("OK", ""), protocol
        [output] = values(sent)
        assert output in ([[2.0, 5.0, -6e-5]], [2.0, 5.0, -6e-5]), protocol
        [call] = sent["calls"]
        assert len(call["replies"]) == 1
        assert {each["protocol"] for each in sent["forms"]} == set(protocols()) - {protocol}
        assert all(each["messages"] for each in sent["forms"]), sent["forms"]


async def test_the_wire_forms_are_those_of_the_protocol(gateway: RunningPlayground) -> None:
    sent = await gateway.ask("send", DOUBLE)
    [call] = sent["calls"]
    assert call["request"]["head"][0] == "POST /v2/models/double/infer"
    assert orjson.loads(call["request"]["body"])["inputs"][0]["data"] == [1.0, 2.5, -3e-5]
    assert orjson.loads(call["replies"][0]["body"])["outputs"][0]["name"] == "y"
    assert sent["facts"] == {"gateway-route": "*", "gateway-backend": "tensors", "gateway-tries": "1"}
    forms = {each["protocol"]: each["messages"][0] for each in sent["forms"]}
    assert orjson.loads(forms["umbridge"]["body"]) == {"output": [[2.0, 5.0, -6e-5]]}
    assert forms["v2-grpc"]["body"].startswith("field 1: 6 bytes\n00000000  0a 06 64 6f 75 62 6c 65")
    assert forms["mip"]["body"].startswith("header of mip, 8 bytes\n")


async def test_an_error_is_shown_as_the_listener_and_every_other_protocol_tell_it(gateway: RunningPlayground) -> None:
    sent = await gateway.ask("send", {**DOUBLE, "model": "nothing"})
    assert sent["status"] == "NOT_FOUND"
    assert sent["calls"][0]["replies"][0]["head"][0] == "status 404"
    assert sent["outputs"] == []
    assert all(each["messages"] for each in sent["forms"])


async def test_derivatives_and_streams_are_sent_as_each_protocol_has_them(gateway: RunningPlayground) -> None:
    gradient = {**POSTERIOR, "operation": "gradient"}
    gradient["inputs"] = [*POSTERIOR["inputs"], {"name": "sens", "values": "1", "shape": "1, 1"}]
    for protocol, path in (("umbridge", "/Gradient"), ("v2-rest", "/v2/models/posterior.gradient/infer")):
        sent = await gateway.ask("send", {**gradient, "protocol": protocol})
        assert sent["calls"][0]["request"]["head"][0] == f"POST {path}"
        assert values(sent) == [[[20.0, -10.0]]]
    count = {**DOUBLE, "listener": "grpc", "protocol": "v2-grpc", "model": "count", "operation": "stream"}
    count |= {"inputs": [{"name": "n", "datatype": "INT32", "shape": "1, 1", "values": "3"}], "outputs": []}
    sent = await gateway.ask("send", count)
    assert [orjson.loads(each[0]["values"]) for each in sent["outputs"]] == [[[0]], [[1]], [[2]]]
    assert len(sent["calls"][0]["replies"]) == 3


async def test_a_listener_with_tls_and_keys_gets_the_key_of_the_form(gateway: RunningPlayground) -> None:
    for listener, protocol in (("secure", "v2-rest"), ("secure-grpc", "v2-grpc")):
        form = {**DOUBLE, "listener": listener, "protocol": protocol}
        assert (await gateway.ask("send", form))["status"] == "UNAUTHENTICATED"
        sent = await gateway.ask("send", {**form, "key": gateway.key})
        assert sent["status"] == "OK", sent["error"]
        assert gateway.key not in orjson.dumps(sent).decode()
        assert "authorization: ***" in sent["calls"][0]["request"]["head"]


async def test_a_request_that_is_sent_is_explained_where_the_listener_allows_it(gateway: RunningPlayground) -> None:
    explanation = (await gateway.ask("send", DOUBLE))["explanation"]
    assert (explanation["route"], explanation["backend"], explanation["status"]) == ("*", "tensors", "OK")
    assert [name for name, _ in explanation["routes"]] == ["posterior", "upper", HOSTILE, "double,protocol=umbridge"]
    assert (await gateway.ask("send", {**DOUBLE, "listener": "grpc", "protocol": "v2-grpc"}))["explanation"] is None


async def test_a_request_is_explained_without_being_sent(gateway: RunningPlayground) -> None:
    for listener, protocol in WAYS:
        found = await gateway.ask("explain", {**DOUBLE, "listener": listener, "protocol": protocol})
        assert found["listener"] == listener, protocol
        assert found["error"] is None, protocol
        assert found["decision"]["route"] == ("double,protocol=umbridge" if protocol == "umbridge" else "*")
        assert found["calls"][-1]["backend"] == "tensors"
    assert gateway.gateway.state.counters.errors == 0
    assert [*gateway.gateway.state.counters.paths(0)] == []
    found = await gateway.ask("explain", {**POSTERIOR, "protocol": "v2-rest"})
    assert found["calls"][0]["message"]["path"] in ("/Evaluate", "/InputSizes", "/ModelInfo")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"listener": "none"}, "listener"),
        ({"protocol": "mip"}, "protocol"),
        ({"listener": "mip", "protocol": "mip", "model": "other"}, "model"),
        ({"protocol": "umbridge", "inputs": [{"name": "x", "datatype": "BYTES", "values": "a"}]}, "inputs.0.values"),
        ({"listener": "mip", "protocol": "mip", "headers": "x-team: a"}, "headers"),
    ],
)
async def test_what_cannot_be_sent_is_told_at_its_field(
    gateway: RunningPlayground, change: dict[str, Any], field: str
) -> None:
    for path in ("send", "explain", "snippets"):
        found = await gateway.ask(path, {**DOUBLE, **change}, status=422)
        assert list(found["errors"]) == [field]


async def test_names_that_look_like_something_else_stay_names(gateway: RunningPlayground) -> None:
    for listener, protocol in WAYS[:-1]:
        sent = await gateway.ask("send", {**DOUBLE, "model": HOSTILE, "listener": listener, "protocol": protocol})
        assert sent["status"] == "OK", (protocol, sent["error"])
    assert (await gateway.ask("send", UPPER))["outputs"][0][0]["values"] == '["IT\'S", "$HOME \\"B\\" \\\\N"]'


@asynccontextmanager
async def with_a_backend_that_hangs(folder: Path) -> AsyncIterator[RunningPlayground]:
    """The backend of the model `posterior` never answers."""
    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    text = CONFIG.replace('endpoints: ["http://127.0.0.1:SCIENCE"]', f'endpoints: ["http://127.0.0.1:{port}"]')
    async with played(folder, text) as gateway:
        yield gateway
        ended.set()
    server.close()


async def test_a_backend_that_hangs_ends_at_the_time_limit_and_others_are_answered(tmp_path: Path) -> None:
    async with with_a_backend_that_hangs(tmp_path) as gateway:
        sent = await gateway.ask("send", {**POSTERIOR, "seconds": 0.3})
        assert sent["status"] == "DEADLINE_EXCEEDED"
        assert sent["error"] == "no response within 0.3 s; enter a longer wait, or check the server"
        assert (await gateway.ask("send", DOUBLE))["status"] == "OK"


async def test_requests_end_when_nobody_waits_for_them(tmp_path: Path) -> None:
    async with with_a_backend_that_hangs(tmp_path) as gateway:

        async def send(form: dict[str, Any]) -> int:
            return (await gateway.client.post("/api/playground/send", json=form)).status_code

        held = {**POSTERIOR, "seconds": 25}
        clients = [asyncio.ensure_future(send(held)) for _ in range(AT_ONCE + 1)]
        async with asyncio.timeout(GENEROUS):
            [refused], working = await asyncio.wait(clients, return_when=asyncio.FIRST_COMPLETED)
            assert refused.result() == 429
            for each in working:
                each.cancel()
            await asyncio.wait(working)
            while await send(DOUBLE) != 200:
                pass


async def test_only_json_of_this_host_and_of_some_size_is_taken(gateway: RunningPlayground) -> None:
    async def post(content: bytes = orjson.dumps(DOUBLE), **headers: str) -> httpx.Response:
        sent = {"content-type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        return await gateway.client.post("/api/playground/send", content=content, headers=sent)

    assert (await post(content_type="text/plain")).status_code == 415
    assert (await post(origin="http://other.example")).status_code == 403
    assert (await post(host="other.example")).status_code == 421
    assert (await post(b" " * (4 * 2**20 + 1))).status_code == 413
    refused = await post(b'{"key": 3, "x": "secret"}')
    assert refused.status_code == 422
    assert "secret" not in refused.text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("{" + ",".join(f'"{at}": 1' for at in range(6000)) + "}", "the form has more than 5000 JSON values"),
        ("{" + ",".join(f'"{at}": 1' for at in range(1000)) + "}", "listener: Field required; protocol: Field requi"),
    ],
)
async def test_a_form_that_is_none_is_told_in_few_words(gateway: RunningPlayground, form: str, text: str) -> None:
    headers = {"content-type": "application/json"}
    refused = await gateway.client.post("/api/playground/send", content=form, headers=headers)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(text)
    assert len(refused.text) < 1000


@pytest.mark.parametrize("path", ["send", "explain", "snippets"])
async def test_others_are_answered_while_a_form_is_read(
    gateway: RunningPlayground, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, answered = threading.Event(), threading.Event()

    def read(form: PlaygroundForm) -> Request:
        reading.set()
        assert answered.wait(GENEROUS)
        return read_request(form)

    monkeypatch.setattr(sending, "read_request", read)
    asked = spawn(gateway.ask(path, DOUBLE))
    assert await asyncio.to_thread(reading.wait, GENEROUS)
    assert (await gateway.client.get("/status")).status_code == 200
    answered.set()
    assert await asked


async def test_an_explanation_leaves_the_policies_of_the_running_gateway_alone(tmp_path: Path) -> None:
    """The mirror goes on, and a request that is not sent does not count for the limit of rates."""
    policies = "policies: [{rate_limit: {requests: 1, seconds: 3600}}, {mirror: {backend: tensors, sample: 1}}]"
    text = CONFIG.replace(
        '{match: {model: "*"}, backend: tensors}', f'{{match: {{model: "*"}}, backend: tensors, {policies}}}'
    )
    async with played(tmp_path, text) as gateway:
        await gateway.ask("explain", DOUBLE)
        assert (await gateway.ask("send", DOUBLE))["status"] == "OK"
        [mirror] = mirrors(gateway.gateway)
        await mirror.ended()
        found = (await gateway.client.get("/status")).json()["policies"]
        [state] = [each["state"] for each in found if each["policy"] == "mirror"]
        assert (state["equal"], state["dropped"]) == (1, 0)


LISTENERS = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: socket, bind: "unix:///run/models.sock", protocols: [mip], model: double}
backends: {lab: {protocol: v2-grpc, endpoints: ["127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""
COUNT = {
    **DOUBLE,
    "listener": "grpc",
    "protocol": "v2-grpc",
    "model": "count",
    "operation": "stream",
    "inputs": [{"name": "n", "datatype": "INT32", "shape": "1, 1", "values": "70"}],
    "outputs": [],
}
THETA = POSTERIOR["inputs"][0]
TAKEN = "'input0' FP64 [-1, 2], 'out_wrt' INT64 [-1, 1], 'in_wrt' INT64 [-1, 1], 'sens' FP64 [-1, 1]"


async def result(form: dict[str, Any], address: str, *, send: bool = True) -> PlaygroundResult:
    """What becomes of a form whose listener is at this address."""
    return await play(prepare(PlaygroundForm.model_validate(form), config_of(LISTENERS)), address, send=send)


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        (
            {"inputs": [{**THETA, "shape": "1, 3", "values": "1 2 3"}]},
            {"inputs.0.values": "input 'input0' has shape [1, 3], expected [-1, 2]"},
        ),
        (
            {"protocol": "umbridge", "inputs": [{**THETA, "shape": "0, 2", "values": "", "declared": [-1, -1]}]},
            {"": "the request has no rows, so nothing is sent; enter a row of values"},
        ),
        (
            {"protocol": "umbridge", "inputs": [{**THETA, "datatype": "INT64", "values": "1, 9007199254740993"}]},
            {
                "inputs.0.values": "this protocol sends FP64, which cannot represent all of these integers exactly; "
                "use smaller ones"
            },
        ),
        (
            {"operation": "gradient"},
            {"": f"input 'sens' is missing; the model takes {TAKEN}"},
        ),
    ],
)
@pytest.mark.parametrize("send", [False, True])
async def test_nothing_is_sent_of_a_request_that_does_not_match_the_model(
    change: dict[str, Any], errors: dict[str, str], send: bool
) -> None:
    with pytest.raises(PlaygroundFormError) as caught:
        await result({**POSTERIOR, **change}, "127.0.0.1:1", send=send)
    assert caught.value.errors == errors


async def test_a_listener_at_a_unix_socket_is_asked(tmp_path: Path) -> None:
    async with reference("mip", "double", bind=f"unix://{tmp_path}/models.sock") as address:
        found = await result({**DOUBLE, "listener": "socket", "protocol": "mip"}, address)
    [response] = found.responses
    assert response.outputs[0].array.tolist() == [[2.0, 5.0, -6e-5]]


async def test_a_long_stream_ends_after_as_many_responses_as_are_kept() -> None:
    async with reference("v2-grpc", "count") as address:
        found = await result(COUNT, address)
    assert found.error is None
    assert [each.outputs[0].array.tolist() for each in found.responses] == [[[at]] for at in range(64)]


async def test_a_reply_that_cannot_be_read_is_told() -> None:
    async def http_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        writer.write(http(b"HTTP/1.1 200 OK", b"{"))
        writer.close()

    async def grpc_stream(messages: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"\xff"

    server = grpc.aio.server()
    handlers = {"ModelStreamInfer": grpc.stream_stream_rpc_method_handler(grpc_stream)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with listening(http_server) as http_port:
        for form, port, text in (
            (DOUBLE, http_port, "the reply is malformed: "),
            (COUNT, grpc_port, "a reply is malformed: "),
        ):
            found = await result(form, f"127.0.0.1:{port}")
            assert found.error is not None
            assert (found.error.reason, found.error.message[: len(text)]) == (Reason.INVALID_OUTPUT, text)
            assert len(found.calls[0].replies) == 1
    await server.stop(None)


async def test_a_certificate_that_is_gone_is_told(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "localhost")
    text = LISTENERS.replace("umbridge]}", f"umbridge], tls: {files.server}}}")
    prepared = prepare(PlaygroundForm.model_validate(DOUBLE), config_of(text))
    files.certificate.unlink()
    with pytest.raises(PlaygroundFormError) as caught:
        await play(prepared, "127.0.0.1:1", send=True)
    [(field, text)] = caught.value.errors.items()
    assert (field, text[:41]) == ("listener", "tls.certificate: cannot read the file: no")


def dumped(at: int, data: str, text: str) -> str:
    """A line of a hex dump."""
    return f"{at:08x}  {data:47}  {text}"


@pytest.mark.parametrize(
    ("protocol", "body", "kind", "shown"),
    [
        ("v2-rest", b"", "empty", ""),
        ("v2-rest", b"[" * 102 + b"]" * 102, "text", "[" * 102 + "]" * 102),
        (
            "v2-grpc",
            b"\x08\x96\x01\x1a\x01a",
            "hex",
            f"field 1: varint\n{dumped(0, '08 96 01', '...')}\nfield 3: 1 bytes\n{dumped(3, '1a 01 61', '..a')}",
        ),
        ("v2-grpc", b"\x08", "hex", dumped(0, "08", ".")),
        ("v2-grpc", b"\x08" + b"\xff" * 10, "hex", dumped(0, "08" + " ff" * 10, "." * 11)),
    ],
)
def test_a_body_is_shown_by_its_kind(protocol: str, body: bytes, kind: str, shown: str) -> None:
    found = shown_message(Message(status=200, parts=(body,)), protocols()[protocol])
    assert (found.kind, found.body, found.cut) == (kind, shown, False)
