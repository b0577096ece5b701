"""What passes unread through a whole gateway: the server gets the very bytes, and the client the very reply; what is on
the way neither reads a message nor needs to."""

import json
from collections.abc import Mapping

import pytest

from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from tests.protocols.v2.grpc.by_hand import field, tensor
from tests.protocols.v2.grpc.wire import INFER
from tests.wires import Server, Wires, replying

JSON = ((b"content-type", b"application/json"),)
ODD = (
    b'{"id": "7", "parameters": {"headers": null, "extra": {"a": [1, 2]}}, "not_in_v2": 1,\n "inputs": [{"name": "x",'
    b' "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "base64"}, "data": ["dGVzdA=="]}]}'
)
"""What nobody has specified: null and nested parameters, MLServer's mark of base64, a new member, blanks."""
ODD_REPLY = b'{"model_name":"n", "outputs": [{"name":"y","datatype":"FP32","shape":[1],"data":[0.10]}], "took": null}'
TYPED = tensor("x", "FP32", 3, contents=field(6, b"\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40")) + field(12, "new")
GRPC_ODD = field(1, "m") + TYPED
GRPC_ODD_REPLY = field(1, "n") + field(13, "new")


def config(route: str = "", backend: str = "flavor: triton", protocol: str = "v2-rest", more: str = "") -> str:
    return f"""
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc]}}]
backends:
  lab: {{protocol: {protocol}, endpoints: ["lab:1", "lab:2"], {backend}}}
  other: {{protocol: {protocol}, endpoints: ["other:1"], flavor: triton}}
routes: [{{match: {{model: "m*"}}, {route or "backend: lab"}}}]
{more}
"""


def rest(text: str, lab: Server | None = None) -> Wires:
    server = lab or replying(ODD_REPLY, headers=JSON)
    return Wires(text, lab=server, other=server)


def sent(wires: Wires) -> list[Message]:
    return [each for server in wires.sent.values() for each in server]


async def post(wires: Wires, body: bytes) -> Message:
    return await wires.post("v2-rest", "/v2/models/m/infer", body)


async def call(wires: Wires, body: bytes) -> Message:
    return await wires.send("v2-grpc", Message(path=INFER, parts=(body,)))


ROUTES = {
    "plain": "backend: lab",
    "timeout": "backend: lab, policies: [{timeout: {seconds: 9, per_try: 3}}]",
    "retry": "backend: lab, policies: [{retry: {}}]",
    "rate limit": "backend: lab, policies: [{rate_limit: {requests: 9}}]",
    "concurrency limit": "backend: lab, policies: [{concurrency_limit: {calls: 2}}]",
    "adaptive limit": "backend: lab, policies: [{concurrency_limit: {adaptive: gradient}}]",
    "circuit breaker": "backend: lab, policies: [{circuit_breaker: {}}]",
    "split": "split: [{backend: lab, weight: 1}, {backend: other}], sticky: {header: user}",
    "fallback": "backend: lab, fallback: [other]",
    "operation": "backend: lab",
}
BACKENDS = {
    "triton": "flavor: triton",
    "binary": "flavor: binary",
    "mlserver": "flavor: mlserver",
    "plain": "flavor: plain",
    "slots": "flavor: triton, max_in_flight: 1",
    "round robin": "flavor: triton, balance: round_robin, safe: true",
    "hedge": "flavor: triton, safe: true, policies: [{hedge: {}}]",
    "headers": "flavor: triton, forward_headers: [user]",
}


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
async def test_nothing_on_a_route_reads_it(route: str) -> None:
    wires = rest(config(route))
    reply = await wires.post("v2-rest", "/v2/models/m/infer?a=b", ODD)
    assert (reply.status, bytes(reply.body)) == (200, ODD_REPLY)
    assert [(each.path, each.query, bytes(each.body)) for each in sent(wires)] == [("/v2/models/m/infer", "", ODD)]


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
async def test_nothing_on_a_backend_reads_it(backend: str) -> None:
    wires = rest(config(backend=backend))
    headers = Headers([*JSON, (b"user", b"ann"), (b"cookie", b"secret")])
    reply = await wires.send("v2-rest", Message("POST", "/v2/models/m/versions/2/infer", headers, (ODD,)))
    assert (reply.status, bytes(reply.body)) == (200, ODD_REPLY)
    [message] = sent(wires)
    assert (message.path, bytes(message.body)) == ("/v2/models/m/versions/2/infer", ODD)
    expected = {"content-type", "gateway-hops"} | ({"user"} if "forward_headers" in backend else set())
    assert {name for name, _ in message.headers} == expected


