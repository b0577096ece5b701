"""Invalid bytes, for every installed protocol in both directions: decoding them results in one of the gateway's errors
or a valid value, and uses memory only in proportion to their size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TypeVar

import numpy as np
import pytest

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Relay, StreamBinding
from gateway.core.requests import Request, Response
from gateway.core.tensors import MAX_RANK, Tensor, tensor
from tests.contract.cases import each_datatype, each_dialect
from tests.contract.corruption import corrupted
from tests.contract.flavors import Dialect
from tests.contract.samples import sample, samples
from tests.contract.wire import LISTENER, LITERAL, arrived, or_error
from tests.traced import traced

pytestmark = pytest.mark.long

T = TypeVar("T")

BLAMED = frozenset(
    {
        *(Reason.INVALID_INPUT, Reason.TOO_LARGE, Reason.UNSUPPORTED, Reason.UNSUPPORTED_ENCODING),
        *(Reason.UNSUPPORTED_MEDIA_TYPE, Reason.MODEL_NOT_FOUND),
    }
)
"""The valid errors of decode_request: client errors, and requests that the protocol cannot express."""

FACTOR, ALLOWANCE = 16, 64 * 2**10
"""Maximum bytes of memory for each received byte, and in addition for each message."""
TRACED = 11
"""Memory is traced for one in this many corrupt messages, because tracing takes five times as long as the rest. The
number does not divide the eight bits of a byte or the EXTREMES, so each of them is traced for some byte."""


@each_dialect
def test_a_corrupt_request_is_an_error_or_a_sound_value(dialect: Dialect) -> None:
    tried: Tried = set()
    for each in samples(dialect):
        check_requests(dialect, corrupt(each.question, tried))


@each_dialect
def test_a_corrupt_reply_is_an_error_or_a_sound_value(dialect: Dialect) -> None:
    tried: Tried = set()
    for request, reply in different_replies(dialect):
        check_replies(dialect, request, corrupt(reply, tried))


def different_replies(dialect: Dialect) -> Iterator[tuple[Request, Message]]:
    """Return the answers and errors, each with its request; equal replies to several requests occur once."""
    seen = set()
    for each in samples(dialect):
        for reply in (each.answer, each.error):
            if (key := (reply.status, bytes(reply.body))) not in seen:
                yield each.request, reply
            seen.add(key)


Tried = set[tuple[bytes, bytes]]
"""Names and values of headers."""


def corrupt(message: Message, tried: Tried) -> Iterator[Message]:
    """Yield copies of `message` with one corrupted part, or with one corrupted header value that no earlier message
    had."""
    parts = tuple(map(bytes, message.parts))
    for at, part in enumerate(parts):
        for other in corrupted(part):
            # The header of a byte stream's message has a fixed length. Further bytes would belong to the rest.
            if len(other) == len(part) or at == len(parts) - 1:
                yield replace(message, parts=(*parts[:at], other, *parts[at + 1 :]))
    for at, (name, text) in enumerate(message.headers.raw):
        if (name, text) in tried:
            continue
        tried.add((name, text))
        before, after = message.headers.raw[:at], message.headers.raw[at + 1 :]
        yield replace(message, headers=Headers([*before, *after]))
        for other in corrupted(text):
            yield replace(message, headers=Headers([*before, (name, other), *after]))


def check_requests(dialect: Dialect, messages: Iterator[Message], one_in: int = TRACED) -> None:
    def check(message: Message, size: int | None) -> None:
        request = attempt(partial(dialect.protocol.decode_request, message, LISTENER), size)
        if isinstance(request, GatewayError):
            assert request.reason in BLAMED
        elif request is not None:
            check_sound(request.inputs)
            attempt(partial(dialect.protocol.encode_request, request, dialect.target))
        if dialect.protocol.relay is not None:
            check_unread(dialect, dialect.protocol.relay, message, request)

    check_each(check, messages, one_in)


def check_unread(dialect: Dialect, relay: Relay, message: Message, read: Request | GatewayError | None) -> None:
    """Check that the facts about an undecoded message are the same as after decoding, if it can be decoded."""
    request = attempt(partial(unread, message, dialect.protocol, LISTENER))
    if not isinstance(request, Request):
        return
    if isinstance(read, Request) and not read.flaw:
        assert (request.operation, request.model, request.version) == (read.operation, read.model, read.version)
    sent = attempt(partial(relay.request, message, request, dialect.target))
    if isinstance(sent, Message) and not isinstance(dialect.protocol.binding, StreamBinding):
        assert sent.body == message.body  # on byte streams, the gateway writes its own header before the payload


def unread_of(dialect: Dialect, request: Request) -> Request | None:
    """Return a request that the gateway passes on undecoded, or None if it must decode the request."""
    asked = or_error(lambda: arrived(dialect.protocol.encode_request(request, dialect.target), dialect.protocol))
    return unread(asked, dialect.protocol, LISTENER) if isinstance(asked, Message) else None


def check_replies(dialect: Dialect, request: Request, messages: Iterator[Message], one_in: int = TRACED) -> None:
    passing = unread_of(dialect, request)

    def check(message: Message, size: int | None) -> None:
        answer = attempt(partial(dialect.protocol.decode_response, message, request, dialect.target), size)
        if isinstance(answer, Response):
            check_sound(answer.outputs)
        if dialect.protocol.relay is not None and passing is not None:
            passed = attempt(partial(dialect.protocol.relay.reply, message, passing, dialect.target))
            is_framed = isinstance(dialect.protocol.binding, StreamBinding)
            assert not isinstance(passed, Message) or is_framed or passed.body == message.body

    check_each(check, messages, one_in)


def check_each(check: Callable[[Message, int | None], None], messages: Iterator[Message], one_in: int) -> None:
    """Call `check` with each message. For some messages, also pass the size, so that their memory is traced."""
    for number, message in enumerate(messages):
        check(message, None if number % one_in else len(message.body))


def attempt(call: Callable[[], T], size: int | None = None) -> T | GatewayError | None:
    """Return the result of `call`, or its GatewayError, or None for a DecodeError. Other failures show the bytes in the
    traceback. With `size`, check that the memory is in proportion to a message of this size."""
    with nullcontext() if size is None else worth(size):
        try:
            return call()
        except GatewayError as error:
            return error
        except DecodeError:
            return None


@contextmanager
def worth(size: int) -> Iterator[None]:
    """Check that the block uses memory only in proportion to this number of received bytes."""
    with traced() as memory:
        yield
    assert memory.peak <= FACTOR * size + ALLOWANCE, f"{memory.peak} bytes of memory for {size} received"


def check_sound(tensors: tuple[Tensor, ...]) -> None:
    """Check that decoded tensors are valid, because later code does not check them again."""
    for each in tensors:
        assert len(each.shape) <= MAX_RANK
        assert min(each.shape, default=0) >= 0
        if each.datatype is Datatype.BYTES:
            assert bytes_elements.count(each.data) == each.elements
        else:
            assert len(each.data) == each.elements * each.datatype.size
        if each.datatype is Datatype.BOOL:
            assert set(bytes(each.data)) <= {0, 1}


# --- Large messages, complete and truncated ---

MANY = 8_000
"""Elements. An object for each of them takes more than FACTOR and ALLOWANCE allow."""


def large(dialect: Dialect, datatype: Datatype) -> tuple[Tensor, ...]:
    """Return tensors with the most elements for the fewest bytes."""
    array = np.zeros(MANY, datatype.dtype) if datatype is not Datatype.BYTES else np.array(["x"] * MANY, object)
    shape = (MANY,) if dialect.traits.wire.points else (MANY // 2, 2)
    return (tensor("x", array.reshape(shape), datatype),)


@each_datatype
def test_large_messages_cost_what_they_are_worth(dialect: Dialect, datatype: Datatype) -> None:
    tensors = large(dialect, datatype)
    request = Request(Operation.INFER, "m", inputs=tensors, translate=LITERAL)
    found = sample(dialect, request, tensors)
    check_requests(dialect, some_lengths(found.question), one_in=1)
    check_replies(dialect, request, some_lengths(found.answer), one_in=1)


def some_lengths(message: Message) -> Iterator[Message]:
    """Yield the complete message, and the message truncated at some lengths."""
    *before, whole = map(bytes, message.parts)
    for length in (len(whole), len(whole) - 1, len(whole) // 2, len(whole) // 3):
        yield replace(message, parts=(*before, whole[:length]))
