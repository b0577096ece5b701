"""Protocols that count rows on every tensor (MIP's packets of examples), and those that take rows of any shape."""

from typing import Any

import numpy as np
import pytest

from gateway.bridge.rows import each
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.protocol import Models, Protocol, Rows, Traits, Wire
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.fakes import (
    FP32,
    FP64,
    INT64,
    POINTS,
    TENSORS,
    Backend,
    bridge,
    call,
    infer,
    named,
    point,
    shown,
    signature,
    spec,
)  # fmt: skip


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


def asked(backend: Backend) -> list[list[tuple[list[int], Any]]]:
    """Shape and values of each call's inputs."""
    return [[(list(each.shape), each.array.tolist()) for each in request.inputs] for request in backend.calls]


async def answer(client: Protocol, server: Protocol, settings: RouteSettings, *inputs: Tensor) -> tuple[Backend, Any]:
    backend = Backend({}, doubled)
    response = await call(bridge(client, server, backend, settings), infer(*inputs))
    return backend, shown(response.outputs)


# Clients that count rows, towards any backend.


async def test_a_batch_of_examples_is_a_batch() -> None:
    backend, found = await answer(EXAMPLES, WHOLE, knows(-1, 2), rows([1, 2], [3, 4]))
    assert asked(backend) == [[([2, 2], [[1, 2], [3, 4]])]]
    assert found == [("y", "FP64", [[2, 4], [6, 8]])]


@pytest.mark.parametrize("server", [WHOLE, SINGLE])
async def test_a_model_without_a_batch_is_called_for_each_example(server: Protocol) -> None:
    backend, found = await answer(EXAMPLES, server, knows(2), rows([1, 2], [3, 4.5]))
    assert asked(backend) == [[([2], [1, 2])], [([2], [3, 4.5])]]
    assert found == [("y", "FP64", [[2, 4], [6, 9]])]


async def test_one_example_stays_one_row_of_a_batch() -> None:
    """The answer has the row again, however many there are."""
    _, found = await answer(EXAMPLES, WHOLE, knows(2), rows([1, 2]))
    assert found == [("y", "FP64", [[2, 4]])]


@pytest.mark.parametrize("server", [WHOLE, SINGLE])
async def test_a_client_of_one_row_reaches_models_with_and_without_a_batch(server: Protocol) -> None:
    """It sends a batch of one, and gets one."""
    for settings in (knows(2), knows(-1, 2)):
        _, found = await answer(SINGLE, server, settings, rows([1, 2]))
        assert found == [("y", "FP64", [[2, 4]])]


SCALARS = replace(SINGLE, traits=replace(SINGLE.traits, wire=replace(SINGLE.traits.wire, scalars_in_rows=True)))


@pytest.mark.parametrize("client", [EXAMPLES, TENSORS])
async def test_a_dimension_of_any_size_is_a_scalar_for_each_row(client: Protocol) -> None:
    given = rows(1, 2) if client is EXAMPLES else tensor("x", np.array([1.0, 2.0]))
    backend, found = await answer(client, SCALARS, knows(-1), given)
    assert asked(backend) == [[([], 1)], [([], 2)]]
    assert found == [("y", "FP64", [2, 4])]


async def test_a_point_is_a_scalar_for_a_server_of_scalars() -> None:
    backend, found = await answer(POINTS, SCALARS, knows(-1), point(3))
    assert asked(backend) == [[([], 3)]]
    assert found == [("y", "FP64", [6])]


async def test_a_scalar_for_each_example_is_a_vector_of_one() -> None:
    backend, found = await answer(EXAMPLES, WHOLE, knows(-1, 1), rows(1, 2))
    assert asked(backend) == [[([2, 1], [[1], [2]])]]
    assert found == [("y", "FP64", [[2], [4]])]
    backend, _ = await answer(EXAMPLES, WHOLE, knows(-1, 1, datatype=BYTES), rows("a", "b", content_type="text"))
    assert asked(backend) == [[([2, 1], [[b"a"], [b"b"]])]]


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
    backend, found = await answer(WHOLE, TENSORS, knows(*wanted), rows(*sent))
    assert [values for ((_, values),) in asked(backend)] == [goes]
    assert found == [("y", "FP64", back)]


async def test_one_scalar_is_a_row_as_well() -> None:
    backend, found = await answer(EXAMPLES, WHOLE, knows(-1, 1), rows(5))
    assert asked(backend) == [[([1, 1], [[5]])]]
    assert found == [("y", "FP64", [[10]])]


async def test_examples_without_a_batch_in_the_model_are_refused_where_they_do_not_fit() -> None:
    with pytest.raises(DecodeError, match=r"input 'x' has shape \[2, 3\], expected \[-1, 2\]"):
        await answer(EXAMPLES, WHOLE, knows(2), rows([1, 2, 3], [1, 2, 3]))


