"""CloudEvents 1.0 that contain requests and responses, in the format of KServe's logger, and their HTTP content modes.
No I/O.

KServe uses the same `id` for the request and the response of one call, and distinguishes them by their `type`.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from msgspec import Raw

from gateway.core import json
from gateway.core.frozen import frozen
from gateway.observing.payload_log.v2 import readable

REQUEST_TYPE = "org.kubeflow.serving.inference.request"
REPLY_TYPE = "org.kubeflow.serving.inference.response"

JSON, OCTETS = "application/json", "application/octet-stream"
HEADER_LENGTH = "headerlength"
"""The attribute that contains the length of the JSON before the tensor data, for events with the content type
OCTETS."""

_PLAIN = re.compile(r"[!#-$&-~]*")
"""Characters of an attribute's value that are not escaped in a header: CloudEvents' HTTP Protocol Binding, section
3.1.3.2."""


@frozen
class Event:
    """An event: its attributes, except `specversion` and `datacontenttype`, and its `data`, which has the media type
    `content`."""

    attributes: Mapping[str, str | bool | int]
    content: str
    data: bytes


def moment(seconds: float) -> str:
    """Return a Unix time as the attribute `time`: RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def structured(event: Event) -> bytes:
    """Return the event in the JSON Event Format."""
    return b"".join(json.write_message(_document(event)))


def batch(events: Iterable[Event]) -> bytes:
    """Return events in the JSON Batch Format."""
    return b"".join(json.write_message([_document(each) for each in events]))


def headers(event: Event) -> list[tuple[bytes, bytes]]:
    """Return the attributes as headers for a request with the body `data`: the binary content mode."""
    attributes = {"specversion": "1.0", **event.attributes}
    return [(f"ce-{name}".encode(), _escaped(_text(value))) for name, value in attributes.items()]


def _document(event: Event) -> dict[str, Any]:
    found = {
        "specversion": "1.0",
        **{name: readable(each) if isinstance(each, str) else each for name, each in event.attributes.items()},
        "datacontenttype": event.content,
    }
    if event.content == JSON:
        return {**found, "data": Raw(event.data)}
    return {**found, "data_base64": b64encode(event.data).decode()}


def _text(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> bytes:
    if _PLAIN.fullmatch(text):
        return text.encode()
    # All characters except those in _PLAIN are encoded as UTF-8 and percent-encoded.
    return quote(readable(text), safe="!#$&'()*+,/:;=?@[]^`{|}<>\\").encode()