@pytest.mark.parametrize("backend", [each for each in BACKENDS.values() if "hedge" not in each])
async def test_over_grpc_typed_stays_typed(backend: str) -> None:
    wires = rest(config(backend=backend, protocol="v2-grpc"), replying(GRPC_ODD_REPLY, status=0))
    for _ in range(2):
        reply = await call(wires, GRPC_ODD)
        assert (reply.status, bytes(reply.body)) == (0, GRPC_ODD_REPLY)
    assert [bytes(each.body) for each in sent(wires)] == [GRPC_ODD, GRPC_ODD]


BINARY_HEAD = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}'
BINARY = BINARY_HEAD + b"\0\0\x80\x3f"
SIZE = (b"inference-header-content-length", b"%d" % len(BINARY_HEAD))
ASKED_IN_BINARY = Message("POST", "/v2/models/m/infer", Headers([SIZE]), (BINARY,))


async def test_binary_tensors_pass_to_a_server_that_has_them() -> None:
    wires = rest(config(), replying(BINARY, headers=((b"content-type", b"application/octet-stream"), SIZE)))
    reply = await wires.send("v2-rest", ASKED_IN_BINARY)
    [message] = sent(wires)
    for each in (message, reply):
        assert bytes(each.body) == BINARY
        assert each.headers.get("inference-header-content-length") == str(len(BINARY_HEAD))


PLAIN_REPLY = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1.0]}]}'


@pytest.mark.parametrize("flavor", ["mlserver", "plain"])
async def test_binary_tensors_are_read_for_a_server_without_them(flavor: str) -> None:
    wires = rest(config(backend=f"flavor: {flavor}"), replying(PLAIN_REPLY, headers=JSON))
    reply = await wires.send("v2-rest", ASKED_IN_BINARY)
    assert (reply.status, json.loads(bytes(reply.body))["outputs"][0]["data"]) == (200, [1.0])
    assert json.loads(bytes(sent(wires)[0].body))["inputs"][0]["data"] == [1.0]


async def test_what_is_read_for_a_server_is_refused_if_it_is_malformed() -> None:
    wires = rest(config(backend="flavor: plain"), replying(PLAIN_REPLY, headers=JSON))
    reply = await wires.send("v2-rest", replace(ASKED_IN_BINARY, parts=(BINARY + b"x",)))
    assert (reply.status, sent(wires)) == (400, [])
    told = "1 bytes follow the last tensor; each must be counted in a binary_data_size"
    assert json.loads(bytes(reply.body)) == {"error": told}


METADATA = {
    "name": "m", "versions": ["1"], "platform": "",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}],
}  # fmt: skip
NAMED = b'{"x": 1.5}'
IN_V2 = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1.5]}]}'


@pytest.mark.parametrize(
    ("path", "body", "flavor", "reply", "asked", "told"),
    [
        ("generate", NAMED, "plain", PLAIN_REPLY, [("infer", IN_V2)], [b'{"model_name":"m","y":1.0}']),
        ("generate_stream", NAMED, "plain", PLAIN_REPLY, [("infer", IN_V2)], [b'{"model_name":"m","y":1.0}', b""]),
        (
            "generate_stream", NAMED, "mlserver", PLAIN_REPLY,
            [("generate_stream", IN_V2)], [b'{"model_name":"m","y":1.0}', b""],
        ),
        (
            "generate_stream", IN_V2, "triton", b'{"model_name":"m","y":1.0}',
            [("generate_stream", b'{"x":[1.5]}')], [PLAIN_REPLY, b""],
        ),
    ],
)  # fmt: skip
async def test_a_body_is_read_for_a_server_that_has_no_such_path(
    path: str, body: bytes, flavor: str, reply: bytes, asked: list[tuple[str, bytes]], told: list[bytes]
) -> None:
    async def serve(message: Message) -> Message:
        answer = json.dumps(METADATA).encode() if message.method == "GET" else reply
        return Message(status=200, headers=Headers(JSON), parts=(answer,))

    wires = rest(config(backend=f"flavor: {flavor}"), serve)
    message = Message("POST", f"/v2/models/m/{path}", Headers(JSON), (body,))
    answers = await wires.stream("v2-rest", message) if "stream" in path else [await wires.send("v2-rest", message)]
    assert [bytes(each.body) for each in answers] == told
    found = [(each.path, bytes(each.body)) for each in sent(wires) if each.method == "POST"]
    assert found == [(f"/v2/models/m/{path}", body) for path, body in asked]


