"""The keys of an issuer, used by the configurations before and after a reload."""

import asyncio
from pathlib import Path

from gateway.assembly.issuer_keys import IssuerKeys
from gateway.config.access import TokensConfig
from tests.auth.issuer import Issuer


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
