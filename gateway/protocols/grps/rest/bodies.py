"""Reads and writes bodies of grps-rest: JSON, or the bytes of bin_data without JSON around them."""

from codecs import BOM_UTF8

from gateway.core.json import BLANKS
from gateway.core.messages import Buffer, Headers
from gateway.core.requests import Answer, Nan, Response
from gateway.protocols.grps import payload
from gateway.protocols.grps.payload import BackendMessage
from gateway.protocols.grps.schema import GrpsMessage, Payload

JSON_TYPE, OCTETS_TYPE = "application/json", "application/octet-stream"
NAN: Nan = "string"
"""The default form of NaN and infinities, for routes without `translate.nan`."""

OCTETS = Headers(((b"content-type", OCTETS_TYPE.encode()),))
""""exact match, parameters not stripped": both servers reject a content type with parameters."""


def media_type(content_type: str) -> str:
    """Return a Content-Type in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def stream_headers(content_type: str) -> Headers:
    """Return the headers of a stream that the gateway sends to a client."""
    return Headers(((b"content-type", content_type.encode("latin-1")),)) if content_type else OCTETS


def stream_type(answer: Answer) -> str:
    """Return the content type of the stream from the backend with `answer`.

    The operator of a grps server can configure the type ("res_content_type"), and clients can depend on it. The result
    is empty if the type is unknown or is the usual type."""
    origin = answer.origin if isinstance(answer, Response) else None
    return origin.content_type if isinstance(origin, BackendMessage) else ""


def begins_object(body: Buffer) -> bool:
    """Return whether `body` begins like a JSON object."""
    return bytes(memoryview(body)[:64]).removeprefix(BOM_UTF8).lstrip(BLANKS)[:1] == b"{"


def bin_data_message(body: Buffer) -> GrpsMessage:
    """Return the message for a body that is bin_data."""
    return GrpsMessage(payload=Payload.BIN_DATA, tensors=(payload.bin_data(bytes(body)),))


def bin_data_body(grps: GrpsMessage) -> Buffer:
    """Return the body for a message with bin_data."""
    return memoryview(grps.tensors[0].data)[4:]
