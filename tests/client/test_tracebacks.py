"""Errors of calls show the caller's line and one frame of the client, which notebooks hide."""

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gateway.client
from gateway.client import AsyncClient, Client, ClientError, NotFound
from tests.client.servers import served

INSIDE = str(Path(gateway.client.__file__).parents[1])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("v2-grpc", "posterior") as address:
        yield address


def check(error: ClientError) -> None:
    frames = list(traceback.walk_tb(error.__traceback__))
    assert [frame.f_code.co_filename.startswith(INSIDE) for frame, _ in frames] == [False, True]
    assert frames[-1][0].f_locals["__tracebackhide__"] is True
    text = "".join(traceback.format_exception(error))
    assert "direct cause" not in text
    assert "During handling" not in text
    assert error.__context__ is not None


CALLS: list[Callable[[Client], object]] = [
    lambda client: client.infer("nobody", [1.0]),
    lambda client: client.gradient("nobody", [1.0], sens=[1.0]),
    lambda client: client.map("nobody", [[1.0]]),
    lambda client: client.model("nobody")([1.0]),
    lambda client: client.signature("nobody"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call(address: str, call: Callable[[Client], object]) -> None:
    with Client(address) as client:
        try:
            call(client)
        except NotFound as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # this function's own
            check(error)
        else:
            pytest.fail("no error")


@pytest.mark.parametrize("method", ["stream", "as_completed"])
def test_a_generator(address: str, method: str) -> None:
    with Client(address) as client, pytest.raises(NotFound) as caught:
        next(getattr(client, method)("nobody", [[1.0]]))
    check(caught.value)


async def test_the_asynchronous_client(address: str) -> None:
    async with AsyncClient(address) as client:
        with pytest.raises(NotFound) as caught:
            await client.infer("nobody", [1.0])
        check(caught.value)
        with pytest.raises(NotFound) as caught:
            await anext(client.stream("nobody", [1.0]))
        check(caught.value)
        with pytest.raises(NotFound) as caught:
            await client.model("nobody")([1.0])
        check(caught.value)
