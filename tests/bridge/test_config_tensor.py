"""UM-Bridge's `config` on wires without parameters."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

import numpy as np
import pytest

from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Protocol, Rows
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.traits import adapted
from tests.bridge.values import point, shown

CARRY = RouteSettings(carry_config=True)
UNTOLD = adapted(TENSORS, models={"trusted_metadata": False})
"""Tensors whose metadata nobody trusts."""
BARE = adapted(UNTOLD, "bare", wire={"parameters": False, "unnamed": True})
"""Tensors that may have names, and no parameters, as grps has them."""
EXAMPLES = adapted(BARE, "examples", wire={"rows": Rows.FIRST})
"""The same in batches, as MIP has them."""
CONFIG = '{"level":2}'
WITH = {"config": CONFIG}


def config(*texts: str, name: str = "config") -> Tensor:
    return tensor(name, np.array([text.encode() for text in texts], object))


def echo(request: Request) -> Response:
    return Response((named("y", [[7.0]]),))


async def sent(backend: Backend, through: Bridge, request: Request) -> Request:
    await call(through, request)
    [asked] = backend.calls
    return asked


async def test_it_is_the_last_input_and_no_parameter_any_more() -> None:
    backend = Backend({}, echo)
    asked = await sent(backend, bridge(POINTS, BARE, backend, CARRY), infer(point(1.0, 2.0), parameters=WITH))
    assert asked.parameters == {}
    assert shown(asked.inputs) == [("", "FP64", [1.0, 2.0]), ("config", "BYTES", [CONFIG.encode()])]
    assert asked.inputs[-1].content_type == "json"


async def test_there_is_one_for_each_example() -> None:
    backend = Backend({}, lambda request: Response((named("y", [[7.0], [8.0]]),)))
    batch = named("x", [[1.0], [2.0]])
    asked = await sent(backend, bridge(TENSORS, EXAMPLES, backend, CARRY), infer(batch, parameters=WITH))
    assert shown(asked.inputs)[1:] == [("config", "BYTES", [CONFIG.encode()] * 2)]


async def test_it_goes_with_every_row() -> None:
    backend = Backend({}, lambda request: Response((named("y", [7.0]),)))
    request = infer(named("x", [[1.0], [2.0]]), parameters=WITH)
    await call(bridge(TENSORS, adapted(BARE, wire={"rows": Rows.ONE}), backend, CARRY), request)
    assert [shown(asked.inputs)[1:] for asked in backend.calls] == [[("config", "BYTES", [CONFIG.encode()])]] * 2


@pytest.mark.parametrize("text", ["{}", " {} ", ""])
@pytest.mark.parametrize("settings", [CARRY, RouteSettings()])
async def test_an_empty_one_is_not_sent(text: str, settings: RouteSettings) -> None:
    backend = Backend({}, echo)
    request = infer(point(1.0), parameters={"config": text})
    asked = await sent(backend, bridge(POINTS, BARE, backend, settings), request)
    assert (asked.parameters, len(asked.inputs)) == ({}, 1)


async def test_without_the_key_it_is_refused_naming_that() -> None:
    backend = Backend({}, echo)
    with pytest.raises(GatewayError) as refused:
        await call(bridge(POINTS, BARE, backend, RouteSettings()), infer(point(1.0), parameters=WITH))
    assert refused.value.status is Status.INVALID_ARGUMENT
    assert refused.value.message == (
        "parameter 'config' is not supported by bare, the protocol of backend 'lab'; "
        "`translate: {carry_config: true}` on the route sends it as one more input"
    )
    assert backend.calls == []


SEEN = signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))
ONE = {"m": signature(spec("", 2), gives=(spec("", 1),))}


@pytest.mark.parametrize(
    "given", [config(CONFIG), config(CONFIG, name=""), replace(config(CONFIG), content_type="text", shape=(1, 1))]
)
async def test_the_last_input_of_a_client_becomes_the_parameter(given: Tensor) -> None:
    backend = Backend(ONE, lambda request: Response((named("", [7.0]),)))
    request = infer(named("input0", [[1.0, 2.0]]), given)
    asked = await sent(backend, bridge(BARE, POINTS, backend, CARRY), request)
    assert asked.parameters == WITH
    assert shown(asked.inputs) == [("input0", "FP64", [1.0, 2.0])]
    [question] = [each for each in backend.asked if each.operation is Operation.METADATA]
    assert question.parameters == WITH  # a model's sizes may depend on it


@pytest.mark.parametrize("server", [BARE, EXAMPLES])
async def test_through_two_gateways_it_arrives_as_it_was(server: Protocol) -> None:
    backend = Backend(ONE, lambda request: Response((named("", [7.0]),)))
    far = bridge(server, POINTS, backend, CARRY)
    near = bridge(POINTS, server, Backend({}, lambda request: call(far, request)), CARRY)
    asked = await sent(backend, near, infer(point(1.0, 2.0), parameters=WITH))
    assert (asked.parameters, shown(asked.inputs)) == (WITH, [("input0", "FP64", [1.0, 2.0])])


async def test_a_derivatives_config_is_taken_as_well() -> None:
    offers = frozenset({Operation.INFER, Operation.GRADIENT})
    backend = Backend({"m": replace(ONE["m"], operations=offers)}, lambda request: Response((named("", [7.0, 8.0]),)))
    handler = bridge(BARE, POINTS, backend, CARRY).companion(Operation.GRADIENT)
    request = infer(named("input0", [[1.0, 2.0]]), named("sens", [[1.0]]), config(CONFIG), model="m.gradient")
    await call(handler, request)
    assert [(asked.operation, asked.parameters) for asked in backend.calls] == [(Operation.GRADIENT, WITH)]


async def test_only_a_route_that_says_so_takes_an_input_for_it() -> None:
    backend = Backend({}, echo)
    here = bridge(BARE, TENSORS, backend, RouteSettings(signature=SEEN))
    with pytest.raises(DecodeError, match="unknown input 'config'"):
        await call(here, infer(named("x", [[1.0, 2.0]]), config(CONFIG)))


@pytest.mark.parametrize("last", [named("config", [1.0]), config("text", name="other")])
async def test_other_inputs_are_inputs(last: Tensor) -> None:
    backend = Backend({}, echo)
    asked = await sent(backend, bridge(BARE, UNTOLD, backend, CARRY), infer(named("x", [1.0]), last))
    assert [each.name for each in asked.inputs] == ["x", last.name]


NOT_UTF8 = tensor("config", np.array([b"\xff"], object))
NONE = Tensor("config", Datatype.BYTES, (0,), b"")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (config("{}", CONFIG), "input 'config' holds 2 different texts, expected one, the same in every row"),
        (NONE, "input 'config' holds 0 different texts, expected one, the same in every row"),
        (NOT_UTF8, "input 'config' is not UTF-8, expected the text of a JSON object"),
    ],
)
async def test_what_is_no_config_is_the_clients_fault(given: Tensor, text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        await call(bridge(BARE, POINTS, Backend(ONE), CARRY), infer(named("input0", [[1.0, 2.0]]), given))
    assert str(refused.value) == text


async def test_a_parameter_that_is_no_text_is_refused() -> None:
    with pytest.raises(GatewayError, match="parameter 'config' is 3, expected the text of a JSON object"):
        await call(bridge(TENSORS, BARE, Backend({}), CARRY), infer(named("x", [1.0]), parameters={"config": 3}))


@pytest.mark.parametrize(
    ("client", "server", "request_"),
    [
        (POINTS, BARE, infer(point(1.0), parameters=WITH)),
        (BARE, POINTS, infer(named("input0", [[1.0, 2.0]]), config(CONFIG))),
    ],
)
async def test_its_limit_is_the_backends(client: Protocol, server: Protocol, request_: Request) -> None:
    here = bridge(client, server, Backend(ONE), CARRY, limits=Limits(config=10))
    with pytest.raises(GatewayError) as refused:
        await call(here, request_)
    assert refused.value.reason is Reason.TOO_LARGE
    assert refused.value.message == "config of 11 bytes; `limits: {config: 10}` of backend 'lab' allows no more"


async def test_examples_without_a_byte_do_not_make_gigabytes_of_it() -> None:
    many: Any = Tensor("x", Datatype.FP64, (2**32, 0), b"")
    with pytest.raises(GatewayError, match=r"limits\.message of the backend") as refused:
        await call(bridge(TENSORS, EXAMPLES, Backend({}), CARRY), infer(many, parameters=WITH))
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("word", ["error", "last"])
async def test_streams_carry_it_too(word: Literal["error", "last"]) -> None:
    backend = Backend({}, echo)
    near = bridge(POINTS, BARE, backend, replace(CARRY, stream=word))
    responses = [each async for each in near.stream(infer(point(1.0), operation=Operation.STREAM, parameters=WITH))]
    assert len(responses) == 1
    assert [each.name for each in backend.calls[0].inputs] == ["", "config"]
    far = bridge(BARE, TENSORS, Backend({"m": SEEN}, echo), replace(CARRY, stream=word))
    responses = [each async for each in far.stream(infer(named("x", [[1.0, 2.0]]), config(CONFIG)))]
    assert [shown(each.outputs) for each in responses] == [[("y", "FP64", [[7.0]])]]


async def test_one_input_is_taken_where_a_stream_becomes_one_response() -> None:
    asked: list[Request] = []

    async def responses(request: Request) -> AsyncGenerator[Response, None]:
        asked.append(request)
        yield echo(request)

    here = bridge(BARE, UNTOLD, Backend({}), replace(CARRY, stream="last"), stream=responses)
    await call(here, infer(named("x", [1.0]), config("a text", name=""), config(CONFIG, name="")))
    assert [(each.parameters, len(each.inputs)) for each in asked] == [(WITH, 2)]
