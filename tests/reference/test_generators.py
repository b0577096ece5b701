"""Generator functions as models: in threads, on the loop, given up half way, failing."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from numpy.typing import NDArray

from gateway.core.errors import GatewayError, Reason
from gateway.reference import from_callable, signature
from tests.reference.calls import broken_off, doubles, stream

Array = NDArray[Any]

X = doubles([[1, 2]])

declared = signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])


def thrice(x: Array) -> Iterator[Array]:
    for factor in (1, 2, 3):
        yield factor * x


async def thrice_on_the_loop(x: Array) -> AsyncGenerator[Array, None]:
    for factor in (1, 2, 3):
        await asyncio.sleep(0)
        yield factor * x


class Thrice:
    def __call__(self, x: Array) -> Iterator[Array]:
        yield from thrice(x)


@pytest.mark.parametrize("function", [thrice, thrice_on_the_loop, Thrice()])
async def test_each_value_is_one_response(function: Callable[..., Any]) -> None:
    found = [each["y"].tolist() async for each in stream(from_callable("thrice", declared(function)), {"x": X})]
    assert found == [[[1, 2]], [[2, 4]], [[3, 6]]]


async def test_config_reaches_a_generator() -> None:
    def scaled(x: Array, config: dict[str, Any]) -> Iterator[Array]:
        yield config["scale"] * x

    model = from_callable("scaled", declared(scaled))
    [found] = [each async for each in stream(model, {"x": X}, parameters={"config": '{"scale": 5}'})]
    assert found["y"].tolist() == [[5, 10]]


async def test_a_cancelled_generator_runs_its_finally() -> None:
    closed = threading.Event()

    def endless(x: Array) -> Generator[Array, None, None]:
        try:
            while True:
                yield x
        finally:
            closed.set()

    async with aclosing(stream(from_callable("endless", declared(endless)), {"x": X})) as responses:
        await anext(responses)
    assert await asyncio.to_thread(closed.wait, 10)


async def test_a_failure_comes_after_the_responses_before_it() -> None:
    def breaks(x: Array) -> Iterator[Array]:
        yield x
        raise ValueError("out of ideas")

    found, error = await broken_off(stream(from_callable("breaks", declared(breaks)), {"x": X}))
    assert [each["y"].tolist() for each in found] == [[[1, 2]]]
    assert (error.reason, error.message) == (Reason.MODEL_ERROR, "ValueError: out of ideas")


async def test_a_value_that_was_not_declared_is_a_model_error() -> None:
    def wrong(x: Array) -> Iterator[Array]:
        yield x[:, :1]

    with pytest.raises(GatewayError, match="output 'y' of model 'wrong' has shape") as failed:
        _ = [each async for each in stream(from_callable("wrong", declared(wrong)), {"x": X})]
    assert failed.value.reason is Reason.INVALID_OUTPUT


async def test_an_error_while_closing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    logged = threading.Event()

    def notice(record: logging.LogRecord) -> bool:
        logged.set()
        return True

    caplog.handler.addFilter(notice)

    def stubborn(x: Array) -> Generator[Array, None, None]:
        try:
            yield x
        finally:
            raise ValueError("will not close")

    with caplog.at_level(logging.ERROR):
        async with aclosing(stream(from_callable("stubborn", declared(stubborn)), {"x": X})) as responses:
            await anext(responses)
        assert await asyncio.to_thread(logged.wait, 10)
    assert "closing a model's generator failed" in caplog.text
