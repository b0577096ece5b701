"""For every protocol that streams over HTTP, a body contains the same messages however its bytes are split on
arrival."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import MessageSplitter, Protocol, StreamFraming
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.contract.cases import each
from tests.contract.comparing import numbers
from tests.contract.flavors import DIALECTS, Dialect
from tests.contract.installed import PROTOCOLS
from tests.contract.wire import LISTENER, LITERAL, arrived, returned

LIMIT = 2**16

each_framed = each(
    {
        "the client takes no streams": lambda dialect: not dialect.traits.wire.streams,
        "the transport says where messages end": lambda dialect: dialect.protocol.http.stream_framing is None,
    },
    dialect=DIALECTS,
)


def framing(dialect: Dialect) -> StreamFraming:
    assert dialect.protocol.http.stream_framing is not None
    return dialect.protocol.http.stream_framing


def request(operation: Operation = Operation.STREAM) -> Request:
    return Request(operation, "m", inputs=(row(0.5, -1.25),), translate=LITERAL)


def row(*values: float) -> Tensor:
    return tensor("x", np.array([values]))


RESPONSES = [Response((row(at, at + 0.5),), "m") for at in range(3)]


def replies(dialect: Dialect) -> list[Message]:
    question = dialect.asked(request())
    return [dialect.protocol.encode_response(each, question, LITERAL) for each in RESPONSES]


def wrapped(dialect: Dialect) -> list[bytes]:
    """Return the messages as pieces of the body, one piece per message."""
    return [b"".join(framing(dialect).wrap(each.parts)) for each in replies(dialect)]


def by_byte(cutter: MessageSplitter, pieces: list[bytes]) -> Iterator[bytes]:
    for byte in b"".join(pieces):
        yield from map(bytes, cutter.feed(bytes([byte])))


def at_once(cutter: MessageSplitter, pieces: list[bytes]) -> Iterator[bytes]:
    yield from map(bytes, cutter.feed(b"".join(pieces)))


def by_chunk(cutter: MessageSplitter, pieces: list[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from map(bytes, cutter.feed(piece))
        yield from map(bytes, cutter.boundary())


def cut(
    dialect: Dialect, feed: Callable[[MessageSplitter, list[bytes]], Iterator[bytes]], pieces: list[bytes]
) -> list[bytes]:
    cutter = framing(dialect).cutter(LIMIT)
    return [*feed(cutter, pieces), *map(bytes, cutter.end())]


@each_framed
@pytest.mark.parametrize("feed", [by_byte, at_once, by_chunk])
def test_messages_are_cut_where_they_end(
    dialect: Dialect, feed: Callable[[MessageSplitter, list[bytes]], Iterator[bytes]]
) -> None:
    head = returned(replies(dialect)[0], dialect.protocol)
    found = [replace(head, parts=(body,)) for body in cut(dialect, feed, wrapped(dialect))]
    answers = [dialect.protocol.decode_response(each, request(), dialect.target) for each in found]
    outputs = [numbers(each.outputs[0]) for each in answers if isinstance(each, Response)]
    assert outputs == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]


@each_framed
def test_an_empty_body_has_no_messages(dialect: Dialect) -> None:
    assert cut(dialect, at_once, []) == []


@each_framed
def test_a_body_that_breaks_off_is_told(dialect: Dialect) -> None:
    whole = b"".join(wrapped(dialect)).rstrip()
    with pytest.raises(DecodeError):
        cut(dialect, at_once, [whole[:-1]])


@each_framed
def test_a_message_beyond_the_limit_is_told_before_it_is_whole(dialect: Dialect) -> None:
    [first, *_] = wrapped(dialect)
    middle = len(first) // 2
    cutter = framing(dialect).cutter(len(first))
    with pytest.raises(GatewayError) as caught:
        cutter.feed(first[:middle] + b" " * len(first) + b'"' * len(first))
    assert caught.value.reason is Reason.TOO_LARGE


@each_framed
@pytest.mark.parametrize("operation", [Operation.STREAM, Operation.INFER])
def test_a_listener_knows_who_wants_a_stream(dialect: Dialect, operation: Operation) -> None:
    question = arrived(dialect.protocol.encode_request(request(operation), dialect.target), dialect.protocol)
    assert dialect.protocol.http.wants_stream is not None
    assert dialect.protocol.http.wants_stream(question) is (operation is Operation.STREAM)
    assert dialect.protocol.decode_request(question, LISTENER).operation is operation


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_who_streams_over_http_says_where_messages_end(protocol: Protocol) -> None:
    streams = protocol.transport == "http" and protocol.traits.wire.streams
    assert (protocol.http.stream_framing is not None, protocol.http.wants_stream is not None) == (streams, streams)
