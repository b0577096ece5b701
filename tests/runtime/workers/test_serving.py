"""A gateway with several workers looks like one: metrics, status, readiness, reload and its end."""

import asyncio
import os
import re
import signal
from pathlib import Path

import orjson
import pytest

from tests.interop.processes import free_port
from tests.runtime.workers.served import Served, ended, get, post, serving

CONFIG = """
workers: 2
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
reference: [{protocol: v2-rest, bind: "127.0.0.1:REFERENCE", models: [identity]}]
backends:
  ref: {protocol: v2-rest, endpoints: ["127.0.0.1:REFERENCE"], policies: [{timeout: {seconds: 60}}]}
routes: [{match: {model: MODEL}, backend: ref}]
"""
QUESTION = orjson.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [2.0]}]})
CALLS = 40


def config(model: str = "identity", port: int = 0) -> str:
    return CONFIG.replace("REFERENCE", str(port or free_port())).replace("MODEL", model)


async def infer(gateway: Served, model: str = "identity") -> int:
    status, _ = await post(gateway.ports["listener http"], f"/v2/models/{model}/infer", QUESTION)
    return status


async def all_answer(gateway: Served, model: str = "identity", status: int = 200) -> None:
    """Many requests at once, which reach all workers, have this status."""
    assert await asyncio.gather(*(infer(gateway, model) for _ in range(CALLS))) == [status] * CALLS


async def metric(gateway: Served, name: str) -> float:
    """The sum of all samples with this name, and labels if they are part of it."""
    _, page = await get(gateway.ports["health"], "/metrics")
    return sum(float(each) for each in re.findall(rf"^{re.escape(name)}[^ ]* (\S+)$", page.decode(), re.M))


async def status(gateway: Served) -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = orjson.loads((await get(gateway.ports["admin"], "/status"))[1])
    return found


async def test_requests_of_all_workers_are_counted_together(tmp_path: Path) -> None:
    async with serving(config(), tmp_path) as gateway:
        await all_answer(gateway)
        assert await infer(gateway, "nobody") == 404
        assert await metric(gateway, "gateway_requests_total{") == CALLS + 1
        assert await metric(gateway, "gateway_request_seconds_count{") == CALLS + 1
        assert await metric(gateway, "gateway_workers") == 2
        found = await status(gateway)
        assert found["listeners"]["http"]["requests"] == {"OK": CALLS, "NOT_FOUND": 1}
        assert found["backends"]["ref"]["requests"] == {"OK": CALLS}
        assert len(found["last_errors"]) == 1
        listed = orjson.loads((await get(gateway.ports["admin"], "/api/requests"))[1])
        assert [each["model"] for each in listed["requests"]] == ["nobody"] + ["identity"] * CALLS


@pytest.mark.long
async def test_counts_of_a_killed_worker_stay_and_it_is_started_again(tmp_path: Path) -> None:
    async with serving(config(), tmp_path) as gateway:
        await asyncio.gather(*(infer(gateway) for _ in range(CALLS)))
        assert await metric(gateway, "gateway_requests_total{") == CALLS
        first, second = sorted(gateway.workers)
        os.kill(second, signal.SIGKILL)
        await ended({second})
        assert await metric(gateway, "gateway_requests_total{") == CALLS
        await gateway.until_workers(2)
        assert first in gateway.workers
        while await metric(gateway, "gateway_workers") != 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
        assert await metric(gateway, "gateway_worker_restarts_total") == 1
        await all_answer(gateway)


async def test_a_reload_changes_all_workers_and_one_with_errors_none(tmp_path: Path) -> None:
    port = free_port()
    async with serving(config(port=port), tmp_path) as gateway:
        (tmp_path / "gateway.yaml").write_text(config("other", port).replace("backend: ref", "backend: missing"))
        assert (await post(gateway.ports["admin"], "/reload", b""))[0] == 422
        await all_answer(gateway)
        text = config("other", port).replace("backend: ref", "backend: ref, rewrite: {model: identity}")
        (tmp_path / "gateway.yaml").write_text(text)
        assert (await post(gateway.ports["admin"], "/reload", b""))[0] == 200
        await all_answer(gateway, status=404)
        await all_answer(gateway, "other")
        # Also by a worker that starts later, whatever the file says by then.
        (tmp_path / "gateway.yaml").write_text("nonsense")
        for each in gateway.workers:
            os.kill(each, signal.SIGKILL)
        while await metric(gateway, "gateway_workers") != 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
        assert await infer(gateway, "other") == 200


FORMS = """
forms:
  own: {infer: {path: "/own/{model}", request: {KEY: $x}, response: {y: $y}}}
"""


@pytest.mark.long
async def test_all_workers_speak_a_form_and_what_a_reload_makes_of_it(tmp_path: Path) -> None:
    text = FORMS + config().replace("[v2-rest]", '["json:own"]')

    async def answers(gateway: Served, body: bytes) -> set[tuple[int, bytes]]:
        port = gateway.ports["listener http"]
        return set(await asyncio.gather(*(post(port, "/own/identity", body) for _ in range(CALLS))))

    async with serving(text.replace("KEY", "x"), tmp_path) as gateway:
        assert await answers(gateway, b'{"x":[2.5]}') == {(200, b'{"y":[2.5]}')}
        (tmp_path / "gateway.yaml").write_text(text.replace("KEY", "value"))
        assert (await post(gateway.ports["admin"], "/reload", b""))[0] == 200
        assert await answers(gateway, b'{"value":[2.5]}') == {(200, b'{"y":[2.5]}')}
        assert {status for status, _ in await answers(gateway, b'{"x":[2.5]}')} == {400}


@pytest.mark.long
async def test_a_reload_that_a_worker_cannot_follow_changes_nothing(tmp_path: Path) -> None:
    port = free_port()
    async with serving(config(port=port), tmp_path) as gateway:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
        (tmp_path / "gateway.yaml").write_text(config("other", port).replace('"127.0.0.1:0"', f'"{address}"', 1))
        code, reply = await post(gateway.ports["admin"], "/reload", b"")
        assert code == 422
        assert b"cannot bind" in reply
        await all_answer(gateway)
        taken.close()


@pytest.mark.long
async def test_sigterm_lets_requests_end_in_all_workers(tmp_path: Path) -> None:
    async with serving(config(), tmp_path) as gateway:
        assert (await get(gateway.ports["health"], "/readyz")) == (200, b"ready")
        workers = gateway.workers
        await all_answer(gateway)
        gateway.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(gateway.process.wait, 60) == 0
        await ended(workers)
