"""Errors of calls end at the caller's line: no frame of the client is shown."""

import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import gateway.client
from gateway.client import AsyncClient, Client, ClientError, NotFound
from tests.client.servers import served

INSIDE = str(Path(gateway.client.__file__).parents[1])


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with served("v2-grpc", "posterior") as address, Client(address) as client:
        yield client


def check(error: BaseException) -> None:
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert [file for file in files if file.startswith(INSIDE)] == []
    assert files[-1] == __file__
    text = "".join(traceback.format_exception(error))
    assert "direct cause" not in text
    assert "During handling" not in text


CALLS: dict[str, Callable[[Client], object]] = {
    "infer": lambda client: client.infer("nobody", [1.0]),
    "gradient": lambda client: client.gradient("nobody", [1.0], sens=[1.0]),
    "map": lambda client: client.map("nobody", [[1.0]]),
    "a function": lambda client: client.model("nobody")([1.0]),
    "signature": lambda client: client.signature("nobody"),
    "a stream": lambda client: next(client.stream("nobody", [1.0])),
    "as_completed": lambda client: next(client.as_completed("nobody", [[1.0]])),
    "a point": lambda client: client.map("nobody", [[1.0]], errors="return")[0],
    "points": lambda client: list(client.map("nobody", [[1.0]], errors="return")),
    "an array": lambda client: client.map("nobody", [[1.0]], errors="return").array(),
    "an evaluation": lambda client: [each.outputs for each in client.as_completed("nobody", [[1.0]], errors="return")],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call(client: Client, call: Callable[[Client], object]) -> None:
    with pytest.raises(NotFound) as caught:
        call(client)
    check(caught.value)


def test_an_error_that_is_looked_up_twice_has_the_last_place_alone(client: Client) -> None:
    results = client.map("nobody", [[1.0]], errors="return")
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            results[0]
    assert len(list(traceback.walk_tb(caught.value.__traceback__))) == 1


WRONG: dict[str, Callable[[Client], object]] = {
    "the address": lambda _: Client("http://127.0.0.1:8080"),
    "the address of an asynchronous client": lambda _: AsyncClient("http://127.0.0.1:8080"),
    "map": lambda client: client.map("posterior", [[1.0]], errors="ignore"),  # type: ignore[arg-type]
    "as_completed": lambda client: client.as_completed("posterior", [[1.0]], most=0),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_wrong_argument(client: Client, call: Callable[[Client], object]) -> None:
    with pytest.raises(ValueError, match=r"expected|write") as caught:
        call(client)
    check(caught.value)


AWAITED: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
    "infer": lambda client: client.infer("nobody", [1.0]),
    "stream": lambda client: anext(client.stream("nobody", [1.0])),
    "a function": lambda client: client.model("nobody")([1.0]),
    "map": lambda client: client.map("nobody", [[1.0]]),
}


@pytest.mark.parametrize("call", AWAITED.values(), ids=AWAITED)
async def test_a_call_of_the_asynchronous_client(
    client: Client, call: Callable[[AsyncClient], Awaitable[object]]
) -> None:
    async with AsyncClient(f"v2-grpc://{client.address}") as asynchronous:
        with pytest.raises(NotFound) as caught:
            await call(asynchronous)
    check(caught.value)
