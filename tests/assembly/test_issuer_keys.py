"""The keys of an issuer, used by the configurations before and after a reload."""

import asyncio
from pathlib import Path

import pytest

from gateway.assembly.issuer_keys import IssuerKeys
from gateway.config.access import TokensConfig
from tests.auth.issuer import Issuer
from tests.paused_server import http, listening, read_message


async def test_keys_are_kept_up_to_date_for_all_that_use_them_until_the_last_one_ends(tmp_path: Path) -> None:
    issuer = Issuer()
    issuer.rotate("ES256", "first")
    jwks = tmp_path / "jwks.json"
    jwks.write_bytes(issuer.jwks)
    before = asyncio.all_tasks()
    told: list[str] = []
    config = TokensConfig(issuer=issuer.url, jwks=str(jwks), audience=("models",))
    keys = IssuerKeys(config, asyncio.get_running_loop().time)
    keys.begin_use("old", lambda: told.append("old"))
    keys.begin_use("new", lambda: told.append("new"))
    (refreshing,) = asyncio.all_tasks() - before
    keys.end_use("never begun")
    await asyncio.sleep(0)
    lookup = keys.lookup()
    assert lookup is not None
    await lookup
    assert (list(keys.keys), told) == (["first"], ["old", "new"])
    keys.end_use("old")
    assert not refreshing.cancelling()
    keys.end_use("new")
    assert refreshing.cancelling()


WELL_KNOWN = "/.well-known/openid-configuration"
FAILURES: dict[str, tuple[dict[str, str], dict[str, bytes], str]] = {
    "no discovery": ({}, {}, f"{WELL_KNOWN} was answered with status 404"),
    "no JSON": (
        {},
        {WELL_KNOWN: b"<html>"},
        "its openid-configuration is not JSON; check `issuer`, or set `jwks`",
    ),
    "another issuer": (
        {},
        {WELL_KNOWN: b'{"issuer": "http://other"}'},
        "its openid-configuration has another issuer; write that one in the configuration",
    ),
    "no jwks_uri": (
        {},
        {WELL_KNOWN: b'{"issuer": "ISSUER"}'},
        "its openid-configuration has no jwks_uri; set `jwks`",
    ),
    "no JWKS": ({"jwks": "ISSUER/jwks"}, {}, "/jwks was answered with status 404"),
    "no file": ({"jwks": "/gone/jwks.json"}, {}, "No such file or directory"),
    "no CA": (
        {"issuer": "https://127.0.0.1:1", "ca": "/gone/ca.crt"},
        {},
        "cannot use its ca: cannot read the file: no such file or directory; check the path and its permissions",
    ),
}


@pytest.mark.parametrize(("keys", "documents", "why"), FAILURES.values(), ids=list(FAILURES))
async def test_why_keys_cannot_be_fetched_is_logged(
    keys: dict[str, str], documents: dict[str, bytes], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_message(reader)
        body = documents.get(head.split(b" ")[1].decode())
        status = b"HTTP/1.1 404 Not Found" if body is None else b"HTTP/1.1 200 OK"
        writer.write(http(status, (body or b"").replace(b"ISSUER", url.encode())))
        writer.close()

    async with listening(serve) as port:
        url = f"http://127.0.0.1:{port}"
        changed = {name: text.replace("ISSUER", url) for name, text in keys.items()}
        config = TokensConfig.model_validate({"issuer": url, "audience": ("models",), **changed})
        found = IssuerKeys(config, lambda: 0.0)
        lookup = found.lookup()
        assert lookup is not None
        await lookup
    text = f"issuer {config.issuer}: cannot fetch its keys; the gateway refuses its tokens: {why}"
    assert [each.message for each in caplog.records] == [text]
    assert found.lookup() is None  # the last lookup was too recent


async def test_the_last_user_ends_a_lookup_that_hangs() -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        asked.set()
        await reader.read()
        writer.close()

    async with listening(hang) as port:
        config = TokensConfig(issuer=f"http://127.0.0.1:{port}", audience=("models",))
        keys = IssuerKeys(config, lambda: 0.0)
        keys.begin_use("gateway", lambda: None)
        await asked.wait()
        lookup = keys.lookup()
        assert lookup is not None
        keys.end_use("gateway")
        await asyncio.wait({lookup})
    assert lookup.cancelled()
