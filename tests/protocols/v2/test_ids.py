"""Replies with the id of another request."""

import asyncio
from contextlib import closing, suppress

import pytest

from gateway.core.errors import GatewayError, Reason, WrongReplyError
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Protocol, Target
from gateway.core.requests import Request, Response
from gateway.protocols.v2 import V2_GRPC, V2_REST
from gateway.transports.http.client.connector import HttpConnector
from tests.protocols.v2.rest.wire import AS_IS

TARGET = Target("b", flavor="triton")


def response_with_id(
    protocol: Protocol, sent: str | None, returned: str | None, operation: Operation = Operation.INFER
) -> Response:
    """The response in a reply with the id `returned` to a request with the id `sent`."""
    reply = protocol.encode_response(Response(), Request(operation, "m", id=returned), AS_IS)
    answer = protocol.decode_response(reply, Request(operation, "m", id=sent), TARGET)
    assert isinstance(answer, Response)
    return answer


WIRES = pytest.mark.parametrize("protocol", [V2_REST, V2_GRPC], ids=lambda each: each.name)


@WIRES
@pytest.mark.parametrize("operation", [Operation.INFER, Operation.STREAM])
def test_another_requests_id_is_refused_naming_both(protocol: Protocol, operation: Operation) -> None:
    with pytest.raises(WrongReplyError) as caught:
        response_with_id(protocol, "mine", "another's", operation)
    assert str(caught.value) == """the reply's id is "another's", expected 'mine', the request's"""


@WIRES
@pytest.mark.parametrize(
    ("sent", "returned"),
    [("mine", "mine"), ("mine", None), ("mine", ""), (None, "made up"), ("", "made up"), (None, None)],
)
def test_a_server_that_does_not_return_the_id_is_not_refused(
    protocol: Protocol, sent: str | None, returned: str | None
) -> None:
    """MLServer makes up an id for a request without one."""
    assert response_with_id(protocol, sent, returned).id in (returned, None)


async def test_the_connection_of_a_wrong_reply_is_not_used_again() -> None:
    """The server sends one reply too many on its first connection; each later reply there answers another request."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        replies = [b"stale"] if connections == 1 else []
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                length = next(int(line[15:]) for line in head.splitlines() if line.startswith(b"content-length:"))
                body = await reader.readexactly(length)
                replies.append(body[body.index(b'"id":"') + 6 :].partition(b'"')[0])
                document = b'{"model_name":"m","id":"%b","outputs":[]}' % replies.pop(0)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(document), document))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connector = HttpConnector(address, connection_per_call=False, limits=Limits())
    try:
        with pytest.raises(GatewayError) as caught:
            await ask(Request(Operation.INFER, "m", id="first"), V2_REST, connector, TARGET)
        later = [await ask(Request(Operation.INFER, "m", id=name), V2_REST, connector, TARGET) for name in ("a", "b")]
    finally:
        await connector.close()
        server.close()
    assert caught.value.reason is Reason.INVALID_OUTPUT
    assert "the reply's id is 'stale', expected 'first'" in caught.value.message
    assert [each.id for each in later if isinstance(each, Response)] == ["a", "b"]
    assert connections == 2
