"""With `safe: true`, `retry` and `timeout.per_try`, clients do not notice that one of two servers is killed, started
again and paused. `make attack` does the same with more calls."""

from pathlib import Path

import pytest

from tests.failing_servers import survive

CALLS = 2000


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "mip", "grps-brpc"])
async def test_no_call_fails_while_one_of_two_servers_does(protocol: str, tmp_path: Path) -> None:
    load = await survive(protocol, tmp_path, CALLS, clients=16, times=1)
    assert load.failed == []
    assert set(load.statuses) == {200}
    assert load.statuses.total() >= CALLS
