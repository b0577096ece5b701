"""Converts a file with a recorded request to the Message that the listener's transport would create.

A file contains one of the following:

- A raw HTTP/1 request: head, empty line, and body. Lines of the head can end with a plain line feed.
- The bytes of one byte-stream message (MIP, brpc), or of one gRPC message without its 5-byte prefix.
- A JSON document that describes a request, with the keys of `Document`.
"""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import ConfigDict, ValidationError

from gateway.config import paths
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.documented import Documented
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Buffer, Message, Metadata
from gateway.core.patterns import PathTable
from gateway.core.protocol import Framing, GrpcBinding, HttpBinding, Limits, Protocol, StreamBinding
from gateway.transports.http.server.dispatch import Dispatch, check_length
from gateway.transports.http.server.request_body import ChunkedBody
from gateway.transports.http.server.request_head import HeadReader, RequestHead
from gateway.transports.inflate import inflate

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_GRPC_PREFIX = 5


class RecordingError(Exception):
    """The file does not contain a request. The message describes the problem and the expected content."""


class Document(Documented):
    """A request as a JSON document."""

    model_config = ConfigDict(extra="forbid")

    protocol: str = ""
    """The protocol. It is not required for HTTP requests, because the listener detects the protocol from the path."""
    listener: str = ""
    """The listener that receives the request. The default is the first listener that serves its protocol."""
    method: str = "POST"
    """The HTTP method."""
    path: str = ""
    """The path, including the query string. For gRPC: `/package.Service/Method`."""
    headers: Mapping[str, str] = {}
    """Headers, or gRPC metadata."""
    body: Any = None
    """The body. A string is used unchanged; any other value is encoded as JSON."""
    body_base64: str = ""
    """The body in base64; replaces `body`."""


@frozen
class Arrival:
    """A request as it arrives at the gateway.

    `refused` is the reason why the transport rejects the request before a codec reads it. `notes` describes parts of
    the file that a real request would not contain."""

    listener: ListenerConfig
    protocol: Protocol
    message: Message
    refused: GatewayError | None = None
    notes: tuple[str, ...] = ()


def document_of(data: bytes) -> Document | None:
    """Return the Document in `data`, or None if `data` is not a JSON object.

    Raises:
        RecordingError: `data` is a JSON object with unexpected keys.
    """
    if data.lstrip()[:1] != b"{":
        return None
    try:
        return Document.model_validate(orjson.loads(data))
    except orjson.JSONDecodeError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        keys = ", ".join(Document.model_fields)
        raise RecordingError(f"{place}: {first['msg']}; a request in JSON has the keys {keys}") from error


def arrive(
    data: bytes, config: Config, protocols: Mapping[str, Protocol], protocol: str, listener: str, path: str
) -> Arrival:
    """Return the request in `data`, as it arrives at the listener that serves it.

    Non-empty values of `protocol`, `listener` and `path` override the file.

    Raises:
        RecordingError: the file does not contain a request, or no listener serves its protocol.
    """
    document = document_of(data)
    if document is not None:
        protocol, listener, path = protocol or document.protocol, listener or document.listener, path or document.path
    if protocol and protocol not in protocols:
        raise RecordingError(f"no protocol {protocol!r}; expected {', '.join(protocols)}")
    chosen = _listeners(config, protocols, protocol, listener)
    body = data if document is None else _body(document)
    binding = protocols[protocol].binding if protocol else HttpBinding()
    match binding:
        case HttpBinding():
            raw = data if document is None else _as_http(document, path, body)
            return _http(raw, config, protocols, chosen, protocol)
        case GrpcBinding():
            headers = {} if document is None else document.headers
            return _grpc(body, headers, path, protocols[protocol], chosen[0], is_raw=document is None)
        case StreamBinding():
            return _packet(body, binding.framing, protocols[protocol], chosen[0])


def _listeners(config: Config, protocols: Mapping[str, Protocol], protocol: str, name: str) -> Sequence[ListenerConfig]:
    """Return the listeners that can receive a request in this protocol. If the protocol is unknown, return all
    listeners that serve HTTP."""
    named = [each for each in config.listeners if name in ("", each.name)]
    if not named:
        raise RecordingError(f"no listener {name!r}; expected {', '.join(each.name for each in config.listeners)}")
    wanted = {protocol} if protocol else {name for name, each in protocols.items() if each.transport == "http"}
    found = [each for each in named if wanted.intersection(each.protocols)]
    if not found:
        what = protocol or "a protocol over HTTP; `--protocol` names another one"
        raise RecordingError(f"listener {name!r} does not accept {what}" if name else f"no listener accepts {what}")
    return found


def _body(document: Document) -> bytes:
    if document.body_base64:
        try:
            return b64decode(document.body_base64, validate=True)
        except ValueError as error:
            raise RecordingError(f"body_base64: {error}") from error
    if document.body is None:
        return b""
    return document.body.encode() if isinstance(document.body, str) else orjson.dumps(document.body)


