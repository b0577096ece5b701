"""Protocols that count rows on every tensor (MIP's packets of examples), and those that take rows of any shape."""

from typing import Any

import numpy as np
import pytest

from gateway.bridge.rows import each
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.protocol import Models, Protocol, Rows, Traits, Wire
from gateway.core.record import CAST_ROUNDED
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.traits import adapted
from tests.bridge.values import FP32, FP64, INT64, point, shown
from tests.records import made


def loose(name: str, rows: Rows) -> Protocol:
    """A wire whose tensors have neither names nor datatypes."""
    wire = Wire(untyped=True, unnamed=True, selects=False, rows=rows)
    return replace(TENSORS, name=name, traits=Traits(wire, Models(named=False, trusted_metadata=False)))


EXAMPLES, SINGLE, WHOLE = loose("examples", Rows.FIRST), loose("single", Rows.ONE), loose("whole", Rows.FREE)

BYTES = Datatype.BYTES


def rows(*values: Any, content_type: str = "") -> Tensor:
    """A tensor of the examples' wire: no name, and numbers without a datatype."""
    array = np.array(values)
    found = tensor("", array)
    return replace(found, untyped=not content_type, content_type=content_type)


def doubled(request: Request) -> Response:
    """Each input doubled, without a name, as numbers of JSON."""
    return Response(tuple(replace(rows(), **_doubled(each)) for each in request.inputs))


def _doubled(each: Tensor) -> dict[str, Any]:
    if each.datatype is BYTES:
        return {"datatype": BYTES, "shape": each.shape, "data": each.data, "untyped": False, "content_type": "text"}
    array = np.atleast_1d(each.array * 2).astype(np.float64)
    whole = bool((array == np.rint(array)).all())
    made = tensor("", array.astype(np.int64) if whole else array)
    return {"datatype": made.datatype, "shape": each.shape, "data": made.data, "untyped": True}


def knows(*shape: int, datatype: Datatype = FP64) -> RouteSettings:
    declared = signature(spec("x", *shape, datatype=datatype), gives=(spec("y", *shape, datatype=datatype),))
    return RouteSettings(signature=declared)


async def answer(client: Protocol, server: Protocol, settings: RouteSettings, *inputs: Tensor) -> tuple[Any, Any]:
    """The values of each call's inputs, and the outputs."""
    backend = Backend({}, doubled)
    response = await call(bridge(client, server, backend, settings), infer(*inputs))
    return [[each.array.tolist() for each in request.inputs] for request in backend.calls], shown(response.outputs)


