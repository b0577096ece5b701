import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.config.listeners import Bind, parse_address
from gateway.config.messages import flattened
from gateway.core.address import Address

TABLE = (
    ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
    ("0.0.0.0:0", Address("0.0.0.0", 0)),
    ("[::1]:8080", Address("::1", 8080)),
    ("[0:0::1]:8080", Address("::1", 8080)),
    ("LocalHost:65535", Address("localhost", 65535)),
    ("gateway-0.internal:1", Address("gateway-0.internal", 1)),
    ("tcp://127.0.0.1:9100", Address("127.0.0.1", 9100, "", "tcp")),
    ("tcp://[::]:9100", Address("::", 9100, "", "tcp")),
    ("unix:///run/mip.sock", Address("", 0, "/run/mip.sock", "unix")),
)


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_addresses_are_read(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "[::1]:0", "tcp://[::1]:9100", "unix:///run/mip.sock"])
def test_an_address_is_shown_as_it_is_written(text: str) -> None:
    assert str(parse_address(text)) == text


REFUSED = (
    ("", "expected HOST:PORT"), ("8080", "expected HOST:PORT"), ("127.0.0.1", "expected HOST:PORT"),
    ("::1:8080", "expected HOST:PORT"), ("127.0.0.1:80 80", "expected HOST:PORT"), ("a b:1", "expected HOST:PORT"),
    ("127.0.0.1:+1", "expected HOST:PORT"), ("-a:1", "expected HOST:PORT"),
    ("http://127.0.0.1:1", "expected HOST:PORT"),
    (":8080", "no host in"), ("127.0.0.1:65536", "expected a port up to 65535"),
    ("127.0.0.256:1", "expected an IPv4 address"),
    ("1.2.3:1", "expected an IPv4 address"), ("[::g]:1", "expected an IPv6 address"),
    ("[127.0.0.1]:1", "expected an IPv6 address"),
    ("unix://run/x", "expected unix:///PATH"), ("unix:///" + "x" * 107, "at most 107 bytes"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_no_address_says_what_is_right(text: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Bind).validate_python(text)
    [error] = flattened(refused.value.errors())
    assert message in error["msg"]


CLASHES = (
    ("127.0.0.1:80", "127.0.0.1:80", True),
    ("127.0.0.1:80", "127.0.0.1:81", False),
    ("127.0.0.1:80", "127.0.0.2:80", False),
    ("localhost:80", "tcp://127.0.0.1:80", True),
    ("0.0.0.0:80", "10.0.0.1:80", True),
    ("[::]:80", "[::1]:80", True),
    ("[::]:80", "127.0.0.1:80", False),
    ("127.0.0.1:0", "127.0.0.1:0", False),
    ("unix:///a", "unix:///a", True),
    ("unix:///a", "unix:///b", False),
    ("unix:///a", "127.0.0.1:80", False),
)


@pytest.mark.parametrize(("one", "other", "expected"), CLASHES)
def test_addresses_that_cannot_both_be_bound_clash(one: str, other: str, expected: bool) -> None:
    assert parse_address(one).clashes(parse_address(other)) is expected
    assert parse_address(other).clashes(parse_address(one)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.1.2.3:1", True), ("[::1]:1", True), ("localhost:1", True), ("unix:///a", True),
     ("0.0.0.0:1", False), ("[::]:1", False), ("10.0.0.1:1", False), ("gateway:1", False)],
)  # fmt: skip
def test_loopback_is_what_other_machines_cannot_reach(text: str, expected: bool) -> None:
    assert parse_address(text).loopback is expected
