"""How long a revoked key is still accepted: at most twice `reload.interval`, as docs/security.md says."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly.authentication import Access
from gateway.auth.keys import KeyEntry, new_key, write_keys
from gateway.config import Config
from gateway.config.access import ListenerAuthConfig
from gateway.core.errors import GatewayError
from gateway.core.messages import Headers
from tests.running_gateway import config_of
from tests.skipping_loop import SkippingLoop, skip

INTERVAL = 1.0
MOST = 2 * INTERVAL
STEP = 0.05
CONFIG = """
auth: {{keys: {{file: {file}}}}}
principals: {{alice: {{permissions: [all]}}, bob: {{permissions: [all]}}}}
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {{}}}}]
backends: {{lab: {{protocol: v2-rest, endpoints: ["lab:1"]}}}}
reload: {{interval: {interval}}}
"""
ALICE, ALICE_ENTRY = new_key("alice")
_, BOB_ENTRY = new_key("bob")


def config(file: Path) -> Config:
    return config_of(CONFIG.format(file=file, interval=INTERVAL))


def write(file: Path, *entries: KeyEntry) -> None:
    new = file.with_suffix(".new")
    new.write_text(write_keys(entries))
    new.replace(file)


def changed(file: Path) -> None:
    write(file, ALICE_ENTRY.model_copy(update={"revoked": datetime.now(UTC)}), BOB_ENTRY)


def is_accepted(access: Access) -> bool:
    try:
        access.authenticator(ListenerAuthConfig())(Headers([(b"x-api-key", ALICE.encode())]), "")
    except GatewayError:
        return False
    return True


async def _at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@pytest.mark.parametrize("reloads", [False, True], ids=["", "while reloads follow each other"])
@pytest.mark.parametrize("changes", [False, True], ids=["", "while the file goes on changing"])
@pytest.mark.parametrize("offset", [0.0, 0.3, 0.49])
def test_a_revoked_key_ends_in_time(
    offset: float, changes: bool, reloads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "to_thread", _at_once)  # a thread would need time that nobody puts forward
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(revoked(tmp_path / "keys.yaml", offset, changes=changes, reloads=reloads))


async def revoked(file: Path, offset: float, *, changes: bool, reloads: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    write(file, ALICE_ENTRY, BOB_ENTRY)
    access = Access(config(file), loop.time)
    access.begin()
    await skip(INTERVAL + offset)
    assert is_accepted(access)
    changed(file)
    begun = loop.skipped
    while is_accepted(access):
        assert loop.skipped - begun <= MOST
        await skip(STEP)
        if changes:
            changed(file)
        if reloads:
            following = Access(config(file), loop.time, access)
            following.begin()
            access.end()
            access = following
    access.end()
    assert loop.skipped - begun <= MOST


async def test_a_file_that_has_become_invalid_keeps_the_keys_or_gives_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.yaml"
    write(file, ALICE_ENTRY)
    configured = config(file)
    access = Access(configured, lambda: 0.0)
    file.write_text("keys: 1")
    assert access.file is not None
    await access.file.read_now()
    assert is_accepted(access)
    assert not is_accepted(Access(configured, lambda: 0.0))
    kept, none = (each.message for each in caplog.records)
    assert kept.startswith(f"cannot read the API keys in {file}, so the gateway keeps the previous ones: ")
    assert none.startswith(f"cannot read the API keys in {file}, so the gateway accepts no key: ")
