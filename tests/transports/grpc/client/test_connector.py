import asyncio
from typing import Any

import grpc
import pytest

from gateway.core.address import Address
from gateway.core.errors import Reason, Status, TransportError
from gateway.core.messages import Headers, Message, Metadata
from gateway.core.protocol import Limits
from gateway.transports.grpc.client.connector import GrpcConnector
from tests.core.http2.by_hand import HEADERS, Peer, reply, serving
from tests.transports.grpc.toy import ECHO, SMALL, Server, ask, connected, connector_to, refused


async def echo(body: bytes, context: Any) -> bytes:
    return body


async def test_a_message_is_a_call_and_its_reply_a_message() -> None:
    async def serve(body: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("some", "text"), ("some-bin", b"\x00\xff")))
        return body[::-1]

    async with connector_to(serve) as connector:
        reply = await connector.exchange(Message(path=ECHO, parts=(b"one", memoryview(b"two"))))
    headers = Headers(((b"some", b"text"), (b"some-bin", b"\x00\xff")))
    assert reply == Message(parts=(b"owteno",), headers=headers)


async def test_the_path_is_the_method() -> None:
    async with connector_to(echo) as connector:
        reply = await connector.exchange(ask(path="/toy.Toy/Nothing"))
        assert reply.status == Status.UNIMPLEMENTED
        assert (await connector.exchange(ask(path=ECHO))).status == Status.OK


async def test_headers_that_grpc_can_carry_are_metadata() -> None:
    seen: list[tuple[str, str | bytes]] = []

    async def serve(body: bytes, context: Any) -> bytes:
        seen.extend(tuple(pair) for pair in context.invocation_metadata() if pair[0] != "user-agent")
        return body

    headers = [(b"Some", b"text"), (b"some-bin", b"\x00\xff"), (b"many", b"1"), (b"many", b"2")]
    illegal = [(b"grpc-timeout", b"1S"), (b"two words", b"x"), (b":path", b"/x")]
    reserved = [(b"Content-Type", b"text/plain"), (b"te", b"x"), (b"host", b"x"), (b"connection", b"close")]
    async with connector_to(serve) as connector:
        message = Message(path=ECHO, headers=Metadata([*headers, *illegal, *reserved]), parts=(b"",))
        assert (await connector.exchange(message)).status == Status.OK
    assert seen == [("some", "text"), ("some-bin", b"\x00\xff"), ("many", "1"), ("many", "2")]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
async def test_a_status_that_the_server_sends_is_a_reply(status: Status) -> None:
    async def serve(body: bytes, context: Any) -> None:
        code = next(code for code in grpc.StatusCode if code.value[0] == status)
        await context.abort(code, "why: 'é'", (("gateway-reason", "timeout"),))

    async with connector_to(serve) as connector:
        reply = await connector.exchange(ask())
    headers = Headers(((b"gateway-reason", b"timeout"),))
    assert reply == Message(status=status, headers=headers, parts=("why: 'é'".encode(),))


async def test_the_deadline_goes_with_the_call() -> None:
    async def serve(body: bytes, context: Any) -> bytes:
        return str(context.time_remaining()).encode()

    async with connector_to(serve) as connector:
        deadline = asyncio.get_running_loop().time() + 1000
        reply = await connector.exchange(ask(deadline=deadline))
        assert 900 < float(bytes(reply.body)) < 1100
        assert (await connector.exchange(ask())).body == b"None"


