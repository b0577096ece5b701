"""Keys are created and revoked over the status API: by whom, where, and what becomes known of them."""

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.admin.console.access import ListedKeys
from gateway.auth.keys import new_key, read_keys, write_keys
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, key_file, model_client
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {}}]
admin: {bind: "127.0.0.1:0", auth: {}}
auth: {keys: {file: "KEYS"}}
permissions: {operating: [{operations: [admin]}]}
principals: {ops: {permissions: [operating]}, alice: {permissions: [use]}}
"""
(OPS, OPS_ENTRY), (ALICE, ALICE_ENTRY) = new_key("ops"), new_key("alice")


class Kept:
    """The key file, as the gateway leaves it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def text(self) -> str:
        return self.file.read_text()

    def write(self, text: str) -> None:
        self.file.write_text(text)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.file.stat().st_mode)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(key_file(tmp_path, OPS_ENTRY, ALICE_ENTRY))


@pytest.fixture
async def gateway(kept: Kept) -> AsyncIterator[Gateway]:
    async with running_gateway(CONFIG.replace("KEYS", str(kept.file))) as found:
        yield found


async def post(gateway: Gateway, path: str, body: Any, key: str = OPS, **headers: str) -> httpx.Response:
    async with admin_client(gateway) as client:
        return await client.post(path, json=body, headers={"x-api-key": key, **headers})


async def asked(gateway: Gateway, key: str) -> int:
    """The status of a request for a model's server with this key."""
    async with model_client(gateway) as client:
        return (await client.get("/v2", headers={"x-api-key": key})).status_code


async def listed(gateway: Gateway) -> ListedKeys:
    async with admin_client(gateway) as client:
        return ListedKeys.model_validate_json((await client.get("/api/keys", headers={"x-api-key": OPS})).content)


async def test_a_created_key_is_shown_once_and_works_immediately(
    gateway: Gateway, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    reply = await post(gateway, "/keys", {"principal": "alice", "note": "nightly", "expires": "2099-01-01T00:00:00Z"})
    assert (reply.status_code, reply.headers["cache-control"]) == (200, "no-store")
    key, entry = reply.json()["key"], reply.json()["entry"]
    assert await asked(gateway, key) == 200
    stored = read_keys(kept.file).find(key.encode())
    assert stored is not None
    assert (stored.id, stored.principal, stored.note) == (entry["id"], "alice", "nightly")
    assert kept.mode == 0o600
    shown = await listed(gateway)
    assert [each.uses for each in shown.keys if each.id == entry["id"]] == [1]
    for text in (caplog.text, kept.text, shown.model_dump_json(), json.dumps(entry)):
        assert key not in text
    assert f"key {entry['id']} of 'alice' is created" in caplog.text
    assert stored.sha256 not in caplog.text


async def test_a_revoked_key_is_refused_immediately(gateway: Gateway, kept: Kept) -> None:
    assert await asked(gateway, ALICE) == 200
    reply = await post(gateway, "/keys/revoke", {"id": ALICE_ENTRY.id})
    assert (reply.status_code, reply.json()["state"]) == (200, "revoked")
    assert await asked(gateway, ALICE) == 401
    assert (await post(gateway, "/keys/revoke", {"id": "0"})).status_code == 404
    assert [each.revoked is None for each in read_keys(kept.file).entries] == [True, False]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/keys", {"principal": "ops"}), ("/keys/revoke", {"id": OPS_ENTRY.id})],
    ids=["create", "revoke"],
)
@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        (ALICE, {}, 403),  # no permission `admin`
        ("gw_wrong", {}, 401),
        (OPS, {"origin": "http://elsewhere.example"}, 403),
        (OPS, {"sec-fetch-site": "cross-site"}, 403),
    ],
    ids=["no permission", "no such key", "another origin", "another site"],
)
async def test_others_change_nothing(
    gateway: Gateway, kept: Kept, path: str, body: Any, key: str, headers: dict[str, str], status: int
) -> None:
    before = kept.text
    assert (await post(gateway, path, body, key, **headers)).status_code == status
    assert kept.text == before


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"principal": ""},
        {"principal": "a\nb"},
        {"principal": "a" * 257},
        {"principal": "alice", "note": "\x1b[31m"},
        {"principal": "alice", "expires": "2001-01-01T00:00:00Z"},
        {"principal": "alice", "expires": "tomorrow"},
        {"principal": "alice", "sha256": "0" * 64},
    ],
)
async def test_a_wrong_request_creates_no_key(gateway: Gateway, kept: Kept, body: Any) -> None:
    before = kept.text
    assert (await post(gateway, "/keys", body)).status_code == 422
    assert kept.text == before


async def test_a_file_that_cannot_be_changed_is_told(gateway: Gateway, kept: Kept) -> None:
    kept.write("keys: 7")
    reply = await post(gateway, "/keys", {"principal": "alice"})
    assert (reply.status_code, "the key file is not changed" in reply.text) == (409, True)
    assert kept.text == "keys: 7"


@pytest.mark.parametrize(
    ("replaced", "by", "why"),
    [
        ('"127.0.0.1:0", auth: {}}\nauth', '"127.0.0.1:0"}\nauth', "set `admin.auth`"),
        ('auth: {keys: {file: "KEYS"}}\n', "", "names no key file"),
    ],
)
async def test_without_admin_auth_or_a_key_file_nothing_changes(kept: Kept, replaced: str, by: str, why: str) -> None:
    text = CONFIG.replace(replaced, by)
    if not by:
        text = text.replace(", auth: {}", "")
    async with running_gateway(text.replace("KEYS", str(kept.file))) as gateway:
        for path, body in (("/keys", {"principal": "ops"}), ("/keys/revoke", {"id": OPS_ENTRY.id})):
            reply = await post(gateway, path, body)
            assert (reply.status_code, why in reply.text) == (409, True)
        assert why in (await listed(gateway)).why_fixed
    assert kept.text == write_keys([OPS_ENTRY, ALICE_ENTRY])