async def test_prompts_pass_unread_after_tensors_that_the_server_does_not_accept() -> None:
    async def serve(message: Message) -> Message:
        answer = json.dumps(METADATA).encode() if message.method == "GET" else b'{"model_name":"m","y":1.0}'
        return Message(status=200, headers=Headers(JSON), parts=(answer,))

    wires = rest(config(backend="flavor: triton"), serve)
    prompt = b'{ "x": 1.5, "of_tomorrow": {} }'
    for body in (IN_V2, prompt):
        await wires.stream("v2-rest", Message("POST", "/v2/models/m/generate_stream", Headers(JSON), (body,)))
    assert [bytes(each.body) for each in sent(wires) if each.method == "POST"] == [b'{"x":[1.5]}', prompt]


READ = {
    "check": "backend: lab, check: full",
    "rewrite.model": "backend: lab, rewrite: {model: other}",
    "rewrite.version": 'backend: lab, rewrite: {version: "1"}',
    "translate.nan": "backend: lab, translate: {nan: string}",
    "policies.cache": "backend: lab, policies: [{cache: {seconds: 1}}]",
}


@pytest.mark.parametrize("route", READ.values(), ids=READ)
async def test_what_needs_the_content_reads_and_checks_it(route: str) -> None:
    wires = rest(config(route, backend="flavor: triton, safe: true"))
    reply = await post(wires, ODD.replace(b"null", b"18446744073709551616"))
    assert (reply.status, sent(wires)) == (400, [])
    assert b"parameter 'headers' must be a string" in bytes(reply.body)


@pytest.mark.parametrize("flavor", ["triton", "mlserver", "plain"])
@pytest.mark.parametrize("route", READ.values(), ids=READ)
async def test_what_is_read_keeps_nested_parameters_between_sides_of_v2_rest(route: str, flavor: str) -> None:
    server = replying(NESTED_REPLY, headers=JSON)
    wires = rest(config(route, backend=f"flavor: {flavor}, safe: true"), server)
    reply = await post(wires, NESTED)
    assert reply.status == 200, bytes(reply.body)
    asked = next(each for each in sent(wires) if each.path.endswith("/infer"))
    length = asked.headers.get("inference-header-content-length")
    head = json.loads(bytes(asked.body)[: int(length) if length else None])
    assert head["parameters"]["extra"] == {"a": [1, None], "b": 1.0}
    assert "headers" not in head["parameters"]
    assert head["inputs"][0]["parameters"]["more"] == [1, "é"]
    assert head["outputs"][0]["parameters"]["top"] == {"k": 1}
    answered = json.loads(bytes(reply.body))
    assert answered["parameters"] == {"extra": {"a": [1, 2]}}
    assert answered["outputs"][0]["parameters"] == {"more": [[]]}


NESTED = (
    '{"parameters": {"headers": null, "extra": {"a": [1, null], "b": 1.0}}, "outputs": [{"name": "y",'
    ' "parameters": {"top": {"k": 1}, "none": null}}], "inputs": [{"name": "x", "datatype": "FP32", "shape": [1],'
    ' "parameters": {"more": [1, "é"], "none": null}, "data": [1]}]}'
).encode()
NESTED_REPLY = (
    b'{"model_name": "m", "parameters": {"extra": {"a": [1, 2]}, "none": null}, "outputs": [{"name": "y",'
    b' "datatype": "FP32", "shape": [1], "parameters": {"more": [[]], "none": null}, "data": [0.5]}]}'
)
OTHERS = {
    "v2-grpc": ("v2-grpc, flavor: triton", ""),
    "v1": ("v1-rest, flavor: tensorflow", ""),
    "graphpipe": ("graphpipe", ""),
    "grps": ("grps-rest", ""),
    "mip": ("mip", ""),
    "umbridge": ("umbridge", ""),
    "tensorflow": ("tfs-grpc", ""),
    "form": ("json, form: f", "forms: {f: {infer: {path: /p, request: {p: $parameters, x: $x}, response: {y: $y}}}}"),
}
PLACES = {
    "request": b'{"parameters": {"extra": {"a": 1}}, %b}',
    "input": b"{%b}",
    "output": b'{"outputs": [{"name": "y", "parameters": {"extra": [1]}}], %b}',
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("protocol", "more"), OTHERS.values(), ids=OTHERS)
async def test_nested_parameters_are_refused_by_name_towards_others(protocol: str, more: str, place: str) -> None:
    inputs, outputs = (f"[{{name: {name}, datatype: FP32, shape: [1]}}]" for name in "xy")
    wires = rest(f"""
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{lab: {{endpoints: ["lab:1"], protocol: {protocol}}}}}
routes: [{{match: {{model: m}}, backend: lab, signature: {{inputs: {inputs}, outputs: {outputs}}}}}]
{more}
""")
    x = X.replace(b'"data"', b'"parameters": {"extra": {"a": 1}}, "data"') if place == "input" else X
    reply = await post(wires, PLACES[place] % x)
    assert reply.status == 400, bytes(reply.body)
    assert "parameter 'extra' is an object or a list, which only V2 REST carries" in bytes(reply.body).decode()
    assert not [each for each in sent(wires) if b"extra" in bytes(each.body)]


