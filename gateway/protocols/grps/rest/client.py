"""Converts canonical Requests to grps messages over HTTP, and responses to Answers (upstream side). The Python and C++
servers differ more than the specification says."""

from functools import partial

import orjson

from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.frozen import replace
from gateway.core.json import missing
from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Answer, Request, Response
from gateway.protocols.grps import client
from gateway.protocols.grps.errors import is_failure
from gateway.protocols.grps.json.message import read_message, write_message
from gateway.protocols.grps.payload import BackendMessage
from gateway.protocols.grps.rest.bodies import (
    NAN,
    OCTETS,
    OCTETS_TYPE,
    begins_object,
    bin_data_body,
    bin_data_message,
    media_type,
)
from gateway.protocols.grps.rest.errors import http_error
from gateway.protocols.grps.rest.streams import BODY, HEADER, QUERY, StreamControl
from gateway.protocols.grps.rest.urls import METHOD_PATHS, write_query
from gateway.protocols.grps.schema import GrpsMessage, Payload, backend_method

DEFAULT_CONTROL = StreamControl()

_MAX_ERROR_SIZE = 2**20
"""Maximum size of an `application/octet-stream` response that can be a JSON error, in bytes."""


def encode_request(request: Request, target: Target, control: StreamControl = DEFAULT_CONTROL) -> Message:
    """Return the message of a request to `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if grps does not support the method; INVALID_ARGUMENT if the message cannot
            represent a parameter or an input (the message says which), or if the body is bytes and a stream must be
            requested in a JSON body.
    """
    grps = client.encode_request(request)
    asks_in_body = control.mode == BODY and request.operation is Operation.STREAM
    if grps.payload is Payload.BIN_DATA:
        if asks_in_body:
            raise unsupported(
                "the gateway requests a stream by a member of a JSON body (ctrl_mode: body), but bytes are "
                "sent as a body that is not JSON; send a text or tensors"
            )
        return asked(request, control, OCTETS, (bin_data_body(grps),), grps.model)
    method, path = METHOD_PATHS[backend_method(request.operation)]
    if method == "GET":
        return Message(method, path, deadline=request.deadline)
    flag = control.key if asks_in_body else ""
    return asked(request, control, JSON_HEADERS, write_message(grps, "input", request.translate.nan or NAN, flag=flag))


def asked(
    request: Request, control: StreamControl, headers: Headers, parts: tuple[Buffer, ...], model: str = ""
) -> Message:
    """Return a request message with the body `parts`. The query contains `model` if it is not empty.

    For a stream, the query or a header contains the key of `control`, unless the body contains the key.

    Raises:
        GatewayError: UNIMPLEMENTED if grps does not support the method; INVALID_ARGUMENT if the model name cannot be
            encoded as UTF-8.
    """
    method, path = METHOD_PATHS[backend_method(request.operation)]
    mode = (control.mode or QUERY) if request.operation is Operation.STREAM else ""
    if mode == HEADER:
        headers = Headers((*headers.raw, (control.key.encode(), b"true")))
    query = write_query(model, control.key if mode == QUERY else "")
    return Message(method, path, headers, parts, query=query, deadline=request.deadline)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`, or one message of a stream.

    Raises:
        DecodeError: the response is not a grps response.
        GatewayError: the error that the response reports.
    """
    is_stream = request.operation is Operation.STREAM
    try:
        grps = _read_reply(reply, target.limits, is_stream=is_stream)
    except DecodeError as error:
        read = partial(read_message, role="output", limits=target.limits)
        grps = missing.read_reply(error, reply.body, read, request.translate.nan, members=False)
    answer = client.decode_response(grps, reply.headers, request)
    return _with_content_type(answer, reply) if is_stream else answer


def _with_content_type(answer: Answer, reply: Message) -> Answer:
    """Return `answer`, one message of a stream, with the stream's content type if the type is not the usual one."""
    content_type = reply.headers.get("content-type")
    if content_type in ("", OCTETS_TYPE) or not isinstance(answer, Response):
        return answer
    origin = answer.origin
    assert isinstance(origin, BackendMessage)
    return replace(answer, origin=replace(origin, content_type=content_type))


def _read_reply(reply: Message, limits: Limits, *, is_stream: bool) -> GrpsMessage:
    """Return the GrpsMessage in a response, or in one message of a stream.

    Because users can configure a server's content type, the type does not distinguish JSON from bytes.

    Raises:
        DecodeError: the response is not a GrpsMessage.
        GatewayError: the error of a response that has an HTTP status of 400 or above and is not a GrpsMessage.
    """
    if reply.status == 200 and (is_stream or media_type(reply.headers.get("content-type")) == OCTETS_TYPE):
        return _read_octets(reply.body, limits, is_stream)
    try:
        grps = read_message(reply.body, "output", limits)
    except DecodeError as error:
        if reply.status == 200:
            raise
        raise http_error(reply) from error
    if reply.status != 200 and grps.status is None:
        raise http_error(reply)
    return grps


def _read_octets(body: Buffer, limits: Limits, is_stream: bool) -> GrpsMessage:
    """Return the message in an `application/octet-stream` body. The body is bin_data, unless it is a JSON GrpsMessage.
    In a stream, this GrpsMessage can be any message. Outside a stream, it can only be an error, because the C++ server
    sends errors with the request's content type."""
    if not begins_object(body) or not (is_stream or len(body) <= _MAX_ERROR_SIZE):
        return bin_data_message(body)
    try:
        grps = read_message(body, "output", limits)
    except (DecodeError, GatewayError):
        # A large body that the first reader rejected is not parsed again, because an attacker could craft it to exhaust
        # memory.
        if is_stream and (len(body) > _MAX_ERROR_SIZE or _is_grps_message(body)):
            raise
        return bin_data_message(body)
    is_message = (grps.status or grps.payload) if is_stream else is_failure(grps.status)
    return grps if is_message else bin_data_message(body)


def _is_grps_message(body: Buffer) -> bool:
    """Return whether an undecodable JSON object is probably a GrpsMessage, because it contains an object under a key
    that only a GrpsMessage uses."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return any(isinstance(document.get(key), dict) for key in ("status", "gtensors", "gmap"))
