"""The exchange of one request and its response. The transports call `answer`, which returns the reply to a client's
message. `ask` sends a request to a backend.

    client bytes ── decode_request ──▶ Request ── select ──▶ Destination            (answer)
    client bytes ◀── encode_response ── Answer ◀── Handler ── ask ──▶ backend

Both functions decode and encode large messages in a thread (`offload`), and small messages in the event loop.
"""

import logging
from functools import partial
from time import monotonic

from gateway.core.deadlines import wait_until
from gateway.core.errors import (
    RETRY_HEADER,
    DecodeError,
    GatewayError,
    Reason,
    TransportError,
    WrittenError,
    WrongReplyError,
    drop_tracebacks,
    error_fields,
    invalid_output,
    refusal,
    retry_after,
    without_traceback,
)
from gateway.core.forwarding import add_forwarded_headers
from gateway.core.frozen import replace_struct, set_field
from gateway.core.messages import Headers, Message, ReplyMessage
from gateway.core.offload import LARGE, are_large, in_thread, is_large, worked
from gateway.core.operations import WORDS
from gateway.core.protocol import HttpBinding, ListenerSettings, Protocol, StreamBinding, Target
from gateway.core.queue_wait import out_of_time, queue_wait, tell_wait, with_wait
from gateway.core.record import UNREAD, UNRECORDED, Record
from gateway.core.requests import NOT_READ, Answer, Request, Response, Unread, unread_response
from gateway.core.spans import note
from gateway.core.transport import Connector, Destination, EventualReply, Select
from gateway.core.web_replies import is_called_html, page_text, web_error

log = logging.getLogger(__name__)

OWN_CONTENT = "its own content"
"""The reason for decoding a message that its route could relay unread: the gateway must process part of its content."""
OF_SERVER = "the server's flavor"
"""The reason for decoding an unread message after routing: the selected server cannot accept the message unchanged."""


class MustBeReadError(Exception):
    """An unread request must be decoded before the gateway sends any part of it to its backend."""


LONGEST_TEXT = 8192
"""Maximum number of characters of a backend's error message that the gateway sends to the client."""


def answer(message: Message, protocol: Protocol, listener: ListenerSettings, select: Select) -> EventualReply:
    """Return the reply to a client's message, or an awaitable of the reply if the gateway must wait for a Handler.

    This function raises no exceptions: every error becomes a reply. A DecodeError becomes INVALID_ARGUMENT. An
    unexpected exception is logged and becomes INTERNAL."""
    request: Request | None = None
    try:
        if protocol.name in listener.relays and (request := unread(message, protocol, listener)) is not None:
            destination = select(request)
            if destination.relay is protocol.relay:
                if (record := message.record) is not UNRECORDED:
                    record.routed(destination.route, destination.backend, UNREAD)
                return _wait_for(destination, request, protocol, message)
            request = None
        parts = message.parts
        if (len(parts) != 1 or len(parts[0]) > LARGE) and is_large(message, protocol):
            return _answer_large(message, protocol, listener, select)
        request = decoded(message, protocol, listener)
        destination = select(request)
        if (record := message.record) is not UNRECORDED:
            record.routed(destination.route, destination.backend, destination.reads or OWN_CONTENT)
        if destination.local is not None:
            return encoded(destination.local(request), request, protocol, destination)
    except Exception as error:
        return _error_reply(error, protocol, request, message)
    return _wait_for(destination, request, protocol, message)


async def _answer_large(message: Message, protocol: Protocol, listener: ListenerSettings, select: Select) -> Message:
    request: Request | None = None
    try:
        request = await in_thread(decoded, message, protocol, listener)
        destination = routed(request, select)
        if destination.local is not None:
            return encoded(destination.local(request), request, protocol, destination)
    except Exception as error:
        return _error_reply(error, protocol, request, message)
    return await _wait_for(destination, request, protocol, message)


