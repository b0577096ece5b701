"""A tensor client (V2) in front of a one-point backend (UM-Bridge)."""

import asyncio
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, invalid_input, refusal
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.requests import MissingNumbers, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, describe, infer, named, signature, spec
from tests.bridge.values import FP64, INT32, INT64, point, shown
from tests.limits import settle

GRADIENT = Operation.GRADIENT

OPERATIONS = frozenset({Operation.INFER, GRADIENT})

MODEL = signature(spec("", 2), gives=(spec("", 3),), offers=OPERATIONS)
TWO = signature(spec("", 2), spec("", 1), gives=(spec("", 1), spec("", 2)))


def triple(request: Request) -> Response:
    """[a, b] to [a, b, a + b]."""
    a, b = request.inputs[0].array.tolist()
    return Response((point(a, b, a + b),))


def front(backend: Backend, settings: RouteSettings | None = None, window: int = 2) -> Bridge:
    return bridge(TENSORS, POINTS, backend, settings, window)


async def test_one_point_goes_out_and_comes_back_without_a_batch() -> None:
    backend = Backend({"m": MODEL}, triple)
    response = await call(front(backend), infer(named("input0", [1.0, 2.0]), id="7", version=""))
    assert [(each.name, each.shape) for each in backend.calls[0].inputs] == [("input0", (2,))]
    assert shown(response.outputs) == [("output0", "FP64", [1.0, 2.0, 3.0])]
    assert (response.model, response.id) == ("m", "7")


async def test_a_parameter_of_an_output_is_refused_where_the_backend_cannot_hear_of_it() -> None:
    backend = Backend({"m": MODEL}, triple)
    wanted = (RequestedOutput("y", {"classification": 1}),)
    renamed = front(backend, RouteSettings(rename=Renames(outputs=(Renaming("y", "output0"),))))
    with pytest.raises(GatewayError, match="'classification' of output 'y' is not supported by points") as caught:
        await call(renamed, infer(named("input0", [1.0, 2.0]), outputs=wanted))
    assert caught.value.reason is Reason.INVALID_INPUT
    assert backend.calls == []


async def test_rows_that_came_as_integers_and_as_doubles_are_one_tensor() -> None:
    replies = iter([point(1, 2, 3), point(1.5, 2.5, 4.0)])
    backend = Backend({"m": MODEL}, lambda _: Response((next(replies),)))
    response = await call(front(backend, window=1), infer(named("input0", [[0.0, 0.0], [1.0, 1.0]])))
    assert shown(response.outputs) == [("output0", "FP64", [[1.0, 2.0, 3.0], [1.5, 2.5, 4.0]])]


