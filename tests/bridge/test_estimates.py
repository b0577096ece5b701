"""Derivatives by finite differences, between a client and a model that has no derivatives."""

import asyncio
from typing import Any

import numpy as np
import pytest

from gateway.bridge.settings import Derivatives, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.configured import TELLS_CONFIGS, Configured
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, describe, infer, named, signature, spec
from tests.bridge.values import FP32, FP64, INT64, THETA, derivative, vector


def posterior(theta: Any) -> Any:
    x, y = theta.reshape(-1, 2).T
    return (-((1 - x) ** 2 + 100 * (y - x**2) ** 2) / 20)[:, None]


def slope(x: float, y: float) -> Any:
    return np.array([(1 - x) / 10 + 20 * x * (y - x**2), -10 * (y - x**2)])


def curvature(x: float, y: float) -> Any:
    return np.array([[20 * y - 60 * x**2 - 0.1, 20 * x], [20 * x, -10.0]])


def evaluated(request: Request) -> Response:
    theta = request.inputs[0]
    found = posterior(theta.array)
    return Response((tensor("y", found if len(theta.shape) > 1 else found[0], FP64),))


def arrays(request: Request) -> dict[str, Any]:
    """The values of the inputs by name."""
    return {each.name: each.array for each in request.inputs}


def backend_of(server: Protocol, compute: Any = evaluated, offers: Any = None, size: int = 2) -> Backend:
    batch = () if server is POINTS else (-1,)
    known = signature(spec("x", *batch, size), gives=(spec("y", *batch, 1),), offers=offers)
    return Backend({"m": known}, compute)


def settings(**keys: Any) -> RouteSettings:
    return RouteSettings(derivatives=Derivatives(**keys))


GRADIENT = derivative(Operation.GRADIENT, vector("sens", 2.0))
JACOBIAN = derivative(Operation.APPLY_JACOBIAN, vector("vec", 1.0, 100.0))
HESSIAN = derivative(Operation.APPLY_HESSIAN, vector("sens", 2.0), vector("vec", 1.0, 3.0))
EXACT = {
    Operation.GRADIENT: 2 * slope(*THETA),
    Operation.APPLY_JACOBIAN: np.array([slope(*THETA) @ [1.0, 100.0]]),
    Operation.APPLY_HESSIAN: 2 * curvature(*THETA) @ [1.0, 3.0],
}