SCALARS = adapted(SINGLE, wire={"scalars_in_rows": True})
PLAIN = RouteSettings()
Y = ("y", "FP64")
CASES: dict[str, tuple[Protocol, Protocol, RouteSettings, list[Tensor], Any, Any]] = {
    # Clients that count rows, towards any backend.
    "a batch of examples is a batch": (
        EXAMPLES, WHOLE, knows(-1, 2), [rows([1, 2], [3, 4])], [[[[1, 2], [3, 4]]]], [(*Y, [[2, 4], [6, 8]])],
    ),
    "a model without a batch is called for each example": (
        EXAMPLES, WHOLE, knows(2), [rows([1, 2], [3, 4.5])], [[[1, 2]], [[3, 4.5]]], [(*Y, [[2, 4], [6, 9]])],
    ),
    "a model of single rows is called for each example": (
        EXAMPLES, SINGLE, knows(2), [rows([1, 2], [3, 4.5])], [[[1, 2]], [[3, 4.5]]], [(*Y, [[2, 4], [6, 9]])],
    ),
    "one example stays one row of a batch": (EXAMPLES, WHOLE, knows(2), [rows([1, 2])], [[[1, 2]]], [(*Y, [[2, 4]])]),
    "a dimension of any size is a scalar for each example": (
        EXAMPLES, SCALARS, knows(-1), [rows(1, 2)], [[1], [2]], [(*Y, [2, 4])],
    ),
    "a dimension of any size is a scalar for each row": (
        TENSORS, SCALARS, knows(-1), [named("x", [1, 2])], [[1], [2]], [(*Y, [2, 4])],
    ),
    "a point is a scalar for a server of scalars": (POINTS, SCALARS, knows(-1), [point(3)], [[3]], [(*Y, [6])]),
    "a scalar for each example is a vector of one": (
        EXAMPLES, WHOLE, knows(-1, 1), [rows(1, 2)], [[[[1], [2]]]], [(*Y, [[2], [4]])],
    ),
    "a text for each example is a vector of one": (
        EXAMPLES, WHOLE, knows(-1, 1, datatype=BYTES), [rows("a", "b", content_type="text")], [[[[b"a"], [b"b"]]]],
        [("y", "BYTES", [[b"a"], [b"b"]])],
    ),
    "one scalar is a row as well": (EXAMPLES, WHOLE, knows(-1, 1), [rows(5)], [[[[5]]]], [(*Y, [[10]])]),
    # Backends that count rows.
    "a batch travels as one also where the signature has none": (
        TENSORS, EXAMPLES, knows(2), [named("x", [[1, 2], [3, 4]])], [[[[1, 2], [3, 4]]]], [(*Y, [[2, 4], [6, 8]])],
    ),
    "without a signature a point is one example": (
        POINTS, EXAMPLES, PLAIN, [point(1, 2)], [[[[1, 2]]]], [("", "INT64", [2, 4])],
    ),
    "without a signature tensors are as they are": (
        TENSORS, EXAMPLES, PLAIN, [named("x", [1, 2])], [[[1, 2]]], [("output0", "INT64", [2, 4])],
    ),
    # Backends that take single rows.
    "without a signature the first dimension counts the calls": (
        TENSORS, SINGLE, PLAIN, [named("x", [[1, 2], [3, 4.5]]), named("s", [1, 2])], [[[1, 2], 1], [[3, 4.5], 2]],
        [("output0", "INT64", [[2, 4], [6, 9]]), ("output1", "INT64", [2, 4])],
    ),
    "integers beside floats in different rows are floats": (
        TENSORS, SINGLE, PLAIN, [named("x", [[1, 2], [3, 0.25]])], [[[1, 2]], [[3, 0.25]]],
        [("output0", "FP64", [[2, 4], [6, 0.5]])],
    ),
    "rows of any shape": (
        TENSORS, SINGLE, knows(-1, 2, 2, datatype=INT64), [named("x", np.arange(8).reshape(2, 2, 2), INT64)],
        [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]], [("y", "INT64", [[[0, 2], [4, 6]], [[8, 10], [12, 14]]])],
    ),
    "rows of any datatype": (
        TENSORS, SINGLE, PLAIN, [named("x", [["a", "bc"], ["", "d"]], BYTES)], [[[b"a", b"bc"]], [[b"", b"d"]]],
        [("output0", "BYTES", [[b"a", b"bc"], [b"", b"d"]])],
    ),
    "a point is one call": (POINTS, SINGLE, PLAIN, [point(1, 2)], [[[1, 2]]], [("", "INT64", [2, 4])]),
    "a tensor without a batch in the signature is one call": (
        TENSORS, SINGLE, knows(2), [named("x", [1, 2])], [[[1, 2]]], [(*Y, [2, 4])],
    ),
    **{
        f"a vector without a batch travels as one example, from {client.name}, {len(shape)} dimensions": (
            client, EXAMPLES, knows(*shape), [given], [[[[1, 2]]]], [(*Y, [2, 4])],
        )
        for client, given in ((POINTS, point(1, 2)), (TENSORS, named("x", [1, 2])))
        for shape in ((-1, 2), (2,))
    },
    **{
        f"a client of one row sends a batch of one, and gets one, of {server.name}, {len(shape)} dimensions": (
            SINGLE, server, knows(*shape), [rows([1, 2])], [[[[1, 2]]] if goes else [[1, 2]]], [(*Y, [[2, 4]])],
        )
        for server, shape, goes in ((WHOLE, (2,), 0), (WHOLE, (-1, 2), 1), (SINGLE, (2,), 0), (SINGLE, (-1, 2), 0))
    },
}  # fmt: skip


@pytest.mark.parametrize(("client", "server", "settings", "inputs", "calls", "outputs"), CASES.values(), ids=CASES)
async def test_rows_arrive_and_come_back(
    client: Protocol, server: Protocol, settings: RouteSettings, inputs: list[Tensor], calls: Any, outputs: Any
) -> None:
    assert await answer(client, server, settings, *inputs) == (calls, outputs)


