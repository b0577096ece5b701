"""What the kernel is told of sockets, and what people are told of connections that failed."""

import errno
import socket

import pytest

from gateway.core.errors import Reason, Status
from gateway.transports.sockets import keep_probing, not_connected


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_host_that_vanished_is_noticed_after_two_minutes(family: socket.AddressFamily) -> None:
    with socket.socket(family) as sock:
        keep_probing(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, between, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + between * probes == 120


def test_a_unix_socket_has_no_host_to_vanish() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        keep_probing(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "no connection within 2.5 s"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "host name 'h' not resolved: Name or"),
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect"), "connection refused"),
    ],
)
def test_a_connection_that_failed_is_told_in_few_words(error: OSError, text: str) -> None:
    found = not_connected(error, "h", 2.5)
    assert found.message.startswith(text)
    assert (found.status, found.reason, found.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, False)
