"""What the console's API tells of a principal."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.admin.console.access import DescribedPrincipal
from gateway.auth.keys import new_key
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, infer, key_file
from tests.interop.processes import free_port
from tests.running_gateway import running_gateway

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {}}
  - {name: free, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: half, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {anonymous: guest}}
admin: {bind: "127.0.0.1:0"}
auth:
  keys: {file: "KEYS"}
  certificates: [{identity: "spiffe://ci", principal: ci-1}, {identity: "*", principal: "[cert]*"}]
permissions:
  doubling: [{operations: [metadata, infer], models: ["dou*"], listeners: [http]}, {operations: [admin]}]
principals: {alice: {permissions: [doubling, use]}, "ci-*": {permissions: [all]}, guest: {permissions: [use]}}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double]}]
backends: {lab: {protocol: v2-rest, endpoints: ["http://127.0.0.1:PORT"], policies: [RATE]}}
routes: [{match: {model: double}, backend: lab, policies: [{rate_limit: {requests: 9, by: client}}]}]
"""
RATE = "{rate_limit: {requests: 5, seconds: 3600, burst: 3, by: principal}}"
(ALICE, ENTRY), (_, OTHER) = new_key("alice", note="the laptop"), new_key("alice-2")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    keys = str(key_file(tmp_path, ENTRY, OTHER))
    text = CONFIG.replace("KEYS", keys).replace("PORT", str(free_port())).replace("RATE", RATE)
    async with running_gateway(text) as found:
        yield found


async def described(gateway: Gateway, name: str) -> DescribedPrincipal:
    async with admin_client(gateway) as client:
        reply = await client.get("/api/principal", params={"name": name})
    for secret in (ALICE, ENTRY.sha256, OTHER.sha256):
        assert secret not in reply.text
    return DescribedPrincipal.model_validate_json(reply.content)


async def test_a_principal_has_its_permissions_keys_and_what_is_left_of_its_limits(gateway: Gateway) -> None:
    await infer(gateway, "double", headers={"x-api-key": ALICE})
    found = await described(gateway, "alice")
    assert found.entry == "alice"
    assert [(each.name, each.is_built_in) for each in found.sets] == [("doubling", False), ("use", True)]
    some, every = found.sets[0].grants
    assert (some.operations, some.models, some.listeners) == (["infer", "metadata"], ["dou*"], ["http"])
    assert (every.operations, every.models, every.listeners) == (["admin"], ["*"], ["*"])
    [limit] = found.limits
    assert (limit.place, limit.requests, limit.seconds, limit.burst, limit.left) == ("backends.lab", 5, 3600, 3, 2)
    assert limit.full_in is not None
    assert 700 < limit.full_in <= 720
    [key] = found.keys
    assert (key.id, key.note) == (ENTRY.id, "the laptop")
    assert key.last_used is not None
    assert found.open_listeners == ["free"]


WAYS = [
    ("ci-1", "ci-*", ["spiffe://ci"], []),
    ("guest", "guest", [], ["half"]),
    ("[cert]CN=x", None, ["*"], []),
    ("c", None, [], []),
]


async def test_how_clients_come_to_be_a_principal(gateway: Gateway) -> None:
    for name, entry, certificates, anonymous in WAYS:
        found = await described(gateway, name)
        assert (found.entry, found.certificates, found.anonymous_on) == (entry, certificates, anonymous), name
        assert [each.left for each in found.limits] == [3]
