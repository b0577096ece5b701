"""Clients of one wire form at a server of another: the error says what seems to be there, for all pairs."""

import re

import pytest

from gateway.assembly.registry import protocols
from gateway.client import AsyncClient, ClientError
from gateway.transports.protocol_hints import foreign, foreign_to_byte_streams
from tests.limits import GENEROUS
from tests.running_gateway import reference

FORMS = {name: each.transport for name, each in protocols().items()}

AT_A_LISTENER = r"(unknown path|no method|speaks HTTP/1.1, not gRPC).*; this listener speaks {server}"
"""Both sides have one transport, HTTP or gRPC, or a client of gRPC is at a listener of HTTP: the server's reply says
what it speaks."""
BY_FIRST_BYTES = r"; it seems to be an? .* for the protocols? (.*)$"


@pytest.mark.parametrize("server", FORMS)
async def test_a_client_of_another_wire_form_is_told_what_seems_to_be_there(server: str) -> None:
    """The address of a backend, or its `protocol`, is wrong."""
    async with reference(server, "double") as address:
        for name in FORMS.keys() - {server}:
            async with AsyncClient(f"{name}://{address.rpartition('://')[2]}", timeout=GENEROUS) as client:
                with pytest.raises(ClientError) as raised:
                    await client.infer("double", [[1.0, 2.0, 3.0]])
            text = str(raised.value)
            assert text.isprintable()
            if FORMS[name] == FORMS[server] != "tcp" or (FORMS[name], FORMS[server]) == ("grpc", "http"):
                assert re.search(AT_A_LISTENER.format(server=server), text), (name, server, text)
            else:
                found = re.search(BY_FIRST_BYTES, text)
                assert found, (name, server, text)
                expected = {form for form in FORMS if FORMS[form] == FORMS[server] and FORMS[server] != "tcp"}
                assert set(re.split(", | and ", found[1])) == (expected or {server}), (name, server, text)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "a server with TLS"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "an HTTP/2 (gRPC) server"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03", "an HTTP/2 (gRPC) server"),
        (bytes(8), "a server of KubeMo's MIP"),
        (b"\x00\x00\x09\x00\x00\x00\x00\x00", ""),  # MIP has no error 9
        (b"\x00\x02\x01\x00\x00\x00\x00\x08", ""),  # a MIP reply that is no error
        (b"<!DOCTYPE HTML>\n", "an HTTP/1.1 server"),
        (b"HTTP/1.1 400 Bad", "an HTTP/1.1 server"),
        (b"SSH-2.0-OpenSSH_9.2", ""),
        (b"", ""),
    ],
)
def test_what_seems_to_answer(first: bytes, said: str) -> None:
    """Servers are known by the first bytes that they send; nothing is guessed where these say nothing."""
    assert said in foreign(first)
    assert bool(said) == bool(foreign(first))


def test_a_client_of_grpc_without_tls_is_told_that_a_400_may_mean_tls() -> None:
    assert "; or, because it answers 400, a server with TLS" in foreign(b"HTTP/1.1 400 Bad", "grpc")
    assert "with TLS" not in foreign(b"HTTP/1.1 404 Not", "grpc")


def test_a_mip_error_is_no_http2() -> None:
    """kubemo's error 0 and an empty SETTINGS frame differ in one byte of their first eight."""
    assert not foreign_to_byte_streams(bytes(8))
    assert foreign_to_byte_streams(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