def error_of(response: Response, operation: Operation) -> float:
    found, exact = response.outputs[0].array, EXACT[operation]
    assert found.shape == exact.shape
    return float(np.abs(found - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize(
    ("method", "order", "bound"),
    [("forward", 1, 2e-7), ("forward", 2, 2e-9), ("central", 2, 2e-10), ("central", 4, 5e-12)],
)
@pytest.mark.parametrize("server", [POINTS, TENSORS], ids=["points", "batches"])
@pytest.mark.parametrize("request_", [GRADIENT, JACOBIAN, HESSIAN], ids=lambda each: each.operation.value)
async def test_the_derivatives_of_posterior(
    server: Protocol, method: Any, order: Any, bound: float, request_: Request
) -> None:
    backend = backend_of(server)
    handler = bridge(POINTS, server, backend, settings(method=method, order=order))
    found = error_of(await call(handler, request_), request_.operation)
    assert found < (bound if request_.operation is not Operation.APPLY_HESSIAN else bound**0.55)


async def test_all_points_are_one_batch_where_the_model_takes_batches() -> None:
    backend = backend_of(TENSORS)
    await call(bridge(POINTS, TENSORS, backend, settings()), GRADIENT)
    assert [request.inputs[0].shape for request in backend.calls] == [(4, 2)]
    backend.asked.clear()
    response = await call(bridge(POINTS, TENSORS, backend, settings(batch=3)), GRADIENT)
    assert sorted(request.inputs[0].shape for request in backend.calls) == [(1, 2), (3, 2)]
    assert error_of(response, Operation.GRADIENT) < 1e-9


async def test_a_companion_of_several_rows() -> None:
    backend = backend_of(POINTS)
    handler = bridge(TENSORS, POINTS, backend, settings()).companion(Operation.GRADIENT)
    rows = [list(THETA), [1.0, 1.0]]
    request = infer(named("x", rows), named("sens", [[2.0], [1.0]]), model="m.gradient")
    found = (await call(handler, request)).outputs[0].array
    assert np.allclose(found, [2 * slope(*THETA), slope(1.0, 1.0)], atol=1e-7)


async def test_the_models_own_derivative_is_used_unless_it_is_replaced() -> None:
    def compute(request: Request) -> Response:
        if request.operation is Operation.GRADIENT:
            given = arrays(request)
            return Response((tensor("output", slope(*given["x"]) * given["sens"]),))
        return evaluated(request)

    backend = backend_of(POINTS, compute, frozenset({Operation.INFER, Operation.GRADIENT}))
    estimating = bridge(POINTS, POINTS, backend, settings())
    assert error_of(await call(estimating, GRADIENT), Operation.GRADIENT) < 1e-15
    assert [each.operation for each in backend.calls] == [Operation.GRADIENT]

    backend.asked.clear()
    assert error_of(await call(estimating, HESSIAN), Operation.APPLY_HESSIAN) < 1e-9
    assert [each.operation for each in backend.calls] == [Operation.GRADIENT] * 2

    backend.asked.clear()
    await call(bridge(POINTS, POINTS, backend, settings(replace=(Operation.GRADIENT,))), GRADIENT)
    assert {each.operation for each in backend.calls} == {Operation.INFER}


async def test_derivatives_are_claimed_only_where_configured() -> None:
    backend = backend_of(POINTS)
    claimed = (await describe(bridge(POINTS, POINTS, backend, settings()), part="ModelInfo")).operations
    assert {each.value for each in claimed} == {"infer", "gradient", "apply_jacobian", "apply_hessian"}
    plain = (await describe(bridge(POINTS, POINTS, backend, RouteSettings()), part="ModelInfo")).operations
    assert plain == {Operation.INFER}


async def test_too_many_evaluations_are_refused_before_any() -> None:
    backend = backend_of(TENSORS, size=1_000_000)
    request = derivative(Operation.GRADIENT, vector("sens", 1.0), theta=np.zeros(1_000_000))
    with pytest.raises(GatewayError, match="takes 2000000 evaluations, and the route allows 4096") as caught:
        await call(bridge(POINTS, TENSORS, backend, settings()), request)
    assert caught.value.reason is Reason.INVALID_INPUT
    with pytest.raises(GatewayError, match=r"limits\.message") as caught:
        await call(bridge(POINTS, TENSORS, backend, settings(max_evaluations=10**7)), request)
    assert caught.value.reason is Reason.TOO_LARGE
    assert backend.calls == []


async def test_fp32_has_steps_of_its_own() -> None:
    known = signature(spec("x", -1, 2, datatype=FP32), gives=(spec("y", -1, 1, datatype=FP32),))

    def compute(request: Request) -> Response:
        return Response((tensor("y", posterior(request.inputs[0].array).astype(np.float32), FP32),))

    handler = bridge(POINTS, TENSORS, Backend({"m": known}, compute), settings())
    assert error_of(await call(handler, GRADIENT), Operation.GRADIENT) < 1e-3


async def test_a_point_that_fails_ends_the_others_and_is_told() -> None:
    running = 0

    async def compute(request: Request) -> Response:
        nonlocal running
        if request.inputs[0].array[0] > THETA[0]:
            raise refusal(Reason.MODEL_ERROR, "no convergence")
        running += 1
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1
        raise AssertionError

    with pytest.raises(GatewayError, match="gradient by finite differences: row 1: no convergence") as caught:
        await call(bridge(POINTS, POINTS, backend_of(POINTS, compute), settings()), GRADIENT)
    assert (caught.value.status, running) == (Status.INTERNAL, 0)


async def test_vectors_and_indices_are_checked() -> None:
    handler = bridge(POINTS, TENSORS, backend_of(TENSORS), settings())
    with pytest.raises(DecodeError, match="'sens' has length 2, expected 1"):
        await call(handler, derivative(Operation.GRADIENT, vector("sens", 1.0, 2.0)))
    wrong = tensor("in_wrt", np.array([1]), INT64)
    with pytest.raises(DecodeError, match="index 'in_wrt' is 1, but the model has 1 input"):
        await call(handler, derivative(Operation.GRADIENT, wrong, vector("sens", 1.0)))
    free = Backend({"m": signature(spec("x", -1, -1), gives=(spec("y", -1, 1),))}, evaluated)
    with pytest.raises(DecodeError, match="input 'vec' has length 3, expected 2"):
        await call(
            bridge(POINTS, TENSORS, free, settings()),
            derivative(Operation.APPLY_JACOBIAN, vector("vec", 1.0, 2.0, 3.0)),
        )
    companion = bridge(TENSORS, TENSORS, backend_of(TENSORS), settings()).companion(Operation.GRADIENT)
    rows = named("x", [THETA, THETA]), named("sens", [[1.0], [1.0]]), named("out_wrt", [[0], [1]], INT64)
    with pytest.raises(DecodeError, match="index 'out_wrt' differs in some rows; send one request for each"):
        await call(companion, infer(*rows, model="m.gradient"))


@pytest.mark.parametrize("operation", [Operation.GRADIENT, Operation.APPLY_HESSIAN])
async def test_the_route_sets_the_step(operation: Operation) -> None:
    """For second derivatives, the step of the same accuracy is larger: here 1/16 ** (3/4) = 1/8."""
    backend = backend_of(TENSORS)
    step = 1 / 8 if operation is Operation.GRADIENT else 1 / 16
    await call(bridge(POINTS, TENSORS, backend, settings(step=step)), GRADIENT if step == 1 / 8 else HESSIAN)
    [asked] = backend.calls
    # The direction (1, 3) is as long as the step of the element that changes most: 3 / 12 is 1/8 of 2.
    centres = [THETA] if step == 1 / 8 else [(0.5 - 1 / 12, 1.75), (0.5 + 1 / 12, 2.25)]
    expected = [point for x, y in centres for point in ((x - 1 / 8, y), (x + 1 / 8, y), (x, y * 7 / 8), (x, y * 9 / 8))]
    np.testing.assert_allclose(asked.inputs[0].array, expected)


NO_VALUES = replace(signature(spec("x", -1, 2), gives=(spec("y", -1, 1),)), operations=frozenset({Operation.STREAM}))


@pytest.mark.parametrize(
    ("known", "reason", "told"),
    [
        (
            signature(gives=()), Reason.FAILED_PRECONDITION,
            "inputs unknown: gradient of model 'm' uses finite differences; declare the inputs by `signature` on the "
            "route",
        ),
        (NO_VALUES, Reason.UNSUPPORTED, "gradient is not supported by model 'm': it has no values"),
    ],
)  # fmt: skip
async def test_a_model_that_cannot_be_evaluated(known: Signature, reason: Reason, told: str) -> None:
    backend = Backend({"m": known}, evaluated)
    with pytest.raises(GatewayError) as refused:
        await call(bridge(TENSORS, TENSORS, backend, settings()), replace(GRADIENT))
    assert (refused.value.reason, refused.value.message, backend.calls) == (reason, told, [])


async def test_members_of_a_json_object_have_derivatives() -> None:
    backend = backend_of(TENSORS)
    handler = bridge(TENSORS, TENSORS, backend, settings()).companion(Operation.GRADIENT)
    members = (replace(named("x", THETA), untyped=True), replace(named("sens", [2.0]), untyped=True))
    found = await call(handler, infer(*members, model="m.gradient", schemaless=True))
    assert found.outputs[0].shape == (1, 2)
    assert np.allclose(found.outputs[0].array, EXACT[Operation.GRADIENT])


async def test_a_model_without_a_batch_dimension_is_called_for_each_point() -> None:
    backend = Backend({"m": signature(spec("x", 2), gives=(spec("y", 1),))}, evaluated)
    handler = bridge(TENSORS, TENSORS, backend, settings()).companion(Operation.GRADIENT)
    found = await call(handler, infer(named("x", THETA), named("sens", [2.0]), model="m.gradient"))
    assert np.allclose(found.outputs[0].array, EXACT[Operation.GRADIENT])
    assert [each.inputs[0].shape for each in backend.calls] == [(2,)] * 4


async def test_the_error_of_a_batch_of_points_is_told() -> None:
    def compute(request: Request) -> Response:
        raise refusal(Reason.MODEL_ERROR, "no convergence", retry_after=7)

    with pytest.raises(GatewayError) as failed:
        await call(bridge(POINTS, TENSORS, backend_of(TENSORS, compute), settings()), GRADIENT)
    assert (failed.value.reason, failed.value.retry_after) == (Reason.MODEL_ERROR, 7)
    assert failed.value.message == "gradient by finite differences: no convergence"


@pytest.mark.parametrize(
    ("gives", "reply"),
    [(spec("slope", -1, 3), named("slope", np.ones((2, 3)))), (spec("output", 3), named("output", np.ones(3)))],
)
async def test_a_gradient_of_the_model_that_is_none_is_told(gives: TensorSpec, reply: Tensor) -> None:
    base = signature(spec("x", -1, 3), gives=(spec("y", -1, 1),))
    own = signature(spec("x", -1, 3), spec("sens", -1, 1), gives=(gives,))
    backend = Backend({"m": base, "m.gradient": own}, lambda _: Response((reply,)))
    vectors = vector("sens", 1.0), vector("vec", 1.0, 0.0, 0.0)
    with pytest.raises(GatewayError) as failed:
        await call(
            bridge(POINTS, TENSORS, backend, settings()),
            derivative(Operation.APPLY_HESSIAN, *vectors, theta=(1.0, 2.0, 3.0)),
        )
    assert failed.value.reason is Reason.INVALID_OUTPUT
    assert failed.value.message == (
        "apply_hessian by finite differences: the model gave no output 'output' with 2 rows of numbers"
    )


async def test_integers_have_no_derivatives() -> None:
    known = signature(spec("x", -1, 2, datatype=INT64), gives=(spec("y", -1, 1),))
    handler = bridge(POINTS, TENSORS, Backend({"m": known}, evaluated), settings())
    request = derivative(Operation.GRADIENT, vector("sens", 1.0), theta=(1, 2))
    with pytest.raises(GatewayError, match="input 'x' is INT64, and finite differences need floats"):
        await call(handler, request)


def scaled_sum(request: Request) -> Response:
    """y = k0 x0 + k1 x1 ** 2 for each row of x, with one k for all rows."""
    x, k = arrays(request)["x"], arrays(request)["k"]
    assert k.shape == (2,)
    return Response((tensor("y", (k[0] * x[:, 0] + k[1] * x[:, 1] ** 2)[:, None]),))


async def test_an_input_without_a_batch_dimension_is_the_same_for_all_points() -> None:
    known = signature(spec("x", -1, 2), spec("k", 2), gives=(spec("y", -1, 1),))
    backend = Backend({"m": known}, scaled_sum)
    handler = bridge(TENSORS, TENSORS, backend, settings()).companion(Operation.GRADIENT)
    given = named("x", [[1.0, 2.0], [3.0, 4.0]]), named("k", [5.0, 7.0]), named("sens", [[1.0], [1.0]])
    found = (await call(handler, infer(*given, model="m.gradient"))).outputs[0].array
    assert np.allclose(found, [[5, 28], [5, 56]])
    [asked] = backend.calls
    assert {each.name: each.shape for each in asked.inputs} == {"x": (8, 2), "k": (2,)}

    # The input that all rows share is moved: each point is a call.
    backend.asked.clear()
    found = (await call(handler, infer(*given, named("in_wrt", [1], INT64), model="m.gradient"))).outputs[0].array
    assert np.allclose(found, [[1, 4], [3, 16]])
    assert [request.inputs[0].shape for request in backend.calls] == [(1, 2)] * 8


async def test_scalars_have_derivatives() -> None:
    def compute(request: Request) -> Response:
        given = arrays(request)
        assert given["x"].shape == ()
        return Response((tensor("y", np.sin(given["x"]) * given["k"]),))

    backend = Backend({"m": signature(spec("x"), spec("k"), gives=(spec("y"),))}, compute)
    given = named("x", 0.5), named("k", 3.0)
    handler = bridge(TENSORS, TENSORS, backend, settings(order=4))
    ask = infer(*given, named("sens", [2.0]), model="m.gradient")
    found = (await call(handler.companion(Operation.GRADIENT), ask)).outputs[0].array
    assert np.allclose(found, [6 * np.cos(0.5)], rtol=1e-11)
    ask = infer(*given, named("sens", [2.0]), named("vec", [1.0]), model="m.apply_hessian")
    found = (await call(handler.companion(Operation.APPLY_HESSIAN), ask)).outputs[0].array
    assert np.allclose(found, [-6 * np.sin(0.5)], rtol=1e-8)


def telling(largest: object) -> Configured:
    """A Backend that tells the model's `max_batch_size`, as Triton does."""
    known = signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))
    return Configured({"m": {"max_batch_size": largest}}, known, evaluated)


