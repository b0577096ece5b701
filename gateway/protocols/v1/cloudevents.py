"""CloudEvents, as KServe takes and answers them.

In binary mode the attributes are headers and the body is as without them; in structured mode the body is an object of
attributes with the request at `data`.
"""

import json
from datetime import UTC, datetime
from uuid import uuid4

from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.types import Buffer, Headers, Message
from gateway.json import read, write

BINARY, STRUCTURED = "binary", "structured"
PLAIN = ""

_HEADERS = (b"ce-specversion", b"ce-source", b"ce-type", b"ce-id")
_VERSIONS = ("1.0", "0.3")
_ATTRIBUTES = frozenset({"time", "type", "source", "id", "specversion", "data"})
"""What KServe wants of a structured event: `time` too, which the specification leaves to the sender."""
_TYPE = "io.kserve.inference.response"
_STRUCTURED_TYPE = "application/cloudevents+json"


def unwrapped(message: Message, values: int) -> tuple[Message, str]:
    """The message whose body is the request, and how it is to be answered. `values` is `limits.json_values`.

    Raises:
        DecodeError: a binary event of an unknown version.
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


def wrapped(parts: tuple[Buffer, ...], event: str, model: str) -> Message:
    """The reply to an event, in its mode. `parts` are the JSON text of the reply without one."""
    # as Python's json writes it, with blanks and escapes
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
        headers=Headers((*headers, (b"content-type", b"application/json"))),
        parts=(json.dumps(data).encode(),),
        status=200,
    )
