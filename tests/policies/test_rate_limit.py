import asyncio
from collections.abc import AsyncGenerator

import pytest
from pydantic import ValidationError

from gateway.core import redis
from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.frozen import replace
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.principal import Principal
from gateway.core.requests import Answer, Request, Response
from gateway.policies import rate_limit
from gateway.policies.rate_limit import RateLimit, Settings, wrap, wrap_stream
from tests.clock import Clock
from tests.traced import traced

ANSWER = Response(id="answer")
CLIENTS = 3000


async def answer(request: Request) -> Answer:
    return ANSWER


async def responses(request: Request) -> AsyncGenerator[Response, None]:
    yield ANSWER
    yield ANSWER


def infer(peer: str = "10.0.0.1:5", model: str = "m", key: str | None = None) -> Request:
    headers = Headers([] if key is None else [(b"x-api-key", key.encode())])
    return Request(Operation.INFER, model, peer=peer, headers=headers)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the limits that the test makes."""
    found = Clock()
    monkeypatch.setattr(rate_limit.state, "_make", lambda settings: RateLimit(settings, found))
    return found


async def passed(settings: Settings, *requests: Request) -> list[bool]:
    """Which requests pass."""
    handler = wrap(answer, settings)
    found = await asyncio.gather(*map(handler, requests), return_exceptions=True)
    refused = [each.reason for each in found if isinstance(each, GatewayError)]
    assert refused == [Reason.RATE_LIMITED] * len(refused)
    return [each is ANSWER for each in found]


async def test_a_client_beyond_its_rate_is_told_when_to_come_back(clock: Clock) -> None:
    handler = wrap(answer, Settings(requests=2, seconds=10))
    assert [await handler(infer()) for _ in range(2)] == [ANSWER] * 2
    clock.now = 1
    with pytest.raises(GatewayError, match=r"^more than 2 requests in 10 s; try again in 4 s$") as refused:
        await handler(infer(peer="10.0.0.1:6"))
    assert (refused.value.status, refused.value.reason) == (Status.RESOURCE_EXHAUSTED, Reason.RATE_LIMITED)
    assert refused.value.retry_after == 4
    clock.now = 5
    assert await handler(infer()) is ANSWER


async def test_each_principal_has_a_limit_of_its_own_wherever_its_clients_are(clock: Clock) -> None:
    """Clients without one have that of their address, which no principal can take."""
    alice, mallory = Principal("alice"), Principal("10.0.0.1")
    here, there = infer(peer="10.0.0.1:5"), infer(peer="10.0.0.2:5")
    requests = [replace(here, principal=alice), replace(there, principal=alice), replace(here, principal=mallory)]
    found = await passed(Settings(requests=1, seconds=10, by="principal"), *requests, here, infer(peer="10.0.0.1:6"))
    assert found == [True, False, True, True, False]


async def test_a_burst_of_its_own(clock: Clock) -> None:
    assert await passed(Settings(requests=1, seconds=10, burst=3), *[infer()] * 4) == [True] * 3 + [False]
    assert await passed(Settings(requests=100, seconds=1, burst=1), *[infer()] * 2) == [True, False]


@pytest.mark.parametrize(
    ("by", "second", "shared"),
    [
        ("client", infer(peer="10.0.0.1:9", model="n"), True),
        ("client", infer(peer="10.0.0.2:5"), False),
        ("model", infer(peer="10.0.0.2:5"), True),
        ("model", infer(model="n"), False),
        ("header", infer(peer="10.0.0.2:5"), True),
        ("header", infer(key="a"), False),
        ("all", infer(peer="10.0.0.2:5", model="n", key="a"), True),
    ],
)
async def test_what_has_a_limit_of_its_own(by: str, second: Request, shared: bool, clock: Clock) -> None:
    header = {"header": "X-API-Key"} if by == "header" else {}
    settings = Settings.model_validate({"requests": 1, "by": by, **header})
    assert await passed(settings, infer(), second) == [True, not shared]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("[2001:db8::1]:5", "[2001:db8::ffff:2]:6", True),
        ("[2001:db8::1]:5", "[2001:db8:0:1::1]:5", False),
        ("2001:db8::1:5", "2001:db8::2:5", True),
        ("[::ffff:10.0.0.1]:5", "10.0.0.1:7", True),
        ("[fe80::1%eth0]:5", "[fe80::2%eth0]:5", True),
        ("unix:a:5", "unix:a:6", True),
        ("unix:a:5", "unix:b:5", False),
        ("", "", True),
    ],
)
async def test_clients_are_hosts_or_networks(first: str, second: str, shared: bool, clock: Clock) -> None:
    assert await passed(Settings(requests=1), infer(peer=first), infer(peer=second)) == [True, not shared]


async def test_calls_and_streams_have_one_limit_and_other_operations_none(clock: Clock) -> None:
    settings = Settings(requests=1)
    stream = wrap_stream(responses, settings)
    assert [each async for each in stream(infer())] == [ANSWER, ANSWER]
    assert await passed(settings, infer(), Request(Operation.METADATA, "m", peer="10.0.0.1:5")) == [False, True]
    with pytest.raises(GatewayError):
        await anext(stream(infer()))
    assert rate_limit.state(settings).status() == {"clients": 1, "refused": 2}


class Elsewhere:
    """A limit that other processes share: it lets the first `left` requests pass, or does not respond."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    async def take(self, client: str) -> float | None:
        if self.left is None:
            return None
        self.left -= 1
        return 0.0 if self.left >= 0 else 7.0