@pytest.mark.parametrize(
    ("wanted", "sent", "goes", "back"),
    [
        ((-1, -1), [1, 2, 3], [[1, 2, 3]], [2, 4, 6]),
        ((-1, -1), [5], [[5]], [10]),
        ((-1, 3), [1, 2, 3], [[1, 2, 3]], [2, 4, 6]),
        ((-1, 1), [5], [[5]], [10]),
        ((-1, 1), [1, 2, 3], [[1], [2], [3]], [[2], [4], [6]]),
        ((-1, -1, -1), [[1, 2]], [[[1, 2]]], [[2, 4]]),
        ((-1, 1, 1), [[1], [2]], [[[1]], [[2]]], [[[2]], [[4]]]),
    ],
)
async def test_a_flat_list_without_a_datatype_is_a_lone_row_or_else_a_column_of_scalars(
    wanted: tuple[int, ...], sent: list[Any], goes: list[Any], back: list[Any]
) -> None:
    assert await answer(WHOLE, TENSORS, knows(*wanted), rows(*sent)) == ([[goes]], [(*Y, back)])


async def test_examples_without_a_batch_in_the_model_are_refused_where_they_do_not_fit() -> None:
    with pytest.raises(DecodeError, match=r"input 'x' has shape \[2, 3\], expected \[-1, 2\]"):
        await answer(EXAMPLES, WHOLE, knows(2), rows([1, 2, 3], [1, 2, 3]))


async def test_points_behind_examples_are_called_one_by_one() -> None:
    backend = Backend({"m": Signature((spec("", 2),), (spec("", 2),))}, doubled)
    response = await call(bridge(EXAMPLES, POINTS, backend), infer(rows([1, 2], [3, 4])))
    assert [each.inputs[0].array.tolist() for each in backend.calls] == [[1, 2], [3, 4]]
    assert response.outputs[0].shape == (2, 2)


async def test_scalars_of_a_reply_are_vectors_of_one_where_they_are_declared_so() -> None:
    backend = Backend({}, lambda request: Response((rows("a", "b", content_type="text"), rows(1, 2))))
    outputs = spec("s", -1, 1, datatype=BYTES), spec("n", -1, 1, datatype=FP32)
    settings = RouteSettings(signature=signature(spec("x", -1, 2), gives=outputs))
    found = await call(bridge(TENSORS, EXAMPLES, backend, settings), infer(named("x", [[1, 2], [3, 4]])))
    assert shown(found.outputs) == [("s", "BYTES", [[b"a"], [b"b"]]), ("n", "FP32", [[1], [2]])]


async def test_outputs_are_picked_from_all_that_come() -> None:
    """A wire without names gives all outputs, whichever the client asks for."""
    backend = Backend({}, lambda request: Response((rows(1), rows(2))))
    declared = signature(spec("x", -1), gives=(spec("a", -1), spec("b", -1)))
    for settings, name, value in ((RouteSettings(signature=declared), "b", 2.0), (RouteSettings(), "output1", 2)):
        request = infer(named("x", [1]), outputs=(RequestedOutput(name),))
        found = await call(bridge(TENSORS, EXAMPLES, backend, settings), request)
        assert [(each.name, each.array.tolist()) for each in found.outputs] == [(name, [value])]
    assert backend.calls[0].outputs == ()


async def test_an_output_whose_name_nobody_knows_is_refused() -> None:
    backend = Backend({}, lambda request: Response((rows(1), rows(2))))
    request = infer(named("x", [1]), outputs=(RequestedOutput("b"),))
    with pytest.raises(GatewayError, match="output 'b' is missing; the reply has 'output0', 'output1'"):
        await call(bridge(TENSORS, EXAMPLES, backend), request)


