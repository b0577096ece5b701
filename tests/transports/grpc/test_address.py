import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.address import Address
from gateway.transports.grpc.address import parse_address

GOOD = {
    "127.0.0.1:8001": Address("127.0.0.1", 8001),
    "triton-0:8001": Address("triton-0", 8001),
    "my_service.ns.svc.cluster.local.:80": Address("my_service.ns.svc.cluster.local.", 80),
    "[::1]:8001": Address("::1", 8001),
    "dns:///triton:8001": Address("triton", 8001),
    "grpcs://Triton:8001": Address("triton", 8001, scheme="grpcs"),
    "https://triton:8001": Address("triton", 8001, scheme="grpcs"),
    "unix:/run/model.sock": Address(path="/run/model.sock"),
    "unix:///run/model.sock": Address(path="/run/model.sock"),
}
BAD = {
    "": "it has no port",
    "host": "it has no port",
    ":8001": "it has no host",
    "host:0": "its port is not between 1 and 65535",
    "host:65536": "its port is not between 1 and 65535",
    "host:http": "it has no port",
    "-host:80": "'-host' is not a host name",
    "::1:8001": "an IPv6 address needs brackets",
    "[host]:80": "'host' is not an IPv6 address",
    "[fe80::1%eth0]:80": "is not an IPv6 address",
    "host:8001/v2": "it has a path",
    "http://host:8001": "the scheme 'http' is not one of dns, grpcs, unix",
    "https://host": "it has no port",
    "dns://8.8.8.8/host:80": "the scheme 'dns' is not one of dns, grpcs, unix",
    "unix:model.sock": "the path of a unix socket must be absolute",
    "host: 80": "a blank",
    "hößt:80": "outside ASCII",
}


@pytest.mark.parametrize(("text", "address"), GOOD.items())
def test_an_address_is_a_host_and_port_or_a_path(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(("text", "why"), BAD.items())
def test_what_is_no_address_is_refused_with_what_would_be(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        parse_address(text)
    assert str(caught.value).startswith(f"bad address {text!r}: ")
    assert str(caught.value).endswith("; expected host:port, dns:///name:port, grpcs://host:port or unix:/path")


@given(st.text() | st.from_regex(r"[a-z0-9.:\[\]/-]*", fullmatch=True))
@example("dns:///")
def test_any_text_is_an_address_or_refused(text: str) -> None:
    with suppress(ValueError):
        address = parse_address(text)
        assert bool(address.host and address.port) != address.path.startswith("/")
