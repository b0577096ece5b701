"""The charts of the last hour in a real browser."""

import json
import math
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.admin.console.accessibility import faults_in_every_look
from tests.admin.console.browser import CHROMIUM, opened
from tests.admin.console.gateways import Looked, looked

pytestmark = pytest.mark.real(CHROMIUM)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with looked(tmp_path_factory.mktemp("history")) as found:
        yield found


def hour() -> dict[str, object]:
    """An hour as the API tells it, of which ten steps had no requests."""
    last, steps = math.floor(time.time()), range(360)
    idle = range(340, 350)
    busy = [at not in idle for at in steps]
    return {
        "step": 10, "kept": 3600, "times": [last - 10 * (359 - at) for at in steps], "seconds": [10] * 360,
        "requests": [420 + 200 * math.sin(at / 30) if is_busy else 0 for at, is_busy in zip(steps, busy, strict=True)],
        "errors": [7 if at % 40 == 0 else 0 for at in steps],
        "median": [0.012 if is_busy else None for is_busy in busy],
        "p95": [0.03 + 0.01 * math.sin(at / 9) if is_busy else None for at, is_busy in zip(steps, busy, strict=True)],
        "p99": [0.2 if is_busy else None for is_busy in busy],
        "in_flight": [at % 7 for at in steps],
        "waiting": [0] * 360,
    }  # fmt: skip


@pytest.fixture
def page(context: BrowserContext, gateway: Looked) -> Page:
    """The overview of a gateway that tells this hour."""
    body = json.dumps(hour())

    def tell(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body=body)

    context.route(re.compile("/api/history"), tell)
    return opened(context, gateway)


def test_charts_have_axes_times_and_a_range_to_choose(page: Page) -> None:
    charts = page.locator(".chart")
    expect(charts).to_have_count(4)
    requests = charts.first
    drawing = requests.get_by_role("img")
    expect(drawing).to_have_attribute(
        "aria-label", re.compile(r"Requests per second, the last 15 minutes\. All: \d+/s now, at most")
    )
    expect(requests.locator("text").filter(has_text=re.compile(r"^\d\d:\d\d$")).first).to_be_visible()
    expect(requests.locator("text").filter(has_text=re.compile("^60$"))).to_be_visible()
    page.get_by_label("Show").select_option("the last hour")
    expect(drawing).to_have_attribute("aria-label", re.compile("the last hour"))
    assert "range=1h" in page.url
    page.reload()
    expect(drawing).to_have_attribute("aria-label", re.compile("the last hour"))


def test_where_no_request_ended_the_line_has_a_gap(page: Page) -> None:
    median = page.locator(".chart .line.median:not(.swatch *)")
    expect(median).to_have_attribute("d", re.compile("^M[^M]*M[^M]*$"))


def test_the_pointer_shows_the_values_of_a_moment(page: Page) -> None:
    chart = page.locator(".chart").filter(has_text="Latency")
    expect(chart.locator(".legend")).to_contain_text("Median 12.0 ms")
    drawing = chart.get_by_role("img")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    # 15 of the last 90 steps before the end: in the middle of those without requests
    page.mouse.move(box["x"] + 56 + (box["width"] - 68) * (1 - 14.5 / 90), box["y"] + 60)
    expect(chart.locator(".legend")).to_contain_text("Median \N{EN DASH}")
    expect(chart.locator(".cursor")).to_have_attribute("d", re.compile("^M"))
    page.mouse.move(0, 0)
    expect(chart.locator(".legend")).to_contain_text("Median 12.0 ms")


def test_the_table_has_what_the_charts_show(page: Page) -> None:
    page.get_by_text("Show as a table").click()
    rows = page.locator(".history tbody tr")
    expect(rows).to_have_count(90)
    assert faults_in_every_look(page) == []
    expect(rows.first).to_contain_text("12.0 ms")
    page.get_by_label("Show").select_option("the last 5 minutes")
    expect(rows).to_have_count(30)


def test_without_requests_the_axes_have_plain_numbers(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway)
    chart = page.locator(".chart").first
    expect(chart.locator("text:not(:has-text(':'))")).to_have_text(["0", "1"])
    expect(chart.get_by_role("img")).to_have_attribute("aria-label", re.compile("All: (none|0/s now)"))


def test_the_tiles_show_what_the_gateway_has_kept(page: Page) -> None:
    tile = page.locator(".figure").filter(has_text="99th percentile")
    expect(tile).to_contain_text("0 to 200 ms, last 15 min")
    expect(page.locator(".spark.rate path")).to_have_attribute("d", re.compile("^M([^L]*L){89}"))


def test_the_tiles_have_values_from_the_first_reading(context: BrowserContext, page: Page) -> None:
    readings = []

    def one(route: Route) -> None:
        readings.append(route)
        if len(readings) == 1:
            route.continue_()

    context.route(re.compile("/api/traffic"), one)
    page.reload()
    values = page.locator(".figure .value")
    expect(values.nth(0)).to_have_text(re.compile("/s$"))
    expect(values.nth(3)).to_have_text("200 ms")
    context.unroute_all(behavior="ignoreErrors")


def test_a_range_is_drawn_over_a_chart_or_typed(page: Page) -> None:
    chart = page.locator(".chart").first
    drawing = chart.get_by_role("img")
    expect(drawing).to_have_attribute("aria-label", re.compile("the last 15 minutes"))
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    at = [box["x"] + 56 + (box["width"] - 68) * part for part in (0.25, 0.5)]
    page.mouse.move(at[0], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(at[1], box["y"] + 80)
    expect(chart.locator(".selection")).to_have_attribute("d", re.compile("^M.*Z$"))
    page.mouse.up()
    page.mouse.move(0, 0)
    expect(page.get_by_label("Show")).to_have_value("chosen")
    assert "range=chosen&from=" in page.url
    page.get_by_text("Show as a table").click()
    rows = page.locator(".history tbody tr")
    expect(rows.nth(20)).to_be_visible()  # a quarter of 90 steps, as exactly as the pointer
    assert rows.count() in (22, 23)
    page.reload()
    expect(drawing).to_have_attribute("aria-label", re.compile(r"per second, \d\d:\d\d:\d\d to \d\d:\d\d:\d\d\."))
    assert faults_in_every_look(page) == []
    page.get_by_label("To", exact=True).fill("00:00")
    page.get_by_label("From", exact=True).fill("00:00")
    expect(page.get_by_label("To", exact=True)).to_have_js_property(
        "validationMessage", "The first time must be earlier than the second."
    )
    page.get_by_label("Show").select_option("the last 5 minutes")
    expect(page.get_by_label("From", exact=True)).to_be_hidden()
    assert "from=" not in page.url


def test_the_steps_of_the_range_are_saved_as_csv(page: Page) -> None:
    expect(page.locator(".chart").first.get_by_role("img")).to_have_attribute("aria-label", re.compile("now, at most"))
    page.get_by_label("Show").select_option("the last 5 minutes")
    with page.expect_download() as found:
        page.get_by_role("button", name="CSV: save history as a file").click()
    assert found.value.suggested_filename == "modelglot-history.csv"
    lines = found.value.path().read_text().splitlines()
    assert lines[0] == "until,seconds,requests,errors,median,p95,p99,in_flight,waiting,queue,server,gateway"
    assert len(lines) == 1 + 30
    assert lines[1].split(",")[1] == "10"
    assert lines[1].split(",")[4] == "0.012"
