import pytest

from gateway.core.address import Address
from gateway.transports.tcp import parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:9100", Address("10.0.0.1", 9100, scheme="tcp")),
        ("tcp://resnet-0:9100", Address("resnet-0", 9100, scheme="tcp")),
        ("tcp://[::1]:9100", Address("::1", 9100, scheme="tcp")),
        ("unix:///run/mip.sock", Address(path="/run/mip.sock", scheme="unix")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("host", "it has no port"),
        ("tcp://host", "it has no port"),
        ("http://host:1", "the scheme 'http' is not one of tcp, tcps, unix"),
        ("host:0", "its port is not between 1 and 65535"),
        ("host:65536", "its port is not between 1 and 65535"),
        ("[no]:1", "'no' is not an IPv6 address"),
        ("::1:80", "an IPv6 address needs brackets"),
        ("tcp://user@host:1", "'user@host' is not a host name"),
        ("host:1/path", "it has a path"),
        ("unix://relative.sock", "the path of a unix socket must be absolute"),
        ("unix:///" + "x" * 107, "at most 107 bytes"),
        ("host:\u0661", "outside ASCII"),
    ],
)
def test_a_bad_address_is_refused_saying_why(text: str, why: str) -> None:
    with pytest.raises(
        ValueError, match=f"(?s)bad address .*{why}.*; expected host:port, tcp://host:port, tcps://host:port or unix"
    ):
        parse_address(text)
