"""Python callables as models: threads, coroutines, config, exceptions."""

import asyncio
import logging
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.errors import GatewayError, Reason, invalid_input
from gateway.core.operations import Operation
from gateway.core.requests import Response
from gateway.reference import from_callable, handler, signature
from tests.limits import GENEROUS
from tests.reference.calls import call, doubles, request

Array = NDArray[Any]

X = doubles([[1, 2]])

PAIR: dict[str, Any] = {"inputs": [("x", "FP64", [-1, 2])], "outputs": [("y", "FP64", [-1, 2])]}
pair = signature(**PAIR)


def same(x: Array) -> Array:
    return x


def triple(x: Array) -> Array:
    return 3 * x


async def test_a_function_is_a_model_and_stays_a_function() -> None:
    assert (await call(from_callable("triple", pair(triple)), {"x": X}))["y"].tolist() == [[3, 6]]
    assert pair(triple) is triple


async def test_without_a_signature_arrays_go_by_position() -> None:
    def several(a: Array, b: Array) -> tuple[Array, Array, list[str]]:
        return b, a, ["text"]

    first, second = doubles([1]), np.array([2], "<i4")
    answer = await call(from_callable("several", several), {"left": first, "right": second})
    assert {name: (array.dtype.name, array.tolist()) for name, array in answer.items()} == {
        "output0": ("int32", [2]),
        "output1": ("float64", [1]),
        "output2": ("object", [b"text"]),
    }


async def test_a_coroutine_function_runs_on_the_event_loop() -> None:
    async def where(x: Array) -> Array:
        return x if threading.current_thread() is threading.main_thread() else -x

    assert (await call(from_callable("where", where), {"x": X}))["output0"].tolist() == [[1, 2]]


