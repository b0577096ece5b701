"""Addresses as text."""

import pytest

from gateway.core.address import peer_address


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::1", 80, 0, 0), "[::1]:80"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_peer_is_told_by_host_and_port(name: tuple[str, int] | str | None, text: str) -> None:
    assert peer_address(name) == text
