"""The texts of errors about connections."""

import errno
import socket
import ssl

import pytest

from gateway.core.errors import Reason, Status
from gateway.transports.errors import how_lost, not_connected


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "no connection within 2.5 s"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "host name 'h' not resolved: Name or"),
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect"), "connection refused"),
    ],
)
def test_the_text_of_a_failed_connection(error: OSError, text: str) -> None:
    found = not_connected(error, "h", 2.5)
    assert found.message.startswith(text)
    assert (found.status, found.reason, found.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, False)


def of_tls(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "it does not offer h2 (ALPN)")
    if reason is not None:
        error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "closed"),
        (ConnectionResetError(), "reset"),
        (of_tls("TLSV1_ALERT_INTERNAL_ERROR"), "ended by TLS (it ended the handshake: internal error)"),
        (of_tls("BAD_RECORD_TYPE"), "ended by TLS (it does not speak TLS)"),
        (of_tls("DECRYPT_ERROR_OF_SOME_KIND"), "ended by TLS (decrypt error of some kind)"),
        (of_tls(None), "ended by TLS (it does not offer h2 (ALPN))"),
    ],
)
def test_the_words_for_the_end_of_a_connection(error: Exception | None, text: str) -> None:
    assert how_lost(error) == text
