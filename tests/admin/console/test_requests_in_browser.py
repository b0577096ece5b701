"""The last requests in a real browser."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.admin.console.accessibility import faults_in_every_look
from tests.admin.console.browser import CHROMIUM, opened
from tests.admin.console.gateways import HOSTILE, Looked, looked

pytestmark = pytest.mark.real(CHROMIUM)

LONG = "n" * 200


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Looked]:
    with looked(tmp_path) as found:
        found.infer("double", times=3)
        found.infer("broken")
        found.infer(f"no such {HOSTILE}/")
        found.infer(LONG)
        yield found


@pytest.fixture
def page(context: BrowserContext, gateway: Looked) -> Page:
    found = opened(context, gateway, "requests")
    expect(found.locator("main tbody tr")).to_have_count(6)
    return found


def test_requests_are_searched_and_the_address_says_how(page: Page, context: BrowserContext) -> None:
    rows = page.locator("main tbody tr")
    page.get_by_role("searchbox", name="Model").fill("dou")
    expect(rows).to_have_count(3)
    page.get_by_role("combobox", name="Status").select_option("Any error")
    expect(rows).to_have_count(0)
    expect(page.get_by_role("main")).to_contain_text("No stored request matches.")
    page.get_by_role("searchbox", name="Model").fill("")
    expect(rows).to_have_count(3)
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("main tbody tr")).to_have_count(3)
    expect(other.get_by_role("combobox", name="Status")).to_have_value("failed")


def test_new_requests_appear_while_the_list_is_live(page: Page, gateway: Looked) -> None:
    rows, live = page.locator("main tbody tr"), page.get_by_role("button", name="Live")
    page.get_by_role("searchbox", name="Model").fill("posterior")
    expect(rows).to_have_count(0)
    gateway.infer("posterior")
    expect(rows).to_have_count(1)
    live.click()
    expect(live).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".controls [role=status]").last).to_contain_text("as of")
    gateway.infer("posterior")
    with page.expect_response(re.compile("/api/traffic")):  # the page asks about the traffic, and not about requests
        pass
    expect(rows).to_have_count(1)
    assert "live=no" in page.url
    live.click()
    expect(rows).to_have_count(2)


def test_what_the_list_shows_is_saved_as_csv(page: Page, gateway: Looked) -> None:
    gateway.infer("=1+1,x")
    page.get_by_role("combobox", name="Status").select_option("NOT_FOUND")
    rows = page.locator("main tbody tr")
    expect(rows.filter(has_text="=1+1,x")).to_have_count(1)
    with page.expect_download() as found:
        page.get_by_role("button", name="CSV: save requests as a file").click()
    assert found.value.suggested_filename == "modelglot-requests.csv"
    head, *lines = list(csv.reader(found.value.path().read_text().splitlines()))
    assert head == ["Request id", "Time", "Status", "Model", "Operation", "Principal", "Route", "Backend", "Total (s)"]
    assert len(lines) == rows.count()
    assert {line[3] for line in lines} >= {"'=1+1,x", f"no such {HOSTILE}/"}
    assert all(float(line[8]) > 0 for line in lines)


def test_only_errors_of_servers_are_red(page: Page) -> None:
    rows = page.locator("main tbody tr")
    expect(rows.filter(has_text="no such").locator(".badge")).to_have_attribute("class", "badge ")
    expect(rows.filter(has_text="broken").locator(".badge")).to_have_attribute("class", "badge down")


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
    about.get_by_role("link", name="Explain a similar request").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Playground")
    expect(page.get_by_label("Model", exact=True)).to_have_value("broken")


def test_a_long_name_leaves_the_other_columns_in_sight(page: Page) -> None:
    row = page.locator("main tbody tr").filter(has_text=LONG)
    expect(row.locator("td").nth(3)).to_have_text(LONG)
    expect(row.locator("td").last).to_be_in_viewport(ratio=1)


def test_a_request_that_is_not_kept_is_told(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#/requests?request=gone-7")
    expect(page.locator("section.panel")).to_contain_text("This request is no longer stored.")
