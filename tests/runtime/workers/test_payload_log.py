"""The payload log of all workers: one file, and counts together."""

import asyncio
import json
from collections import Counter
from pathlib import Path

from tests.interop.processes import free_port
from tests.runtime.workers.served import serving
from tests.runtime.workers.test_caches import MANY, counted, infer

CONFIG = """
workers: 2
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
log: {payloads: {to: "FILE", sample: 1}}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [identity]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes: [{match: {model: "*"}, backend: lab, rewrite: {model: identity}}]
"""


async def test_all_workers_write_whole_lines_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = CONFIG.replace("PORT", str(free_port())).replace("FILE", str(path))
    async with serving(text, tmp_path) as gateway:
        assert [await infer(gateway, at) for at in range(MANY)] == [200] * MANY
        while await counted(gateway, "gateway_payload_log_sent_total") < 2 * MANY:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        assert await counted(gateway, "gateway_payload_log_dropped_total") == 0
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert set(Counter(each["id"] for each in events).values()) == {2}
    assert len(events) == 2 * MANY