class Slow:
    """A server's method that never replies to `slow`, and notes whether its client gave it up."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def serve(self, body: bytes, context: Any) -> bytes:
        if body == b"slow":
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        return body


async def test_without_a_reply_before_the_deadline_the_call_is_given_up() -> None:
    slow = Slow()
    async with connector_to(slow.serve) as connector:
        await connector.exchange(ask())  # which connects: half of the time until a deadline may be short for that
        error = await refused(connector.exchange(ask(b"slow", deadline=asyncio.get_running_loop().time() + 0.5)))
        assert (error.status, error.reason) == (Status.DEADLINE_EXCEEDED, Reason.TIMEOUT)
        assert error.message == "no reply before the deadline"
        await slow.cancelled.wait()


async def test_after_the_deadline_nothing_is_sent() -> None:
    async def never(body: bytes, context: Any) -> bytes:
        raise AssertionError("sent")

    async with connector_to(never) as connector:
        error = await refused(connector.exchange(ask(deadline=asyncio.get_running_loop().time())))
    assert (error.status, error.sent) == (Status.DEADLINE_EXCEEDED, False)


async def test_cancelling_tells_the_server_and_leaves_the_connector_as_it_was() -> None:
    slow = Slow()
    async with connector_to(slow.serve) as connector:
        task = asyncio.ensure_future(connector.exchange(ask(b"slow")))
        await slow.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await slow.cancelled.wait()
        assert (await connector.exchange(ask(b"again"))).body == b"again"


async def test_exchanges_run_at_once() -> None:
    arrived = asyncio.Barrier(50)

    async def serve(body: bytes, context: Any) -> bytes:
        await arrived.wait()
        return body

    async with connector_to(serve) as connector:
        replies = await asyncio.gather(*(connector.exchange(ask(b"%d" % number)) for number in range(50)))
    assert [reply.body for reply in replies] == [b"%d" % number for number in range(50)]


async def test_a_request_may_be_larger_than_a_reply() -> None:
    async def serve(body: bytes, context: Any) -> bytes:
        return b"%d" % len(body)

    async with connector_to(serve, limits=Limits(message=100)) as connector:
        assert (await connector.exchange(ask(bytes(10_000_000)))).body == b"10000000"


@pytest.mark.parametrize(
    ("compression", "size", "told"),
    [
        (grpc.Compression.NoCompression, 5001, "reply has 5001 bytes, at most 5000 are allowed (limits.message)"),
        (
            grpc.Compression.Gzip,
            5_000_000,
            "inflates to more than 5000 bytes, the most that is allowed: limits.message, ",
        ),
    ],
)
async def test_a_reply_over_the_limit_names_the_setting(compression: Any, size: int, told: str) -> None:
    async def serve(body: bytes, context: Any) -> bytes:
        return bytes(int(body))

    limits = Limits(message=5000)
    async with Server(serve, compression=compression) as server, connected(server.address, limits) as connector:
        assert (await connector.exchange(ask(b"5000"))).body == bytes(5000)
        error = await refused(connector.exchange(ask(b"%d" % size)))
    assert (error.status, error.reason, error.sent) == (Status.INTERNAL, Reason.INVALID_OUTPUT, True)
    assert told in error.message


async def test_metadata_over_the_limit_name_the_setting() -> None:
    async def serve(body: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("some", "x" * SMALL.headers),))
        return body

    async with connector_to(serve) as connector:
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.reason) == (Status.INTERNAL, Reason.INVALID_OUTPUT)
    assert error.message == "reply has more than 10000 bytes of metadata (limits.headers); raise the limit"


async def test_a_server_that_is_not_there_is_unreachable_and_saw_nothing() -> None:
    server = Server(echo)  # binds its port, and accepts nobody
    async with connected(server.address) as connector:
        await server.__aenter__()
        await server.__aexit__()
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, False)
    assert error.message == "connection refused"


async def test_a_name_that_does_not_resolve_is_unreachable_and_saw_nothing() -> None:
    async with connected("no.such.name.invalid:8001") as connector:
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, False)
    assert error.message.startswith("host name 'no.such.name.invalid' not resolved: ")


async def test_a_server_that_comes_back_is_used_again() -> None:
    async with Server(echo) as first, connected(first.address) as connector:
        assert (await connector.exchange(ask(b"1"))).body == b"1"
        await first.__aexit__()
        for _ in range(3):
            assert (await refused(connector.exchange(ask()))).status is Status.UNAVAILABLE
        async with Server(echo, port=first.port):
            while True:
                try:
                    assert (await connector.exchange(ask(b"2"))).body == b"2"
                except TransportError:
                    await asyncio.sleep(0.01)
                else:
                    return


async def test_a_server_that_stops_during_a_call_may_have_seen_it() -> None:
    slow = Slow()
    async with Server(slow.serve) as server, connected(server.address) as connector:
        task = asyncio.ensure_future(connector.exchange(ask(b"slow")))
        await slow.asked.wait()
        await server.__aexit__()
        reply = await task
    assert (reply.status, reply.body) == (Status.UNAVAILABLE, b"Cancelling all calls")


async def test_closing_fails_what_is_in_flight_and_all_that_follows() -> None:
    slow = Slow()
    async with connector_to(slow.serve) as connector:
        task = asyncio.ensure_future(connector.exchange(ask(b"slow")))
        await slow.asked.wait()
        await connector.close()
        during, after = await refused(task), await refused(connector.exchange(ask()))
    assert during.status is after.status is Status.UNAVAILABLE
    assert during.message == after.message == "the gateway has closed the connector"
    assert (during.sent, after.sent) == (True, False)


async def test_calls_are_shared_among_the_addresses_of_a_name() -> None:
    """Each in its turn, on connections that stay: HTTP/2 would else send every call to the first."""

    def named(name: bytes) -> Any:
        async def serve(body: bytes, context: Any) -> bytes:
            return name

        return serve

    async with Server(named(b"a")) as a, Server(named(b"b")) as b:

        async def resolve() -> list[Address]:
            return [Address("127.0.0.1", server.port) for server in (a, b)]

        async with connected(a.address, resolve=resolve) as connector:
            seen = {(await connector.exchange(ask())).body}
            while len(seen) < 2:  # the second connection takes as long as it takes
                seen.add((await connector.exchange(ask())).body)
            replies = [bytes((await connector.exchange(ask())).body) for _ in range(10)]
    assert sorted(replies) == [b"a"] * 5 + [b"b"] * 5


async def test_with_an_ip_calls_have_the_name_as_authority() -> None:
    heads: list[bytes] = []

    async def play(peer: Peer) -> None:
        await peer.opening()
        heads.append((await peer.next(HEADERS))[3])
        peer.send(reply())
        await peer.closed()

    async with serving(play) as address:
        name = address.replace("127.0.0.1", "models.invalid")
        connector = GrpcConnector(name, connection_per_call=False, limits=Limits(), ip="127.0.0.1")
        await connector.exchange(ask())
        await connector.close()
    assert name.encode() in heads[0]
