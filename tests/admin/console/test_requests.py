"""The last requests as the console's API lists them."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.admin.console.requests import ListedRequests
from gateway.auth.keys import new_key
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, infer, key_file
from tests.interop.processes import free_port
from tests.running_gateway import running_gateway

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: asking, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {}}
admin: {bind: "127.0.0.1:0"}
auth: {keys: {file: "KEYS"}}
principals: {alice: {permissions: [use]}}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double]}]
backends: {lab: {protocol: v2-rest, endpoints: ["http://127.0.0.1:PORT"]}}
routes: [{match: {model: double}, backend: lab}]
"""
KEY, ENTRY = new_key("alice")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    text = CONFIG.replace("PORT", str(free_port())).replace("KEYS", str(key_file(tmp_path, ENTRY)))
    async with running_gateway(text) as found:
        await send(found, "double", "first-1")
        await send(found, "missing", "lost-2")
        await send(found, "double", "third-3", "asking", key=KEY)
        await send(found, "double", "refused-4", "asking", key="gw_wrong")
        yield found


async def send(gateway: Gateway, model: str, id: str, listener: str = "http", key: str = "none") -> None:
    headers = {"x-request-id": id, "x-api-key": key, "x-secret": "in-a-header"}
    await infer(gateway, model, listener=listener, headers=headers)


async def asked(gateway: Gateway, **query: str) -> httpx.Response:
    async with admin_client(gateway) as client:
        return await client.get("/api/requests", params=query)


async def ids(gateway: Gateway, **query: str) -> list[str]:
    found = ListedRequests.model_validate_json((await asked(gateway, **query)).content)
    return [each.id for each in found.requests]


async def test_requests_are_listed_with_what_became_of_them(gateway: Gateway) -> None:
    reply = await asked(gateway)
    found = ListedRequests.model_validate_json(reply.content)
    assert (found.matching, found.kept) == (4, 4)
    refused, third, lost, first = found.requests
    assert (first.model, first.route, first.backend) == ("double", "double", "lab")
    assert (first.status, first.code) == ("OK", 200)
    assert 0 < first.upstream < first.seconds
    assert (third.principal, third.listener) == ("alice", "asking")
    assert (lost.status, lost.reason, lost.code, lost.route) == ("NOT_FOUND", "model-not-found", 404, "")
    assert refused.status == "UNAUTHENTICATED"
    assert [each.fault for each in (first, lost, refused)] == ["", "caller", "caller"]
    assert {each.fault for each in found.reasons.values()} == {"caller"}
    assert found.reasons.keys() == {"model-not-found", "unauthenticated"}
    for secret in (KEY, "gw_wrong", "in-a-header", "31.4159", str(ENTRY.sha256)):
        assert secret not in reply.text


SEARCHES: list[tuple[dict[str, str], list[str]]] = [
    ({"id": "FIRST"}, ["first-1"]),
    ({"model": "doub"}, ["third-3", "first-1"]),  # one without a valid key is not read, so its model is not known
    ({"principal": "ali"}, ["third-3"]),
    ({"status": "failed"}, ["refused-4", "lost-2"]),
    ({"status": "NOT_FOUND"}, ["lost-2"]),
    ({"status": "OK", "listener": "http"}, ["first-1"]),
    ({"route": "double", "backend": "lab"}, ["third-3", "first-1"]),
    ({"model": "double", "status": "NOT_FOUND"}, []),
    ({"most": "1"}, ["refused-4"]),
]


async def test_requests_are_found(gateway: Gateway) -> None:
    for query, wanted in SEARCHES:
        assert await ids(gateway, **query) == wanted, query
    for query in ({"status": "BROKEN"}, {"most": "0"}, {"most": "100000"}):
        assert (await asked(gateway, **query)).status_code == 422, query


async def test_requests_are_kept_over_a_reload(gateway: Gateway) -> None:
    await gateway.reload(gateway.state.config.model_copy(update={"routes": ()}))
    await send(gateway, "double", "fifth-5")
    assert await ids(gateway, status="NOT_FOUND") == ["fifth-5", "lost-2"]
