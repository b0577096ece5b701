"""`/api/openapi`, the document of the admin port itself, and the files of the page, of a gateway in this process."""

from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway.admin.openapi.models import MOST_KEPT, ModelsOfClients
from gateway.assembly.registry import protocols
from gateway.auth.keys import new_key
from gateway.config import Config
from gateway.core.errors import DecodeError
from gateway.core.models import Signature
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Destination
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, key_file
from tests.interop.processes import free_port
from tests.running_gateway import config_of, running_gateway

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
  - {name: rpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
admin: {bind: "127.0.0.1:0"ADMIN}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double]}]
backends:
  lab: {protocol: v2-rest, endpoints: ["http://127.0.0.1:PORT"]}
  gone: {protocol: v2-rest, endpoints: ["http://127.0.0.1:NOTHING"]}
  joined: {protocol: v2-rest, discovery: {register: {token: "a secret of the servers"}}}
routes:
  - {match: {model: broken}, backend: gone}
  - {match: {model: "my-*"}, backend: lab, rewrite: {model: "{1}"}}
  - {match: {model: joined}, backend: joined}
  - {match: {model: double}, backend: lab}
"""


def config(admin: str = "", rest: str = "") -> Any:
    text = CONFIG.replace("PORT", str(free_port())).replace("NOTHING", str(free_port())).replace("ADMIN", admin)
    return config_of(text + rest)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with running_gateway(config()) as found:
        yield found


@pytest.fixture
async def admin(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with admin_client(gateway) as found:
        yield found


async def test_listeners_over_http_have_documents(gateway: Gateway, admin: httpx.AsyncClient) -> None:
    url = f"http://{gateway.state.listeners['http'].address}"
    found = (await admin.get("/api/openapi")).json()
    assert found == {"documents": [{"listener": "http", "protocols": ["v2-rest", "umbridge"], "url": url}]}
    document = (await admin.get("/api/openapi/http")).json()
    assert document["servers"][0]["url"] == url
    reply = await admin.get("/api/openapi/rpc")
    assert (reply.status_code, reply.json()["detail"]) == (404, "unknown HTTP listener 'rpc'; HTTP listeners: http")


async def test_a_model_is_described_by_the_name_of_its_clients(admin: httpx.AsyncClient) -> None:
    document = (await admin.get("/api/openapi/http", params={"model": "my-double"})).json()
    infer = document["paths"]["/v2/models/{model}/infer"]["post"]
    assert infer["parameters"][0]["schema"]["enum"] == ["my-double"]
    inputs = infer["requestBody"]["content"]["application/json"]["schema"]["properties"]["inputs"]
    assert inputs["items"]["properties"]["name"] == {"const": "x"}


async def test_models_that_cannot_be_described_are_errors(admin: httpx.AsyncClient) -> None:
    missing = await admin.get("/api/openapi/http", params={"model": "nothing"})
    assert missing.status_code == 404
    assert "nothing" in missing.json()["detail"]
    broken = await admin.get("/api/openapi/http", params={"model": "broken"})
    assert broken.status_code == 502


async def test_an_answer_about_a_model_is_kept_while_its_server_is_away(
    gateway: Gateway, admin: httpx.AsyncClient
) -> None:
    first = await admin.get("/api/openapi/http", params={"model": "double"})
    await gateway.references[0].drain(0)
    again = await admin.get("/api/openapi/http", params={"model": "double"})
    assert first.json() == again.json()
    assert (await admin.get("/api/openapi/http", params={"model": "my-double"})).json() != first.json()


async def test_of_the_answers_about_models_the_last_ones_of_the_configuration_in_use_are_kept() -> None:
    old, new = config(), config()
    asked: list[str] = []

    async def handle(request: Request) -> Answer:
        asked.append(request.model)
        if request.model == "slow":
            await models.get(new, select, "http", protocol, "other", "")
        return Signature() if request.model != "broken" else Response()

    def select(request: Request) -> Destination:
        return Destination(handle)

    models, protocol = ModelsOfClients(lambda: 0.0), protocols()["v2-rest"]

    async def asks(used: Config, *names: str) -> list[str]:
        """The models about which servers are asked."""
        asked.clear()
        for name in names:
            await models.get(used, select, "http", protocol, name, "")
        return asked

    many = [f"m{at}" for at in range(MOST_KEPT + 1)]
    assert await asks(old, *many, many[-1], many[1]) == many
    assert await asks(old, many[0]) == [many[0]]
    assert await asks(old, "slow", "slow") == ["slow", "other", "slow", "other"]  # `new` is in use at the end
    with pytest.raises(DecodeError, match="the answer about model 'broken' is not a signature"):
        await asks(new, "broken")


def operations(document: Any) -> list[tuple[str, Any]]:
    return [(path, each) for path, methods in document["paths"].items() for each in methods.values()]


async def test_the_admin_ports_own_document_is_whole(admin: httpx.AsyncClient) -> None:
    document = (await admin.get("/openapi.json")).json()
    OpenAPIV31SpecValidator(document).validate()
    for path, operation in operations(document):
        assert operation["summary"], path
        [ok] = [response for status, response in operation["responses"].items() if status in ("200", "204")]
        if operation["responses"].get("204") is None:
            assert ok["content"]["application/json"]["schema"], path
        assert {"421", "401"} & {*operation["responses"]}, path
        assert operation["security"] == ([{"registration": []}] if path.startswith("/register") else [])


async def test_with_auth_every_path_needs_credentials(tmp_path: Path) -> None:
    key, entry = new_key("anna")
    rest = f"auth: {{keys: {{file: {key_file(tmp_path, entry)}}}}}\nprincipals: {{anna: {{permissions: [all]}}}}\n"
    async with running_gateway(config(", auth: {}", rest)) as gateway, admin_client(gateway) as admin:
        for path in ("/docs", "/api/openapi", "/api/openapi/http"):
            assert (await admin.get(path)).status_code == 401
        document = (await admin.get("/openapi.json", headers={"x-api-key": key})).json()
    OpenAPIV31SpecValidator(document).validate()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "basic", "key", "registration"}
    for path, operation in operations(document):
        if not path.startswith("/register"):
            assert operation["security"] == [{"bearer": []}, {"basic": []}, {"key": []}]
            assert {"401", "403"} < {*operation["responses"]}


class References(HTMLParser):
    """What a page names in its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [text for name, text in attributes if name in ("src", "href", "action", "data") and text]


async def test_the_page_uses_only_installed_files(admin: httpx.AsyncClient) -> None:
    page = await admin.get("/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    named = References(page.text).found
    assert sorted(Path(name).suffix for name in named) == [".css", ".css", ".js", ".js", ".png"]
    for name in named:
        assert "//" not in name
        assert (await admin.get(f"/{name}")).status_code == 200
