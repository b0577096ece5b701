"""The last requests in a real browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.admin.console.accessibility import faults_in_every_look
from tests.admin.console.browser import CHROMIUM
from tests.admin.console.gateways import HOSTILE, Looked, looked

pytestmark = pytest.mark.real(CHROMIUM)

LONG = "n" * 200


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with looked(tmp_path_factory.mktemp("requests")) as found:
        found.infer("double", times=3)
        found.infer("broken")
        found.infer(f"no such {HOSTILE}/")
        found.infer(LONG)
        yield found


@pytest.fixture
def page(context: BrowserContext, gateway: Looked) -> Page:
    found = context.new_page()
    found.goto(f"{gateway.admin}/console/#/requests")
    expect(found.locator("main tbody tr")).to_have_count(6)
    return found


def test_requests_are_searched_and_the_address_says_how(page: Page, context: BrowserContext) -> None:
    rows = page.locator("main tbody tr")
    page.get_by_role("searchbox", name="Model").fill("dou")
    expect(rows).to_have_count(3)
    page.get_by_role("combobox", name="Status").select_option("Any error")
    expect(rows).to_have_count(0)
    expect(page.get_by_role("main")).to_contain_text("No request that matches is kept.")
    page.get_by_role("searchbox", name="Model").fill("")
    expect(rows).to_have_count(3)
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("main tbody tr")).to_have_count(3)
    expect(other.get_by_role("combobox", name="Status")).to_have_value("failed")


def test_a_request_is_explained(page: Page, context: BrowserContext) -> None:
    page.locator("main tbody tr").filter(has_text="broken").get_by_role("link").click()
    about = page.locator("section.panel")
    expect(about).to_contain_text("The connection to an endpoint failed or broke")
    expect(about).to_be_focused()
    page.keyboard.press("Escape")
    expect(about).to_be_hidden()
    expect(page.locator("main tbody tr").filter(has_text="broken").get_by_role("link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(about.get_by_role("list").first).to_contain_text(re.compile(r"Listener http over v2-rest.*Route broken"))
    expect(about).to_contain_text("at the model server")
    assert faults_in_every_look(page) == []
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("section.panel")).to_contain_text("The connection to an endpoint failed")
    about.get_by_role("link", name="Explain a request like it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Playground")
    expect(page.get_by_label("Model", exact=True)).to_have_value("broken")


def test_a_long_name_leaves_the_other_columns_in_sight(page: Page) -> None:
    row = page.locator("main tbody tr").filter(has_text=LONG)
    expect(row.locator("td").nth(3)).to_have_text(LONG)
    expect(row.locator("td").last).to_be_in_viewport(ratio=1)


def test_a_request_that_is_not_kept_is_told(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#/requests?request=gone-7")
    expect(page.locator("section.panel")).to_contain_text("This request is no longer stored.")
