"""What the Handler of reference models answers and refuses."""

import asyncio
from typing import Any

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import HttpBinding, Models, Protocol, Traits, Wire
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.reference import BUNDLED, check, from_callable, handler
from tests.reference.calls import doubles, request

POINT = {"x": doubles([[1, 2, 3]])}
TERMS = {"INPUT0": np.array([1, 2], "<i4"), "INPUT1": np.array([3, 4], "<i4")}

serve = handler([BUNDLED["identity"], BUNDLED["double"], BUNDLED["add_sub"]])


async def answered(asked: Request) -> Response:
    answer = await serve(asked)
    assert isinstance(answer, Response)
    return answer


async def test_answers_carry_model_version_and_id() -> None:
    answer = await answered(request("double", POINT, version="1", id="7"))
    assert (answer.model, answer.version, answer.id) == ("double", "1", "7")
    assert answer.outputs[0].array.tolist() == [[2, 4, 6]]


async def test_metadata_is_the_signature() -> None:
    assert await serve(Request(Operation.METADATA, "add_sub")) == Signature(
        (TensorSpec("INPUT0", Datatype.INT32, (-1,)), TensorSpec("INPUT1", Datatype.INT32, (-1,))),
        (TensorSpec("OUTPUT0", Datatype.INT32, (-1,)), TensorSpec("OUTPUT1", Datatype.INT32, (-1,))),
        frozenset({Operation.INFER}),
        "add_sub",
        ("1",),
        "gateway_python",
    )


async def test_metadata_of_a_model_for_any_tensors_is_empty() -> None:
    answer = await serve(Request(Operation.METADATA, "identity"))
    assert isinstance(answer, Signature)
    assert (answer.inputs, answer.outputs, answer.name) == ((), (), "identity")


async def test_metadata_claims_the_derivatives_that_are_offered() -> None:
    answer = await serve(Request(Operation.METADATA, "double"))
    assert isinstance(answer, Signature)
    assert answer.operations == {Operation.INFER, Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.APPLY_HESSIAN}


async def test_ready_and_config() -> None:
    assert await serve(Request(Operation.MODEL_READY, "double")) is True
    assert await serve(Request(Operation.CONFIG, "double")) == {}


async def test_models_are_listed() -> None:
    names = ("identity", "double", "add_sub")
    assert await serve(Request(Operation.MODELS)) == tuple(ModelEntry(name, "1", "READY") for name in names)


NO_DOUBLES = "no model 'doubles'; this server has identity, double, add_sub"
NO_OBJECT = "parameter 'config' of model 'double' must be the text of a JSON object"

REFUSED: list[tuple[Request, Reason, str]] = [
    (request("doubles", POINT), Reason.MODEL_NOT_FOUND, NO_DOUBLES),
    (Request(Operation.METADATA, "doubles"), Reason.MODEL_NOT_FOUND, NO_DOUBLES),
    (Request(Operation.MODEL_READY, "doubles"), Reason.MODEL_NOT_FOUND, NO_DOUBLES),
    (request("double", POINT, version="2"), Reason.MODEL_NOT_FOUND, "model 'double' has no version '2'; it has 1"),
    (
        request("identity", POINT, Operation.GRADIENT),
        Reason.UNSUPPORTED,
        "model 'identity' offers no gradient; it offers infer",
    ),
    (
        request("add_sub", TERMS, outputs=(RequestedOutput("OUTPUT2"),)),
        Reason.INVALID_INPUT,
        "model 'add_sub' has no output 'OUTPUT2'; its outputs are OUTPUT0, OUTPUT1",
    ),
    (
        request("double", POINT, parameters={"priority": 1}),
        Reason.INVALID_INPUT,
        "model 'double' takes no parameter 'priority'; remove it",
    ),
    (
        request("add_sub", TERMS, outputs=(RequestedOutput("OUTPUT0", {"classification": 3}),)),
        Reason.INVALID_INPUT,
        "output 'OUTPUT0' of model 'add_sub' takes no parameter 'classification'; remove it",
    ),
    (
        request("identity", POINT, parameters={"config": '{"scale": 3}'}),
        Reason.INVALID_INPUT,
        "model 'identity' takes no config; got 'scale'",
    ),
    (request("double", POINT, parameters={"config": "[3]"}), Reason.INVALID_INPUT, NO_OBJECT),
    (request("double", POINT, parameters={"config": 3}), Reason.INVALID_INPUT, NO_OBJECT),
]


