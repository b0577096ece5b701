"""Options of sockets."""

import socket

import pytest

from gateway.transports.sockets import keep_probing


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
