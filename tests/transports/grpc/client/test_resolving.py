import pytest

from gateway.core.address import Address
from gateway.core.errors import Status, TransportError
from gateway.transports.grpc.client.connector import resolved
from tests.transports.grpc.toy import LOOPS as LOOPS


@pytest.mark.parametrize("address", [Address("127.0.0.1", 80), Address("::1", 80), Address(path="/run/model.sock")])
async def test_what_is_no_name_is_its_own(address: Address) -> None:
    assert await resolved(address) == [address]


async def test_a_name_stands_for_each_of_its_addresses_once() -> None:
    found = await resolved(Address("localhost", 80))
    assert set(found) <= {Address("127.0.0.1", 80), Address("::1", 80)}
    assert 0 < len(found) == len(set(found))


async def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(TransportError, match=r"host name 'no.such.name.invalid' not resolved: ") as caught:
        await resolved(Address("no.such.name.invalid", 80))
    assert (caught.value.status, caught.value.sent) == (Status.UNAVAILABLE, False)
