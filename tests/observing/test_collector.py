"""What a collector may answer, and what becomes of the batch."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest

from gateway.observing import collector
from gateway.observing.collector import Collector
from tests.in_thread import QuietHandler, in_thread


class Answering:
    """A collector that answers each request with the next of `answers`: status, headers and body; None: it closes the
    connection."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[tuple[int, dict[str, str], bytes] | None] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[tuple[str, int]] = set()


@contextmanager
def answering() -> Iterator[Answering]:
    told = Answering()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            told.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            told.headers.append({name.lower(): text for name, text in self.headers.items()})
            told.connections.add(self.client_address)
            answer = told.answers.pop(0)
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, text in ({"content-length": str(len(body))} | headers).items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with in_thread(server) as address:
        told.url = f"http://{address}/v1/traces"
        yield told


@pytest.fixture
def server() -> Iterator[Answering]:
    with answering() as found:
        yield found


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in no time."""
    found: list[float] = []
    monkeypatch.setattr(collector, "sleep", found.append)
    return found


def test_batches_come_compressed_over_one_connection(server: Answering) -> None:
    sender = Collector(server.url, {"x-key": "k"}, 10)
    for body in (b"one", b"two"):
        server.answers.append((200, {}, b"reply"))
        assert sender.send(body) == ""
    assert [gzip.decompress(each) for each in server.bodies] == [b"one", b"two"]
    sent = server.headers[1]
    assert (sent["content-type"], sent["content-encoding"]) == ("application/x-protobuf", "gzip")
    assert sent["x-key"] == "k"
    assert len(server.connections) == 1


def test_a_collector_that_is_away_for_now_is_asked_again(server: Answering, pauses: list[float]) -> None:
    server.answers += [(503, {}, b""), None, (429, {"retry-after": "7"}, b""), (202, {}, b"")]
    assert Collector(server.url, {}, 100).send(b"batch") == ""
    assert [gzip.decompress(each) for each in server.bodies] == [b"batch"] * 4
    first, second, third = pauses
    assert 0.8 <= first <= 1.2
    assert 1.6 <= second <= 2.4
    assert third == 7


@pytest.mark.parametrize(
    ("status", "told"), [(400, "400 Bad Request"), (500, "500 Internal Server Error"), (301, "301 Moved Permanently")]
)
def test_a_collector_that_refuses_is_not_asked_again(
    server: Answering, pauses: list[float], status: int, told: str
) -> None:
    """Not elsewhere either: the headers may hold a secret."""
    server.answers += [(status, {"location": server.url}, b"x")]
    assert Collector(server.url, {}, 100).send(b"batch") == f"the collector answered {told}"
    assert (len(server.bodies), pauses) == (1, [])


@pytest.mark.parametrize("after", ["11", "9" * 400])
def test_there_is_no_try_that_would_be_too_late(server: Answering, pauses: list[float], after: str) -> None:
    server.answers += [(503, {"retry-after": after}, b"")]
    assert Collector(server.url, {}, 10).send(b"batch") == "the collector answered 503 Service Unavailable"
    assert pauses == []


def test_of_a_long_reply_little_is_read(server: Answering) -> None:
    sender = Collector(server.url, {}, 10)
    for _ in range(2):
        server.answers.append((200, {"content-length": str(10**12)}, b"x" * 100_000))
        assert sender.send(b"batch") == ""
    assert len(server.connections) == 2


def test_a_collector_that_is_not_there(pauses: list[float]) -> None:
    with answering() as gone:
        pass
    assert Collector(gone.url, {}, 2).send(b"batch") == "no connection: [Errno 111] Connection refused"


def test_a_header_that_cannot_be_sent_is_not_shown() -> None:
    why_not = Collector("http://127.0.0.1:1", {"x-key": "hidden\nb: c"}, 2).send(b"batch")
    assert why_not == "the request or the reply is not valid: InvalidHeader"
