"""With two endpoints, `retry` and `safe: true`, none of ten thousand calls fails while the servers are killed,
restarted and paused in turn under load."""

from pathlib import Path

import pytest

from tests.failing_servers import survive

CALLS = 10_000


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "mip", "grps-brpc"])
async def test_no_call_of_ten_thousand_fails(protocol: str, tmp_path: Path) -> None:
    load = await survive(protocol, tmp_path, CALLS, clients=32, times=4)
    assert load.failed == []
    assert set(load.statuses) == {200}
    assert load.statuses.total() >= CALLS