async def test_points_behind_examples_are_called_one_by_one() -> None:
    backend = Backend({"m": Signature((spec("", 2),), (spec("", 2),))}, doubled)
    response = await call(bridge(EXAMPLES, POINTS, backend), infer(rows([1, 2], [3, 4])))
    assert asked(backend) == [[([2], [1, 2])], [([2], [3, 4])]]
    assert response.outputs[0].shape == (2, 2)


# Backends that count rows.


async def test_a_vector_without_a_batch_travels_as_one_example() -> None:
    for client, given in ((POINTS, point(1, 2)), (TENSORS, named("x", [1, 2]))):
        for settings in (knows(-1, 2), knows(2)):
            backend, found = await answer(client, EXAMPLES, settings, given)
            assert asked(backend) == [[([1, 2], [[1, 2]])]]
            assert found == [("y", "FP64", [2, 4])]


async def test_a_batch_travels_as_one_also_where_the_signature_has_none() -> None:
    backend, found = await answer(TENSORS, EXAMPLES, knows(2), named("x", [[1, 2], [3, 4]]))
    assert asked(backend) == [[([2, 2], [[1, 2], [3, 4]])]]
    assert found == [("y", "FP64", [[2, 4], [6, 8]])]


async def test_without_a_signature_points_are_one_example_and_tensors_as_they_are() -> None:
    backend, found = await answer(POINTS, EXAMPLES, RouteSettings(), point(1, 2))
    assert asked(backend) == [[([1, 2], [[1, 2]])]]
    assert found == [("", "INT64", [2, 4])]
    backend, found = await answer(TENSORS, EXAMPLES, RouteSettings(), named("x", [1, 2]))
    assert asked(backend) == [[([2], [1, 2])]]
    assert found == [("output0", "INT64", [2, 4])]


async def test_scalars_of_a_reply_are_vectors_of_one_where_they_are_declared_so() -> None:
    backend = Backend({}, lambda request: Response((rows("a", "b", content_type="text"), rows(1, 2))))
    declared = signature(
        spec("x", -1, 2), gives=(spec("s", -1, 1, datatype=BYTES), spec("n", -1, 1, datatype=FP32))
    )  # fmt: skip
    found = await call(
        bridge(TENSORS, EXAMPLES, backend, RouteSettings(signature=declared)), infer(named("x", [[1, 2], [3, 4]]))
    )
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


# Backends that take single rows.


async def test_without_a_signature_the_first_dimension_counts_the_calls() -> None:
    backend, found = await answer(TENSORS, SINGLE, RouteSettings(), named("x", [[1, 2], [3, 4.5]]), named("s", [1, 2]))
    assert asked(backend) == [[([2], [1, 2]), ([], 1)], [([2], [3, 4.5]), ([], 2)]]
    assert found == [("output0", "INT64", [[2, 4], [6, 9]]), ("output1", "INT64", [2, 4])]


async def test_integers_beside_floats_in_different_rows_are_floats() -> None:
    _, found = await answer(TENSORS, SINGLE, RouteSettings(), named("x", [[1, 2], [3, 0.25]]))
    assert found == [("output0", "FP64", [[2, 4], [6, 0.5]])]


async def test_rows_of_any_shape_and_datatype() -> None:
    images = named("x", np.arange(8).reshape(2, 2, 2), INT64)
    backend, found = await answer(TENSORS, SINGLE, knows(-1, 2, 2, datatype=INT64), images)
    assert asked(backend)[1] == [([2, 2], [[4, 5], [6, 7]])]
    assert found == [("y", "INT64", [[[0, 2], [4, 6]], [[8, 10], [12, 14]]])]
    words = named("x", [["a", "bc"], ["", "d"]], BYTES)
    backend, found = await answer(TENSORS, SINGLE, RouteSettings(), words)
    assert asked(backend) == [[([2], [b"a", b"bc"])], [([2], [b"", b"d"])]]
    assert found == [("output0", "BYTES", [[b"a", b"bc"], [b"", b"d"]])]


async def test_a_point_is_one_call() -> None:
    backend, found = await answer(POINTS, SINGLE, RouteSettings(), point(1, 2))
    assert asked(backend) == [[([2], [1, 2])]]
    assert found == [("", "INT64", [2, 4])]


async def test_a_tensor_without_a_batch_in_the_signature_is_one_call() -> None:
    backend, found = await answer(TENSORS, SINGLE, knows(2), named("x", [1, 2]))
    assert asked(backend) == [[([2], [1, 2])]]
    assert found == [("y", "FP64", [2, 4])]


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