class Gate:
    """Lets rows answer in the order that a test wants."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.waiting: dict[float, asyncio.Future[None]] = {}
        self.cancelled: list[float] = []

    async def __call__(self, request: Request) -> Response:
        row = float(request.inputs[0].array[0])
        self.begun.append(row)
        self.waiting[row] = asyncio.get_running_loop().create_future()
        try:
            await self.waiting[row]
        except asyncio.CancelledError:
            self.cancelled.append(row)
            raise
        return triple(request)


async def at_the_gate() -> tuple[Gate, asyncio.Task[Response]]:
    """A call of five rows, of which at most two are begun at once."""
    gate = Gate()
    rows = named("input0", [[float(row), 0.0] for row in range(5)])
    task = asyncio.ensure_future(call(front(Backend({"m": MODEL}, gate), window=2), infer(rows)))
    await settle()
    return gate, task


async def test_at_most_the_window_is_begun_and_the_order_is_kept() -> None:
    gate, task = await at_the_gate()
    assert gate.begun == [0, 1]
    for done, begun in [(1, [0, 1, 2]), (2, [0, 1, 2, 3]), (0, [0, 1, 2, 3, 4])]:
        gate.waiting[done].set_result(None)
        await settle()
        assert gate.begun == begun
    gate.waiting[4].set_result(None)
    gate.waiting[3].set_result(None)
    assert [row[0] for row in (await task).outputs[0].array.tolist()] == [0, 1, 2, 3, 4]


async def test_the_first_failure_names_its_row_and_stops_the_others() -> None:
    gate, task = await at_the_gate()
    gate.waiting[1].set_exception(invalid_input("too steep"))
    with pytest.raises(GatewayError) as failed:
        await task
    assert (failed.value.status, failed.value.message) == (Status.INVALID_ARGUMENT, "row 1: too steep")
    assert (gate.begun, gate.cancelled) == ([0, 1], [0])


async def test_a_batch_of_one_fails_in_the_backends_own_words() -> None:
    def fail(request: Request) -> Response:
        raise invalid_input("too steep")

    with pytest.raises(GatewayError, match=r"^too steep$"):
        await front(Backend({"m": MODEL}, fail))(infer(named("input0", [[1.0, 2.0]])))


REFUSED: list[tuple[Signature, list[Tensor], str]] = [
    (MODEL, [named("inptu0", [1, 2])], "unknown input 'inptu0', did you mean 'input0'?; the model takes 'input0' FP64"),
    (TWO, [named("input0", [1, 2])], "input 'input1' is missing; the model takes 'input0' FP64 [-1, 2], 'input1'"),
    (TWO, [], "inputs 'input0', 'input1' are missing"),
    (MODEL, [named("input0", [1, 2]), named("input0", [1, 2])], "input 'input0' occurs twice"),
    (MODEL, [named("input0", [1, 2, 3])], "input 'input0' has shape [3], expected [-1, 2]"),
    (MODEL, [named("input0", [[[1, 2]]])], "input 'input0' has shape [1, 1, 2], expected [-1, 2]"),
    (MODEL, [named("input0", 1.0)], "input 'input0' has shape [], expected [-1, 2]"),
    (
        TWO,
        [named("input0", [[1, 2], [3, 4]]), named("input1", [[1], [2], [3]])],
        "input 'input1' has 3 rows and input 'input0' has 2; all inputs must have the same batch dimension",
    ),
    (
        TWO,
        [named("input0", [[1, 2], [3, 4]]), named("input1", [1])],
        "input 'input1' has 1 rows and input 'input0' has 2; all inputs must have the same batch dimension",
    ),
    (
        MODEL,
        [named("input0", [1, 2], INT64)],
        "input 'input0' is INT64, expected FP64, which cannot represent every INT64; send FP64, or set `trans",
    ),
    (MODEL, [named("input0", [True, False], Datatype.BOOL)], "input 'input0' is BOOL, expected FP64"),
    (MODEL, [named("input0", [b"1", b"2"], Datatype.BYTES)], "input 'input0' is BYTES, expected FP64"),
    (signature(gives=(spec("", 1),)), [named("input0", [[1], [2]])], "unknown input 'input0'; the model takes none"),
]


@pytest.mark.parametrize(("model", "inputs", "text"), REFUSED)
async def test_what_does_not_fit_is_refused_before_the_backend_is_asked(
    model: Signature, inputs: list[Tensor], text: str
) -> None:
    backend = Backend({"m": model}, triple)
    with pytest.raises(DecodeError, match=re.escape(text)):
        await front(backend)(infer(*inputs))
    assert backend.calls == []


async def test_cast_round_lets_64_bits_in() -> None:
    backend = Backend({"m": MODEL}, triple)
    await call(front(backend, RouteSettings(cast="round")), infer(named("input0", [2**53 + 1, 2], INT64)))
    assert shown(backend.calls[0].inputs) == [("input0", "FP64", [2.0**53, 2.0])]


async def test_a_point_beside_a_batch_of_one_is_that_row_and_the_answer_is_a_batch() -> None:
    backend = Backend({"m": TWO}, lambda _: Response((point(1), point(2, 3))))
    response = await call(front(backend), infer(named("input1", [7.0]), named("input0", [[1.0, 2.0]])))
    assert shown(backend.calls[0].inputs) == [("input0", "FP64", [1.0, 2.0]), ("input1", "FP64", [7.0])]
    assert [each.shape for each in response.outputs] == [(1, 1), (1, 2)]


async def test_a_model_without_inputs_gives_one_row() -> None:
    backend = Backend({"m": signature(gives=(spec("", 1),))}, lambda _: Response((point(5),)))
    response = await call(front(backend), infer())
    assert shown(response.outputs) == [("output0", "FP64", [[5.0]])]


async def test_requested_outputs_are_selected_in_their_order() -> None:
    backend = Backend({"m": TWO}, lambda _: Response((point(1), point(2, 3))))
    sent = (named("input0", [1, 2]), named("input1", [1]))
    wanted = (RequestedOutput("output1"), RequestedOutput("output0"))
    response = await call(front(backend), infer(*sent, outputs=wanted))
    assert [each.name for each in response.outputs] == ["output1", "output0"]
    assert backend.calls[0].outputs == ()
    told = r"^unknown output 'output', did you mean 'output1'\?; the model gives 'output0', 'output1'$"
    with pytest.raises(DecodeError, match=told):
        await front(backend)(infer(*sent, outputs=(RequestedOutput("output"),)))
    assert len(backend.calls) == 1


WRONG: list[tuple[list[list[Tensor]], str]] = [
    ([[point(1.0, 2.0)]], "output 'output0' has length 2, expected 3"),
    ([[]], "0 outputs, expected 1: 'output0'"),
    ([[point(1, 2, 3), point(1)]], "2 outputs, expected 1: 'output0'"),
    ([[point(1, 2, 3)], [point(1, 2)]], "row 1: output 'output0' has length 2, expected 3"),
]


@pytest.mark.parametrize(("replies", "text"), WRONG)
async def test_a_reply_that_does_not_fit_the_signature_is_the_backends_fault(
    replies: list[list[Tensor]], text: str
) -> None:
    left = iter(replies)
    backend = Backend({"m": MODEL}, lambda _: Response(tuple(next(left))))
    with pytest.raises(GatewayError) as failed:
        await front(backend, window=1)(infer(named("input0", np.zeros((len(replies), 2)))))
    assert failed.value.reason is Reason.INVALID_OUTPUT
    assert failed.value.message == f"backend 'lab': {text}"


async def test_a_version_is_not_found_and_the_text_names_the_key_that_drops_it() -> None:
    backend = Backend({"m": MODEL}, triple)
    with pytest.raises(GatewayError, match=r"""model 'm' has no version '3'.*`rewrite: \{version: ""\}`""") as failed:
        await front(backend)(infer(named("input0", [1, 2]), version="3"))
    assert failed.value.status is Status.NOT_FOUND
    response = await call(front(backend, RouteSettings(version="")), infer(named("input0", [1, 2]), version="3"))
    assert (backend.calls[0].version, response.version) == ("", "3")


async def test_sizes_are_asked_for_the_config_of_the_call_and_remembered() -> None:
    backend = Backend({"m": MODEL}, triple)
    made = front(backend)
    for config in ("{}", '{"level":1}', '{"level":1}'):
        await call(made, infer(named("input0", [1, 2]), parameters={"config": config}))
    asked = [each.parameters["config"] for each in backend.asked if each.operation is Operation.METADATA]
    assert asked == ["{}", '{"level":1}']


# What the route says of the signature


async def test_a_route_may_name_and_shape_what_the_backend_only_counts() -> None:
    own = signature(spec("image", -1, 2, 2), gives=(spec("mask", -1, 2, 1, datatype=INT32),))
    backend = Backend({"m": MODEL}, lambda request: Response((point(*request.inputs[0].array[:2].tolist()),)))
    sent = np.arange(8.0).reshape(2, 2, 2)
    response = await call(front(backend, RouteSettings(signature=own)), infer(named("image", sent)))
    assert [each.inputs[0].shape for each in backend.calls] == [(4,), (4,)]
    assert shown(response.outputs) == [("mask", "INT32", [[[0], [1]], [[4], [5]]])]
    assert backend.questions == []


async def test_a_route_may_declare_a_point_without_a_batch() -> None:
    own = signature(spec("theta", 2), gives=(spec("y", 3),))
    backend = Backend({"m": MODEL}, triple)
    response = await call(front(backend, RouteSettings(signature=own)), infer(named("theta", [1.0, 2.0])))
    assert shown(backend.calls[0].inputs) == [("theta", "FP64", [1.0, 2.0])]
    assert shown(response.outputs) == [("y", "FP64", [1.0, 2.0, 3.0])]


async def test_an_output_that_the_declared_datatype_cannot_hold_is_an_invalid_output() -> None:
    own = signature(spec("theta", -1, 2), gives=(spec("y", -1, 1, datatype=INT32),))
    backend = Backend({"m": MODEL}, lambda _: Response((point(0.5),)))
    with pytest.raises(GatewayError, match=r"output 'y': element 0, 0\.5, is not integral, so no INT32") as failed:
        await front(backend, RouteSettings(signature=own))(infer(named("theta", [1.0, 2.0])))
    assert failed.value.reason is Reason.INVALID_OUTPUT


# Derivatives


def companion(backend: Backend, operation: Operation = GRADIENT, settings: RouteSettings | None = None) -> Any:
    return front(backend, settings).companion(operation)


def slope(request: Request) -> Response:
    return Response((point(*request.inputs[0].array.tolist(), name="output"),))


@pytest.mark.parametrize(
    ("indices", "arrives"),
    [
        ([], [(0, 0), (0, 0)]),
        ([named("in_wrt", [0], INT32)], [(0, 0), (0, 0)]),
        ([named("in_wrt", [[0], [1]], INT64)], [(0, 0), (0, 1)]),
        ([named("in_wrt", [1], INT32), named("out_wrt", [[1], [0]], INT64)], [(1, 1), (0, 1)]),
    ],
)
async def test_a_companion_is_the_derivative_with_indices_for_all_rows_or_each(
    indices: list[Tensor], arrives: list[tuple[int, int]]
) -> None:
    backend = Backend({"m": MODEL}, slope)
    sent = (named("input0", [[1.0, 2.0], [3.0, 4.0]]), *indices, named("sens", np.ones((2, 3))))
    response = await call(companion(backend), infer(*sent, model="m.gradient"))
    assert response.model == "m.gradient"
    assert shown(response.outputs) == [("output", "FP64", [[1.0, 2.0], [3.0, 4.0]])]
    assert [(each.operation, each.model) for each in backend.calls] == [(GRADIENT, "m")] * 2
    names = ["input0", "out_wrt", "in_wrt", "sens"]
    assert [[tensor.name for tensor in each.inputs] for each in backend.calls] == [names] * 2
    assert [tuple(tensor.array.item() for tensor in each.inputs[1:3]) for each in backend.calls] == arrives
    assert [tensor.shape for tensor in backend.calls[0].inputs] == [(2,), (1,), (1,), (3,)]


@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_server_that_claims_nothing_now_is_asked_if_the_route_declares_the_tensors(is_declared: bool) -> None:
    backend = Backend({"m": refusal(Reason.NOT_READY, "starting")}, slope)
    own = signature(spec("theta", -1, 2), gives=(spec("y", -1, 3),))
    through = companion(backend, settings=RouteSettings(signature=own if is_declared else None))
    sent = infer(named("theta", [1.0, 2.0]), named("sens", [1.0, 1.0, 1.0]), model="m.gradient")
    if is_declared:
        assert shown((await call(through, sent)).outputs) == [("output", "FP64", [1.0, 2.0])]
    else:
        with pytest.raises(GatewayError, match=r"^starting$"):
            await call(through, sent)


async def test_a_lone_point_has_a_lone_derivative() -> None:
    backend = Backend({"m": MODEL}, slope)
    sent = (named("input0", [1.0, 2.0]), named("sens", [1.0, 1.0, 1.0]))
    response = await call(companion(backend), infer(*sent, model="m.gradient"))
    assert shown(response.outputs) == [("output", "FP64", [1.0, 2.0])]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (named("in_wrt", [0, 0, 0], INT64), "index 'in_wrt' has shape [3], expected [1] or [2, 1]"),
        (named("in_wrt", [0.0]), "index 'in_wrt' is FP64, expected INT64"),
        (named("in_wrt", [1], INT64), "index 'in_wrt' is 1, but the model has 1 input; count from 0"),
        (named("out_wrt", [-1], INT64), "index 'out_wrt' is -1, but the model has 1 output; count from 0"),
        (named("in_wrt", [2**63], Datatype.UINT64), "index 'in_wrt' is 9223372036854775808, but the model has 1"),
        (named("vec", [1.0]), "unknown input 'vec'"),
        (named("sens", np.ones((2, 2))), "input 'sens' has shape [2, 2], expected [-1, 3]"),
    ],
)
async def test_what_no_derivative_takes_is_refused(given: Tensor, text: str) -> None:
    right = (named("input0", np.zeros((2, 2))), named("sens", np.ones((2, 3))))
    sent = {each.name: each for each in (*right, given)}.values()
    with pytest.raises(DecodeError, match=re.escape(text)):
        await companion(Backend({"m": MODEL}, slope))(infer(*sent, model="m.gradient"))


async def test_no_rows_have_no_derivatives() -> None:
    sent = (named("input0", np.zeros((0, 2))), named("sens", np.zeros((0, 3))))
    response = await call(companion(Backend({"m": MODEL}, slope)), infer(*sent, model="m.gradient"))
    assert response.outputs[0].shape == (0, 2)


async def test_a_companion_tells_its_tensors_if_the_model_claims_it() -> None:
    backend = Backend({"m": MODEL})
    described = await describe(companion(backend), "m.gradient")
    assert described.name == "m.gradient"
    assert described.inputs == (
        spec("input0", -1, 2), spec("out_wrt", -1, 1, datatype=INT64), spec("in_wrt", -1, 1, datatype=INT64),
        spec("sens", -1, 3),
    )  # fmt: skip
    assert described.outputs == (spec("output", -1, 2),)
    with pytest.raises(GatewayError, match="model 'm' does not claim apply_hessian") as failed:
        await describe(companion(backend, Operation.APPLY_HESSIAN), "m.apply_hessian")
    assert failed.value.status is Status.UNIMPLEMENTED


async def test_a_companion_is_inferred_also_where_its_model_is_not() -> None:
    backend = Backend({"m": replace(MODEL, operations=frozenset({GRADIENT}))})
    assert (await describe(front(backend), "m")).operations == {GRADIENT}
    assert (await describe(companion(backend), "m.gradient")).operations == {Operation.INFER}


async def test_a_companion_is_ready_if_the_model_claims_it_and_is() -> None:
    backend = Backend({"m": MODEL})
    assert await companion(backend)(Request(Operation.MODEL_READY, "m.gradient")) is True
    hessian = companion(backend, Operation.APPLY_HESSIAN)
    assert await hessian(Request(Operation.MODEL_READY, "m.apply_hessian")) is False
    backend.ready = False
    assert await companion(backend)(Request(Operation.MODEL_READY, "m.gradient")) is False


@pytest.mark.parametrize("nan", ["refuse", "null"])
async def test_null_among_the_numbers_for_a_companion(nan: Any) -> None:
    backend = Backend({"m": MODEL}, slope)
    through = companion(backend, settings=RouteSettings(**({} if nan == "refuse" else {"nan": nan})))
    sent = named("input0", [1.0, np.nan]), named("sens", [1.0, 1.0, 1.0])
    request = infer(*sent, model="m.gradient", flaw=MissingNumbers("input 'input0': null is no number"))
    if nan == "null":
        assert np.isnan((await call(through, request)).outputs[0].array).tolist() == [False, True]
    else:
        with pytest.raises(DecodeError, match=r"^input 'input0': null is no number$"):
            await call(through, request)
        assert backend.calls == []


async def test_a_derivative_has_no_derivative() -> None:
    with pytest.raises(GatewayError, match=r"not supported by 'm\.gradient', which is a derivative"):
        await companion(Backend({"m": MODEL}))(Request(Operation.APPLY_JACOBIAN, "m.gradient"))


# Metadata


async def test_metadata_is_batches_of_doubles_with_names() -> None:
    described = await describe(front(Backend({"m": TWO})))
    assert described.inputs == (spec("input0", -1, 2), spec("input1", -1, 1))
    assert described.outputs == (spec("output0", -1, 1), spec("output1", -1, 2))
    assert (described.name, described.platform) == ("m", "points")


async def test_metadata_has_the_clients_names_and_no_constants() -> None:
    settings = RouteSettings(
        model="other",
        rename=Renames(inputs=(Renaming("theta", "input0"),), outputs=(Renaming("density", "output1"),)),
        constants=(named("input1", [3.0]),),
        select=("density",),
    )
    backend = Backend({"other": TWO}, lambda _: Response((point(1), point(2, 3))))
    described = await describe(front(backend, settings))
    assert (described.name, described.inputs, described.outputs) == (
        "m", (spec("theta", -1, 2),), (spec("density", -1, 2),),
    )  # fmt: skip
    response = await call(front(backend, settings), infer(named("theta", [[1.0, 2.0], [3.0, 4.0]])))
    assert shown(backend.calls[1].inputs) == [("input0", "FP64", [3.0, 4.0]), ("input1", "FP64", [3.0])]
    assert shown(response.outputs) == [("density", "FP64", [[2.0, 3.0], [2.0, 3.0]])]
    with pytest.raises(DecodeError, match="unknown input 'input0'; the model takes 'theta' FP64"):
        await front(backend, settings)(infer(named("input0", [1.0, 2.0])))
    with pytest.raises(DecodeError, match="unknown output 'output0'; the model gives 'density'"):
        await front(backend, settings)(infer(named("theta", [1, 2]), outputs=(RequestedOutput("output0"),)))


async def test_the_config_of_a_model_is_written_and_that_of_none_is_not_found() -> None:
    backend = Backend({"m": MODEL})
    assert await front(backend)(Request(Operation.CONFIG, "m")) == {
        "name": "m",
        "max_batch_size": 4096,
        "input": [{"name": "input0", "data_type": "TYPE_FP64", "dims": [2]}],
        "output": [{"name": "output0", "data_type": "TYPE_FP64", "dims": [3]}],
        "parameters": {"gateway_from_metadata": {"string_value": "true"}},
    }
    assert await companion(backend)(Request(Operation.CONFIG, "m.gradient")) == {
        "name": "m.gradient",
        "max_batch_size": 4096,
        "input": [
            {"name": "input0", "data_type": "TYPE_FP64", "dims": [2]},
            {"name": "out_wrt", "data_type": "TYPE_INT64", "dims": [1]},
            {"name": "in_wrt", "data_type": "TYPE_INT64", "dims": [1]},
            {"name": "sens", "data_type": "TYPE_FP64", "dims": [3]},
        ],
        "output": [{"name": "output", "data_type": "TYPE_FP64", "dims": [2]}],
        "parameters": {"gateway_from_metadata": {"string_value": "true"}},
    }
    backend.ready = False
    with pytest.raises(GatewayError, match="model 'm' is not ready"):
        await front(backend)(Request(Operation.CONFIG, "m"))


@given(st.data(), st.integers(0, 4), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(1, 3))
async def test_rows_through_a_point_identity_are_the_same_tensors(
    data: st.DataObject, rows: int, sizes: list[int], window: int
) -> None:
    specs = tuple(spec("", size) for size in sizes)
    delays = data.draw(st.permutations(range(rows)))
    number = iter(delays)

    async def identity(request: Request) -> Response:
        for _ in range(next(number)):
            await asyncio.sleep(0)
        return Response(tuple(Tensor("", FP64, each.shape, each.data, untyped=True) for each in request.inputs))

    floats = st.floats(width=64)
    sent = []
    for at, size in enumerate(sizes):
        row = st.lists(floats, min_size=size, max_size=size)
        values = data.draw(st.lists(row, min_size=rows, max_size=rows))
        sent.append(named(f"input{at}", np.array(values, float).reshape(rows, size)))
    response = await call(front(Backend({"m": Signature(specs, specs)}, identity), window=window), infer(*sent))
    found, expected = ([(each.shape, bytes(each.data)) for each in side] for side in (response.outputs, sent))
    assert found == expected
