"""A one-point client (UM-Bridge) in front of a tensor backend (V2)."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.settings import Cast, Renames, Renaming, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    Status,
    invalid_input,
    not_found,
    refusal,
    unsupported,
)
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Request, Response
from gateway.core.tensors import Shape, Tensor
from tests.bridge.configured import TELLS_CONFIGS, Configured
from tests.bridge.fakes import COUNTERS, POINTS, TENSORS, Backend, bridge, call, describe, infer, named, signature, spec
from tests.bridge.values import FP32, FP64, INT32, INT64, point, shown

GRADIENT, BYTES = Operation.GRADIENT, Datatype.BYTES


def echo(name: str) -> Any:
    return lambda request: Response(
        tuple(Tensor(name, each.datatype, each.shape, each.data) for each in request.inputs)
    )


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ((-1, 3), (1, 3)),
        ((3,), (3,)),
        ((-1,), (3,)),
        ((-1, -1), (1, 3)),
        ((-1, 3, 1), (1, 3, 1)),
        ((-1, 1, 3), (1, 1, 3)),
        ((-1, -1, 3), (1, 1, 3)),
        ((3, -1), (3, 1)),
        ((1, 3), (1, 3)),
    ],
)
async def test_a_vector_goes_out_in_the_shape_of_the_signature_and_comes_back_flat(wanted: Shape, sent: Shape) -> None:
    backend = Backend({"m": signature(spec("x", *wanted), gives=(spec("y", *wanted),))}, echo("y"))
    response = await call(bridge(POINTS, TENSORS, backend), infer(point(1.5, 2.5, 3.5)))
    assert [(each.name, each.shape) for each in backend.calls[0].inputs] == [("x", sent)]
    assert shown(response.outputs) == [("y", "FP64", [1.5, 2.5, 3.5])]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ((-1, 2), "input 'x' has length 3, expected 2"),
        ((2,), "input 'x' has length 3, expected 2"),
        ((-1, 2, -1), "input 'x' has length 3, expected a multiple of 2 for [2, -1]"),
        ((-1, -1, -1), "input 'x' has length 3, which fits [-1, -1] in more than one way; `signature` on the route"),
    ],
)
async def test_a_vector_that_does_not_fit_is_refused_before_the_backend_is_asked(wanted: Shape, text: str) -> None:
    backend = Backend({"m": signature(spec("x", *wanted), gives=(spec("y", -1, 1),))})
    with pytest.raises(DecodeError, match=re.escape(text)):
        await bridge(POINTS, TENSORS, backend)(infer(point(1.5, 2.5, 3.5)))
    assert backend.calls == []


async def test_the_number_of_vectors_is_checked() -> None:
    backend = Backend({"m": signature(spec("a", -1, 2), spec("b", -1, 1), gives=(spec("y", -1, 1),))})
    with pytest.raises(DecodeError) as refused:
        await bridge(POINTS, TENSORS, backend)(infer(point(1, 2)))
    assert str(refused.value) == "1 input given, expected 2; the model takes 'a' FP64 [-1, 2], 'b' FP64 [-1, 1]"


@pytest.mark.parametrize(
    ("numbers", "datatype", "arrives"),
    [
        ((1, 2), FP64, [1.0, 2.0]),
        ((1, 2), FP32, [1.0, 2.0]),
        ((0.1, 2), FP32, [float(np.float32(0.1)), 2.0]),
        ((1.0, 1e3), INT32, [1, 1000]),
        ((1, -2), Datatype.INT8, [1, -2]),
        ((2**63, 2**53), INT64, None),
        ((float("inf"), float("-inf")), FP32, [float("inf"), float("-inf")]),
    ],
)
async def test_numbers_take_the_datatype_of_the_signature(
    numbers: tuple[float, ...], datatype: Datatype, arrives: list[float] | None
) -> None:
    backend = Backend({"m": signature(spec("x", -1, 2, datatype=datatype), gives=())}, lambda _: Response())
    request = infer(point(*map(float, numbers)) if arrives is None else point(*numbers))
    if arrives is None:
        with pytest.raises(DecodeError, match=r"element 0, 9.2.*e\+18, has no exact value as INT64"):
            await bridge(POINTS, TENSORS, backend)(request)
        return
    await call(bridge(POINTS, TENSORS, backend), request)
    assert shown(backend.calls[0].inputs) == [("x", datatype.value, [arrives])]


CASTS = [
    ((1.5, 2.5), "refuse", "input 'x': element 0, 1.5, is not integral, so no INT32; `translate: {cast: round}`"),
    ((1.0, 3e9), "refuse", "input 'x': element 1, 3000000000, is out of the range of INT32; `translate: {cast"),
    ((1.5, 2.5), "round", [2, 2]),
    ((1.0, 3e9), "round", "input 'x': element 1, 3000000000.0, is out of the range of INT32; `translate: {cast: sat"),
    ((1.5, 3e9), "saturate", [2, 2**31 - 1]),
    ((-3e9, float("-inf")), "saturate", [-(2**31), -(2**31)]),
]


@pytest.mark.parametrize(("numbers", "cast", "outcome"), CASTS)
async def test_what_an_integer_cannot_hold_needs_a_cast(
    numbers: tuple[float, ...], cast: Cast, outcome: str | list[int]
) -> None:
    backend = Backend({"m": signature(spec("x", -1, 2, datatype=INT32), gives=())}, lambda _: Response())
    made = bridge(POINTS, TENSORS, backend, RouteSettings(cast=cast))
    if isinstance(outcome, str):
        with pytest.raises(DecodeError, match=re.escape(outcome)):
            await made(infer(point(*numbers)))
        return
    await call(made, infer(point(*numbers)))
    assert shown(backend.calls[0].inputs) == [("x", "INT32", [outcome])]


async def test_where_nothing_is_known_a_point_is_doubles_and_has_a_name() -> None:
    reply = named("y", [[1, 2], [3, 4]], INT64)
    backend = Backend({"m": signature(gives=())}, lambda _: Response((reply,)))
    response = await call(bridge(POINTS, TENSORS, backend), infer(point(1, 2), point(0.5)))
    assert shown(backend.calls[0].inputs) == [("input0", "FP64", [1.0, 2.0]), ("input1", "FP64", [0.5])]
    assert shown(response.outputs) == [("y", "INT64", [1, 2, 3, 4])]


async def test_several_rows_for_one_point_are_an_invalid_output() -> None:
    takes = signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))
    backend = Backend({"m": takes}, lambda _: Response((named("y", [[1], [2]]),)))
    with pytest.raises(GatewayError) as failed:
        await bridge(POINTS, TENSORS, backend)(infer(point(1, 2)))
    assert failed.value.reason is Reason.INVALID_OUTPUT
    assert failed.value.message == "backend 'lab': output 'y' has 2 rows for the 1 that were sent"


async def test_bytes_have_no_form_for_a_client_of_numbers() -> None:
    takes = signature(spec("x", -1, 1), gives=(spec("y", -1, 1, datatype=Datatype.BYTES),))
    backend = Backend({"m": takes}, lambda _: Response((named("y", [[b"a"]], Datatype.BYTES),)))
    with pytest.raises(GatewayError, match="output 'y' of model 'm' is BYTES, which points cannot carry") as refused:
        await bridge(POINTS, TENSORS, backend)(infer(point(1)))
    assert (refused.value.reason, backend.calls) == (Reason.UNSUPPORTED, [])


async def test_a_client_of_numbers_cannot_give_what_is_none() -> None:
    takes = signature(spec("x", -1, 1, datatype=Datatype.BOOL), gives=())
    with pytest.raises(DecodeError, match=r"input 'x' is INT64, expected BOOL$"):
        await bridge(POINTS, TENSORS, Backend({"m": takes}))(infer(point(1)))


# Derivatives

MODEL = signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))
TWO = signature(spec("x", -1, 2), spec("w", -1, 2), gives=(spec("y", -1, 1), spec("v", -1, 1)))


def extras(out: int = 0, into: int = 0) -> tuple[Tensor, ...]:
    return (named("out_wrt", [out], INT64), named("in_wrt", [into], INT64), point(1.0, name="sens"))


def gradient(*values: Tensor, **fields: Any) -> Request:
    return infer(*values, operation=GRADIENT, **fields)


@pytest.mark.parametrize(("index", "arrives"), [((1,), [1]), ((-1,), [1]), ((-1, 1), [[1]])])
@pytest.mark.parametrize("datatype", [INT64, INT32, Datatype.UINT8])
async def test_a_derivative_is_its_companion_with_the_indices_in_its_shape(
    index: Shape, arrives: list[Any], datatype: Datatype
) -> None:
    companion = signature(
        spec("x", -1, 2), spec("out_wrt", *index, datatype=datatype), spec("in_wrt", *index, datatype=datatype),
        spec("sens", -1, 1), gives=(spec("output", -1, 2),),
    )  # fmt: skip
    reply = named("output", [[3.0, 4.0]])
    backend = Backend({"m": TWO, "m.gradient": companion}, lambda _: Response((reply,)))
    response = await call(bridge(POINTS, TENSORS, backend), gradient(point(1.5, 2.0), *extras(1, 1)))
    asked = backend.calls[0]
    assert (asked.operation, asked.model) == (Operation.INFER, "m.gradient")
    indices = [(name, datatype.value, arrives) for name in ("out_wrt", "in_wrt")]
    assert shown(asked.inputs) == [("x", "FP64", [[1.5, 2.0]]), *indices, ("sens", "FP64", [[1.0]])]
    assert (response.model, shown(response.outputs)) == ("m", [("output", "FP64", [3.0, 4.0])])


async def test_an_index_that_the_companion_does_not_declare_is_left_out_if_it_is_zero() -> None:
    companion = signature(spec("x", -1, 2), spec("sens", -1, 1), gives=(spec("output", -1, 2),))
    backend = Backend({"m": TWO, "m.gradient": companion}, lambda _: Response((named("output", [[3.0, 4.0]]),)))
    await call(bridge(POINTS, TENSORS, backend), gradient(point(1.0, 2.0), *extras()))
    assert [each.name for each in backend.calls[0].inputs] == ["x", "sens"]
    with pytest.raises(DecodeError, match="'in_wrt' is not 0, and the companion model has no input 'in_wrt'"):
        await bridge(POINTS, TENSORS, backend)(gradient(point(1.0, 2.0), *extras(0, 1)))


async def test_a_missing_companion_is_unsupported_and_a_missing_model_is_not_found() -> None:
    backend = Backend({"m": MODEL})
    made = bridge(POINTS, TENSORS, backend)
    with pytest.raises(GatewayError) as failed:
        await made(gradient(point(1.0, 2.0), *extras()))
    assert failed.value.status is Status.UNIMPLEMENTED
    assert failed.value.message == "gradient is not supported by model 'm': unknown model m.gradient"
    with pytest.raises(GatewayError) as failed:
        await made(gradient(point(1.0, 2.0), *extras(), model="other"))
    assert (failed.value.status, failed.value.message) == (Status.NOT_FOUND, "unknown model other")
    assert backend.calls == []


@pytest.mark.parametrize(
    "told", [unsupported("not claimed"), not_found("no m.gradient"), invalid_input("no m.gradient")]
)
async def test_a_companion_that_the_server_does_not_describe_is_not_called(told: GatewayError) -> None:
    backend = Backend({"m": MODEL, "m.gradient": told})
    text = r"gradient is not supported by model 'm': no(t claimed| m\.gradient)"
    with pytest.raises(GatewayError, match=text) as refused:
        await bridge(POINTS, TENSORS, backend)(gradient(point(1.0, 2.0), *extras()))
    assert refused.value.status is Status.UNIMPLEMENTED
    assert backend.calls == []


async def test_a_companion_that_is_described_but_not_there_is_unsupported() -> None:
    def compute(request: Request) -> Response:
        raise not_found(f"no model {request.model}")

    slope = signature(spec("x", -1, 2), spec("sens", -1, 1), gives=(spec("output", -1, 2),))
    made = bridge(POINTS, TENSORS, Backend({"m": MODEL, "m.gradient": slope}, compute))
    with pytest.raises(GatewayError) as failed:
        await made(gradient(point(1.0, 2.0), *extras()))
    assert failed.value.message == "gradient is not supported by model 'm': no model m.gradient"
    assert failed.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize("told", [not_found("no m"), refusal(Reason.NOT_READY, "starting")])
async def test_a_companion_may_have_no_model_beside_it(told: GatewayError) -> None:
    slope = signature(spec("x", -1, 2), spec("sens", -1, 1), gives=(spec("output", -1, 2),))
    backend = Backend({"m": told, "m.gradient": slope}, lambda _: Response((named("output", [[3.0, 4.0]]),)))
    made = bridge(POINTS, TENSORS, backend)
    if told.status is Status.NOT_FOUND:
        response = await call(made, gradient(point(1.0, 2.0), *extras()))
        assert shown(response.outputs) == [("output", "FP64", [3.0, 4.0])]
    else:
        with pytest.raises(GatewayError, match=r"^starting$"):
            await made(gradient(point(1.0, 2.0), *extras()))


@pytest.mark.parametrize(
    ("client", "known"), [(POINTS, refusal(Reason.NOT_READY, "starting")), (POINTS, MODEL), (TENSORS, MODEL)]
)
async def test_a_flaw_is_told_unless_the_model_is_not_there(client: Protocol, known: Any) -> None:
    backend = Backend({"m": known})
    with pytest.raises(DecodeError, match=r"^'input' is no list of lists$"):
        await bridge(client, TENSORS, backend)(infer(flaw="'input' is no list of lists"))


async def test_a_companion_that_cannot_be_described_now_may_be_there() -> None:
    backend = Backend({"m": MODEL, "m.gradient": refusal(Reason.NOT_READY, "starting")})
    with pytest.raises(GatewayError, match=r"^starting$"):
        await bridge(POINTS, TENSORS, backend)(gradient(point(1.0, 2.0), *extras()))


async def test_an_index_of_all_rows_is_one_index() -> None:
    slope = signature(
        spec("x", -1, 2), spec("in_wrt", 1, datatype=INT64), spec("sens", -1, 1), gives=(spec("output", -1, 2),)
    )
    backend = Backend({"m": MODEL, "m.gradient": slope})
    rows = named("x", np.ones((2, 2))), named("in_wrt", [[0], [1]], INT64), named("sens", np.ones((2, 1)))
    with pytest.raises(DecodeError, match=r"^index 'in_wrt' has 2 elements, expected 1, for all rows$"):
        await bridge(COUNTERS, TENSORS, backend)(gradient(*rows))


async def test_the_route_may_name_the_companion() -> None:
    slope = signature(spec("x", -1, 2), spec("sens", -1, 1), gives=(spec("output", -1, 2),))
    backend = Backend({"m": MODEL, "slope": slope}, lambda _: Response((named("output", [[3.0, 4.0]]),)))
    settings = RouteSettings(operations={GRADIENT: "slope"}, select=("y",))
    await call(bridge(POINTS, TENSORS, backend, settings), gradient(point(1.0, 2.0), *extras()))
    assert backend.calls[0].model == "slope"


# Metadata


async def test_sizes_are_the_lengths_of_vectors() -> None:
    takes = signature(spec("a", -1, 2, 3), spec("b", 4), gives=(spec("y", -1, 1, datatype=FP32),))
    made = bridge(POINTS, TENSORS, Backend({"m": takes}))
    described = await describe(made, part="InputSizes")
    assert [each.shape for each in described.inputs] == [(6,), (4,)]
    described = await describe(made, part="OutputSizes")
    assert described.outputs == (spec("y", 1),)


async def test_a_free_dimension_is_shown_as_such_unless_the_route_gives_its_size() -> None:
    backend = Backend({"m": signature(spec("x", -1, -1), gives=(spec("y", -1),))})
    described = await describe(bridge(POINTS, TENSORS, backend), part="InputSizes")
    assert described.inputs == (spec("x", -1),)
    own = RouteSettings(signature=signature(spec("x", -1, 3), gives=(spec("y", -1, 1),)))
    described = await describe(bridge(POINTS, TENSORS, backend, own), part="InputSizes")
    assert described.inputs == (spec("x", 3),)


@pytest.mark.parametrize("absence", [not_found("no"), unsupported("not claimed"), invalid_input("unknown")])
async def test_the_operations_are_the_companions_that_there_are(absence: GatewayError) -> None:
    companion = signature(spec("x", -1, 2), gives=(spec("output", -1, 2),))
    backend = Backend({"m": MODEL, "m.gradient": companion, "m.apply_jacobian": absence})
    described = await describe(bridge(POINTS, TENSORS, backend), part="ModelInfo")
    assert described.operations == {Operation.INFER, GRADIENT}


DECOUPLED = {"model_transaction_policy": {"decoupled": True}}


@pytest.mark.parametrize(
    ("config", "stream", "infers"),
    [
        (DECOUPLED, "error", False),
        (DECOUPLED, "last", True),
        (DECOUPLED, "collect", True),
        ({"model_transaction_policy": {"decoupled": False}}, "error", True),
        ({"model_transaction_policy": None}, "error", True),
        ({}, "error", True),
        (unsupported("no configurations here"), "error", True),
        (not_found("no such path"), "error", True),
    ],
)
async def test_a_model_that_only_streams_claims_what_the_route_makes_of_it(
    config: Any, stream: Any, infers: bool
) -> None:
    backend = Configured({"m": config}, MODEL)
    made = bridge(POINTS, TELLS_CONFIGS, backend, RouteSettings(stream=stream), stream=backend.stream)
    described = await describe(made, part="ModelInfo")
    assert (Operation.INFER in described.operations) is infers


async def test_a_models_configuration_is_asked_once_and_by_none_but_who_asks_for_operations() -> None:
    backend = Configured({"m": DECOUPLED}, MODEL)
    made = bridge(POINTS, TELLS_CONFIGS, backend)
    await describe(made, part="InputSizes")
    assert not backend.configs_asked
    for _ in range(2):
        await describe(made, part="ModelInfo")
        await describe(made, part="InputSizes")
    assert backend.configs_asked == ["m"]


async def test_a_model_may_have_companions_alone() -> None:
    """As another gateway tells of a UM-Bridge model that claims no Evaluate."""
    companion = signature(spec("x", -1, 2), gives=(spec("output", -1, 2),))
    backend = Backend({"m": replace(MODEL, operations=frozenset()), "m.gradient": companion})
    described = await describe(bridge(POINTS, TENSORS, backend), part="ModelInfo")
    assert described.operations == {GRADIENT}


@pytest.mark.parametrize(
    ("takes", "gives", "settings", "operations"),
    [
        (BYTES, FP64, RouteSettings(), {GRADIENT}),
        (FP64, BYTES, RouteSettings(), {GRADIENT}),
        (FP64, BYTES, RouteSettings(select=("score",)), {Operation.INFER, GRADIENT}),
        (BYTES, FP64, RouteSettings(constants=(named("x", [[b"a"]], BYTES),)), {Operation.INFER, GRADIENT}),
    ],
    ids=["input", "output", "output that is not selected", "constant"],
)
async def test_what_takes_or_gives_bytes_cannot_be_asked_for(
    takes: Datatype, gives: Datatype, settings: RouteSettings, operations: set[Operation]
) -> None:
    model = signature(spec("x", -1, 1, datatype=takes), gives=(spec("y", -1, datatype=gives), spec("score", -1)))
    made = bridge(POINTS, TENSORS, Backend({"m": model, "m.gradient": MODEL}), settings)
    assert (await describe(made, part="ModelInfo")).operations == operations


async def test_bytes_are_not_shown_as_numbers() -> None:
    model = signature(spec("x", -1, 1, datatype=BYTES), gives=(spec("y", -1, 1, datatype=BYTES),))
    described = await describe(bridge(POINTS, TENSORS, Backend({"m": model})), part="InputSizes")
    assert (described.inputs, described.outputs) == ((spec("x", 1, datatype=BYTES),), (spec("y", 1, datatype=BYTES),))


async def test_sizes_do_not_ask_for_companions() -> None:
    backend = Backend({"m": MODEL})
    await describe(bridge(POINTS, TENSORS, backend), part="InputSizes")
    assert backend.questions == ["m"]


async def test_operations_of_no_model_are_not_found_and_a_failure_is_not_an_absence() -> None:
    with pytest.raises(GatewayError, match="unknown model m"):
        await describe(bridge(POINTS, TENSORS, Backend({})), part="ModelInfo")
    down = GatewayError(Status.UNAVAILABLE, Reason.UNREACHABLE, "down")
    with pytest.raises(GatewayError, match="down"):
        await describe(bridge(POINTS, TENSORS, Backend({"m": MODEL, "m.gradient": down})), part="ModelInfo")


# What a route says


async def test_renames_order_and_constants() -> None:
    takes = signature(spec("INPUT__0", -1, 2), spec("k", -1, 1), spec("INPUT__1", -1, 1), gives=())
    settings = RouteSettings(
        rename=Renames(inputs=(Renaming("x", "INPUT__0"),)),
        order=("INPUT__1", "INPUT__0"),
        constants=(named("k", [7.0]),),
    )
    backend = Backend({"m": takes}, lambda _: Response())
    await call(bridge(POINTS, TENSORS, backend, settings), infer(point(1), point(2, 3)))
    assert shown(backend.calls[0].inputs) == [
        ("INPUT__0", "FP64", [[2.0, 3.0]]), ("k", "FP64", [[7.0]]), ("INPUT__1", "FP64", [[1.0]]),
    ]  # fmt: skip


async def test_the_config_goes_on_and_asks_for_no_other_signature() -> None:
    backend = Backend({"m": MODEL}, lambda _: Response((named("y", [[1.0]]),)))
    made = bridge(POINTS, TENSORS, backend)
    for level in (1, 2):
        await call(made, infer(point(1, 2), parameters={"config": f'{{"level":{level}}}'}))
    assert [each.parameters["config"] for each in backend.calls] == ['{"level":1}', '{"level":2}']
    assert backend.questions == ["m"]


finite = st.lists(st.floats(width=64), max_size=6)


@given(vectors=st.lists(finite, min_size=1, max_size=3), batched=st.booleans())
async def test_points_through_a_tensor_identity_are_the_same_points(vectors: list[list[float]], batched: bool) -> None:
    batch = (-1,) if batched else ()
    specs = [spec(f"x{at}", *batch, len(vector)) for at, vector in enumerate(vectors)]
    backend = Backend({"m": signature(*specs, gives=tuple(specs))})
    sent = [point(*map(float, vector)) for vector in vectors]
    response = await call(bridge(POINTS, TENSORS, backend), infer(*sent))
    assert [bytes(each.data) for each in response.outputs] == [bytes(each.data) for each in sent]
    assert [each.shape for each in response.outputs] == [each.shape for each in sent]


@pytest.mark.parametrize("server", [POINTS, TENSORS])
async def test_a_companion_named_as_a_model_has_sizes_like_any_other(server: Protocol) -> None:
    operations = frozenset({Operation.INFER, GRADIENT})
    of_points = signature(spec("", 2), gives=(spec("", 3),), offers=operations)
    of_tensors = signature(spec("x", -1, 2), spec("in_wrt", -1, 1), gives=(spec("output", -1, 2),))
    backend = Backend({"m": of_points, "m.gradient": of_tensors})
    companion = bridge(POINTS, server, backend).companion(GRADIENT)
    described = await describe(companion, "m.gradient", part="InputSizes")
    assert [each.shape for each in described.inputs] == ([(2,), (1,), (1,), (3,)] if server is POINTS else [(2,), (1,)])
    assert [each.shape for each in described.outputs] == [(2,)]
    assert described.operations == {Operation.INFER}
