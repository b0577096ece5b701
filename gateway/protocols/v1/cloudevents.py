"""Reads and writes CloudEvents around requests and responses, as in KServe's V1 server.

In binary mode, the attributes are `ce-` headers, and the body is an ordinary body. In structured mode, the body is a
JSON object with the attributes, and with the request under `data`. The specification is the HTTP protocol binding of
CloudEvents 1.0.
"""

import json
from datetime import UTC, datetime
from uuid import uuid4

from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.json import read, write
from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message
from gateway.core.words import has_word

BINARY, STRUCTURED = "binary", "structured"
PLAIN = ""

_HEADERS = (b"ce-specversion", b"ce-source", b"ce-type", b"ce-id")
_VERSIONS = ("1.0", "0.3")
_ATTRIBUTES = frozenset({"time", "type", "source", "id", "specversion", "data"})
"""The keys that KServe requires in a structured event. The specification makes `time` optional."""
_TYPE = "io.kserve.inference.response"
_STRUCTURED_TYPE = "application/cloudevents+json"


def may_be_event(message: Message) -> bool:
    """Return whether a client's message might be an event, valid or invalid, that `unwrap` must handle."""
    return b"ce-specversion" in message.headers.first or has_word(message.body, b'"specversion"', 5)


def unwrap(message: Message, values: int) -> tuple[Message, str]:
    """Return the message with the event's request as its body, and the mode of the response. `values` is
    `limits.json_values`.

    Raises:
        DecodeError: the version of a binary event is unknown.
    """
    names = {name for name, _ in message.headers.raw if name.startswith(b"ce-")}
    if names.issuperset(_HEADERS):
        version = message.headers.get("ce-specversion")
        if version not in _VERSIONS:
            raise DecodeError(f"Cloud Event Exceptions: Invalid specversion {version!r}, expected 1.0")
        return message, BINARY
    if b'"specversion"' not in bytes(message.body):
        return message, PLAIN
    try:
        event = read(message.body, {}, values=values, literals=False)
    except DecodeError:
        return message, PLAIN
    if not event.keys() >= _ATTRIBUTES:
        return message, PLAIN
    answered = STRUCTURED if message.headers.get("content-type") == _STRUCTURED_TYPE else PLAIN
    return replace(message, parts=(write(event["data"]),)), answered


def wrap(parts: tuple[Buffer, ...], event: str, model: str) -> Message:
    """Return the response to an event, in the mode `event`. `parts` contain the JSON text of the ordinary response."""
    # KServe writes events with Python's json module, which adds blanks and escapes.
    data = json.loads(b"".join(parts))
    attributes = {
        "specversion": "1.0",
        "id": str(uuid4()),
        "source": f"io.kserve.inference.{model}",
        "type": _TYPE,
        "time": datetime.now(UTC).isoformat(),
    }
    if event == STRUCTURED:
        body = json.dumps({**attributes, "data": data}).encode()
        return Message(headers=Headers(((b"content-type", _STRUCTURED_TYPE.encode()),)), parts=(body,), status=200)
    headers = [(f"ce-{name}".encode(), text.encode("ascii", "xmlcharrefreplace")) for name, text in attributes.items()]
    return Message(
        headers=Headers((*headers, *JSON_HEADERS.raw)),
        parts=(json.dumps(data).encode(),),
        status=200,
    )
