"""The pages of a route, a backend, a model and a principal in a real browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.admin.console.accessibility import faults_in_every_look
from tests.admin.console.browser import CHROMIUM, opened
from tests.admin.console.gateways import CONFIG, Looked, looked

pytestmark = pytest.mark.real(CHROMIUM)

LIMITED = CONFIG.replace(
    '{match: {model: "*"}, backend: tensors}',
    '{match: {model: "*"}, backend: tensors, policies: [{rate_limit: {requests: 4, seconds: 3600}}]}',
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with looked(tmp_path_factory.mktemp("parts"), LIMITED) as found:
        found.infer("double", times=6)
        found.infer("broken", times=2)
        yield found


def test_a_route_has_its_policies_with_settings_and_state(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "routes")
    page.get_by_role("link", name="*").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Route *")
    expect(page).to_have_title("Route * · Modelglot")
    policies = page.get_by_role("region", name="Policies")
    expect(policies).to_contain_text(re.compile(r"rate_limit.*Settings.*requests4.*State.*refused2"))
    about = page.get_by_role("region", name="About")
    expect(about).to_contain_text(re.compile("Share of all requests.*75 % since the start"))
    expect(page.locator(".chart")).to_have_count(3)
    expect(page.get_by_role("region", name="The last requests").locator("tbody tr")).to_have_count(6)
    assert faults_in_every_look(page) == []
    expect(page.get_by_role("navigation").get_by_role("link", name="Routes")).to_have_attribute("aria-current", "page")
    about.get_by_role("link", name="tensors").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Backend tensors")


def test_a_backend_has_its_endpoints_and_the_routes_that_lead_to_it(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "backend?of=gone")
    about = page.get_by_role("region", name="About")
    expect(about).to_contain_text(re.compile(r"Routesbroken.*down.*100 % since the start"))
    expect(page.locator(".chart")).to_have_count(4)
    page.goto(page.url.replace("gone", "none"))
    expect(about).to_contain_text("The configuration in use has no backend none.")


def test_a_model_has_what_its_kept_requests_tell(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "model?of=double")
    about = page.get_by_role("region", name="About")
    expect(about).to_contain_text(
        re.compile(r"Requests6, 75 % of the last 8 of the gateway.*Failed0, 0 %.*Rejected2, 33 %.*Backendstensors")
    )
    assert faults_in_every_look(page) == []
    page.goto(page.url.replace("double", "doubl"))
    expect(about).to_contain_text("Requests0")


@pytest.mark.parametrize("kind", ["route?of=*", "backend?of=tensors", "model?of=double"])
def test_where_the_time_of_requests_goes_is_told(context: BrowserContext, gateway: Looked, kind: str) -> None:
    page = opened(context, gateway, kind)
    stages = page.get_by_role("region", name="Time by stage")
    rows = stages.get_by_role("row")
    expect(rows).to_have_count(6)
    expect(rows.filter(has_text="at the model server")).to_contain_text(re.compile(r"\d %.*ms.*ms"))
    expect(rows.filter(has_text="waiting in the queue")).to_contain_text("0 ms")
    expect(stages).to_contain_text("6 requests among the last 8 of the gateway")
    assert float(stages.locator("rect.server").first.get_attribute("width") or 0) > 0


def test_a_principal_has_its_page(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "principal?of=alice")
    expect(page.get_by_role("heading", level=1)).to_have_text("Principal alice")
    expect(page.get_by_role("main")).to_contain_text(
        re.compile("No entry of principals matches this name.*API keysNo API keys.")
    )
