"""Which of its forms the body of a request or a reply of grps-rest has: JSON, or the bytes of bin_data."""

import re

import orjson

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.protocol import Limits
from gateway.core.types import Buffer, Headers, Message
from gateway.protocols.grps import client as requests
from gateway.protocols.grps.errors import is_failure
from gateway.protocols.grps.json import message as json_message
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.schema import Kind

JSON = Headers(((b"content-type", b"application/json"),))
OCTETS = Headers(((b"content-type", b"application/octet-stream"),))
""""exact match, parameters not stripped": both servers refuse a type that has any."""

_OCTETS = "application/octet-stream"
_BLANKS = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_TAGS = re.compile(r"<[^<>]{0,1000}>")
_LONGEST_TEXT = 8192
_LONGEST_FAILURE = 2**20  # of a model's bytes no more are looked through for an error


def read_request(message: Message, limits: Limits) -> GrpsMessage:
    """The message of an inference. More than the servers take: types with parameters, and JSON without its type.

    Raises:
        DecodeError: neither bytes nor JSON, or not a GrpsMessage.
        GatewayError: RESOURCE_EXHAUSTED.
    """
    given = message.headers.get("content-type")
    if _type(given) == _OCTETS:
        return of_bytes(message.body)
    if not _is_object(message.body) and _type(given) != "application/json":
        shown = f"Content-Type {given[:100]!r} is" if given else "a body without Content-Type is"
        raise DecodeError(f"{shown} not supported, expected application/json or application/octet-stream")
    return json_message.read(message.body, "input", limits)


def read_reply(reply: Message, limits: Limits, *, streamed: bool) -> GrpsMessage:
    """The message of a reply, or of one message of a `streamed` one, whose content type says nothing.

    Raises:
        DecodeError: not a GrpsMessage.
        GatewayError: the error of a reply that is none, and has a status of 400 or above.
    """
    if reply.status == 200 and _type(reply.headers.get("content-type")) == _OCTETS:
        return _of_octets(reply.body, limits, streamed)
    try:
        grps = json_message.read(reply.body, "output", limits)
    except DecodeError as error:
        if reply.status == 200:
            raise
        raise _of_http(reply) from error
    if reply.status != 200 and grps.status is None:
        raise _of_http(reply)
    return grps


def _of_octets(body: Buffer, limits: Limits, streamed: bool) -> GrpsMessage:
    """Bytes, but for what is a message in JSON: in a stream any, else one that tells an error, for which the C++ server
    repeats the type of the request."""
    if not _is_object(body) or not (streamed or len(body) <= _LONGEST_FAILURE):
        return of_bytes(body)
    try:
        grps = json_message.read(body, "output", limits)
    except (DecodeError, GatewayError):
        # a longer one is not read twice: what the first reader refused may be made to fill the memory
        if streamed and (len(body) > _LONGEST_FAILURE or _has_members(body)):
            raise
        return of_bytes(body)
    is_message = (grps.status or grps.kind) if streamed else is_failure(grps.status)
    return grps if is_message else of_bytes(body)


def _has_members(body: Buffer) -> bool:
    """Whether it is JSON with members of a GrpsMessage, and more than a name in common with one."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return any(isinstance(document.get(key), dict) for key in ("status", "gtensors", "gmap"))


def _is_object(body: Buffer) -> bool:
    return bytes(memoryview(body)[:64]).removeprefix(_BOM).lstrip(_BLANKS)[:1] == b"{"


def of_bytes(body: Buffer) -> GrpsMessage:
    """A message of bin_data."""
    return GrpsMessage(kind=Kind.BIN_DATA, tensors=(requests.octets(bytes(body)),))


def bytes_of(grps: GrpsMessage) -> Buffer:
    """The bytes of a message of bin_data."""
    return memoryview(grps.tensors[0].data)[4:]


def _type(given: str) -> str:
    return given.partition(";")[0].strip().lower()


def _of_http(reply: Message) -> GatewayError:
    """The error of a reply that is no GrpsMessage: werkzeug's HTML, brpc's text, a proxy's page."""
    if reply.status < 400:
        raise DecodeError(f"HTTP status {reply.status}, expected 200")
    plain = bytes(memoryview(reply.body)[:_LONGEST_TEXT]).decode("utf-8", "replace")
    text = " ".join(_TAGS.sub(" ", plain).split())
    reason = REASONS_BY_NUMBER.get(reply.status, Reason.MODEL_ERROR)
    return refusal(reason, text or f"HTTP status {reply.status} without a text")