@pytest.mark.parametrize(("asked", "reason", "text"), REFUSED, ids=[text for _, _, text in REFUSED])
async def test_refusals_say_what_would_be_right(asked: Request, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as caught:
        await serve(asked)
    assert (caught.value.reason, caught.value.status) == (reason, reason.status)
    assert caught.value.message == text


async def test_config_that_is_not_json_is_refused() -> None:
    with pytest.raises(GatewayError, match="parameter 'config' of model 'double' is not JSON: ") as caught:
        await serve(request("double", POINT, parameters={"config": "{scale: 3}"}))
    assert caught.value.reason is Reason.INVALID_INPUT


async def test_an_empty_config_suits_every_model() -> None:
    assert await answered(request("identity", POINT, parameters={"config": "{}"}))


@pytest.mark.parametrize("names", [("OUTPUT1", "OUTPUT0"), ("OUTPUT0",)], ids=["all in another order", "one alone"])
async def test_the_requested_outputs_come_in_the_requested_order(names: tuple[str, ...]) -> None:
    answer = await answered(request("add_sub", TERMS, outputs=tuple(map(RequestedOutput, names))))
    values = {"OUTPUT0": [4, 6], "OUTPUT1": [-2, -2]}
    assert [(output.name, output.array.tolist()) for output in answer.outputs] == [
        (name, values[name]) for name in names
    ]


async def test_to_one_point_protocols_the_sizes_are_fixed() -> None:
    answer = await handler([BUNDLED["double"]], points=True)(Request(Operation.METADATA, "double"))
    assert isinstance(answer, Signature)
    assert answer.inputs == (TensorSpec("x", Datatype.FP64, (-1, 3)),)
    assert answer.outputs == (TensorSpec("y", Datatype.FP64, (-1, 3)),)
    assert Operation.GRADIENT in answer.operations


async def test_to_one_point_protocols_the_fixed_sizes_are_required() -> None:
    with pytest.raises(GatewayError, match=r"'x' of model 'double' is FP64 \[1,2\]; expected FP64 \[-1,3\]"):
        await handler([BUNDLED["double"]], points=True)(request("double", {"x": doubles([[1, 2]])}))


async def test_an_exception_of_an_async_model_is_its_error() -> None:
    async def broken(x: Any) -> Any:
        raise KeyError("weights")

    with pytest.raises(GatewayError) as caught:
        await handler([from_callable("broken", broken)])(request("broken", POINT))
    assert (caught.value.reason, caught.value.message) == (Reason.MODEL_ERROR, "KeyError: 'weights'")


async def test_cancelling_is_no_error_of_the_model() -> None:
    task = asyncio.ensure_future(handler([BUNDLED["slow"]])(request("slow", {"seconds": doubles([[3600]])})))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def undeclared(x: Any) -> Any:
    return x


def _unused(*_: Any) -> Any:
    raise AssertionError("check asks a protocol for its traits only")


ONE_POINT = Protocol(
    "umbridge", HttpBinding(), (), _unused, _unused, _unused, _unused, _unused, Traits(wire=Wire(points=True))
)
TENSORS = Protocol("v2-rest", HttpBinding(), (), _unused, _unused, _unused, _unused, _unused)


@pytest.mark.parametrize("name", ["identity", "double", "posterior", "slow", "fail"])
def test_models_of_fixed_sizes_suit_one_point_protocols(name: str) -> None:
    check([BUNDLED[name]], ONE_POINT)


@pytest.mark.parametrize("name", ["add_sub", "upper", "classify"])
def test_other_models_are_refused_to_one_point_protocols(name: str) -> None:
    expected = f"model '{name}' does not fit umbridge: it needs inputs and outputs that are numbers"
    with pytest.raises(ValueError, match=expected):
        check([BUNDLED[name]], ONE_POINT)


def test_a_callable_without_signature_is_refused_to_one_point_protocols() -> None:
    with pytest.raises(ValueError, match=r"model 'f' does not fit umbridge: .*@gateway.reference.signature"):
        check([from_callable("f", undeclared)], ONE_POINT)
    with pytest.raises(ValueError, match="model 'f' does not fit one-point protocols"):
        handler([from_callable("f", undeclared)], points=True)


def test_several_models_are_refused_where_clients_name_none() -> None:
    nameless = replace(TENSORS, name="mip", traits=Traits(models=Models(named=False)))
    check([BUNDLED["upper"]], nameless)
    with pytest.raises(ValueError, match="mip do not name a model, so a server has only one; got upper, double"):
        check([BUNDLED["upper"], BUNDLED["double"]], nameless)


def test_tensor_protocols_take_every_model() -> None:
    check([*BUNDLED.values(), from_callable("f", undeclared)], TENSORS)


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two models are named 'double'"):
        check([BUNDLED["double"], from_callable("double", undeclared)], TENSORS)
