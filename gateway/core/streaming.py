"""The exchange of streams. `answer_stream` yields the replies to a client's messages one by one, and `ask_stream`
yields a backend's responses.

Consumers pull all messages. The transport pulls a message, writes it, waits until the peer has read it, and then pulls
the next message. As a result, a slow client slows the backend down. A generator closes when its consumer stops, so the
backend's stream ends when the client disconnects.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from time import perf_counter

from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    TransportError,
    invalid_output,
    refusal,
    unsupported,
)
from gateway.core.exchange import (
    MustBeReadError,
    deadline_passed,
    decoded,
    encoded,
    for_server,
    name_sender,
    passed,
    relayed,
    reported,
    routed,
    sanitize_error,
    unread,
    with_backend,
    written,
)
from gateway.core.forwarding import add_forwarded_headers
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import Message, bytes_of
from gateway.core.offload import are_large, in_thread, is_large, worked
from gateway.core.protocol import GrpcBinding, HttpBinding, ListenerSettings, Protocol, StreamBinding, Target
from gateway.core.queue_wait import queue_wait, with_wait
from gateway.core.record import GIVEN_UP, OK, UNREAD, UNRECORDED, Record
from gateway.core.requests import Answer, Request, Response
from gateway.core.spans import Repeated
from gateway.core.transport import Connector, Destination, Select, StreamHandler
from gateway.core.web_replies import web_error

SECONDS_TO_END = 1.0
"""Number of seconds that the gateway waits for a backend's stream to end after an error, before it cancels the
stream."""


async def answer_stream(
    messages: AsyncIterator[Message], protocol: Protocol, listener: ListenerSettings, select: Select
) -> AsyncGenerator[Message, None]:
    """Yield the replies to a client's messages. The generator handles requests sequentially, and an error ends only its
    own request."""
    async for message in messages:
        async with aclosing(answer_message(message, protocol, listener, select)) as replies:
            async for reply in replies:
                yield reply


def answer_message(
    message: Message, protocol: Protocol, listener: ListenerSettings, select: Select
) -> AsyncGenerator[Message, None]:
    """Yield the replies to one message of a client's stream.

    The generator raises no exceptions: every error becomes a reply. The message's record ends after the last reply."""
    replies = _answer_message(message, protocol, listener, select)
    return replies if message.record is UNRECORDED else _recorded(replies, message.record, protocol)


async def _recorded(
    replies: AsyncGenerator[Message, None], record: Record, protocol: Protocol
) -> AsyncGenerator[Message, None]:
    code = size = 0
    given_up = True
    try:
        async with aclosing(replies):
            async for reply in replies:
                code = max(code, reply.status)
                size += bytes_of(reply)
                yield reply
        given_up = False
    finally:
        if code >= 400 and record.status == OK:  # a backend's error, relayed without decoding
            record.failed(refusal(REASONS_BY_NUMBER.get(code, Reason.MODEL_ERROR), ""))
        if given_up and record.status == OK:
            record.give_up(GIVEN_UP[protocol.transport], size)
        else:
            record.end(code, size)


async def _answer_message(
    message: Message, protocol: Protocol, listener: ListenerSettings, select: Select
) -> AsyncGenerator[Message, None]:
    request: Request | None = None
    try:
        request, destination = await _routed(message, protocol, listener, select)
        if destination.stream is None:
            raise unsupported(f"{request.operation.value} is not supported here")
        encode = _encoder(request, protocol, destination)
        deadline = _own_deadline(request, message, protocol)
        async with aclosing(_in_time(destination.stream, request, deadline)) as responses:
            async for response in responses:
                if request.unread is not None:
                    reply = passed(response)
                elif are_large(response.outputs):
                    reply = await in_thread(encode, response)
                else:
                    reply = encode(response)
                yield _with_wait(reply, protocol)
        end = protocol.encode_end(request) if protocol.encode_end else None
        if end is not None:
            yield end
    except Exception as error:
        yield _with_wait(protocol.encode_error(reported(error, message), request, message), protocol)


async def _routed(
    message: Message, protocol: Protocol, listener: ListenerSettings, select: Select
) -> tuple[Request, Destination]:
    """Return the Request in a client's message, and its Destination.

    If the message can be relayed without decoding, the Request is unread."""
    if protocol.name in listener.relays and (head := unread(message, protocol, listener)) is not None:
        destination = select(head)
        if destination.relay is protocol.relay:
            message.record.routed(destination.route, destination.backend, UNREAD)
            return head, destination
    request = await worked(decoded, message, protocol, listener, large=is_large(message, protocol))
    return request, routed(request, select)


