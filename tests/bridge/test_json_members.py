"""Requests and responses that are members of one JSON object: the signature tells what they are."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest

from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.frozen import replace
from gateway.core.messages import JSON_HEADERS, Headers, Message
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.configured import TELLS_CONFIGS, Configured
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.values import FP32, INT32, shown
from tests.wires import Wires, replying

BYTES, BOOL = Datatype.BYTES, Datatype.BOOL


def member(name: str, values: Any) -> Tensor:
    return replace(tensor(name, np.array(values)), untyped=True)


def generate(*lists: Tensor, **scalars: Any) -> Request:
    return infer(*lists, parameters=scalars, schemaless=True)


def takes(*specs: Any) -> Signature:
    return signature(*specs, gives=(spec("y", 1),))


async def given(request: Request, model: Signature, **settings: Any) -> Request:
    """What the backend is asked."""
    backend = Backend({"m": model}, lambda request: Response((named("y", [1.0]),)))
    await bridge(TENSORS, TENSORS, backend, RouteSettings(**settings)).__call__(request)
    [asked] = backend.calls
    return asked


GENERATE = """
listeners: [{name: http, bind: "127.0.0.1:1", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, endpoints: ["lab:1"], flavor: FLAVOR}}
routes: [{match: {model: "*"}, backend: lab}]
"""
TEXTS: dict[str, Any] = {
    "": {"name": "server", "version": "2", "extensions": []},
    "/models/m": {
        "name": "m", "versions": ["1"], "platform": "",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "reply", "datatype": "BYTES", "shape": [-1]}],
    },
    "/models/m/infer": {
        "model_name": "m", "outputs": [{"name": "reply", "datatype": "BYTES", "shape": [1], "data": ["hello"]}]
    },
}  # fmt: skip


async def plain_server(message: Message) -> Message:
    body = json.dumps(TEXTS[message.path.removeprefix("/v2")]).encode()
    return Message(headers=Headers(((b"content-type", b"application/json"),)), parts=(body,), status=200)


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
async def test_members_reach_a_server_that_takes_tensors_alone(path: str) -> None:
    """The request is relayed until its server turns out not to have the path."""
    gateway = Wires(GENERATE.replace("FLAVOR", "plain"), lab=plain_server)
    for _ in range(2):
        if path == "generate":
            reply = await gateway.post("v2-rest", "/v2/models/m/generate", b'{"text": "hi"}')
            found = [bytes(reply.body)]
        else:
            message = Message("POST", "/v2/models/m/generate_stream", JSON_HEADERS, (b'{"text": "hi"}',))
            found = [bytes(each.body) for each in await gateway.stream("v2-rest", message)]
        assert [each for each in found if each] == [b'{"model_name":"m","reply":"hello"}']
    calls = [each for each in gateway.sent["lab"] if each.method == "POST"]
    assert [each.path for each in calls] == ["/v2/models/m/infer"] * 2
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["hi"]}
    assert [json.loads(bytes(each.body))["inputs"] for each in calls] == [[text]] * 2


async def test_a_relayed_call_of_a_model_that_streams_is_told_how_it_becomes_one_response() -> None:
    told = b'{"error": "does not support decoupled models"}'
    gateway = Wires(GENERATE.replace("FLAVOR", "triton"), lab=replying(told, status=501))
    reply = await gateway.post("v2-rest", "/v2/models/m/infer", b'{"inputs": []}')
    assert json.loads(bytes(reply.body)) == {
        "error": "does not support decoupled models; for a model that streams, "
        "`translate: {stream: last}` or `{stream: collect}` on the route gives one response"
    }


@pytest.mark.parametrize(
    ("request_", "wanted", "expected"),
    [
        (generate(x=3), spec("x", -1, datatype=INT32), [3]),
        (generate(x=3), spec("x", 1, datatype=INT32), [3]),
        (generate(x=3), spec("x", -1, 1), [[3.0]]),
        (generate(x=3), spec("x", datatype=FP32), 3.0),
        (generate(x=True), spec("x", 1, datatype=BOOL), [True]),
        (generate(x="é"), spec("x", -1, datatype=BYTES), ["é".encode()]),
        (generate(x=2**64 - 1), spec("x", 1, datatype=Datatype.UINT64), [2**64 - 1]),
        (generate(member("x", [1, 2])), spec("x", -1, datatype=INT32), [1, 2]),
        (generate(member("x", [1, 2, 3])), spec("x", -1, 3), [[1.0, 2.0, 3.0]]),
        (generate(member("x", [1, 2, 3, 4])), spec("x", -1, 2), [[1.0, 2.0], [3.0, 4.0]]),
        (generate(member("x", [1, 2, 3, 4])), spec("x", 2, 2), [[1.0, 2.0], [3.0, 4.0]]),
        (generate(member("x", [1, 2, 3])), spec("x", -1, -1), [[1.0, 2.0, 3.0]]),
        (generate(member("x", [[1, 2], [3, 4]])), spec("x", -1, -1), [[1.0, 2.0], [3.0, 4.0]]),
        (generate(member("x", [1, 2, 3, 4])), spec("x", -1, -1, 2), [[[1.0, 2.0], [3.0, 4.0]]]),
        (generate(member("x", [])), spec("x", -1, datatype=BYTES), []),
        (generate(member("x", [])), spec("x", -1, 3), []),
        (generate(member("x", ["a", "b"])), spec("x", -1, datatype=BYTES), [b"a", b"b"]),
    ],
)
async def test_a_member_takes_the_inputs_datatype_and_shape(request_: Request, wanted: Any, expected: Any) -> None:
    asked = await given(request_, takes(wanted))
    assert shown(asked.inputs) == [("x", wanted.datatype.value, expected)]
    assert (asked.parameters, asked.schemaless) == ({}, False)


async def test_scalars_that_are_no_inputs_are_parameters() -> None:
    asked = await given(generate(text="a", temperature=0.5), takes(spec("text", -1, datatype=BYTES)))
    assert [each.name for each in asked.inputs] == ["text"]
    assert asked.parameters == {"temperature": 0.5}


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (generate(x=1.5), "input 'x': element 0"),
        (generate(x="a"), "input 'x' is BYTES, expected INT32"),
        (generate(x=True), "input 'x' is BOOL, expected INT32"),
        (generate(x=2**31), "input 'x': element 0"),
        (generate(member("x", [[1, 2, 3]])), r"input 'x' has shape \[1, 3\]"),
        (generate(member("z", [1]), x=1), "unknown input 'z'"),
        (generate(temperature=1), "input 'x' is missing"),
    ],
)
async def test_what_does_not_fit_is_the_clients_fault(request_: Request, fault: str) -> None:
    with pytest.raises(DecodeError, match=fault):
        await given(request_, takes(spec("x", -1, datatype=INT32)))


async def test_a_list_that_has_no_such_shape_is_refused() -> None:
    with pytest.raises(DecodeError, match="input 'x' has length 3, expected a multiple of 2"):
        await given(generate(member("x", [1, 2, 3])), takes(spec("x", -1, 2)))


async def test_without_a_signature_nobody_can_tell() -> None:
    told = "cannot assign the request's JSON members; declare them by `signature` on the route"
    with pytest.raises(GatewayError, match=told) as refused:
        await given(generate(x=1), Signature())
    assert refused.value.status is Status.UNIMPLEMENTED


async def test_the_routes_signature_is_enough() -> None:
    own = takes(spec("x", -1, datatype=INT32))
    assert shown((await given(generate(x=1), Signature(), signature=own)).inputs) == [("x", "INT32", [1])]


async def test_a_route_that_declares_all_tensors_needs_no_metadata() -> None:
    backend = Backend({"m": refusal(Reason.NOT_READY, "starting")}, lambda request: Response((named("y", [1.0]),)))
    settings = RouteSettings(signature=takes(spec("x", -1, datatype=INT32)))
    await bridge(TENSORS, TENSORS, backend, settings)(generate(x=1, temperature=0.5))
    [asked] = backend.calls
    assert (shown(asked.inputs), asked.parameters) == ([("x", "INT32", [1])], {"temperature": 0.5})


async def test_the_routes_names_are_the_clients() -> None:
    model, names = takes(spec("text", -1, datatype=BYTES)), Renames(inputs=(Renaming("prompt", "text"),))
    asked = await given(generate(prompt="a", old=1), model, rename=names, drop=("old",))
    assert ([each.name for each in asked.inputs], asked.parameters) == (["text"], {})


async def test_a_backend_of_points_takes_members() -> None:
    y = replace(named("", [5.0]), untyped=True)
    backend = Backend({"m": signature(spec("", 2), gives=(spec("", 1),))}, lambda request: Response((y,)))
    response = await call(bridge(TENSORS, POINTS, backend), generate(member("input0", [1, 2])))
    assert shown(backend.calls[0].inputs) == [("input0", "FP64", [1.0, 2.0])]
    assert shown(response.outputs) == [("output0", "FP64", [[5.0]])]


# --- optional inputs ---

OPTIONAL = {"input": [{"name": "text"}, {"name": "end_id", "optional": True}, {"name": "top", "optional": True}]}
ENGINE = takes(spec("text", -1, 1, datatype=BYTES), spec("end_id", -1, 1, datatype=INT32), spec("top", -1, 1))


def engine(config: Any = OPTIONAL, known: Signature = ENGINE) -> Configured:
    return Configured({"m": config}, known, lambda request: Response((named("y", [1.0]),)))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (generate(text="a"), [("text", "BYTES", [[b"a"]])]),
        (generate(text="a", top=0.5), [("text", "BYTES", [[b"a"]]), ("top", "FP64", [[0.5]])]),
        (generate(end_id=2, text="a"), [("text", "BYTES", [[b"a"]]), ("end_id", "INT32", [[2]])]),
        (infer(named("text", [[b"a"]], BYTES)), [("text", "BYTES", [[b"a"]])]),
        (infer(named("", [[b"a"]], BYTES)), [("text", "BYTES", [[b"a"]])]),
    ],
)
async def test_inputs_that_the_configuration_calls_optional_may_be_missing(request_: Request, expected: Any) -> None:
    backend = engine()
    handler = bridge(TENSORS, TELLS_CONFIGS, backend, RouteSettings(drop=("z",)))  # or tensors pass as they are
    for _ in range(2):
        await call(handler, request_)
    assert [shown(each.inputs) for each in backend.calls if each.operation is Operation.INFER] == [expected] * 2
    assert backend.configs_asked == ["m"]  # and remembered


async def test_whoever_sends_all_inputs_causes_no_question_for_the_configuration() -> None:
    backend = engine()
    await call(bridge(TENSORS, TELLS_CONFIGS, backend), generate(text="a", end_id=1, top=2.0))
    assert backend.configs_asked == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (OPTIONAL, "input 'text' is missing; the model takes .*, 'end_id' INT32 .* .optional."),
        ({"input": [{"name": "end_id", "optional": "yes"}, 7]}, "inputs 'text', 'end_id' are missing"),
        ({"input": 7}, "inputs 'text', 'end_id' are missing"),
        (GatewayError(Status.NOT_FOUND, Reason.MODEL_NOT_FOUND, "no"), "inputs 'text', 'end_id' are missing"),
    ],
)
async def test_other_inputs_are_required(config: Any, why: str) -> None:
    backend = engine(config)
    handler = bridge(TENSORS, TELLS_CONFIGS, backend)
    for _ in range(2):
        with pytest.raises(DecodeError, match=why):
            await call(handler, generate(top=1.0))
    assert (backend.calls[1:], backend.configs_asked) == ([], ["m"])


async def test_an_outage_is_no_answer_about_optional_inputs() -> None:
    backend = engine(GatewayError(Status.UNAVAILABLE, Reason.UNREACHABLE, "away"))
    handler = bridge(TENSORS, TELLS_CONFIGS, backend)
    for _ in range(2):
        with pytest.raises(DecodeError, match="are missing"):
            await call(handler, generate(text="a"))
    assert backend.configs_asked == ["m", "m"]


async def test_a_signature_of_the_route_says_itself_what_is_optional() -> None:
    own = takes(spec("text", -1, 1, datatype=BYTES), replace(spec("top", -1, 1), optional=True))
    backend = engine()
    handler = bridge(TENSORS, TELLS_CONFIGS, backend, RouteSettings(signature=own))
    await call(handler, generate(text="a", seed=3))
    [asked] = backend.calls
    assert (shown(asked.inputs), asked.parameters) == ([("text", "BYTES", [[b"a"]])], {"seed": 3})
    with pytest.raises(GatewayError, match="input 'end_id' of model 'm' is not in the route's `signature`; add it"):
        await call(handler, generate(text="a", end_id=2))
    assert backend.calls == [asked]


# --- responses ---


async def answered(
    response: Response, model: Signature, outputs: tuple[RequestedOutput, ...] = (), **settings: Any
) -> list[Response]:
    """What a client of a stream gets of a backend that answers in members."""

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        yield response

    through = bridge(TENSORS, TENSORS, Backend({"m": model}), RouteSettings(**settings), stream=stream)
    asked = infer(named("x", [1.0]), operation=Operation.STREAM, outputs=outputs)
    return [each async for each in through.stream(asked)]


def gives(*specs: Any) -> Signature:
    return signature(spec("x", 1), gives=specs)


def members(*lists: Tensor, **scalars: Any) -> Response:
    return Response(lists, parameters=scalars, schemaless=True)


@pytest.mark.parametrize(
    ("response", "output", "expected"),
    [
        (members(y=3), spec("y", 1, datatype=INT32), [3]),
        (members(y=3.0), spec("y", -1, 1, datatype=FP32), [[3.0]]),
        (members(y="a"), spec("y", -1, datatype=BYTES), [b"a"]),
        (members(member("y", [1.0, 2.0, 3.0, 4.0])), spec("y", -1, 2), [[1.0, 2.0], [3.0, 4.0]]),
        (members(member("y", [1, 2])), spec("y", -1, -1), [[1.0, 2.0]]),
        (members(member("y", [])), spec("y", -1, datatype=BYTES), []),
    ],
)
async def test_an_output_takes_the_signatures_datatype_and_shape(
    response: Response, output: Any, expected: Any
) -> None:
    [found] = await answered(response, gives(output))
    assert shown(found.outputs) == [("y", output.datatype.value, expected)]
    assert found.parameters == {}


async def test_scalars_that_are_no_outputs_are_the_responses_parameters() -> None:
    [found] = await answered(members(y=1, score=0.5), gives(spec("y", 1), spec("z", 1)))
    assert (shown(found.outputs), found.parameters) == ([("y", "FP64", [1.0])], {"score": 0.5})


async def test_only_the_outputs_that_were_asked_for_are_given() -> None:
    model = gives(spec("y", 1), spec("z", 1))
    [found] = await answered(members(y=1, z=2), model, (RequestedOutput("z"),))
    assert shown(found.outputs) == [("z", "FP64", [2.0])]


async def test_a_route_may_fit_such_outputs_further() -> None:
    model = gives(spec("y", 1), spec("z", 1))
    [found] = await answered(members(y=1, z=2), model, select=("z",))
    assert shown(found.outputs) == [("z", "FP64", [2.0])]


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        (members(member("w", [1, 2]), y=1), "unknown output 'w'"),
        (members(y="a"), "output 'y' is BYTES, expected FP64"),
        (members(member("y", [1, 2])), "output 'y' has length 2, expected 1"),
        (members(), "output 'y' is missing; the reply has none"),
    ],
)
async def test_outputs_that_were_not_declared_are_the_backends_fault(response: Response, fault: str) -> None:
    with pytest.raises(GatewayError, match=fault) as failed:
        await answered(response, gives(spec("y", 1)), (RequestedOutput("y"),))
    assert failed.value.reason is Reason.INVALID_OUTPUT
