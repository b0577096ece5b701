"""Handles streams in grps-rest: how a client requests a stream, the stream's content type, and how its body is split.

The stream settings of a grps server are under `streaming_ctrl`, and the settings of a listener or a backend are under
`settings`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.json import BLANKS
from gateway.core.messages import Buffer, Message
from gateway.core.protocol import ProtocolSetting, SettingError
from gateway.protocols.grps.rest.bodies import OCTETS_TYPE, media_type
from gateway.protocols.grps.rest.urls import Query, read_flag

STREAMING = "streaming"
QUERY, HEADER, BODY = "query", "header", "body"

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""The pattern of a header name (RFC 9110 section 5.1)."""
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_CONTENT_TYPE = re.compile(rf"{_TOKEN.pattern}/{_TOKEN.pattern}( *; *{_TOKEN.pattern}={_TOKEN.pattern})*")
_TAKEN = {
    QUERY: frozenset({"model", "return-ndarray", "name"}),
    HEADER: frozenset({"accept", "accept-encoding", "authorization", "connection", "content-encoding"})
    | {"content-length", "content-type", "cookie", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
    | {"traceparent", "tracestate", "x-api-key", "x-request-id"},
    BODY: frozenset({"model", "status", "str_data", "bin_data", "gtensors", "gmap", "ndarray", "strdata", "bindata"}),
}
"""Keys that already have another meaning in each part of a request."""

SETTINGS = (
    ProtocolSetting(
        "ctrl_mode",
        "Part of a request that contains the stream option: the `query`, a `header`, or a member of the JSON `body`. "
        "Default: listeners accept the query and the header; requests to a backend use the query.",
    ),
    ProtocolSetting("ctrl_key", "Name of the query parameter, header or member with the value `true`.", STREAMING),
    ProtocolSetting(
        "res_content_type",
        "Content type of streams to the listener's clients. Default: the content type of the backend's stream if the "
        "backend uses grps, otherwise `application/octet-stream`. The gateway accepts streams of any content type from "
        "backends.",
    ),
)


@frozen
class StreamControl:
    """The stream settings of a listener or a backend. An empty `mode` means the query or a header for a listener, and
    the query for a backend. An empty `content_type` means the type of the backend's stream."""

    mode: str = ""
    key: str = STREAMING
    content_type: str = ""

    @property
    def ways(self) -> str:
        """The ways to request a stream, for error messages."""
        ways = {
            QUERY: f"{self.key}=true in the query",
            HEADER: f"a header {self.key}: true",
            BODY: f'a member "{self.key}": true in the JSON body',
        }
        return ways[self.mode] if self.mode else f"{ways[QUERY]} or {ways[HEADER]}"

    @property
    def is_plain(self) -> bool:
        """True if JSON has only one spelling of the key, apart from numeric escapes."""
        return _PLAIN.fullmatch(self.key) is not None

    def may_be_asked(self, message: Message) -> bool:
        """Return whether the query or the headers might contain the key, even percent-encoded."""
        return self.key in message.query or "%" in message.query or bool(message.headers.get(self.key))

    def asks(self, message: Message, query: Query) -> bool:
        """Return whether a client's message requests a stream.

        Raises:
            DecodeError: the flag is not true or false, or is in the wrong part of the request.
        """
        in_header = self._header_asks(message)
        for place, asks in ((QUERY, query.streaming), (HEADER, in_header)):
            if asks and self.mode not in ("", place):
                raise DecodeError(f"{self.key} in the {place} does not ask for a stream here: ask with {self.ways}")
        return query.streaming or in_header or self.asks_in_body(message)

    def _header_asks(self, message: Message) -> bool:
        word = message.headers.get(self.key)
        if self.mode not in ("", HEADER):
            return word.strip().lower() == "true"  # an unrelated header can have this name
        return bool(word) and read_flag(word, f"the header {self.key}")

    def asks_in_body(self, message: Message) -> bool:
        """Return whether the JSON body contains the member that requests a stream.

        The parser skips all other members, so a large body costs little. For invalid JSON, the result is False."""
        if self.mode != BODY or self.key.encode() not in bytes(message.body):
            return False
        if media_type(message.headers.get("content-type")) == OCTETS_TYPE:
            return False
        try:
            return _member_reader(self.key).decode(message.body).wanted is True  # type: ignore[attr-defined]
        except (msgspec.DecodeError, RecursionError):
            return False


@lru_cache(64)
def _member_reader(key: str) -> "msgspec.json.Decoder[msgspec.Struct]":
    return msgspec.json.Decoder(msgspec.defstruct("Body", [("wanted", object, None)], rename={"wanted": key}))


def read_settings(values: Mapping[str, str]) -> StreamControl:
    """Return the StreamControl for these values of SETTINGS.

    Raises:
        SettingError: a mode, a key or a content type is invalid.
    """
    mode, key, content_type = (values.get(each.name, each.default) for each in SETTINGS)
    if mode and mode not in _TAKEN:
        raise SettingError("ctrl_mode", f"{mode!r} is none of {', '.join(_TAKEN)}")
    for place in (mode,) if mode else (QUERY, HEADER):
        if key.lower() in _TAKEN[place] or not key:
            raise SettingError("ctrl_key", f"{key!r} means something else in the {place}; choose another name")
    if mode in ("", HEADER) and not _TOKEN.fullmatch(key):
        raise SettingError("ctrl_key", f"{key!r} is not a header's name: letters, digits and !#$%&'*+-.^_`|~")
    if content_type and not _CONTENT_TYPE.fullmatch(content_type):
        raise SettingError("res_content_type", f"{content_type!r} is not a content type such as text/event-stream")
    return StreamControl(mode, key.lower() if mode == HEADER else key, content_type)


# --- Framing ---
#
# A streamed body contains JSON objects without delimiters, with bytes of bin_data between them. Only the end of an HTTP
# chunk separates bytes from the data after them. The nesting of braces determines where objects end, independent of
# chunks.

_MAX_BLANKS = 64
"""Maximum number of blanks before an object. A chunk that begins with more blanks counts as bytes."""
_OUTSIDE_STRINGS = re.compile(rb'["{}]')
_IN_STRING = re.compile(rb'["\\]')
_BACKSLASH, _QUOTE, _OPEN = b'\\"{'


class JsonCutter:
    """Splits a body at the end of each JSON object. Data that does not begin like an object counts as bytes until the
    end of its chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._follows_object = False
        self._begin_object()

    def _begin_object(self) -> None:
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the objects that `data` completes.

        Raise GatewayError (RESOURCE_EXHAUSTED) if an object exceeds the limit."""
        self._buffer += data
        objects: list[Buffer] = []
        while self._begins_with_object() and self._reaches_end():
            objects.append(bytes(self._buffer[: self._scanned]))
            del self._buffer[: self._scanned]
            self._begin_object()
            self._follows_object = True
        if len(self._buffer) > self._limit:
            text = f"a message of a stream is over {self._limit} bytes, limits.message; raise the limit"
            raise refusal(Reason.TOO_LARGE, text)
        return objects

    def boundary(self) -> list[Buffer]:
        """Return the bytes that end with a chunk. An object can continue in the next chunk."""
        if self._begins_with_object() or not self._buffer:
            return []
        message, self._buffer = bytes(self._buffer), bytearray()
        return [message]

    def end(self) -> list[Buffer]:
        """Return the bytes that end with the body. Raise DecodeError if the body ends inside an object."""
        if self._begins_with_object():
            raise DecodeError("the stream ends inside a JSON object")
        return self.boundary()

    def _begins_with_object(self) -> bool:
        if self._depth:
            return True
        if self._follows_object and self._buffer:
            # The C++ server ends each object with a newline, which a proxy can send in a separate chunk.
            if self._buffer[:1] == b"\n":
                del self._buffer[:1]
            self._follows_object = False
        if self._buffer[:1].isspace():
            first = self._buffer[:_MAX_BLANKS]
            rest = first.lstrip(BLANKS)
            if rest[:1] == b"{":
                del self._buffer[: len(first) - len(rest)]
        return self._buffer[:1] == b"{"

    def _reaches_end(self) -> bool:
        """Return whether the object is complete. A complete object ends at `_scanned`."""
        buffer = self._buffer
        while found := (_IN_STRING if self._in_string else _OUTSIDE_STRINGS).search(buffer, self._scanned):
            mark, self._scanned = buffer[found.start()], found.end()
            if mark == _BACKSLASH:
                self._scanned += 1
            elif mark == _QUOTE:
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark == _OPEN else -1
                if not self._depth:
                    return True
        self._scanned = max(self._scanned, len(buffer))
        return False
