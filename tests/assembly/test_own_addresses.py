"""Which addresses are the gateway itself."""

import socket

import pytest

from gateway.assembly.own_addresses import why_own
from gateway.core.address import Address

HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", "127.0.0.1:9090"), ("localhost", "127.0.0.1:9090"), ("LOCALHOST.", "[::1]:9090"),
        ("0.0.0.0", "127.0.0.1:9090"), ("::", "[::1]:9090"), ("::ffff:127.0.0.1", "127.0.0.1:9090"),
        (HERE, "127.0.0.1:9090"), ("127.0.0.1", "tcp://127.0.0.1:9090"), ("127.0.0.1", "localhost:9090"),
        ("0x7f.1", "127.0.0.1:9090"), ("0", "[::ffff:127.0.0.1]:9090"), ("127.1", "0.0.0.0:9090"),
        ("127.0.0.1", "0.0.0.0:9090"), ("127.1.2.3", "0.0.0.0:9090"), (HERE, "[::]:9090"), ("gw", "gw:9090"),
    ],
)  # fmt: skip
def test_the_gateway_itself(host: str, own: str) -> None:
    assert why_own(Address(host, 9090), ("127.0.0.1:1", own)) == f"it is the gateway's own address {own}"
    assert why_own(Address(host, 9091), (own,)) == ""


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.2", "127.0.0.1:9090"), ("192.0.2.1", "0.0.0.0:9090"), ("2001:db8::1", "[::]:9090"),
        ("other.example", "0.0.0.0:9090"), ("127.0.0.1", "unix:///run/mip.sock"),
    ],
)  # fmt: skip
def test_others(host: str, own: str) -> None:
    assert why_own(Address(host, 9090), (own,)) == ""


def test_unix_sockets() -> None:
    own = ("127.0.0.1:9090", "unix:///run/mip.sock")
    assert why_own(Address(path="/run/mip.sock"), own) == "it is the gateway's own address unix:///run/mip.sock"
    assert why_own(Address(path="/run/other.sock"), own) == ""
