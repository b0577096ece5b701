"""The files of the console, and the headers that they are served with."""

import httpx
import pytest
from fastapi import FastAPI

from gateway.admin.access import AccessCheck
from gateway.admin.console.page import POLICY, add_page
from gateway.auth.authenticator import Authenticator, Credentials
from gateway.auth.keys import key_file, new_key
from gateway.auth.permissions import Principals

FILES = ("", "console.css", "main.js", "theme.js", "icon.svg")


def page() -> FastAPI:
    app = FastAPI(docs_url=None)
    add_page(app)

    @app.get("/api/traffic")
    async def traffic() -> str:
        return "secret"

    return app


async def reply(path: str, method: str = "GET", app: object = None, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app or page())  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9090") as client:
        return await client.request(method, path, headers=headers)


async def test_the_root_leads_to_the_page() -> None:
    found = await reply("/")
    assert (found.status_code, found.headers["location"]) == (307, "console/")


@pytest.mark.parametrize("file", FILES)
async def test_every_file_has_the_headers_that_bind_the_browser(file: str) -> None:
    found = await reply(f"/console/{file}")
    assert found.status_code == 200
    assert found.headers["content-security-policy"] == POLICY
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["x-frame-options"] == "DENY"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert (await reply(f"/console/{file}", **{"if-none-match": found.headers["etag"]})).status_code == 304


def test_the_policy_lets_nothing_in_that_is_not_of_this_port() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["form-action"] == "'none'"
    assert {value for name, value in rules.items() if name.endswith("-src")} == {"'none'", "'self'"}


async def test_the_page_has_no_inline_script_and_no_address_of_another_host() -> None:
    text = (await reply("/console/")).text
    assert "<script>" not in text
    assert " style=" not in text
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize("path", ["/console/no.js", "/console/../page.py", "/console/%2e%2e/page.py", "/console/a/b"])
async def test_there_are_no_other_files(path: str) -> None:
    assert (await reply(path)).status_code == 404


async def test_the_page_needs_no_key_and_what_it_shows_does() -> None:
    credentials = Credentials(Principals({}, {"root": ["all"]}))
    credentials.use_keys(key_file([new_key("root")[1]]))

    async def nothing(issuer: str) -> None:
        return

    app = AccessCheck(page(), (Authenticator(credentials), nothing))
    for path in ("/", "/console/", "/console/main.js"):
        assert (await reply(path, app=app)).status_code in (200, 307)
        assert (await reply(path, "POST", app=app)).status_code == 401
    assert (await reply("/api/traffic", app=app)).status_code == 401
    other = await reply("/console/", app=app, origin="http://other.example")
    assert other.status_code == 403