@pytest.mark.parametrize(("left", "passed"), [(2, 2), (None, 1)])
async def test_streams_have_the_limit_that_processes_share(left: int | None, passed: int, clock: Clock) -> None:
    settings = Settings(requests=1)
    rate_limit.state(settings).share(Elsewhere(left))
    stream = wrap_stream(responses, settings)
    for _ in range(passed):
        assert [each async for each in stream(infer())] == [ANSWER, ANSWER]
    with pytest.raises(GatewayError, match=f"try again in {7 if left else 1} s") as refused:
        await anext(stream(infer()))
    assert refused.value.reason is Reason.RATE_LIMITED


async def test_a_limit_in_redis_is_not_replaced_and_does_not_tell_what_is_left(clock: Clock) -> None:
    keys = {"requests": 1, "by": "principal", "redis": "redis://127.0.0.1:1/0", "without_redis": "allow"}
    settings = Settings.model_validate(keys)
    state = rate_limit.state(settings)
    state.share(Elsewhere(0))
    assert await passed(settings, infer(), infer()) == [True, True]
    assert state.status()["redis"] == "down"
    assert state.of_principal("a") == {"requests": 1, "seconds": 1, "burst": 1, "left": None, "full_in": None}
    await state.close(0)


@pytest.mark.parametrize("by", ["client", "model", "header"])
async def test_a_client_with_a_long_name_takes_little_memory(by: str, clock: Clock) -> None:
    header = {"header": "x-api-key"} if by == "header" else {}
    settings = Settings.model_validate({"requests": 1, "by": by, **header})
    handler = wrap(answer, settings)
    long = "n" * 1000
    with traced() as memory:
        for at in range(CLIENTS):
            await handler(infer(f"[2001:db8:{at >> 16:x}:{at & 65535:x}::1]:5", f"{long}{at}", f"{long}{at}"))
    assert rate_limit.state(settings).status()["clients"] == CLIENTS
    assert memory.left < 500 * CLIENTS


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"requests": 0}, "greater than or equal to 1"),
        ({"requests": 1, "seconds": 0}, "greater than 0"),
        ({"requests": 1, "by": "header"}, "both by: header and header: NAME"),
        ({"requests": 1, "header": "x-api-key"}, "both by: header and header: NAME"),
        ({"requests": 1, "by": "header", "header": "x api key"}, "the name of a header"),
        ({"requests": 1, "without_redis": "allow"}, "need redis: URL"),
        ({"requests": 1, "redis": "http://secret@h"}, "begins with redis://"),
        ({"requests": 1, "redis": "redis://:secret@h:port"}, "expected the URL of a Redis server"),
        ({"requests": 1, "redis": "redis://:secret@h?unknown=1"}, "expected the URL of a Redis server"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text) as refused:
        Settings.model_validate(settings)
    assert all("secret" not in error["msg"] for error in refused.value.errors())


def test_redis_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "find_spec", lambda name: None)
    with pytest.raises(ValidationError, match=r'pip install "modelglot\[redis\]"'):
        Settings.model_validate({"requests": 1, "redis": "redis://h"})


def test_the_url_of_redis_is_not_shown() -> None:
    settings = Settings.model_validate({"requests": 1, "redis": "redis://:secret@h"})
    assert "secret" not in f"{settings!r} {settings} {settings.model_dump()}"
