"""Requested outputs: a client gets exactly those that it asked for, whatever its backend makes of the list."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Shape, Tensor
from tests.bridge.fakes import TENSORS, Backend, bridge, call, infer, named, signature, spec

X = named("x", [[1.0]])
FIRST, SECOND = named("o", [[1.0]]), named("z", [[2.0]])
MODEL = signature(spec("x", -1, 1), gives=(spec("o", -1, 1), spec("z", -1, 1)))
Ask: TypeAlias = Callable[[Bridge, Request], Awaitable[Response]]
RENAMED = RouteSettings(rename=Renames(outputs=(Renaming("o", "o"),)))
"""Says something of the tensors, so that they are fitted to the signature instead of passing as they are."""


def asking(*names: str) -> Request:
    return infer(X, outputs=tuple(map(RequestedOutput, names)))


def giving(*outputs: Tensor, settings: RouteSettings | None = None) -> Bridge:
    """A Bridge to a backend that gives `outputs`, whatever it is asked for."""

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        yield Response(outputs)

    backend = Backend({"m": MODEL}, lambda request: Response(outputs))
    return bridge(TENSORS, TENSORS, backend, settings, stream=stream)


@pytest.mark.parametrize("id", [None, "7"])
async def test_a_response_has_the_names_that_the_client_gave(id: str | None) -> None:
    for response in (
        Response((FIRST,), "m", "1", id),
        Response((FIRST,), "other", "1", id),
        Response((FIRST,), "m", "1", "a new one"),
        Response((FIRST,), "m", "1", id, schemaless=True),
    ):
        backend = Backend({"m": MODEL}, lambda request, response=response: response)  # type: ignore[misc]
        through = bridge(TENSORS, TENSORS, backend)
        for version, expected in (("", "1"), ("2", "2")):
            answer = await call(through, replace(infer(X), id=id, version=version))
            assert (answer.model, answer.version, answer.id, answer.schemaless) == ("m", expected, id, False)


async def streamed(through: Bridge, request: Request) -> Response:
    [response] = [each async for each in through.stream(replace(request, operation=Operation.STREAM))]
    return response


@pytest.mark.parametrize("settings", [None, RENAMED], ids=["passed", "fitted"])
@pytest.mark.parametrize("ask", [call, streamed])
@pytest.mark.parametrize("wanted", [("o",), ("z",), ("z", "o"), ("o", "z")])
async def test_what_nobody_asked_for_is_left_out(
    ask: Ask, settings: RouteSettings | None, wanted: tuple[str, ...]
) -> None:
    response = await ask(giving(FIRST, SECOND, settings=settings), asking(*wanted))
    assert {each.name for each in response.outputs} == set(wanted)
    assert len(response.outputs) == len(wanted)


@pytest.mark.parametrize("settings", [None, RENAMED], ids=["passed", "fitted"])
@pytest.mark.parametrize("ask", [call, streamed])
async def test_an_output_that_is_missing_is_the_backends_fault_and_named(
    ask: Ask, settings: RouteSettings | None
) -> None:
    with pytest.raises(GatewayError, match="backend 'lab': output 'o' is missing; the reply has 'z'") as refused:
        await ask(giving(SECOND, settings=settings), asking("o"))
    assert refused.value.reason is Reason.INVALID_OUTPUT


@pytest.mark.parametrize(
    ("x", "classes", "shape"), [([1.0], (1, 2), (2,)), ([[1.0]], (1, 2), (1, 2)), ([1.0], (2, 1), None)]
)
async def test_an_output_that_is_asked_for_as_classes_is_texts(x: Any, classes: Shape, shape: Shape | None) -> None:
    """V2's classification extension: a model of numbers answers with texts."""
    texts = named("o", np.array([b"0.9:1", b"0.1:0"], object).reshape(classes), Datatype.BYTES)
    request = infer(named("x", x), outputs=(RequestedOutput("o", {"classification": 2}),))
    if shape is None:
        with pytest.raises(GatewayError, match="backend 'lab': output 'o' has 2 rows for the one that was sent"):
            await call(giving(texts, settings=RENAMED), request)
        return
    [output] = (await call(giving(texts, settings=RENAMED), request)).outputs
    assert (output.name, output.shape, output.array.reshape(-1).tolist()) == ("o", shape, [b"0.9:1", b"0.1:0"])


async def test_the_same_of_a_derivative_that_is_a_companion_model() -> None:
    derivative = named("output", [[1.0]])
    backend = Backend({"m": MODEL}, lambda request: Response((derivative, SECOND)))
    through = bridge(TENSORS, TENSORS, backend)
    response = await call(through, replace(asking("output"), operation=Operation.GRADIENT))
    assert [each.name for each in response.outputs] == ["output"]


async def test_a_streams_last_response_without_outputs_passes() -> None:
    assert (await streamed(giving(), asking("o"))).outputs == ()


async def test_without_a_list_all_outputs_pass() -> None:
    assert [each.name for each in (await call(giving(FIRST, SECOND), asking())).outputs] == ["o", "z"]
