"""The two functions that join the halves: `answer` faces clients, `ask` faces backends."""

import asyncio
import logging
from collections.abc import Awaitable

from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    TransportError,
    WrongReplyError,
    drop_tracebacks,
    invalid_output,
    refusal,
    without_traceback,
)
from gateway.core.forwarding import with_forwarded_headers
from gateway.core.frozen import replace, set_field
from gateway.core.offload import has_large_inputs, has_large_outputs, in_thread, is_large
from gateway.core.protocol import ListenerSettings, Protocol, StreamForm, Target
from gateway.core.transport import Connector, Destination, EventualReply, Handler, Select
from gateway.core.types import Answer, Message, ReplyMessage, Request

log = logging.getLogger(__name__)

LONGEST_TEXT = 8192
"""Characters of a backend's error that a client gets."""


def answer(message: Message, protocol: Protocol, listener: ListenerSettings, select: Select) -> EventualReply:
    """A client's message to its reply; an awaitable of it where a Handler must be waited for.

    A DecodeError is the client's fault. Whatever is not a GatewayError is logged once and answered INTERNAL.
    """
    if is_large(message, protocol):
        return _answer_large(message, protocol, listener, select)
    request: Request | None = None
    try:
        request = decoded(message, protocol, listener)
        destination = select(request)
        if destination.local is not None:
            return protocol.encode_response(destination.local(request), request, destination.translate)
    except Exception as error:
        return _error_reply(error, protocol, request, message)
    return _wait_for(destination, request, protocol, message)


async def _answer_large(message: Message, protocol: Protocol, listener: ListenerSettings, select: Select) -> Message:
    request: Request | None = None
    try:
        request = await in_thread(decoded, message, protocol, listener)
        destination = select(request)
        if destination.local is not None:
            return protocol.encode_response(destination.local(request), request, destination.translate)
    except Exception as error:
        return _error_reply(error, protocol, request, message)
    return await _wait_for(destination, request, protocol, message)


async def _wait_for(destination: Destination, request: Request, protocol: Protocol, message: Message) -> Message:
    assert destination.handler is not None
    try:
        response = await _in_time(destination.handler, request)
        if has_large_outputs(response):
            return await in_thread(protocol.encode_response, response, request, destination.translate)
        return protocol.encode_response(response, request, destination.translate)
    except Exception as error:
        return _error_reply(error, protocol, request, message)


def decoded(message: Message, protocol: Protocol, listener: ListenerSettings) -> Request:
    """The Request of a client's message: what the codec read in it, and how it came.

    Raises:
        DecodeError, GatewayError: as the protocol's `decode_request`.
    """
    request = protocol.decode_request(message, listener)
    # One after the other: `replace` would make a second Request, which takes three times as long.
    set_field(request, "listener", listener.name)
    set_field(request, "protocol", protocol.name)
    set_field(request, "path", message.path)
    set_field(request, "headers", message.headers)
    set_field(request, "peer", message.peer)
    if message.deadline is not None and (request.deadline is None or message.deadline < request.deadline):
        set_field(request, "deadline", message.deadline)
    return request


def _in_time(handler: Handler, request: Request) -> Awaitable[Answer]:
    return handler(request) if request.deadline is None else _until(request.deadline, handler, request)


async def _until(deadline: float, handler: Handler, request: Request) -> Answer:
    try:
        async with asyncio.timeout_at(deadline) as timer:
            return await handler(request)
    except TimeoutError as error:
        if not timer.expired():
            raise
        raise deadline_passed() from error


def deadline_passed() -> GatewayError:
    """The error of a request whose answer did not come in the time that the client gave it."""
    return refusal(Reason.TIMEOUT, "the deadline that the client set has passed")


def _error_reply(error: Exception, protocol: Protocol, request: Request | None, message: Message) -> Message:
    return protocol.encode_error(as_gateway_error(error), request, message)


def as_gateway_error(error: Exception) -> GatewayError:
    """The error that the client is told in place of `error`, which nobody raises again: its traceback is dropped."""
    if isinstance(error, GatewayError):
        told = error
    elif isinstance(error, DecodeError):
        told = refusal(Reason.INVALID_INPUT, str(error))
    else:
        log.error("unexpected error", exc_info=error)
        told = refusal(Reason.INTERNAL, "the gateway failed on this request; its log says why")
    drop_tracebacks(error)
    return told


async def ask(request: Request, protocol: Protocol, connector: Connector, target: Target) -> Answer:
    """A backend's answer to `request`.

    Raises:
        GatewayError: the error that the backend told; UNAVAILABLE or INTERNAL, naming the backend, where it could not
            be reached, broke off, or replied with something that is not its protocol.
    """
    if has_large_inputs(request):
        message = await in_thread(protocol.encode_request, request, target)
    else:
        message = protocol.encode_request(request, target)
    message = with_forwarded_headers(request, message, target, has_headers=not isinstance(protocol.carrier, StreamForm))
    if request.deadline is not None and message.deadline is None:
        # Also where the wire has no word for it: the transport needs it to leave time for another endpoint.
        message = replace(message, deadline=request.deadline)
    try:
        reply = await connector.exchange(message)
    except TransportError as error:
        raise with_backend(error, target) from error
    if reply.status in protocol.traits.servers.unannounced_ends:
        _close(reply)
    try:
        if is_large(reply, protocol):
            return await in_thread(protocol.decode_response, reply, request, target)
        return protocol.decode_response(reply, request, target)
    except DecodeError as error:
        if isinstance(error, WrongReplyError):
            _close(reply)
        raise invalid_output(f"backend {target.backend!r} at {target.address}: {error}") from error
    except GatewayError as error:
        sanitize_error(error, target)
        raise


def _close(reply: Message) -> None:
    """Use the connection of this reply no further."""
    if isinstance(reply, ReplyMessage) and reply.close is not None:
        reply.close()


def with_backend(error: TransportError, target: Target) -> TransportError:
    """The error with the backend's name and address in its text."""
    text = f"backend {target.backend!r} at {target.address}: {error.message}"
    return TransportError(error.status, error.reason, text, sent=error.sent)


def sanitize_error(error: GatewayError, target: Target) -> None:
    """Remove tracebacks from the text of a backend's error and bound its length; the log gets the whole in one line."""
    text = without_traceback(error.message)
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    if text != error.message:
        log.warning("backend %r at %s: %r", target.backend, target.address, error.message)
        error.message = text or "the backend told nothing but a traceback"
        error.args = (error.message,)