@pytest.mark.parametrize(
    ("largest", "batch", "sizes"),
    [(3, None, [1, 3]), (3, 2, [2, 2]), (2, 3, [2, 2]), (0, None, [4]), ("3", None, [4]), (True, None, [4])],
)
async def test_a_batch_has_at_most_the_models_own_limit(largest: object, batch: Any, sizes: list[int]) -> None:
    backend = telling(largest)
    handler = bridge(POINTS, TELLS_CONFIGS, backend, settings(batch=batch))
    for _ in range(2):
        assert error_of(await call(handler, GRADIENT), Operation.GRADIENT) < 1e-9
    made = sorted(each.inputs[0].shape[0] for each in backend.calls if each.operation is Operation.INFER)
    assert made == sorted(sizes * 2)
    asked = [each for each in backend.asked if each.operation is Operation.CONFIG]
    assert [(each.model, each.version) for each in asked] == [("m", "")]  # and remembered


@pytest.mark.parametrize("rows", [0, 1])
async def test_without_elements_there_is_no_derivative(rows: int) -> None:
    known = signature(spec("x", -1, -1), gives=(spec("y", -1, 1),))
    backend = Backend({"m": known}, evaluated)
    handler = bridge(TENSORS, TENSORS, backend, settings()).companion(Operation.GRADIENT)
    ask = infer(named("x", np.zeros((rows, 0 if rows else 2))), named("sens", np.ones((rows, 1))), model="m.gradient")
    with pytest.raises(DecodeError, match="needs inputs with elements, and a row at least"):
        await call(handler, ask)
    assert backend.calls == []