class Scaler:
    """A callable object, as models with weights are."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    async def __call__(self, x: Array) -> Array:
        await asyncio.sleep(0)
        return self.scale * x


async def test_objects_and_partials_are_models() -> None:
    assert (await call(from_callable("scaler", Scaler(4)), {"x": X}))["output0"].tolist() == [[4, 8]]
    power = partial(np.power, 2.0)
    assert (await call(from_callable("power", power), {"x": X}))["output0"].tolist() == [[2, 4]]


async def test_builtin_functions_without_a_signature_are_models() -> None:
    assert (await call(from_callable("max", max), {"x": doubles([3, 1])}))["output0"] == 3


async def test_a_slow_function_does_not_block_the_event_loop() -> None:
    started, release = threading.Event(), threading.Event()

    def slow(x: Array) -> Array:
        started.set()
        assert release.wait(GENEROUS)
        return x

    serve = handler([from_callable("slow", slow), from_callable("fast", triple)])
    waiting = asyncio.ensure_future(serve(request("slow", {"x": X})))
    try:
        await asyncio.to_thread(started.wait, 30)
        assert isinstance(await serve(request("fast", {"x": X})), Response)
        assert not waiting.done()
    finally:
        release.set()
    assert isinstance(await waiting, Response)


@pytest.mark.parametrize("workers", [1, 3])
async def test_as_many_calls_run_at_once_as_there_are_workers(workers: int) -> None:
    running, most = 0, 0
    lock, enough = threading.Lock(), threading.Event()

    def count(x: Array) -> Array:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if most == workers:
                enough.set()
        assert enough.wait(GENEROUS)
        with lock:
            running -= 1
        return x

    serve = handler([from_callable("count", signature(**PAIR, workers=workers)(count))])
    await asyncio.gather(*(serve(request("count", {"x": X})) for _ in range(6)))
    assert most == workers


async def test_a_function_may_write_to_its_arrays_and_use_its_result_again() -> None:
    kept = np.zeros((1, 2))

    def reuse(x: Array) -> Array:
        x += 1
        kept[:] = x
        return kept

    serve = handler([from_callable("reuse", reuse)])
    asked = [request("reuse", {"x": scale * X}) for scale in (1, 10)]
    answers = [await serve(each) for each in asked]
    assert [each.outputs[0].array.tolist() for each in answers if isinstance(each, Response)] == [[[2, 3]], [[11, 21]]]
    assert asked[0].inputs[0].array.tolist() == [[1, 2]]


async def test_config_is_passed_to_functions_with_that_parameter() -> None:
    def scaled(x: Array, config: Mapping[str, Any]) -> Array:
        return float(config.get("scale", 1)) * x

    model = from_callable("scaled", pair(scaled))
    assert (await call(model, {"x": X}))["y"].tolist() == [[1, 2]]
    answer = await call(model, {"x": X}, parameters={"config": '{"scale": 5}'})
    assert answer["y"].tolist() == [[5, 10]]


async def test_config_is_passed_to_derivatives_with_that_parameter() -> None:
    def gradient(x: Array, out_wrt: int, in_wrt: int, sens: Array, *, config: Mapping[str, Any]) -> Array:
        return float(config["scale"]) * sens

    model = from_callable("f", signature(**PAIR, gradient=gradient)(same))
    inputs, config = {"x": X, "sens": X}, {"config": '{"scale": 7}'}
    assert (await call(model, inputs, Operation.GRADIENT, parameters=config))["output"].tolist() == [[7, 14]]
    assert (await call(model, {"x": X}, parameters=config))["y"].tolist() == [[1, 2]]


def leave() -> None:
    sys.exit(3)


def exhaust() -> None:
    next(iter([]))


def refuse() -> None:
    raise invalid_input("x must be positive")


def backtrace() -> None:
    raise RuntimeError('worker died\nTraceback (most recent call last):\n  File "/home/me/m.py", line 1\nOSError: gone')


def negative() -> None:
    raise ValueError("x is negative")


def mute() -> None:
    raise ZeroDivisionError


FAILURES = [
    (negative, Reason.MODEL_ERROR, "ValueError: x is negative"),
    (mute, Reason.MODEL_ERROR, "ZeroDivisionError"),
    (leave, Reason.MODEL_ERROR, "SystemExit: 3"),
    (exhaust, Reason.MODEL_ERROR, "StopIteration"),
    (backtrace, Reason.MODEL_ERROR, "RuntimeError: worker died OSError: gone"),
    (refuse, Reason.INVALID_INPUT, "x must be positive"),
]


@pytest.mark.parametrize(("failing", "reason", "text"), FAILURES, ids=[text for _, _, text in FAILURES])
async def test_the_error_of_an_exception_has_no_traceback(failing: Any, reason: Reason, text: str) -> None:
    def model(x: Array) -> Array:
        failing()
        return x

    with pytest.raises(GatewayError) as caught:
        await asyncio.wait_for(call(from_callable("model", model), {"x": X}), 30)
    assert (caught.value.reason, caught.value.message) == (reason, text)


async def test_the_traceback_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def model(x: Array) -> Array:
        negative()
        return x

    with caplog.at_level(logging.ERROR), pytest.raises(GatewayError):
        await call(from_callable("model", model), {"x": X})
    [record] = caplog.records
    assert record.getMessage() == "model 'model' failed"
    assert record.exc_info
    assert "in negative" in caplog.text


def test_a_function_must_take_the_inputs_that_it_declares() -> None:
    def two(x: Array, z: Array) -> Array:
        return x

    with pytest.raises(ValueError, match=r"model 'two': two\(\) does not accept 1 arrays: missing .* 'z'"):
        from_callable("two", pair(two))


def test_a_derivative_must_take_the_tensors_of_its_operation() -> None:
    def gradient(x: Array, sens: Array) -> Array:
        return sens

    with pytest.raises(ValueError, match=r"model 'f': gradient\(\) does not accept 4 arrays"):
        from_callable("f", signature(**PAIR, gradient=gradient)(same))


def test_a_model_of_fixed_sizes_has_a_signature_for_one_point_protocols() -> None:
    model = from_callable("f", pair(same))
    assert model.points == model.signature
    assert model.signature.operations == {Operation.INFER}