async def _wait_for(destination: Destination, request: Request, protocol: Protocol, message: Message) -> Message:
    assert destination.handler is not None
    try:
        answering = destination.handler(request)
        if request.deadline is not None:
            answering = wait_until(request.deadline, answering, deadline_passed)
        response = await answering
        if request.unread is not None:
            reply = passed(response)
        else:
            outputs = response.outputs if isinstance(response, Response) else ()
            if (len(outputs) != 1 or len(outputs[0].data) > LARGE) and are_large(outputs):
                reply = await in_thread(encoded, response, request, protocol, destination)
            elif request.record.is_timed:
                reply = encoded(response, request, protocol, destination)
            else:
                reply = protocol.encode_response(response, request, destination.translate)
    except Exception as error:
        tell_wait(error)
        reply = _error_reply(error, protocol, request, message)
    wait = queue_wait.get()
    return reply if wait is None or isinstance(protocol.binding, StreamBinding) else with_wait(reply, wait)


def unread(message: Message, protocol: Protocol, listener: ListenerSettings) -> Request | None:
    """Return the Request in a client's message without decoding its content. The Request has all fields that `decoded`
    sets. The result is None if the message must be decoded on every route.

    Raises:
        DecodeError, GatewayError: same as the protocol's `decode_request`.
    """
    head = protocol.relay.head(message, listener) if protocol.relay is not None else None
    if head is None:
        return None
    record = message.record
    if record is not UNRECORDED:
        record.decoded(WORDS[head.operation], head.model, message.principal)
    deadline = message.deadline if head.deadline is None else _earlier(head.deadline, message.deadline)
    read = partial(decoded, message, protocol, listener)
    return Request(
        head.operation,
        head.model,
        head.version,
        inputs=NOT_READ,
        outputs=NOT_READ,
        parameters=NOT_READ,
        deadline=deadline,
        origin=head.origin,
        schemaless=head.schemaless,
        listener=listener.name,
        protocol=protocol.name,
        path=message.path,
        headers=message.headers,
        peer=message.peer,
        record=record,
        principal=message.principal,
        unread=Unread(message, head.found, read, protocol.encode_response),
    )


def passed(response: Answer) -> Message:
    """Return the backend's reply, which is the message in the response to an `unread` request."""
    assert isinstance(response, Response)
    assert response.unread is not None
    return response.unread


def decoded(message: Message, protocol: Protocol, listener: ListenerSettings) -> Request:
    """Return the Request in a client's message, including the fields about its origin (`listener` to `peer`,
    `principal`, `record` and `deadline`).

    Raises:
        DecodeError, GatewayError: same as the protocol's `decode_request`.
    """
    record = message.record
    if record.is_timed:
        request = _decoded_timed(message, protocol, listener, record)
    else:
        request = protocol.decode_request(message, listener)
    if record is not UNRECORDED:
        record.decoded(WORDS[request.operation], request.model, message.principal)
    deadline = message.deadline if request.deadline is None else _earlier(request.deadline, message.deadline)
    return replace_struct(
        request, deadline=deadline, listener=listener.name, protocol=protocol.name, path=message.path,
        headers=message.headers, peer=message.peer, principal=message.principal, record=record,
    )  # fmt: skip


def _earlier(of_body: float, of_transport: float | None) -> float:
    """Return the earlier of the body's and the transport's deadline."""
    return of_body if of_transport is None else min(of_body, of_transport)


def _decoded_timed(message: Message, protocol: Protocol, listener: ListenerSettings, record: Record) -> Request:
    began = monotonic()
    request = protocol.decode_request(message, listener)
    record.decode = seconds = monotonic() - began
    if record.events is not None:
        note(record, "decode", seconds)
    return request


def routed(request: Request, select: Select) -> Destination:
    """Return the Destination of `request`. Raises GatewayError if no route matches."""
    destination = select(request)
    request.record.routed(destination.route, destination.backend, destination.reads or OWN_CONTENT)
    return destination


def encoded(answer: Answer, request: Request, protocol: Protocol, destination: Destination) -> Message:
    """Return `answer` encoded as a message to the client. Raises GatewayError if the protocol cannot represent the
    answer."""
    record = request.record
    if not record.is_timed:
        return protocol.encode_response(answer, request, destination.translate)
    began = monotonic()
    reply = protocol.encode_response(answer, request, destination.translate)
    seconds = monotonic() - began
    record.encode += seconds
    if record.events is not None:
        note(record, "encode", seconds)
    return reply


