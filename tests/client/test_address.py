"""Addresses and other arguments, before anything is connected."""

import re

import pytest

from gateway.assembly.registry import protocols
from gateway.client import CallLimits, Client, ServerKind, Tls
from gateway.client.settings import split_address

TRANSPORTS = {name: each.transport for name, each in protocols().items()}


@pytest.mark.parametrize(
    ("written", "protocol", "tls", "expected"),
    [
        ("v2-rest://host:8000", "", False, ("v2-rest", "http://host:8000")),
        ("v2-rest+tls://host:8000/below", "", False, ("v2-rest", "https://host:8000/below")),
        ("v2-rest://host:8000", "", True, ("v2-rest", "https://host:8000")),
        ("v2-grpc://[::1]:8001", "", False, ("v2-grpc", "[::1]:8001")),
        ("grps-grpc+tls://host:1", "", False, ("grps-grpc", "grpcs://host:1")),
        ("grps-brpc://host:1", "", False, ("grps-brpc", "tcp://host:1")),
        ("grps-brpc+tls://host:1", "grps-brpc", False, ("grps-brpc", "tcps://host:1")),
        ("mip:///run/model.sock", "", False, ("mip", "unix:///run/model.sock")),
        ("https://host/below", "umbridge", False, ("umbridge", "https://host/below")),
        ("host:1", "mip", False, ("mip", "host:1")),
        ("host:1", "v2-rest", True, ("v2-rest", "https://host:1")),
    ],
)
def test_an_address_is_that_of_a_transport(written: str, protocol: str, tls: bool, expected: tuple[str, str]) -> None:
    found = split_address(written, protocol, TRANSPORTS, tls=tls)
    assert (found.protocol, found.address) == expected
    assert found.tls is expected[1].startswith(("https", "grpcs", "tcps"))


@pytest.mark.parametrize(
    ("address", "arguments", "why"),
    [
        ("umbridg://host:1", {}, "no protocol 'umbridg'; did you mean 'umbridge'"),
        ("https://host:1", {}, "does not say the protocol; write it like v2-rest+tls://host:1"),
        (
            "host:1",
            {},
            "write it like v2-rest://host:1, or add the argument `protocol`; `gateway probe host:1` reports",
        ),
        ("host:1", {"protocol": "v3"}, "no protocol 'v3'"),
        ("v2-rest://host:1", {"protocol": "v2-grpc"}, "is for v2-rest, not for protocol='v2-grpc'; use one of them"),
        ("v2-grpc://host", {}, "it has no port"),
        ("v2-rest://host:1", {"kind": ServerKind(flavor="tritn")}, "no flavor 'tritn'; expected one of "),
        ("mip://host:1", {"kind": ServerKind(batch="halves")}, "no batch 'halves'; expected one of split"),
        ("v2-rest://host:1", {"kind": ServerKind(batch="whole")}, "v2-rest has none"),
        ("mip://host:1", {"key": "secret"}, "messages of mip cannot carry a key; use another protocol"),
        ("grps-brpc://host:1", {"headers": {"x-user": "a"}}, "cannot carry the header 'x-user'"),
        ("v2-rest://host:1", {"key": "a", "headers": {"Authorization": "b"}}, "set only one of `key` and"),
        ("v2-rest://host:1", {"headers": {"a": "b\r\nc: d"}}, "must be printable ASCII"),
        ("v2-rest+tls://host:1", {"tls": Tls(ca="no/such/file")}, "`ca`: cannot read the file: no such file"),
        ("v2-rest+tls://host:1", {"tls": Tls(certificate="a")}, "`certificate` and `certificate_key` go together"),
        ("http://host:1", {"protocol": "v2-rest", "tls": Tls(verify=False)}, "has no TLS, but other"),
        ("mip:///run/a.sock", {"tls": Tls()}, "has no TLS, but other"),
        ("v2-rest://host:1", {"limits": CallLimits(max_message=0)}, "max_message is 0"),
    ],
)
def test_a_wrong_argument_is_named(address: str, arguments: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        Client(address, **arguments)  # type: ignore[arg-type]

    assert "secret" not in str(caught.value)
