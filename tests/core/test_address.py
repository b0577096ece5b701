"""Addresses as text."""

import pytest

from gateway.core.address import client_of, peer_address


@pytest.mark.parametrize(
    ("name", "text"), [(("127.0.0.1", 80), "127.0.0.1:80"), (("::1", 80, 0, 0), "[::1]:80"), ("", ""), (None, "")]
)
def test_a_peer_is_told_by_host_and_port(name: tuple[str, int] | str | None, text: str) -> None:
    assert peer_address(name) == text


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("10.0.0.1:80", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
        ("[fe80::1%2]:80", "fe80::/64"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
        ("", ""),
    ],
)
def test_a_client_is_an_ipv4_address_or_a_network_of_ipv6(peer: str, client: str) -> None:
    assert client_of(peer) == client
