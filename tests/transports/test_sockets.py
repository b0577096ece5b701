"""Options of sockets."""

import socket

import pytest

from gateway.transports.sockets import has_unread, keep_probing, unread


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


def test_what_has_not_been_read_is_seen_and_stays() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert (has_unread(ours), unread(ours, 3)) == (False, b"")
        theirs.send(b"hello")
        assert (has_unread(ours), unread(ours, 3), ours.recv(9)) == (True, b"hel", b"hello")
        theirs.close()
        assert (has_unread(ours), unread(ours, 3)) == (True, b"")
