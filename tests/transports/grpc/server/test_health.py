import asyncio
from typing import Any

import pytest

from gateway.core.errors import Status
from gateway.transports.grpc.server import own_services
from gateway.transports.grpc.server.own_services import NOT_SERVING, SERVICE_UNKNOWN, SERVING
from tests.transports.grpc.toy import channel, client, code, failed, listening

SERVICES = (
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "other.Other",
    "toy.Toy",
)

REQUEST = own_services.HealthCheckRequest


READ = own_services.HealthCheckResponse.FromString


def check(made: Any, service: str) -> Any:
    call = made.unary_unary("/grpc.health.v1.Health/Check", response_deserializer=READ)
    return call(REQUEST(service=service).SerializeToString())


def watch(made: Any, service: str) -> Any:
    call = made.unary_stream("/grpc.health.v1.Health/Watch", response_deserializer=READ)
    return aiter(call(REQUEST(service=service).SerializeToString()))


async def test_the_bytes_are_those_of_the_standard() -> None:
    async with client() as made:
        call = made.unary_unary("/grpc.health.v1.Health/Check")
        assert await call(b"") == b"\x08\x01"
        assert await call(b"\x0a\x07toy.Toy") == b"\x08\x01"


@pytest.mark.parametrize("service", ["", *SERVICES])
async def test_every_service_serves_and_so_does_the_whole(service: str) -> None:
    async with client() as made:
        assert (await check(made, service)).status == SERVING


async def test_an_unknown_service_is_not_found() -> None:
    async with client() as made:
        error = await failed(check(made, "no.Such"))
    assert (code(error), error.details()) == (Status.NOT_FOUND, "no service 'no.Such' here")


async def statuses(made: Any) -> dict[str, int]:
    """What the list of all services says."""
    method = "/grpc.health.v1.Health/List"
    listed = await made.unary_unary(method, None, own_services.HealthListResponse.FromString)(b"")
    return {name: each.status for name, each in listed.statuses.items()}


class Switch:
    """Readiness that a test sets; it is told after a turn of the loop, as one that asks backends."""

    def __init__(self) -> None:
        self.is_on = False

    async def __call__(self) -> bool:
        await asyncio.sleep(0)
        return self.is_on


async def test_nothing_serves_unless_the_gateway_is_ready() -> None:
    ready = Switch()
    async with listening(ready=ready) as listener, channel(listener.address) as made:
        for expected in (NOT_SERVING, SERVING, NOT_SERVING):
            ready.is_on = expected == SERVING
            assert (await check(made, "")).status == expected
            assert (await check(made, "toy.Toy")).status == expected
            assert await statuses(made) == dict.fromkeys(("", *SERVICES), expected)
        assert code(await failed(check(made, "no.Such"))) == Status.NOT_FOUND


async def test_who_watches_is_told_of_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_services, "WATCH_SECONDS", 0.001)
    ready = Switch()
    async with listening(ready=ready) as listener, channel(listener.address) as made:
        watching = watch(made, "")
        for expected in (NOT_SERVING, SERVING, NOT_SERVING, SERVING):
            ready.is_on = expected == SERVING
            assert (await anext(watching)).status == expected
        listener.announce_end()
        assert [each.status async for each in watching] == [NOT_SERVING]


async def test_who_watches_what_is_not_ready_is_not_told_again_at_the_end() -> None:
    async with listening(ready=Switch()) as listener, channel(listener.address) as made:
        watching = watch(made, "")
        assert (await anext(watching)).status == NOT_SERVING
        listener.announce_end()
        assert [each.status async for each in watching] == []


async def test_who_watches_is_told_of_draining_and_does_not_hold_it_up() -> None:
    async with listening() as listener, channel(listener.address) as made:
        known, unknown = watch(made, "toy.Toy"), watch(made, "no.Such")
        assert (await anext(known)).status == SERVING
        assert (await anext(unknown)).status == SERVICE_UNKNOWN
        await listener.drain(1000)
        assert [each.status async for each in known] == [NOT_SERVING]
        assert [each.status async for each in unknown] == []


async def test_an_announced_end_is_told_while_calls_are_still_served() -> None:
    async with listening() as listener, channel(listener.address) as made:
        watching = watch(made, "toy.Toy")
        assert (await anext(watching)).status == SERVING
        listener.announce_end()
        assert [each.status async for each in watching] == [NOT_SERVING]
        assert (await check(made, "toy.Toy")).status == NOT_SERVING
