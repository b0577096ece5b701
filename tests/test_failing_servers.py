"""With `safe: true`, `retry` and `timeout.per_try`, clients do not notice that one of two servers is killed, started
again and paused. `make attack` does the same with more calls."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.failing_servers import running, status_of, survive
from tests.relay import PASS, Relay, Then, Way, relaying
from tests.running_gateway import reference

pytestmark = pytest.mark.long

CALLS = 2000
PROTOCOLS = ("v2-rest", "v2-grpc", "mip", "grps-brpc")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_no_call_fails_while_one_of_two_servers_does(protocol: str, tmp_path: Path) -> None:
    load = await survive(protocol, tmp_path, CALLS, clients=16, times=1)
    assert load.failed == []
    assert set(load.statuses) == {200}
    assert load.statuses.total() >= CALLS


FAULTS = {
    "resets": Way(after=3, then=Then.RESET),
    "closes": Way(after=3, then=Then.CLOSE),
    "half-closes": Way(after=3, then=Then.HALF_CLOSE),
    "swallows": Way(after=3, then=Then.SWALLOW),
    "garbles": Way(after=3, then=Then.GARBAGE),
}


async def relayed(stack: AsyncExitStack, protocol: str) -> tuple[Relay, list[str]]:
    """A relay in front of one of two reference servers, and the addresses of the relay and of the other server."""
    first, second = [await stack.enter_async_context(reference(protocol, "posterior")) for _ in range(2)]
    relay = await stack.enter_async_context(relaying(first.rpartition("/")[2]))
    return relay, [relay.address, second.rpartition("/")[2]]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_no_call_fails_while_the_replies_of_one_of_two_servers_do(protocol: str, fault: Way) -> None:
    """A reply that is no message is INTERNAL, which `retry` must be told."""
    policies = "[{timeout: {seconds: 60, per_try: 5}}, {retry: {statuses: [UNAVAILABLE, INTERNAL]}}]"
    async with AsyncExitStack() as stack:
        relay, addresses = await relayed(stack, protocol)
        gateway, load = await stack.enter_async_context(running(protocol, addresses, clients=4, policies=policies))
        await load.calls(20)
        relay.replies = fault
        await load.until(lambda: status_of(gateway)[0].last_error is not None)
        await load.calls(20)
        relay.replies = PASS
        await load.calls(20)
    assert load.failed == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_call_that_hangs_is_answered_by_the_other_server(protocol: str) -> None:
    async with AsyncExitStack() as stack:
        relay, addresses = await relayed(stack, protocol)
        policies = "[{timeout: {seconds: 10}}, {hedge: {}}]"
        _, load = await stack.enter_async_context(running(protocol, addresses, clients=1, policies=policies))
        await load.calls(300)  # of which a tenth may have a second try
        relay.replies = Way(then=Then.SWALLOW)
        await load.calls(10)
    assert load.failed == []