async def test_the_form_of_a_tensor_is_the_routes_else_the_clients() -> None:
    forms = [replace(spec("a", -1), content_type="npy"), spec("b", -1)]
    declared = signature(*forms, gives=(replace(spec("y", -1, datatype=BYTES), content_type="image"),))
    backend = Backend({}, lambda request: Response((rows("x"),)))
    given = rows(1.5), rows(2.5, content_type="npy")
    found = await call(bridge(EXAMPLES, EXAMPLES, backend, RouteSettings(signature=declared)), infer(*given))
    assert [each.content_type for each in backend.calls[0].inputs] == ["npy", "npy"]
    assert [each.content_type for each in found.outputs] == ["image"]


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ([named("x", 1)], "input 'x' is a scalar, expected a first dimension that counts the rows"),
        ([named("x", [1, 2]), named("s", [1])], "input 's' has 1 rows and input 'x' has 2"),
    ],
)
async def test_rows_must_be_there_and_as_many(inputs: list[Tensor], why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        await answer(TENSORS, SINGLE, RouteSettings(), *inputs)


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ([(rows(1),), ()], "0 outputs in row 1 and 1 in row 0"),
        ([(rows([1]),), (rows([1, 2]),)], r"output '' has shape \[1, 2\] in row 1 and \[1, 1\] in row 0"),
        ([(rows(1),), (rows("a", content_type="text"),)], "is BYTES and INT64 in different rows"),
    ],
)
async def test_replies_that_do_not_stack_are_the_backends_fault(replies: list[tuple[Tensor, ...]], why: str) -> None:
    answers = {1: replies[0], 2: replies[1]}
    backend = Backend({}, lambda request: Response(answers[int(request.inputs[0].array)]))
    with pytest.raises(GatewayError, match=why):
        await call(bridge(TENSORS, SINGLE, backend), infer(named("x", [1, 2])))


@pytest.mark.parametrize(
    ("failing", "sent", "may_have_run"), [(0, False, False), (0, True, True), (2, False, True)], ids=str
)
async def test_the_error_of_a_row_says_whether_any_row_may_have_run(
    failing: int, sent: bool, may_have_run: bool
) -> None:
    async def call(row: int) -> int:
        if row == failing:
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "down", sent=sent)
        return row

    with pytest.raises(TransportError, match=f"row {failing}: down") as failed:
        await each(range(4), call, 1)
    assert failed.value.sent is may_have_run


async def test_a_first_row_that_is_refused_proves_that_none_has_run() -> None:
    async def call(row: int) -> int:
        raise refusal(Reason.OVERLOADED, "busy", retry_after=3)

    with pytest.raises(GatewayError) as failed:
        await each(range(4), call, 1)
    assert not isinstance(failed.value, TransportError)  # which a policy would have to ask whether it was sent
    assert (failed.value.message, failed.value.retry_after) == ("row 0: busy", 3)


async def test_rounding_in_single_rows_is_a_loss() -> None:
    declared = signature(spec("x", 2), gives=(spec("y", 2, datatype=INT64),))
    backend = Backend({}, lambda request: Response((rows(1.5, 2),)))
    route, record = bridge(EXAMPLES, SINGLE, backend, RouteSettings(signature=declared, cast="round")), made()
    response = await call(route, infer(rows([1, 2], [3, 4]), record=record))
    assert shown(response.outputs) == [("y", "INT64", [[2, 2], [2, 2]])]
    assert set(record.losses) == {CAST_ROUNDED}


async def test_a_call_without_inputs_is_one_call() -> None:
    backend = Backend({}, lambda request: Response((rows(1),)))
    response = await call(bridge(TENSORS, SINGLE, backend), infer())
    assert [each.inputs for each in backend.calls] == [()]
    assert response.outputs[0].array.tolist() == [1]


async def test_texts_that_are_no_rows_of_numbers_are_texts() -> None:
    texts = replace(named("x", [b'["a"]', b"[3]"], BYTES), content_type="json", untyped=True)
    backend = Backend({"m": signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))})
    with pytest.raises(DecodeError, match=r"^input 'x' is BYTES, expected FP64$"):
        await call(bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round")), infer(texts))


@pytest.mark.parametrize("shape", [(2,), (-1, 2)], ids=str)
async def test_the_only_row_is_passed_on_with_the_very_data(shape: tuple[int, ...]) -> None:
    """So that a codec sees that nothing has changed, and sends the body as it came."""
    given, returned = point(1.5, 2.5), point(3.5, 4.5)
    known = signature(spec("", *shape), gives=(spec("", *shape),))
    backend = Backend({"m": known}, lambda request: Response((returned,)))
    answer = await call(bridge(POINTS, POINTS, backend), infer(given))
    [sent], [back] = backend.calls[0].inputs, answer.outputs
    assert (sent.data is given.data, back.data is returned.data) == (True, True)
    assert (sent.shape, back.shape) == ((2,), (2,))