def _encoder(request: Request, protocol: Protocol, destination: Destination) -> Callable[[Response], Message]:
    """Return the encoder for a stream's responses, which share one span in a trace."""
    record = request.record
    if record.events is None:
        return partial(encoded, request=request, protocol=protocol, destination=destination)
    encoding = Repeated(record, "encode")

    def encode(response: Response) -> Message:
        began = perf_counter()
        with encoding:
            reply = protocol.encode_response(response, request, destination.translate)
        record.encode += perf_counter() - began
        return reply

    return encode


def _with_wait(reply: Message, protocol: Protocol) -> Message:
    """Return `reply`. Over HTTP, add the queue headers to the first reply after a wait. gRPC replies stay unchanged,
    because a gRPC stream has only one set of metadata for all requests."""
    wait = queue_wait.get()
    if wait is None:
        return reply
    told = with_wait(reply, wait)
    return told if isinstance(protocol.binding, HttpBinding) else reply


def _own_deadline(request: Request, message: Message, protocol: Protocol) -> float | None:
    """Return the deadline that this module must enforce. The result is None for a gRPC call's deadline, at which the
    gRPC transport itself ends the call with a status."""
    is_deadline_of_call = isinstance(protocol.binding, GrpcBinding) and request.deadline == message.deadline
    return None if is_deadline_of_call else request.deadline


def _in_time(stream: StreamHandler, request: Request, deadline: float | None) -> AsyncGenerator[Response, None]:
    responses = stream(request)
    return responses if deadline is None else _until(deadline, responses)


async def _until(deadline: float, responses: AsyncGenerator[Response, None]) -> AsyncGenerator[Response, None]:
    """Yield the responses until the deadline.

    The timer runs while the generator waits for a response, but not during `yield`, where it would cancel the consumer.

    Raises:
        GatewayError: DEADLINE_EXCEEDED if the deadline passes.
    """
    now = asyncio.get_running_loop().time
    async with aclosing(responses):
        while now() < deadline:
            try:
                async with asyncio.timeout_at(deadline) as timer:
                    response = await anext(responses)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                if not timer.expired():
                    raise
                raise deadline_passed() from error
            yield response
        raise deadline_passed()


async def ask_stream(
    request: Request, protocol: Protocol, connector: Connector, target: Target
) -> AsyncGenerator[Response, None]:
    """Yield a backend's responses to one request, which has its own stream to the backend.

    Raises:
        GatewayError: same as `exchange.ask`, even after some responses.
        MustBeReadError: the server does not accept the unread message, and its responses can lack datatypes. The caller
            must decode the request and complete the responses.
    """
    read, message = request, None
    if request.unread is not None:
        assert protocol.relay is not None
        message = protocol.relay.request(request.unread.message, request, target)
        if message is None:
            if not isinstance(protocol.binding, StreamBinding):  # such as Triton's `generate_stream`
                raise MustBeReadError
            read = await for_server(request, protocol)
    if message is None:
        message = await worked(protocol.encode_request, read, target, large=are_large(read.inputs))
    if not isinstance(protocol.binding, StreamBinding):
        add_forwarded_headers(request, message, target)
    try:
        async with aclosing(connector.stream(message)) as replies:
            async for reply in replies:
                try:
                    if read.unread is not None:
                        answer: Answer = await relayed(reply, read, protocol, target)
                    else:
                        large = is_large(reply, protocol)
                        answer = await worked(protocol.decode_response, reply, read, target, large=large)
                        if request.unread is not None:
                            answer = await written(answer, read, request)
                except GatewayError as error:
                    name_sender(error, reply, message, target)
                    await _wait_for_end(replies)
                    raise
                except DecodeError as error:
                    raise DecodeError(web_error(reply, message.path) or str(error)) from error
                assert isinstance(answer, Response)
                yield answer
    except TransportError as error:
        raise with_backend(error, target) from error
    except DecodeError as error:
        raise invalid_output(f"backend {target.backend!r} at {target.address}: {error}") from error
    except GatewayError as error:
        sanitize_error(error, target)
        raise


async def _wait_for_end(replies: AsyncGenerator[Message, None]) -> None:
    """Wait for a stream to end by itself after an error.

    Nearly all streams end immediately. Waiting is necessary because Triton 2.51 crashes if it receives a cancellation
    while it ends the stream."""
    try:
        async with asyncio.timeout(SECONDS_TO_END):
            async for _ in replies:
                pass
    except (TimeoutError, GatewayError):
        return
