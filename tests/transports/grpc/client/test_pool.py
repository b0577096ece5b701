"""Which connection a call has, with servers that come and go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.core.address import Address
from gateway.core.errors import Status, TransportError
from gateway.transports.grpc import Connector
from gateway.transports.timeouts import GrpcEndpointTimeouts
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import GOAWAY, Peer, serving
from tests.limits import GENEROUS
from tests.transports.grpc.toy import ask, connected, refused


def naming(name: bytes) -> http2.Script:
    """Answers every call with its name."""

    async def play(peer: Peer) -> None:
        await peer.opening()
        with suppress(asyncio.IncompleteReadError):
            while True:
                peer.send(http2.reply(name, stream=await peer.request()))

    return play


async def silent(peer: Peer) -> None:
    """Accepts a connection, and says nothing."""
    await peer.closed()


class Name:
    """What resolves to these addresses, and counts how often it is asked."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    async def resolve(self) -> list[Address]:
        self.asked += 1
        parts = (address.split(":") for address in self.addresses)
        return [Address(host, int(port)) for host, port in parts]


QUICK = GrpcEndpointTimeouts(connect=0.2, between=0.01)
PATIENT = GrpcEndpointTimeouts(connect=GENEROUS)


@asynccontextmanager
async def connected_to(name: Name, timeouts: GrpcEndpointTimeouts = QUICK) -> AsyncIterator[Connector]:
    async with connected("name:1", resolve=name.resolve, timeouts=timeouts) as connector:
        yield connector


async def called(connector: Connector) -> bytes:
    return bytes((await connector.exchange(ask())).body)


async def until(connector: Connector, *names: bytes) -> None:
    """Call until each of them has answered."""
    seen: set[bytes] = set()
    while not seen.issuperset(names):
        seen.add(await called(connector))


NOBODY = "127.0.0.1:1"


async def test_an_address_that_nobody_serves_is_left_out() -> None:
    async with serving(naming(b"a")) as a, connected_to(Name(NOBODY, a)) as connector:
        assert {await called(connector) for _ in range(5)} == {b"a"}


async def test_without_any_the_last_reason_is_told() -> None:
    async with connected_to(Name(NOBODY, NOBODY)) as connector:
        error = await refused(called(connector))
    assert (error.message, error.sent) == ("connection refused", False)


async def test_an_address_that_does_not_answer_holds_up_no_call() -> None:
    async with serving(silent) as mute, serving(naming(b"a")) as a, connected_to(Name(mute, a), PATIENT) as connector:
        assert {await called(connector) for _ in range(5)} == {b"a"}


async def test_calls_that_wait_share_one_attempt() -> None:
    async with serving(naming(b"a")) as a:
        name = Name(a)
        async with connected_to(name) as connector:
            assert await asyncio.gather(*(called(connector) for _ in range(20))) == [b"a"] * 20
        assert name.asked == 1


async def test_a_connection_that_breaks_is_made_again_and_its_name_resolved_anew() -> None:
    async def once(peer: Peer) -> None:
        await peer.opening()
        peer.send(http2.reply(b"once", stream=await peer.request()))

    async with serving(once) as first, serving(naming(b"second")) as second:
        name = Name(first)
        async with connected_to(name) as connector:
            assert await called(connector) == b"once"
            name.addresses = [second]
            answers: list[bytes] = []
            while not answers:
                with suppress(TransportError):  # as long as the end of the first has not been seen
                    answers.append(await called(connector))
        assert answers == [b"second"]
        assert name.asked == 2


async def test_addresses_that_a_name_has_no_more_are_left_once_it_is_resolved_anew() -> None:
    gone = asyncio.Event()

    async def left(peer: Peer) -> None:
        await peer.opening()
        while (found := await peer.next(http2.DATA, GOAWAY))[0] != GOAWAY:
            peer.send(http2.reply(b"left", stream=found[2]))
        gone.set()

    async def going(peer: Peer) -> None:
        await peer.opening()
        peer.send(http2.reply(b"going", stream=await peer.request()), http2.go_away(2**31 - 1))
        await peer.closed()

    async with serving(left) as one, serving(going) as two, serving(naming(b"new")) as three:
        name = Name(one, two)
        async with connected_to(name) as connector:
            await until(connector, b"left", b"going")
            name.addresses = [three]
            await until(connector, b"new")
            await gone.wait()
            assert {await called(connector) for _ in range(5)} == {b"new"}


async def test_an_endpoint_that_takes_no_call_and_closes_is_unreachable() -> None:
    async def play(peer: Peer) -> None:
        await peer.opening(http2.settings(MAX_CONCURRENT_STREAMS=0))

    async with serving(play) as address, connected_to(Name(address)) as connector:
        error = await refused(called(connector))
    assert (error.status, error.sent) == (Status.UNAVAILABLE, False)
    assert "the endpoint closed the connection immediately" in error.message


async def test_closing_fails_what_waits_for_a_connection() -> None:
    accepted = asyncio.Event()

    async def accepting(peer: Peer) -> None:
        accepted.set()
        await peer.closed()

    async with serving(accepting) as mute, connected(mute, timeouts=PATIENT) as connector:
        waiting = asyncio.ensure_future(called(connector))
        await accepted.wait()
        await connector.close()
        error = await refused(waiting)
    assert (error.message, error.sent) == ("the gateway has closed the connector", False)


async def test_a_deadline_bounds_the_wait_for_a_connection() -> None:
    async with serving(silent) as mute, connected(mute, timeouts=PATIENT) as connector:
        error = await refused(connector.exchange(ask(deadline=asyncio.get_running_loop().time() + 0.05)))
    assert (error.status, error.sent) == (Status.DEADLINE_EXCEEDED, False)


async def test_a_unix_socket_is_an_endpoint(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "grpc.sock"

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await naming(b"unix")(Peer(reader, writer))
        writer.close()

    async with await asyncio.start_unix_server(play, path), connected(f"unix:{path}") as connector:
        assert await called(connector) == b"unix"


async def test_the_end_of_the_last_connection_that_takes_calls_is_told() -> None:
    """A server that stops lets its calls end, while the next call goes to whoever takes its place."""
    told = asyncio.Event()

    async def going(peer: Peer) -> None:
        await peer.opening()
        stream = await peer.request()
        peer.send(http2.go_away(2**31 - 1))
        await told.wait()
        peer.send(http2.reply(b"going", stream=stream))
        await peer.closed()

    async with serving(going) as one, connected_to(Name(one)) as connector:
        connector.on_disconnect(told.set)
        assert await called(connector) == b"going"


async def test_the_end_of_one_of_two_connections_is_not_told() -> None:
    told = list[bool]()

    async def once(peer: Peer) -> None:
        await peer.opening()
        peer.send(http2.reply(b"once", stream=await peer.request()), http2.go_away(2**31 - 1))
        await peer.closed()

    rare = GrpcEndpointTimeouts(connect=GENEROUS, between=GENEROUS)  # no new connection to `one` within the test
    async with serving(once) as one, serving(naming(b"stays")) as two, connected_to(Name(one, two), rare) as connector:
        connector.on_disconnect(lambda: told.append(True))
        await until(connector, b"once", b"stays")
        assert {await called(connector) for _ in range(5)} == {b"stays"}
        assert told == []
