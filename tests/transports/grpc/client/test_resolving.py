import socket

import pytest

from gateway.core.address import Address
from gateway.transports.grpc.client.connector import resolved


@pytest.mark.parametrize("address", [Address("127.0.0.1", 80), Address("::1", 80), Address(path="/run/model.sock")])
async def test_an_address_without_a_host_name_is_not_looked_up(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "getaddrinfo")
    assert await resolved(address) == [address]


async def test_a_name_stands_for_each_of_its_addresses_once() -> None:
    found = await resolved(Address("localhost", 80))
    assert set(found) <= {Address("127.0.0.1", 80), Address("::1", 80)}
    assert 0 < len(found) == len(set(found))
