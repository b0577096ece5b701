"""A rate limit holds for all workers together."""

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.runtime.workers.served import get, serving
from tests.runtime.workers.test_serving import config, infer

pytestmark = pytest.mark.long

POLICIES = "policies: [{rate_limit: {requests: 10, seconds: 1000, by: principal}}]"
GUESTS = "principals: {guest: {permissions: [use]}}\nauth: {certificates: [{identity: x, principal: x}]}\n"


async def test_a_client_gets_its_requests_once_however_many_workers_there_are(tmp_path: Path) -> None:
    text = GUESTS + config().replace("workers: 2", "workers: 3")
    text = text.replace("protocols: [v2-rest]}]\n", "protocols: [v2-rest], auth: {anonymous: guest}}]\n", 1)
    async with serving(text.replace("backend: ref}", f"backend: ref, {POLICIES}}}"), tmp_path) as gateway:
        statuses = await asyncio.gather(*(infer(gateway) for _ in range(60)))
        assert sorted(statuses) == [200] * 10 + [429] * 50
        found = orjson.loads((await get(gateway.ports["admin"], "/api/principal?name=guest"))[1])
        assert [(each["place"], each["left"]) for each in found["limits"]] == [("identity", 0)]