async def test_a_null_parameter_is_left_out_towards_others() -> None:
    wires = rest(config(protocol="v2-grpc"), replying(GRPC_ODD_REPLY, status=0))
    await post(wires, b'{"parameters": {"headers": null}, %b}' % X)
    (asked,) = [each for each in sent(wires) if each.path.endswith("/ModelInfer")]
    assert b"headers" not in bytes(asked.body)


async def test_nested_parameters_beside_null_among_numbers_are_refused() -> None:
    """The reader of null among numbers would change a null in a parameter, too."""
    wires = rest(config("backend: lab, translate: {nan: null}"), replying(NESTED_REPLY, headers=JSON))
    body = b'{"parameters": {"extra": {"b": 1}}, %b}' % X.replace(b'"data": [1]', b'"data": [null]')
    reply = await post(wires, body)
    assert (reply.status, sent(wires)) == (400, [])
    assert "parameter 'extra' is an object or a list" in bytes(reply.body).decode()


async def test_nested_parameters_of_a_reply_are_refused_by_name_for_other_clients() -> None:
    wires = rest(config(), replying(NESTED_REPLY, headers=JSON))
    reply = await call(wires, GRPC_ODD)
    assert "parameter 'extra' is an object or a list, which only V2 REST carries" in str(reply)


async def test_check_at_the_top_holds_for_routes_that_say_nothing() -> None:
    odd = ODD.replace(b"null", b"18446744073709551616")
    wires = rest(config(more="check: full"))
    assert (await post(wires, odd)).status == 400
    wires = rest(config("backend: lab, check: none", more="check: full"))
    assert (await post(wires, odd)).status == 200


X = b'"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]'
ACTED_UPON: Mapping[str, tuple[bytes, str]] = {
    "shared memory": (b'{"parameters": {"shared_memory_region": "r"}, %b}' % X, "cannot cross the gateway"),
    "escaped": (b'{"parameters": {"shared\\u005fmemory_region": "r"}, %b}' % X, "cannot cross the gateway"),
    "escaped member": (b'{"p\\u0061rameters": {"shared_memory_region": "r"}, %b}' % X, "cannot cross the gateway"),
    "timeout": (b'{"parameters": {"timeout": -1}, %b}' % X, "timeout must be an integer number of microseconds"),
    "empty": (b"", "expected a JSON object"),
}


@pytest.mark.parametrize(("body", "text"), ACTED_UPON.values(), ids=ACTED_UPON)
async def test_a_body_that_the_gateway_acts_upon_is_read(body: bytes, text: str) -> None:
    wires = rest(config())
    reply = await post(wires, body)
    assert (reply.status, sent(wires)) == (400, [])
    assert text in json.loads(bytes(reply.body))["error"]


async def test_the_requests_of_a_sequence_stay_at_one_endpoint() -> None:
    wires = rest(config(backend="flavor: triton, balance: round_robin"), replying(PLAIN_REPLY, headers=JSON))
    for _ in range(4):
        body = b'{"parameters": {"sequence_id": 9, "sequence_start": false}, %b}' % X
        assert (await post(wires, body)).status == 200
    assert all(b'"sequence_id":9' in bytes(each.body) for each in sent(wires))  # written anew


