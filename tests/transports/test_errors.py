"""The texts of errors about connections."""

import errno
import socket

import pytest

from gateway.core.errors import Reason, Status
from gateway.transports.errors import not_connected


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
