"""API keys and certificates as the console's API lists them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.admin.console.access import MOST_KEYS, ListedKeys, listed_keys
from gateway.auth.keys import key_file, new_key
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, model_client
from tests.admin.asking import key_file as written
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {}}]
admin: {bind: "127.0.0.1:0"}
auth: {keys: {file: "KEYS"}}
principals: {alice: {permissions: [use]}, bob: {permissions: [use]}}
"""
PAST = datetime.now(UTC) - timedelta(days=1)
(ALICE, ALICE_ENTRY), (BOB, BOB_ENTRY) = new_key("alice", note="the laptop"), new_key("bob", expires=PAST)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(CONFIG.replace("KEYS", str(written(tmp_path, BOB_ENTRY, ALICE_ENTRY)))) as found:
        yield found


async def ask(gateway: Gateway, key: str) -> None:
    async with model_client(gateway) as client:
        await client.get("/v2", headers={"x-api-key": key})


async def keys(gateway: Gateway, text: str = "") -> ListedKeys:
    async with admin_client(gateway) as client:
        reply = await client.get("/api/keys", params={"text": text})
    for entry in (ALICE_ENTRY, BOB_ENTRY):
        assert entry.sha256 not in reply.text
    assert ALICE not in reply.text
    return ListedKeys.model_validate_json(reply.content)


async def test_keys_are_listed_with_their_last_use(gateway: Gateway) -> None:
    before = datetime.now(UTC)
    await ask(gateway, BOB)  # it has expired, so it lets nobody in
    assert [each.last_used for each in (await keys(gateway)).keys] == [None, None]
    await ask(gateway, ALICE)
    alice, bob = (await keys(gateway)).keys
    assert (alice.id, alice.principal, alice.state, alice.note) == (ALICE_ENTRY.id, "alice", "valid", "the laptop")
    assert (bob.principal, bob.state, bob.last_used) == ("bob", "expired", None)
    assert alice.last_used is not None
    assert alice.last_used >= before
    assert [each.principal for each in (await keys(gateway, "LAPTOP")).keys] == ["alice"]


async def test_the_last_use_is_known_over_a_reload(gateway: Gateway) -> None:
    await ask(gateway, ALICE)
    await gateway.reload(gateway.state.config.model_copy(update={"routes": (), "ready": "none"}))
    first = (await keys(gateway)).keys[0].last_used
    assert first is not None
    await ask(gateway, ALICE)
    again = (await keys(gateway)).keys[0].last_used
    assert again is not None
    assert again > first
    assert [each.uses for each in (await keys(gateway)).keys] == [2, 0]


def test_of_many_keys_some_are_listed() -> None:
    entries = [new_key("alice")[1] for _ in range(MOST_KEYS + 1)]
    found = listed_keys("keys.yaml", key_file(entries), {}, "")
    assert (len(found.keys), found.matching) == (MOST_KEYS, MOST_KEYS + 1)
