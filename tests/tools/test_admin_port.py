"""What the user reads if the admin port of a gateway does not answer as it should."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from gateway.core.certificates import TlsFiles
from gateway.tools import admin_port
from gateway.tools.admin_port import AdminPort, AdminPortError, AdminTimeoutError, AdminUnreachableError
from tests.in_thread import QuietHandler, in_thread
from tests.tls.certificates import Authority


@contextmanager
def answering(status: int, body: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with in_thread(server) as address:
        yield f"{'http' if context is None else 'https'}://{address}"


def failure(url: str, seconds: float = 30.0) -> AdminPortError:
    with pytest.raises(AdminPortError) as caught:
        AdminPort(f"{url}/", (), TlsFiles(), seconds=seconds).get("/status?x=1")
    return caught.value


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"<html>", "the response is not JSON; is this the admin port of a gateway?"),
        (200, b'"%b"' % bytes(100), "the response has more than 99 bytes; is this the admin port of a gateway?"),
        (404, b'{"detail": "no backend"}', "no backend"),
        (404, b'{"error": "x"}', '{"error": "x"}'),
        (502, b" no gateway \n", "no gateway"),
        (500, b"", "status 500"),
    ],
)
def test_a_wrong_answer_is_told(monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, reason: str) -> None:
    monkeypatch.setattr(admin_port, "MAX_REPLY", 99)
    with answering(status, body) as url:
        error = failure(url)
    assert (type(error), error.reason, str(error)) == (AdminPortError, reason, f"{url}/status: {reason}")


def test_no_answer_in_time_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = failure(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.05)
    assert isinstance(error, AdminTimeoutError)
    assert error.reason == "no answer within 0.05 s; try again, or see the gateway's log"


def test_a_host_without_an_address_is_told() -> None:
    error = failure("http://no.such.name.invalid:1")
    assert isinstance(error, AdminUnreachableError)
    assert error.reason == "cannot resolve its host name; check the URL"


def test_a_certificate_of_an_unknown_authority_is_told(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with answering(200, b"{}", context) as url:
        error = failure(url)
        assert AdminPort(url, (), TlsFiles(authorities=str(files.ca))).get("/") == {}
    assert isinstance(error, AdminUnreachableError)
    assert error.reason.startswith("its certificate is invalid: ")
    assert error.reason.endswith("; use --ca for a private CA")