OFFSET = field(4, field(1, "shared_memory_offset"))
GRPC_READ = {
    "shared memory": field(1, "m") + field(5, field(1, "x") + field(4, field(1, "shared_memory_region"))),
    "between raw contents": field(1, "m") + field(7, b"1") + OFFSET + field(7, b"2"),
}


@pytest.mark.parametrize("body", GRPC_READ.values(), ids=GRPC_READ)
async def test_a_message_that_the_gateway_acts_upon_is_read_over_grpc(body: bytes) -> None:
    wires = rest(config(protocol="v2-grpc"), replying(GRPC_ODD_REPLY, status=0))
    reply = await call(wires, body)
    assert (reply.status, sent(wires)) == (3, [])


async def test_a_word_within_raw_contents_is_data() -> None:
    body = field(1, "m") + tensor("x", "BYTES", 1) + field(7, b"\x0d\0\0\0shared_memory")
    wires = rest(config(protocol="v2-grpc"), replying(GRPC_ODD_REPLY, status=0))
    assert (await call(wires, body)).status == 0
    assert bytes(sent(wires)[0].body) == body


async def test_of_two_names_the_last_is_routed_as_servers_read_it() -> None:
    text = config(protocol="v2-grpc").replace('model: "m*"', "model: m")
    wires = rest(text, replying(GRPC_ODD_REPLY, status=0))
    forbidden = await call(wires, field(1, "m") + TYPED + field(1, "q"))
    assert (forbidden.status, sent(wires)) == (5, [])
    allowed = await call(wires, field(1, "q") + TYPED + field(1, "m"))
    assert (allowed.status, len(sent(wires))) == (0, 1)


def failing(status: int, body: bytes, media_type: bytes = b"application/json") -> Server:
    return replying(body, status=status, headers=((b"content-type", media_type),))


DETAILED = b'{"error": "no such input", "detail": [{"loc": ["body"], "code": 7}]}'


async def test_an_error_goes_back_as_the_server_wrote_it() -> None:
    reply = await rest(config(), failing(422, DETAILED)).post("v2-rest", "/v2/models/m/infer", ODD)
    assert (reply.status, bytes(reply.body)) == (422, DETAILED)
    assert reply.headers.get("gateway-reason") == "invalid-input"


TRACEBACK = b"Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b'{"error": "%b\\n File \\"/srv/m.py\\", line 1\\nValueError: no"}' % TRACEBACK, b"application/json"),
        (b'{"error": "no", "trace": "%b x"}' % TRACEBACK, b"application/json"),
        (b"<html>no</html>", b"text/html"),
    ],
)
async def test_an_error_that_shows_too_much_or_is_no_json_is_written_anew(body: bytes, media_type: bytes) -> None:
    reply = await rest(config(), failing(500, body, media_type)).post("v2-rest", "/v2/models/m/infer", ODD)
    assert reply.status == 500
    assert b"Traceback" not in bytes(reply.body)
    assert list(json.loads(bytes(reply.body))) == ["error"]


async def test_a_reply_of_another_media_type_is_read() -> None:
    wires = rest(config(), replying(PLAIN_REPLY))
    reply = await post(wires, b"{%b}" % X)
    assert (reply.status, json.loads(bytes(reply.body))["outputs"][0]["data"]) == (200, [1.0])
    wires = rest(config(), replying(b"<html>", headers=((b"content-type", b"text/html"),)))
    assert (await post(wires, b"{%b}" % X)).status == 502


async def test_a_message_for_two_kinds_of_servers_is_read_for_the_one_that_needs_it() -> None:
    text = config("split: [{backend: lab, weight: 0}, {backend: other}], fallback: []").replace(
        'endpoints: ["other:1"], flavor: triton', 'endpoints: ["other:1"], flavor: mlserver'
    )
    wires = rest(text, replying(PLAIN_REPLY, headers=JSON))
    assert (await wires.send("v2-rest", ASKED_IN_BINARY)).status == 200
    assert json.loads(bytes(wires.sent["other"][0].body))["inputs"][0]["data"] == [1.0]


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc"])
async def test_a_translated_route_reads(protocol: str) -> None:
    """One side speaks the other wire form of V2."""
    wires = rest(config(protocol="v2-grpc" if protocol == "v2-rest" else "v2-rest"))
    if protocol == "v2-rest":
        reply = await post(wires, ODD)
        assert reply.status == 400
    else:
        reply = await call(wires, field(1, "m") + b"\xff")
        assert reply.status == 3
    assert sent(wires) == []