def deadline_passed() -> GatewayError:
    """Return the error for a request whose deadline passes before the response is ready.

    Call this in the task that handles the request."""
    return out_of_time("the deadline that the client set has passed")


def _error_reply(error: Exception, protocol: Protocol, request: Request | None, message: Message) -> Message:
    known = reported(error, message)
    written = known.written
    if written is None or written.message != known.message or not protocol.errors_pass:
        return protocol.encode_error(known, request, message)
    headers = Headers(((b"content-type", written.media_type), *error_fields(known)))
    return Message(headers=headers, parts=(written.body,), status=written.status)


def refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    """Return the reply to `message` that reports `error`, which the listener has detected."""
    return protocol.encode_error(reported(error, message), None, message)


def reported(error: Exception, message: Message) -> GatewayError:
    """Add the error to the record of `message`, and return the result of `as_gateway_error`."""
    known = as_gateway_error(error, message.record)
    message.record.failed(known, message.principal)
    return known


def as_gateway_error(error: Exception, record: Record = UNRECORDED) -> GatewayError:
    """Return the GatewayError to report to a client for `error`.

    Do not raise `error` again, because the function drops its traceback. An unexpected error is logged with the request
    id in `record`, and the client's error contains the same id."""
    if isinstance(error, GatewayError):
        reported = error
    elif isinstance(error, DecodeError):
        reported = refusal(Reason.INVALID_INPUT, str(error))
    else:
        text = "the gateway failed on this request; its log says why"
        if record.id:
            log.error("unexpected error in request %s", record.id, exc_info=error, extra={"id": record.id})
            text = f"{text}, request id {record.id}"
        else:
            log.error("unexpected error", exc_info=error)
        reported = refusal(Reason.INTERNAL, text)
    drop_tracebacks(error)
    return reported


async def ask(request: Request, protocol: Protocol, connector: Connector, target: Target) -> Answer:
    """Return a backend's response to `request`.

    Raises:
        GatewayError: the error in the backend's reply; UNAVAILABLE with the backend's name if the backend is
            unreachable or the connection broke; INTERNAL with the backend's name if the reply is malformed.
    """
    message = None
    if request.unread is not None:
        assert protocol.relay is not None
        message = protocol.relay.request(request.unread.message, request, target)
        if message is None:
            read = await for_server(request, protocol)
            asked = replace_struct(read, operation=request.operation)
            return await written(await ask(asked, protocol, connector, target), read, request)
    if message is None:
        inputs = request.inputs
        if (len(inputs) != 1 or len(inputs[0].data) > LARGE) and are_large(inputs):
            message = await in_thread(protocol.encode_request, request, target)
        else:
            message = protocol.encode_request(request, target)
    if not isinstance(protocol.binding, StreamBinding):
        add_forwarded_headers(request, message, target)
    if request.deadline is not None and message.deadline is None:
        # The transport needs the deadline even if the protocol cannot send it, because the transport must leave time
        # for an attempt at another endpoint.
        set_field(message, "deadline", request.deadline)
    try:
        reply = await connector.exchange(message)
    except TransportError as error:
        raise with_backend(error, target) from error
    if reply.status in protocol.traits.servers.unannounced_ends:
        _close(reply)
    try:
        if request.unread is not None:
            return await relayed(reply, request, protocol, target)
        parts = reply.parts
        if (len(parts) != 1 or len(parts[0]) > LARGE) and is_large(reply, protocol):
            return await in_thread(protocol.decode_response, reply, request, target)
        return protocol.decode_response(reply, request, target)
    except DecodeError as error:
        if isinstance(error, WrongReplyError):
            _close(reply)
        text = f"backend {target.backend!r} at {target.address}: {web_error(reply, message.path) or error}"
        if reply.status < 300 and is_called_html(reply):
            text += f"; the reply is {page_text(reply)}: is this the address of the model server?"
        raise invalid_output(text) from error
    except GatewayError as error:
        sanitize_error(error, target)
        name_sender(error, reply, message, target)
        if error.retry_after is None:
            error.retry_after = retry_after(reply.headers.get(RETRY_HEADER))
        if request.unread is not None and isinstance(protocol.binding, HttpBinding):
            error.written = _as_written(reply, error)
        raise


