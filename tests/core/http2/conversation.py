"""A conversation with the server's side of HTTP/2 without sockets: bytes in, what came of them out."""

from collections.abc import Iterable

from gateway.core.http2.connection import DataReceived, DataSent, Stream, StreamReset
from gateway.core.http2.frames import HEADER, HEADER_SIZE
from gateway.core.http2.heads import RequestHeads
from gateway.core.http2.server import Http2Server, RequestReceived, RequestStarted
from tests.core.http2 import by_hand as http2

ECHO = b"/toy.Toy/Echo"
LIMIT = 10_000
PING_INTERVAL = 9.0
OPENING = http2.PREFACE + http2.settings()


def fields(path: bytes = ECHO, *more: tuple[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """The head of a request."""
    return (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"toy"),
        (b"te", b"trailers"),
        http2.CONTENT_TYPE,
        *more,
    )


def request(stream: int = 1, message: bytes = b"x", path: bytes = ECHO) -> bytes:
    """A whole unary request."""
    return http2.head(*fields(path), stream=stream) + http2.data(message, end=True, stream=stream)


def paths() -> RequestHeads[bytes]:
    """Reads of each head no more than its path."""
    return RequestHeads(LIMIT, lambda fields, by_name: by_name[b":path"], b"too large")


class Conversation:
    """`said` is what came of what the client sent, in words; `frames` what it gets."""

    def __init__(self, *, opened: bool = True) -> None:
        self.http2 = Http2Server(paths())
        self.http2.ping_interval = PING_INTERVAL
        self.said: list[str] = []
        self.streams: dict[int, Stream] = {}
        self.now = 0.0
        self._rest = b""
        self.written = b""
        if opened:
            self.client(OPENING)
            self.frames()

    def client(self, *pieces: bytes) -> None:
        """The client sends these, one after the other."""
        for piece in pieces:
            self._rest += piece
            while True:
                view = memoryview(self._rest)
                taken = self.http2.receive(view, self.now)
                self._note()
                self._rest = self._rest[taken:]
                if not self.http2.has_more or self.http2.is_closed:
                    break

    def _note(self) -> None:
        while self.http2.events:
            event = self.http2.events.popleft()
            number = event.stream.id
            match event:
                case RequestReceived(stream, path, data):
                    self.streams[number] = stream
                    self.said.append(f"{number} begun {path.decode('latin-1')}")
                    said = f"{number} {data.tobytes()!r} end"
                case RequestStarted(stream, path):
                    self.streams[number] = stream
                    said = f"{number} begun {path.decode('latin-1')}"
                case DataReceived(_, data, ends):
                    said = f"{number} {data.tobytes()!r}{' end' if ends else ''}"
                case StreamReset():
                    said = f"{number} reset"
                case DataSent():
                    said = f"{number} sent"
            self.said.append(said)

    def frames(self) -> list[http2.Frame]:
        """What is written now."""
        while pieces := self.http2.data_to_send():
            self.written += b"".join(pieces)
        self._note()
        data, self.written = self.written, b""
        return list(cut(data))

    def kinds(self) -> list[tuple[int, int]]:
        """Types and streams of what is written now."""
        return [(kind, stream) for kind, _, stream, _ in self.frames()]

    def closed_with(self) -> tuple[int, str]:
        """The error of the GOAWAY that ends the connection, and its text."""
        assert self.http2.is_closed
        kind, _, _, payload = self.frames()[-1]
        assert kind == http2.GOAWAY
        return int.from_bytes(payload[4:8]), payload[8:].decode()


def cut(data: bytes) -> Iterable[http2.Frame]:
    while data:
        first, flags, stream = HEADER.unpack_from(data)
        size, kind = first >> 8, first & 0xFF
        yield kind, flags, stream, data[HEADER_SIZE : HEADER_SIZE + size]
        data = data[HEADER_SIZE + size :]
