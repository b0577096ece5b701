"""Bytes that are not what the protocol says: an error of ours or a sound value, and never more memory than they are
worth. For every protocol that is installed, in both directions."""

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
from gateway.core.operations import Operation
from gateway.core.protocol import Relay, StreamBinding
from gateway.core.types import (
    MAX_RANK,
    Headers,
    Message,
    Request,
    Response,
    Tensor,
    tensor,
)
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
        Reason.INVALID_INPUT,
        Reason.TOO_LARGE,
        Reason.UNSUPPORTED,
        Reason.UNSUPPORTED_ENCODING,
        Reason.UNSUPPORTED_MEDIA_TYPE,
        Reason.MODEL_NOT_FOUND,
    }
)
"""What a GatewayError of decode_request may be: the client's fault, or something that the protocol has no words for."""

FACTOR, ALLOWANCE = 16, 64 * 2**10
"""Bytes of memory for each byte received, and for any message at all."""
TRACED = 11
"""The memory of one corrupt message in so many is traced, which takes five times as long as all else. The eight bits of
a byte and the EXTREMES are no multiple of it, so that over a few bytes each has its turn."""


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
    """Answers and errors with a question to each, but once where several questions have the same."""
    seen = set()
    for each in samples(dialect):
        for reply in (each.answer, each.error):
            if (key := (reply.status, bytes(reply.body))) not in seen:
                yield each.request, reply
            seen.add(key)


Tried = set[tuple[bytes, bytes]]
"""Names and values of headers."""


def corrupt(message: Message, tried: Tried) -> Iterator[Message]:
    """`message` with something else for one of its parts, or for the value of one of its headers that no message before
    it had."""
    parts = tuple(map(bytes, message.parts))
    for at, part in enumerate(parts):
        for other in corrupted(part):
            # The header of a byte stream's message has one length: less is none yet, more is the rest.
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
    """What is found in a message that passes unread is what reading it finds, if it can be read."""
    request = attempt(partial(unread, message, dialect.protocol, LISTENER))
    if not isinstance(request, Request):
        return
    if isinstance(read, Request) and not read.flaw:
        assert (request.operation, request.model, request.version) == (read.operation, read.model, read.version)
    sent = attempt(partial(relay.request, message, request, dialect.target))
    if isinstance(sent, Message) and not isinstance(dialect.protocol.binding, StreamBinding):
        assert sent.body == message.body  # on byte streams a header of the gateway's own is before the payload


def unread_of(dialect: Dialect, request: Request) -> Request | None:
    """A request as it passes unread; None if what says it does not."""
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
    """Call `check` with each message, and with the size of one in so many, whose memory is traced."""
    for number, message in enumerate(messages):
        check(message, None if number % one_in else len(message.body))


def attempt(call: Callable[[], T], size: int | None = None) -> T | GatewayError | None:
    """What `call` returns, or the GatewayError that it raises; None for a DecodeError. Bytes of another kind of failure
    are in its traceback. With a `size` it took no more memory than that many bytes are worth."""
    with nullcontext() if size is None else worth(size):
        try:
            return call()
        except GatewayError as error:
            return error
        except DecodeError:
            return None


@contextmanager
def worth(size: int) -> Iterator[None]:
    """Within, no more memory is taken than so many bytes received are worth."""
    with traced() as memory:
        yield
    assert memory.peak <= FACTOR * size + ALLOWANCE, f"{memory.peak} bytes of memory for {size} received"


def check_sound(tensors: tuple[Tensor, ...]) -> None:
    """Whoever makes a Tensor has checked it: nobody behind looks again."""
    for each in tensors:
        assert len(each.shape) <= MAX_RANK
        assert min(each.shape, default=0) >= 0
        if each.datatype is Datatype.BYTES:
            assert bytes_elements.count(each.data) == each.elements
        else:
            assert len(each.data) == each.elements * each.datatype.size
        if each.datatype is Datatype.BOOL:
            assert set(bytes(each.data)) <= {0, 1}


# --- Large messages, sound and cut ---

MANY = 20_000


def large(dialect: Dialect, datatype: Datatype) -> tuple[Tensor, ...]:
    """The least bytes for the most elements."""
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
    """Whole, and cut here and there."""
    *before, whole = map(bytes, message.parts)
    for length in (len(whole), len(whole) - 1, len(whole) // 2, len(whole) // 3):
        yield replace(message, parts=(*before, whole[:length]))
