"""The complex step, for models that take imaginary parts as inputs of their own."""

from typing import Any

import numpy as np
import pytest

from gateway.bridge.settings import Derivatives, RouteSettings
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.types import Request, Response, Signature, Tensor, tensor
from tests.bridge.fakes import (
    COUNTERS,
    FP64,
    INT64,
    POINTS,
    SERVERS,
    TENSORS,
    Backend,
    bridge,
    call,
    derivative,
    describe,
    infer,
    named,
    point,
    shown,
    signature,
    spec,
    vector,
)

X = (0.7, 1.3)
FULL = signature(
    spec("x", -1, 2), spec("k", -1, 1), spec("x_imag", -1, 2), gives=(spec("y", -1, 1), spec("y_imag", -1, 1))
)
"""exp(x0) sin(x1) k. Nothing is imaginary of k."""


def evaluated(request: Request) -> Response:
    given = {each.name: each.array for each in request.inputs}
    assert list(given) == ["x", "k", "x_imag"]
    x = given["x"] + 1j * given["x_imag"]
    found = np.exp(x[..., :1]) * np.sin(x[..., 1:]) * given["k"]
    parts = (tensor("y", found.real, FP64), tensor("y_imag", found.imag, FP64))
    asked = [each.name for each in request.outputs]
    return Response(tuple(each for each in parts if not asked or each.name in asked))


def slope(x: Any, k: float) -> Any:
    return k * np.exp(x[0]) * np.array([np.sin(x[1]), np.cos(x[1])])


def curvature(x: Any, k: float) -> Any:
    sine, cosine = k * np.exp(x[0]) * np.array([np.sin(x[1]), np.cos(x[1])])
    return np.array([[sine, cosine], [cosine, -sine]])


def handler_of(client: Protocol, server: Protocol, backend: Backend, **keys: Any) -> Any:
    """UM-Bridge's servers have no names for tensors: the route has the signature."""
    own = FULL if server is POINTS else None
    settings = RouteSettings(derivatives=Derivatives("complex", **keys), signature=own)
    return bridge(client, server, backend, settings)


def backend_of(server: Protocol, **fields: Any) -> Backend:
    known = replace(FULL, **fields)
    if server is POINTS:
        vectors = [spec("", size) for size in (2, 1, 2)]
        known = signature(*vectors, gives=(spec("", 1), spec("", 1)), offers=known.operations)
    return Backend({"m": known}, evaluated)


def at(operation: Operation, *extras: Tensor) -> Request:
    request = derivative(operation, *extras, theta=X)
    return replace(request, inputs=(*request.inputs, point(5.0)))


@SERVERS
async def test_clients_see_and_evaluate_the_plain_model(server: Protocol) -> None:
    backend = backend_of(server)
    handler = handler_of(TENSORS, server, backend)
    seen = await describe(handler)
    assert [each.name for each in (*seen.inputs, *seen.outputs)] == ["x", "k", "y"]
    rows = named("x", [list(X), [0.0, 1.0]]), named("k", [[1.0], [2.0]])
    response = await call(handler, infer(*rows))
    expected = [[float(np.exp(X[0]) * np.sin(X[1]))], [2 * float(np.sin(1.0))]]
    assert shown(response.outputs) == [("y", "FP64", expected)]
    sent = backend.calls[0].inputs
    assert not sent[2].array.any()
    claimed = (await describe(handler_of(POINTS, server, backend), part="ModelInfo")).operations
    assert {each.value for each in claimed} == {"infer", "gradient", "apply_jacobian", "apply_hessian"}


@SERVERS
async def test_first_derivatives_are_exact_to_rounding(server: Protocol) -> None:
    backend = backend_of(server)
    handler = handler_of(POINTS, server, backend)
    gradient = (await call(handler, at(Operation.GRADIENT, vector("sens", 2.0)))).outputs[0].array
    assert np.allclose(gradient, 2 * slope(X, 5), rtol=5e-16, atol=0)
    points = sum(len(each.inputs[0].array.reshape(-1, 2)) for each in backend.calls)
    assert (points, len(backend.calls)) == (2, 2 if server is POINTS else 1)
    jacobian = (await call(handler, at(Operation.APPLY_JACOBIAN, vector("vec", 1.0, 1e6)))).outputs[0].array
    assert np.allclose(jacobian, [slope(X, 5) @ [1, 1e6]], rtol=1e-15, atol=0)


@SERVERS
@pytest.mark.parametrize(("order", "bound"), [(None, 1e-9), (4, 1e-12)])
async def test_a_hessian_is_one_difference_of_gradients(server: Protocol, order: Any, bound: float) -> None:
    backend = backend_of(server)
    request = at(Operation.APPLY_HESSIAN, vector("sens", 2.0), vector("vec", 1.0, 3.0))
    found = (await call(handler_of(POINTS, server, backend, order=order), request)).outputs[0].array
    assert np.allclose(found, 2 * curvature(X, 5) @ [1, 3], rtol=bound)


async def test_a_companion_of_several_rows() -> None:
    handler = handler_of(TENSORS, TENSORS, backend_of(TENSORS)).companion(Operation.GRADIENT)
    given = named("x", [list(X), [0.0, 1.0]]), named("k", [[1.0], [2.0]]), named("sens", [[2.0], [1.0]])
    found = (await call(handler, infer(*given, model="m.gradient"))).outputs[0].array
    assert np.allclose(found, [2 * slope(X, 1), slope((0, 1), 2)], rtol=1e-15, atol=0)


async def test_the_models_own_derivatives_are_not_those_of_the_plain_model() -> None:
    backend = backend_of(POINTS, operations=frozenset({Operation.INFER, Operation.GRADIENT}))
    await call(handler_of(POINTS, POINTS, backend), at(Operation.GRADIENT, vector("sens", 2.0)))
    assert {each.operation for each in backend.calls} == {Operation.INFER}

    # The same of a server that names its tensors.
    backend = Backend({"m": replace(FULL, operations=frozenset({Operation.INFER, Operation.GRADIENT}))}, evaluated)
    await call(handler_of(POINTS, COUNTERS, backend), at(Operation.GRADIENT, vector("sens", 2.0)))
    assert {each.operation for each in backend.calls} == {Operation.INFER}


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (signature(spec("x", -1, 2), gives=(spec("y", -1, 1),)), "no input 'x_imag'"),
        (signature(spec("x", -1, 2), spec("x_imag", -1, 3), gives=(spec("y", -1, 1),)), "no input 'x_imag'"),
        (signature(spec("x", -1, 2), spec("x_imag", -1, 2), gives=(spec("y", -1, 1),)), "no output 'y_imag'"),
    ],
)
async def test_a_model_without_imaginary_parts_is_told(known: Signature, text: str) -> None:
    backend = Backend({"m": known}, lambda request: Response((tensor("y", np.ones((1, 1))),)))
    handler = handler_of(TENSORS, TENSORS, backend)
    shape = known.inputs[1].shape[1] if len(known.inputs) > 1 and "output" not in text else 0
    given = [named("x", [list(X)]), *([named("x_imag", np.zeros((1, shape)))] if shape else [])]
    ask = infer(*given, named("in_wrt", [0], INT64), named("sens", [[1.0]]), model="m.gradient")
    with pytest.raises(GatewayError, match=f"m' by the complex step: the model has {text}") as caught:
        await call(handler.companion(Operation.GRADIENT), ask)
    assert caught.value.status is Status.UNIMPLEMENTED
    assert backend.calls == []
    assert (await call(handler, infer(*given))).outputs[0].name == "y"