def _as_written(reply: Message, error: GatewayError) -> WrittenError | None:
    """Return the backend's `error` as written in `reply`; None if the reply is not JSON, is longer than LONGEST_TEXT,
    or contains a traceback."""
    media_type, body = reply.headers.get("content-type"), reply.body
    if reply.status < 400 or not media_type.startswith("application/json") or len(body) > LONGEST_TEXT:
        return None
    text = bytes(body).decode("utf-8", "replace")
    if without_traceback(text) != text:
        return None
    return WrittenError(reply.status, media_type.encode("latin-1"), body, error.message)


async def relayed(reply: Message, request: Request, protocol: Protocol, target: Target) -> Response:
    """Return a Response that contains a backend's unchanged `reply` to an unread `request`.

    If the reply cannot be relayed unchanged, the function decodes both the reply and the request.

    Raises:
        DecodeError, GatewayError: same as the protocol's `decode_response`.
    """
    assert protocol.relay is not None
    passing = protocol.relay.reply(reply, request, target)
    if passing is not None:
        return unread_response(passing)
    read = await after_all(request, protocol)
    answer = await worked(protocol.decode_response, reply, read, target, large=is_large(reply, protocol))
    return await written(answer, read, request)


async def after_all(request: Request, protocol: Protocol) -> Request:
    """Return the unread `request` with its content decoded, for a server that cannot accept its message unchanged.

    Raises:
        GatewayError: INVALID_ARGUMENT if the message is malformed; otherwise, same as `decode_request`.
    """
    assert request.unread is not None
    request.record.read(OF_SERVER)
    try:
        read = await worked(request.unread.read, large=is_large(request.unread.message, protocol))
    except DecodeError as error:
        raise refusal(Reason.INVALID_INPUT, str(error)) from error
    return replace_struct(
        read, deadline=request.deadline, time_limit=request.time_limit, tries=request.tries, span=request.span
    )


async def for_server(request: Request, protocol: Protocol) -> Request:
    """Same as `after_all`, but only if the content can be encoded for the server without the model's signature.

    Raises:
        MustBeReadError: encoding needs the model's signature.
    """
    read = await after_all(request, protocol)
    if read.schemaless:
        raise MustBeReadError
    return read


async def written(answer: Answer, read: Request, request: Request) -> Response:
    """Return a Response that contains the encoded `answer` for the client. `read` is the decoded version of the unread
    `request`."""
    assert request.unread is not None
    large = isinstance(answer, Response) and are_large(answer.outputs)
    reply = await worked(request.unread.write, answer, read, read.translate, large=large)
    return unread_response(reply)


def _close(reply: Message) -> None:
    """Close the connection on which `reply` arrived."""
    if isinstance(reply, ReplyMessage) and reply.close is not None:
        reply.close()


def with_backend(error: TransportError, target: Target) -> TransportError:
    """Return `error` with the backend's name and address prepended to its message."""
    text = f"backend {target.backend!r} at {target.address}: {error.message}"
    return TransportError(error.status, error.reason, text, sent=error.sent, retry_after=error.retry_after)


def name_sender(error: GatewayError, reply: Message, asked: Message, target: Target) -> None:
    """Add the backend's name and address to `error`, unless `reply` is a typical error of a model server. For example,
    add them for an error page, a redirect, or an empty body. `asked` is the request message."""
    text = web_error(reply, asked.path)
    if text:
        log.warning("backend %r at %s: %r", target.backend, target.address, error.message)
    elif reply.status >= 400 and not reply.body and str(reply.status) in error.message:
        text = error.message
    if text:
        error.message = f"backend {target.backend!r} at {target.address}: {text}"
        error.args = (error.message,)


def sanitize_error(error: GatewayError, target: Target) -> None:
    """Remove tracebacks from a backend's error message, and limit the length of the message.

    If the message changes, log the original."""
    text = without_traceback(error.message)
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    if text != error.message:
        log.warning("backend %r at %s: %r", target.backend, target.address, error.message)
        error.message = text or "the backend's error was only a traceback; see the gateway's log"
        error.args = (error.message,)
