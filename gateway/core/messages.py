"""Encoded messages of all transports: messages received from, or to be sent to, clients and servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import ClassVar, TypeAlias

from msgspec import Struct

from gateway.core.frozen import equal_without, field
from gateway.core.principal import Principal
from gateway.core.record import UNRECORDED, Record

Buffer: TypeAlias = bytes | bytearray | memoryview

STEP = 2**20
"""Maximum number of bytes to copy in one step. No other thread can run during a step, and on some virtual machines the
first use of 64 MiB of memory takes 0.6 s."""


def steps(body: Buffer) -> Iterator[Buffer]:
    """Yield `body` in parts of at most STEP bytes, which are views of it if it is larger."""
    if len(body) <= STEP:
        yield body
        return
    view = memoryview(body)
    for at in range(0, len(view), STEP):
        yield view[at : at + STEP]


def as_bytes(body: Buffer) -> bytes:
    """Return `body` as bytes. A large body is copied in steps."""
    return bytes(body) if len(body) <= STEP or isinstance(body, bytes) else join(body)


def join(*bodies: Buffer) -> bytes:
    """Return all `bodies` in one bytes object. They are copied in steps."""
    joined = BytesIO()
    for body in bodies:
        for step in steps(body):
            joined.write(step)
    return joined.getvalue()  # without another copy


_OBSERVING = frozenset({"record", "further"})
"""The fields of a Message that comparisons ignore."""


class Headers:
    """HTTP headers or gRPC metadata, in order, with lowercase names. Values are decoded (as Latin-1) only when they are
    read."""

    __slots__ = ("_first", "raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]] = (), first: Mapping[bytes, bytes] | None = None) -> None:
        """Create headers from `raw`. `first` is the result of the property `first`, if the caller already has it."""
        self.raw = raw
        self._first = first

    @property
    def first(self) -> Mapping[bytes, bytes]:
        """The first value of each name, without decoding."""
        if self._first is None:  # many Headers are never looked up
            self._first = dict(reversed(self.raw))
        return self._first

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of `name` (lowercase)."""
        text = self.first.get(name.encode("latin-1"))
        return default if text is None else text.decode("latin-1")

    def all(self, name: str) -> list[str]:
        """Return all values of `name`, in order."""
        wanted = name.encode("latin-1")
        return [text.decode("latin-1") for key, text in self.raw if key == wanted]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((key.decode("latin-1"), text.decode("latin-1")) for key, text in self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and list(self.raw) == list(other.raw)

    def __hash__(self) -> int:
        return hash(tuple(self.raw))

    def __repr__(self) -> str:
        return f"Headers({list(self)})"


NO_HEADERS = Headers()


JSON_HEADERS = Headers(((b"content-type", b"application/json"),))


class Metadata(Headers):
    """gRPC metadata. If a name ends in `-bin`, its values are raw bytes, already decoded from base64."""

    __slots__ = ()


class Message(Struct, frozen=True):
    """One HTTP or gRPC message, or one packet of a byte stream, with its address information.

    - `parts`: The body, as buffers to write in order without joining them.
    - `path`: The raw path, without the `query`.
    - `pattern`, `captures`: The Protocol's pattern that matches the path, and the decoded values of its `{captures}`.
    - `status`: The status code of a reply.
    - `peer`: The client's `host:port`; empty over unix sockets.
    - `received`, `deadline`: Times in seconds on the event loop's clock. `deadline` is None if the request has none.
    - `identity`: The name in the client's verified TLS certificate (`core.certificates.identity`), or empty without a
      certificate.
    - `record`: The Record of the request's progress; UNRECORDED if nothing observes the request.
    - `principal`: The authenticated client; None if the listener has no authentication, and before authentication.
    - `joinable`: True if the request in this message can be part of a batch; False if the message contains call options
      that the batch would lose.
    - `further`: Additional headers for a backend that differ in each request: the request id and the trace context.
      They are separate because connectors cache the encoded `headers`, which many requests share.
    """

    method: str = ""
    path: str = ""
    headers: Headers = NO_HEADERS
    parts: tuple[Buffer, ...] = ()
    status: int = 0
    query: str = ""
    pattern: str = ""
    captures: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""
    received: float = 0.0
    deadline: float | None = None
    identity: str = ""
    record: Record = UNRECORDED
    principal: Principal | None = None
    further: Sequence[tuple[bytes, bytes]] = ()
    joinable: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        return equal_without(_OBSERVING, self, other)

    @property
    def body(self) -> Buffer:
        """All parts as one buffer. The parts are copied only if the message has several."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


def reply(headers: Headers, parts: tuple[Buffer, ...], status: int = 0) -> Message:
    """Return a reply message."""
    return Message("", "", headers, parts, status)


def post(path: str, headers: Headers, parts: tuple[Buffer, ...], deadline: float | None) -> Message:
    """Return an HTTP request message with a body."""
    return Message("POST", path, headers, parts, deadline=deadline)


def call(method: str, parts: tuple[Buffer, ...]) -> Message:
    """Return a message that calls a gRPC method."""
    return Message(path=method, parts=parts, pattern=method)


def bytes_of(message: Message) -> int:
    """Return the size of the message's body, in bytes."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is bytes:  # true for most messages
        return len(parts[0])
    return sum([len(part) if type(part) is bytes else memoryview(part).nbytes for part in parts])


class ReplyMessage(Message, frozen=True):
    """A reply from an endpoint. `close` closes the connection on which the reply arrived. It is None if the connection
    closes anyway, or is shared with other exchanges."""

    close: Callable[[], None] | None = None
