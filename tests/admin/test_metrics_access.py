"""`/metrics` for principals with the permission `metrics` only, through a running gateway and real clients."""

import ssl
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.assembly import issuer_keys
from gateway.auth.keys import new_key
from gateway.config import ConfigError
from tests.admin.asking import key_file
from tests.auth.issuer import Issuer, served
from tests.limits import GENEROUS
from tests.running_gateway import config_of, running_gateway
from tests.tls.certificates import Authority, Files

SCRAPER, SCRAPER_ENTRY = new_key("prometheus")
USER, USER_ENTRY = new_key("user")

TEXT = """
auth:
  keys: {file: FILE}
  certificates: [{identity: "*", principal: "cert:*"}]
permissions: {scraping: [{operations: [metrics]}]}
principals:
  prometheus: {permissions: [scraping]}
  "cert:scraper.lab": {permissions: [scraping]}
  user: {permissions: [use]}
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0", auth: {}}
"""


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue(tmp_path, "localhost", "127.0.0.1")


@pytest.fixture
def text(tmp_path: Path) -> str:
    return TEXT.replace("FILE", str(key_file(tmp_path, SCRAPER_ENTRY, USER_ENTRY)))


def client(verify: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=GENEROUS, trust_env=False, verify=verify)


CREDENTIALS: dict[str, Callable[[str], dict[str, str]]] = {
    "bearer": lambda key: {"authorization": f"Bearer {key}"},
    "header": lambda key: {"x-api-key": key},
    "basic": lambda key: {"authorization": f"Basic {b64encode(f'me:{key}'.encode()).decode()}"},
}


@pytest.mark.parametrize("way", CREDENTIALS)
async def test_only_who_has_the_permission_gets_the_page(way: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running_gateway(text) as gateway, client() as http:
        url = f"http://{gateway.ports.all['health'].address}"
        page = await http.get(f"{url}/metrics", headers=CREDENTIALS[way](SCRAPER))
        assert page.status_code == 200
        assert list(text_string_to_metric_families(page.text))
        for headers, status in (({}, 401), (CREDENTIALS[way]("wrong"), 401), (CREDENTIALS[way](USER), 403)):
            refused = await http.get(f"{url}/metrics", headers=headers)
            assert refused.status_code == status
            assert refused.headers.get("www-authenticate", "").startswith("Bearer") == (status == 401)
            assert "# HELP" not in refused.text
        assert "the health port refuses client 127.0.0.1" in caplog.text
        assert SCRAPER not in caplog.text


async def test_probes_need_no_key(text: str) -> None:
    async with running_gateway(text) as gateway, client() as http:
        for path in ("/healthz", "/readyz"):
            assert (await http.get(f"http://{gateway.ports.all['health'].address}{path}")).status_code == 200


async def test_a_reload_asks_for_keys_and_stops_asking(text: str) -> None:
    keyless = text.replace(", auth: {}}", "}")
    async with running_gateway(keyless) as gateway, client() as http:
        url = f"http://{gateway.ports.all['health'].address}/metrics"
        assert (await http.get(url)).status_code == 200
        await gateway.reload(config_of(text))
        assert (await http.get(url)).status_code == 401
        assert (await http.get(url, headers={"x-api-key": SCRAPER})).status_code == 200
        await gateway.reload(config_of(keyless))
        assert (await http.get(url)).status_code == 200


async def test_a_token_with_a_new_key_waits_for_its_issuers_keys(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked up on the main event loop, while the page is asked for on that of the health port."""
    monkeypatch.setattr(issuer_keys, "LEAST_SECONDS", 0.0)
    async with served(Issuer()) as issuer, client() as http:
        issuer.rotate("ES256")
        jwt = f"  jwt: {{issuer: '{issuer.url}', audience: [models]}}\n"
        async with running_gateway(text.replace("  certificates:", f"{jwt}  certificates:")) as gateway:
            url = f"http://{gateway.ports.all['health'].address}/metrics"
            for _ in range(2):
                sent = {"authorization": f"Bearer {issuer.token('prometheus')}"}
                assert (await http.get(url, headers=sent)).status_code == 200
                issuer.rotate("ES256")
            sent = {"authorization": f"Bearer {issuer.token('user')}"}
            assert (await http.get(url, headers=sent)).status_code == 403


async def test_over_tls_a_certificate_is_enough(text: str, files: Files, authority: Authority, tmp_path: Path) -> None:
    secure = text.replace("auth: {}}", f"auth: {{}}, tls: {files.asking('optional')}}}")
    scraper = authority.issue(tmp_path, "scraper.lab", stem="scraper")
    other = authority.issue(tmp_path, "other.lab", stem="other")
    async with running_gateway(secure) as gateway:
        url = f"https://{gateway.ports.all['health'].address}/metrics"
        for own, status in ((scraper, 200), (other, 403), (None, 401)):
            async with client(files.trusting(own)) as http:
                assert (await http.get(url)).status_code == status


def test_without_a_way_to_identify_themselves_nobody_could_scrape() -> None:
    with pytest.raises(ConfigError, match="no credentials are configured"):
        config_of(TEXT[TEXT.index("listeners:") :])