def _as_http(document: Document, path: str, body: bytes) -> bytes:
    """Return the bytes of an HTTP request for the document, including the headers that every client sends."""
    if not path:
        raise RecordingError("a request over HTTP needs a `path`, such as /v2/models/NAME/infer")
    headers = {name.lower(): text for name, text in document.headers.items()}
    headers = {"host": "gateway", "content-length": str(len(body)), **headers}
    if not isinstance(document.body, str | None):
        headers = {"content-type": "application/json", **headers}
    lines = [f"{document.method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _http(
    raw: bytes,
    config: Config,
    protocols: Mapping[str, Protocol],
    listeners: Sequence[ListenerConfig],
    protocol: str,
) -> Arrival:
    end = _END_OF_HEAD.search(raw)
    if end is None:
        raise RecordingError(
            "no request found: expected an HTTP request with an empty line after its headers, or a JSON document with"
            " `path` and `body`; for gRPC and byte streams, add `--protocol`"
        )
    head_bytes = raw[: end.start()].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") + b"\r\n\r\n"
    body = raw[end.end() :]
    reached: Arrival | None = None
    for listener in listeners:
        arrival = _at(listener, head_bytes, body, config, protocols)
        is_served = arrival.message.pattern and protocol in ("", arrival.protocol.name)
        if is_served:
            return arrival
        reached = reached or arrival
    assert reached is not None
    if protocol and reached.message.pattern:
        text = f"{reached.message.method} {reached.message.path} is {reached.protocol.name} at listener"
        raise RecordingError(f"{text} {reached.listener.name!r}, not {protocol}")
    return reached


def _at(
    listener: ListenerConfig, head_bytes: bytes, body: bytes, config: Config, protocols: Mapping[str, Protocol]
) -> Arrival:
    table = PathTable(paths.over_http(paths.rows(listener, config.routes, config.backends, protocols)))
    reader = HeadReader(listener.limits.headers)
    message = Message()
    try:
        reader.feed(head_bytes, 0)
        head = RequestHead(reader)
        message = Message(head.method)
        head.check()
    except GatewayError as error:
        return Arrival(listener, table.protocol_for_error(message.path), message, error)
    message = Message(head.method, head.path, head.headers, query=head.query)
    dispatch = Dispatch(head, table)
    if dispatch.refused is not None:
        return Arrival(listener, dispatch.protocol, message, dispatch.refused)
    message = dispatch.message(head, b"", "", 0.0)
    try:
        check_length(head, listener.limits.message)
        received, notes = _received(head, body, listener.limits)
        if dispatch.coding:
            received = inflate(received, dispatch.coding, listener.limits, "the body")
    except DecodeError as error:
        return Arrival(listener, dispatch.protocol, message, refusal(Reason.INVALID_INPUT, str(error)))
    except GatewayError as error:
        return Arrival(listener, dispatch.protocol, message, error)
    return Arrival(listener, dispatch.protocol, replace(message, parts=(received,)), notes=notes)


def _received(head: RequestHead, body: bytes, limits: Limits) -> tuple[Buffer, tuple[str, ...]]:
    """Return the body that the gateway would read, and notes about bytes in the file that the gateway would ignore."""
    if head.length is None:
        chunked, at = ChunkedBody(limits.message, limits.headers), 0
        while at < len(body) and not chunked.complete:
            at = chunked.feed(body, at)
        if not chunked.complete:
            raise DecodeError("the chunked body ends before its last chunk; add the rest of the request")
        return chunked.body, ()
    if len(body) < head.length:
        text = f"the body has {len(body)} bytes, and Content-Length says {head.length}"
        raise DecodeError(f"{text}; add the rest of the body, or correct the header")
    beyond = len(body[head.length :].rstrip())
    if not beyond:
        return body[: head.length], ()
    said = f"Content-Length says {head.length}" if head.length else "Content-Length is missing"
    hint = f"; with the header `Content-Length: {len(body.rstrip())}` they are"
    return body[: head.length], (f"{beyond} bytes behind the body are no part of the request: {said}{hint}",)


def _grpc(
    data: bytes, headers: Mapping[str, str], path: str, protocol: Protocol, listener: ListenerConfig, *, is_raw: bool
) -> Arrival:
    methods = ", ".join(protocol.patterns)
    if not path:
        raise RecordingError(f"a request over gRPC needs a method, `path` or --path; {protocol.name} has {methods}")
    if path not in protocol.patterns:
        raise RecordingError(f"{protocol.name} has no method {path!r}; expected one of {methods}")
    has_prefix = is_raw and len(data) >= _GRPC_PREFIX and data[:1] == b"\0"
    if has_prefix and int.from_bytes(data[1:_GRPC_PREFIX]) == len(data) - _GRPC_PREFIX:
        data = data[_GRPC_PREFIX:]
    metadata = Metadata([(name.lower().encode(), text.encode()) for name, text in headers.items()])
    return Arrival(listener, protocol, Message(path, path, metadata, (data,), pattern=path))


def _uncounted(size: int) -> None:
    """Do nothing, because explanations do not count against memory limits."""


def _packet(data: bytes, framing: Framing, protocol: Protocol, listener: ListenerConfig) -> Arrival:
    header, rest = data[: framing.header_size], data[framing.header_size :]
    message = Message(parts=(header, rest))
    if len(header) < framing.header_size:
        text = f"a message of {protocol.name} has a header of {framing.header_size} bytes, got {len(data)} bytes"
        raise RecordingError(f"{text}; give a whole message, with its header")
    try:
        size = framing.size(header)
        if size > listener.limits.message:
            raise refusal(Reason.TOO_LARGE, f"{size} bytes; limits.message is {listener.limits.message}")
        if len(rest) < size:
            raise DecodeError(
                f"the message's header announces {size} bytes, but {len(rest)} follow; give the whole message"
            )
        message = Message(parts=(header, rest[:size]))
        if framing.is_compressed is not None and framing.is_compressed(message) and framing.inflate is not None:
            message = framing.inflate(message, listener.limits, _uncounted)
    except DecodeError as error:
        return Arrival(listener, protocol, message, refusal(Reason.INVALID_INPUT, str(error)))
    except GatewayError as error:
        return Arrival(listener, protocol, message, error)
    beyond = len(rest) - size
    notes = (f"{beyond} bytes behind the first message are not looked at",) if beyond else ()
    return Arrival(listener, protocol, message, notes=notes)