async def test_a_model_that_lies_about_its_output_is_told() -> None:
    free = signature(spec("x", -1, 2), gives=(spec("y", -1, -1),))
    handler = bridge(POINTS, TENSORS, Backend({"m": free}, evaluated), settings())
    with pytest.raises(DecodeError, match="'sens' has length 3, expected 1, the length of output 'y'"):
        await call(handler, derivative(Operation.GRADIENT, vector("sens", 1.0, 2.0, 3.0)))

    def one_more(request: Request) -> Response:
        rows = len(request.inputs[0].array)
        return Response((tensor("y", np.ones((rows, rows))),))

    handler = bridge(POINTS, TENSORS, Backend({"m": free}, one_more), settings(batch=3))
    with pytest.raises(GatewayError, match="has different lengths at different points") as caught:
        await call(handler, GRADIENT)
    assert caught.value.reason is Reason.INVALID_OUTPUT


@pytest.mark.parametrize("datatype", [FP64, INT64])
async def test_an_estimated_companion_is_ready_as_its_model_is_if_it_has_floats(datatype: Datatype) -> None:
    known = signature(spec("x", 2, datatype=datatype), gives=(spec("y", 1),))
    backend = Backend({"m": known})
    gradient = bridge(TENSORS, POINTS, backend, settings()).companion(Operation.GRADIENT)
    ready = Request(Operation.MODEL_READY, "m.gradient")
    assert await gradient(ready) is (datatype is FP64)
    if datatype is FP64:
        described = await describe(gradient, "m.gradient")
        assert [each.name for each in described.inputs] == ["x", "out_wrt", "in_wrt", "sens"]
    else:
        with pytest.raises(GatewayError, match=r"^model 'm' does not claim gradient$"):
            await describe(gradient, "m.gradient")
    backend.ready = False
    assert await gradient(ready) is False


@pytest.mark.parametrize("operation", [Operation.MODEL_STATISTICS, Operation.LOAD])
async def test_an_estimated_companion_has_no_statistics_and_is_not_loaded(operation: Operation) -> None:
    backend = backend_of(TENSORS)
    handler = bridge(TENSORS, TENSORS, backend, settings()).companion(Operation.GRADIENT)
    for _ in range(2):  # the second time, it is known that the backend has no such model
        with pytest.raises(
            GatewayError, match=r"'m\.gradient' is computed by finite differences; .* model 'm'"
        ) as caught:
            await handler(Request(operation, "m.gradient"))
        assert caught.value.status is Status.NOT_FOUND
    assert backend.calls == []
