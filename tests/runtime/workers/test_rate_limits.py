"""A rate limit holds for all workers together."""

import asyncio
from pathlib import Path

from tests.interop.processes import free_port
from tests.runtime.workers.served import serving
from tests.runtime.workers.test_serving import CONFIG, infer

POLICIES = "policies: [{rate_limit: {requests: 10, seconds: 1000}}]"


async def test_a_client_gets_its_requests_once_however_many_workers_there_are(tmp_path: Path) -> None:
    text = (
        CONFIG.replace("REFERENCE", str(free_port())).replace("MODEL", "identity").replace("workers: 2", "workers: 3")
    )
    async with serving(text.replace("backend: ref}", f"backend: ref, {POLICIES}}}"), tmp_path) as gateway:
        found = await asyncio.gather(*(infer(gateway) for _ in range(60)))
        assert sorted(found) == [200] * 10 + [429] * 50
