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
from gateway.core.forwarding import forwarding
from gateway.core.frozen import replace
from gateway.core.offload import has_large_inputs, has_large_outputs, in_thread, is_large
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.transport import Connector, Destination, Handler, Select
from gateway.core.types import Answer, Message, ReplyMessage, Request

log = logging.getLogger(__name__)

LONGEST_TEXT = 8192
"""Characters of a backend's error that a client gets."""


def answer(
    message: Message, protocol: Protocol, listener: ListenerSettings, select: Select
) -> Message | Awaitable[Message]:
    """A client's message to its reply; an awaitable of it where a Handler must be waited for.

    A DecodeError is the client's fault. Whatever is not a GatewayError is logged once and answered INTERNAL.
    """
    if is_large(message):
        return _answer_large(message, protocol, listener, select)
    request: Request | None = None
    try:
        request = protocol.decode_request(message, listener)
        destination = select(request)
        if destination.local is not None:
            return protocol.encode_response(destination.local(request), request, destination.translate)
    except Exception as error:
        return _error_reply(error, protocol, request, message)
    return _wait_for(destination, request, protocol, message)


async def _answer_large(message: Message, protocol: Protocol, listener: ListenerSettings, select: Select) -> Message:
    request: Request | None = None
    try:
        request = await in_thread(protocol.decode_request, message, listener)
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
        return await encoded(response, request, protocol, destination)
    except Exception as error:
        return _error_reply(error, protocol, request, message)


async def encoded(response: Answer, request: Request, protocol: Protocol, destination: Destination) -> Message:
    """The reply to `request`. Raises GatewayError as the protocol's `encode_response`."""
    if has_large_outputs(response):
        return await in_thread(protocol.encode_response, response, request, destination.translate)
    return protocol.encode_response(response, request, destination.translate)


async def _in_time(handler: Handler, request: Request) -> Answer:
    if request.deadline is None:
        return await handler(request)
    try:
        async with asyncio.timeout_at(request.deadline) as timer:
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
    message = await prepared(request, protocol, target)
    if request.deadline is not None and message.deadline is None:
        # Also where the wire has no word for it: the transport needs it to leave time for another endpoint.
        message = replace(message, deadline=request.deadline)
    try:
        reply = await connector.exchange(message)
    except TransportError as error:
        raise named(error, target) from error
    try:
        if is_large(reply):
            return await in_thread(protocol.decode_response, reply, request, target)
        return protocol.decode_response(reply, request, target)
    except DecodeError as error:
        if isinstance(error, WrongReplyError) and isinstance(reply, ReplyMessage) and reply.close is not None:
            reply.close()
        raise invalid_output(f"backend {target.backend!r} at {target.address}: {error}") from error
    except GatewayError as error:
        sanitize(error, target)
        raise


async def prepared(request: Request, protocol: Protocol, target: Target) -> Message:
    """The message that asks `target`, with the client's headers that it is to have."""
    if has_large_inputs(request):
        message = await in_thread(protocol.encode_request, request, target)
    else:
        message = protocol.encode_request(request, target)
    return forwarding(request, message, target, has_headers=protocol.framing is None)


def named(error: TransportError, target: Target) -> TransportError:
    """The error with the backend's name and address in its text."""
    text = f"backend {target.backend!r} at {target.address}: {error.message}"
    return TransportError(error.status, error.reason, text, sent=error.sent)


def sanitize(error: GatewayError, target: Target) -> None:
    """Remove tracebacks from the text of a backend's error and bound its length; the log gets the whole in one line."""
    text = without_traceback(error.message)
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    if text != error.message:
        log.warning("backend %r at %s: %r", target.backend, target.address, error.message)
        error.message = text or "the backend told nothing but a traceback"
        error.args = (error.message,)
