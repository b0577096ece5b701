"""The console in a real browser, with a real gateway behind it."""

import re
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from gateway.auth.keys import new_key
from tests.admin.asking import key_file
from tests.admin.console.accessibility import OPPOSITES, faults_in, faults_in_every_look
from tests.admin.console.browser import CHROMIUM, opened
from tests.admin.console.gateways import CONFIG, HOSTILE, Looked, looked
from tests.in_thread import QuietHandler, in_thread
from tests.interop.processes import free_port
from tests.paused_server import port_of

pytestmark = pytest.mark.real(CHROMIUM)

VIEWS = (
    "Overview", "Listeners", "Routes", "Backends", "Endpoints", "Models", "Graphs", "Playground", "Requests",
    "Errors", "Access", "Configuration",
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with looked(tmp_path_factory.mktemp("console")) as found:
        found.infer("double")
        found.infer("broken")
        found.infer(HOSTILE)
        found.infer(f"no such {HOSTILE}/")
        yield found


@pytest.fixture
def page(context: BrowserContext, gateway: Looked) -> Page:
    """The page as it comes from `/`."""
    found = opened(context, gateway)
    expect(found.get_by_role("heading", level=1)).to_have_text("Overview")
    return found


def go(page: Page, view: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=view).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(view)


def rows(page: Page) -> list[str]:
    """The texts of the first cells of the only table."""
    return page.locator("main tbody tr td:first-child").all_inner_texts()


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("Overview", "Median latency"),
        ("Listeners", "v2-rest, umbridge"),
        ("Routes", "posterior"),
        ("Backends", "science"),
        ("Endpoints", "http://127.0.0.1:"),
        ("Models", "add_sub"),
        ("Graphs", "doubled twice"),
        ("Playground", "No request was sent yet."),
        ("Requests", "NOT_FOUND"),
        ("Errors", "The connection to an endpoint failed or broke"),
        ("Access", "The configuration sets no key file"),
        ("Configuration", "max_in_flight"),
    ],
)
def test_every_view_shows_what_there_is(page: Page, view: str, text: str) -> None:
    go(page, view)
    expect(page.get_by_role("main")).to_contain_text(text)
    expect(page).to_have_title(f"{view} · Modelglot")


def test_the_drawing_shows_live_rates_of_what_requests_pass(page: Page, gateway: Looked) -> None:
    drawing = page.get_by_role("region", name="Traffic")
    for name in ("listener http", "route posterior", "backend science", "endpoint http://127.0.0.1:"):
        expect(drawing.get_by_role("link", name=name).first).to_be_visible()
    tensors = drawing.get_by_role("link", name="backend tensors")
    expect(tensors).to_have_accessible_name(re.compile(": 0/s"))
    gateway.infer("double", times=40)
    expect(tensors).to_have_accessible_name(re.compile(r": [1-9][\d.]*/s · [\d.]+ ms"))
    expect(drawing.locator(".flow").filter(has_text=re.compile(r"[1-9][\d.]*/s")).first).to_be_visible()
    rate = re.compile(r"[1-9][\d.]*/s.*0 to [1-9][\d.]*/s, last \d+ (s|min)")
    expect(page.locator(".figure").first).to_contain_text(rate)


def test_a_graph_is_drawn_with_the_calls_of_its_steps(page: Page, gateway: Looked) -> None:
    go(page, "Graphs")
    drawing = page.get_by_role("region", name="Steps and tensors")
    expect(drawing.locator(".graph-box.step .title")).to_have_text(["first", "second"])
    expect(drawing.locator(".graph-box.output .title")).to_have_text(["y", "both"])
    expect(drawing.locator(".arrow")).to_have_count(1 + 1 + 1 + 2)
    first = page.locator("main tbody tr").filter(has_text="first").locator("td").last
    expect(first).to_have_text("0")
    gateway.infer("fourfold", times=3)
    expect(first).to_have_text("3")
    expect(drawing.locator(".graph-box.step .live").first).to_have_text(re.compile(r"/s, [\d.]+ ms"))


def test_a_graph_stands_among_the_routes(page: Page, gateway: Looked) -> None:
    graph = page.get_by_role("link", name="route fourfold")
    gateway.infer("fourfold", times=3)
    expect(graph).to_have_accessible_name(re.compile(r": [1-9][\d.]*/s · [\d.]+ ms"))
    graph.click()
    expect(page.get_by_role("link", name="backend tensors")).to_be_visible()
    expect(page.get_by_role("link", name="backend science")).to_have_count(0)
    expect(page.locator(".details")).to_contain_text("models.fourfold")


def test_errors_show_on_the_way_that_fails(page: Page, gateway: Looked) -> None:
    errors = page.locator("nav .count")
    expect(errors).to_have_text(re.compile(r"\d"))  # empty until the first answer about traffic
    before = int(errors.inner_text())
    gateway.infer("broken", times=5)
    gone = page.get_by_role("link", name="backend gone")
    expect(gone).to_have_accessible_name(re.compile("100 % failed.*down"))
    expect(errors).to_have_text(str(before + 5))
    expect(page.locator(".line.failing")).to_have_count(2 + 1)  # from the listener, to the backend, to its endpoint


def test_an_error_of_an_endpoint_has_the_reason_why_it_does_not_answer(page: Page) -> None:
    go(page, "Errors")
    group = page.get_by_role("region", name="Errors: unreachable")
    expect(group.get_by_role("columnheader", name="Endpoint's last error")).to_be_visible()
    expect(group.get_by_role("row").nth(1)).to_contain_text("connection refused")


def test_a_click_on_a_node_leaves_what_is_connected_and_can_be_shared(
    page: Page, context: BrowserContext, gateway: Looked
) -> None:
    page.get_by_role("link", name="backend science").click()
    expect(page.locator(".node")).to_have_count(2 + 1 + 1 + 1)
    expect(page.get_by_role("link", name="route posterior")).to_be_visible()
    expect(page.locator(".details")).to_contain_text("0 of 1")  # waiting and in flight of a backend with one slot
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator(".node")).to_have_count(5)
    page.get_by_role("link", name="Show everything").click()
    everything = 2 + 5 + 3 + 3  # a graph among the routes
    expect(page.locator(".node")).to_have_count(everything)
    page.get_by_role("link", name="backend science").press("Enter")
    expect(page.locator(".node")).to_have_count(5)
    page.get_by_role("link", name="backend science").press("Escape")
    expect(page.locator(".node")).to_have_count(everything)


def test_focus_on_a_node_shows_its_details(page: Page) -> None:
    page.get_by_role("link", name="route posterior").focus()
    expect(page.locator(".details h2")).to_have_text("posterior")
    expect(page.locator(".details")).to_contain_text("posterior")


def test_tables_are_filtered_and_sorted_and_their_address_says_so(page: Page, context: BrowserContext) -> None:
    go(page, "Routes")
    expect(page.locator("main tbody tr")).to_have_count(4)
    page.get_by_role("searchbox", name="Filter routes").fill("tensors")
    expect(page.locator("main tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Name").click()
    assert rows(page) == ["<img src=x onerror=alert(1)>", "*"]
    page.get_by_role("button", name="Name").click()
    assert rows(page) == ["*", "<img src=x onerror=alert(1)>"]
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("main tbody tr")).to_have_count(2)
    assert rows(other) == ["*", "<img src=x onerror=alert(1)>"]
    expect(other.locator("th[aria-sort=descending]")).to_have_text("Name")
    page.get_by_role("searchbox").fill("no such route")
    expect(page.get_by_role("main")).to_contain_text("Nothing matches the filter.")


def test_an_endpoint_is_drained_and_serves_again_by_its_button(page: Page, gateway: Looked) -> None:
    go(page, "Endpoints")
    row = page.locator("main tbody tr").filter(has_text="science")
    row.get_by_role("button", name="Drain").click()
    page.get_by_role("searchbox", name="Filter endpoints").click()  # the button asks again, and forgets it
    row.get_by_role("button", name="Drain", exact=True).click()
    expect(row.locator(".badge")).not_to_have_text("drained")
    row.get_by_role("button", name="Really drain").click()
    expect(row.locator(".badge")).to_have_text("drained")
    row.get_by_role("button", name="Serve again").click()
    expect(row.locator(".badge")).not_to_have_text("drained")
    expect(row.get_by_role("button", name="Drain")).to_be_visible()


PLACED = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
admin: {bind: "127.0.0.1:0"}
reference:
  - {protocol: v2-rest, bind: "127.0.0.1:TENSORS", models: [double, add_sub]}
  - {protocol: v2-rest, bind: "127.0.0.1:SCIENCE", models: [double]}
backends:
  fleet: {protocol: v2-rest, endpoints: ["127.0.0.1:TENSORS", "127.0.0.1:SCIENCE"], placement: {interval: 0.2}}
routes: [{match: {model: "*"}, backend: fleet}]
"""


def test_the_placement_is_a_table_of_models_by_servers(context: BrowserContext, tmp_path: Path) -> None:
    with looked(tmp_path, PLACED) as gateway:
        page = opened(context, gateway)
        go(page, "Placement")
        rows = page.locator("main tbody tr")
        expect(rows).to_have_count(2)
        expect(page.get_by_role("main")).to_contain_text("2 of 2 models are loaded on 2 servers.")
        double, add_sub = rows.filter(has_text="double"), rows.filter(has_text="add_sub")
        expect(double.locator(".badge")).to_have_text(["held", "held"])
        assert faults_in(page, OPPOSITES) == []
        expect(add_sub.locator(".badge")).to_have_text(["held"])
        gateway.infer("double", times=7)
        expect(double.locator("td").nth(5)).to_have_text("7")
        add_sub.get_by_role("button", name="Load", exact=True).click()
        no_repository = page.get_by_role("status").filter(has_text="add_sub at 127.0.0.1:")
        expect(no_repository).to_be_visible()


def test_models_have_the_signatures_that_their_servers_tell(page: Page, context: BrowserContext) -> None:
    go(page, "Models")
    page.get_by_role("button", name="add_sub").click()
    panel = page.get_by_role("region", name="Signature")
    expect(panel).to_contain_text("the server's metadata")
    expect(panel.get_by_role("table", name="Inputs").locator("tbody tr").first).to_contain_text("INT32")
    other = context.new_page()
    other.goto(page.url)
    expect(other.get_by_role("region", name="Signature")).to_contain_text("add_sub")


def test_names_from_clients_and_servers_stay_text(page: Page, gateway: Looked) -> None:
    for view in VIEWS:
        go(page, view)
        if view in ("Overview", "Routes", "Models", "Errors", "Configuration"):
            expect(page.get_by_role("main")).to_contain_text("<img src=x")
        assert page.locator("main img, main script").count() == 0
    go(page, "Errors")
    expect(page.get_by_role("main")).to_contain_text(f"no such {HOSTILE}/")


def test_the_page_refuses_to_read_text_as_markup(page: Page) -> None:
    write = "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } }"
    assert page.evaluate(write) == "TypeError"


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.reload()
    expect(page.locator(".node").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for view in VIEWS:
        page.keyboard.press("Tab")
        expect(page.get_by_role("navigation").get_by_role("link", name=view)).to_be_focused()
    for reached in (
        page.get_by_role("link", name="API"),
        page.get_by_role("button", name="Change to the dark theme"),
        page.get_by_role("searchbox"),
        page.get_by_role("region", name="Traffic"),
        page.locator(".node").first,
    ):
        page.keyboard.press("Tab")
        expect(reached).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".node.chosen")).to_have_count(1)
    expect(page.locator(".node.chosen")).to_be_focused()  # although the drawing has changed


def test_the_skip_link_leads_to_the_content_and_a_new_view_has_the_focus(page: Page) -> None:
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    go(page, "Backends")
    expect(page.get_by_role("main")).to_be_focused()
    link = page.get_by_role("navigation").get_by_role("link", name="Backends")
    expect(link).to_have_attribute("aria-current", "page")


def test_no_view_has_a_fault_in_any_theme_or_width(page: Page) -> None:
    for role in ("banner", "main", "navigation"):
        expect(page.get_by_role(role)).to_have_count(1)
    assert page.locator("html").get_attribute("lang") == "en"
    for view in VIEWS:
        go(page, view)
        expect(page.locator("main tbody tr, main .node, main .lines li, main form, main .part").first).to_be_visible()
        if view == "Models":
            page.get_by_role("button", name="add_sub").click()
            expect(page.get_by_role("table", name="Inputs")).to_be_visible()
        if view == "Configuration":
            page.get_by_role("searchbox").fill("timeout")  # one line is as the other
        assert faults_in_every_look(page) == [], view


GROUND = "getComputedStyle(document.body).backgroundColor"


def test_the_theme_is_that_of_the_system_until_another_is_chosen(page: Page) -> None:
    light = page.evaluate(GROUND)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(GROUND)
    assert light != dark
    page.get_by_role("button", name="Change to the light theme").click()
    assert page.evaluate(GROUND) == light
    page.reload()
    expect(page.locator(".node").first).to_be_visible()
    assert page.evaluate(GROUND) == light


def test_on_a_phone_the_rows_of_a_table_are_cards_that_can_be_sorted(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    go(page, "Backends")
    table = page.get_by_role("table", name="Backends")
    cards = table.get_by_role("row")
    expect(cards).to_have_count(3)  # the headings are not shown
    assert [cards.first.bounding_box()[side] for side in ("x", "width")] == [12, 390 - 2 * 12]  # type: ignore[index]
    titles = cards.first.get_by_role("cell").evaluate_all(
        "cells => cells.map((cell) => getComputedStyle(cell, '::before').content)"
    )
    assert titles[1:4] == ['"Protocol"', '"Endpoints up"', '"Rate"']
    page.get_by_role("combobox", name="Sort backends").select_option("Sort by name")
    expect(cards.get_by_role("link")).to_have_text(["gone", "science", "tensors"])
    assert "sort=name" in page.url


EDGES = "node => ['--before', '--after'].map((edge) => parseFloat(getComputedStyle(node).getPropertyValue(edge)))"
"""How many pixels of each edge fade out."""


def test_what_can_be_scrolled_sideways_fades_out_where_there_is_more(page: Page) -> None:
    navigation, drawing = page.get_by_role("navigation"), page.get_by_role("region", name="Traffic")
    expect(page.locator(".node").first).to_be_visible()
    assert navigation.evaluate(EDGES) == drawing.evaluate(EDGES) == [0, 0]
    page.set_viewport_size({"width": 390, "height": 800})
    for each in (navigation, drawing):
        wait_until(each, "found => found[0] === 0 && found[1] > 30")
        each.evaluate("node => { node.scrollLeft = 100; }")
        wait_until(each, "found => found[0] > 30 && found[1] > 30")
        each.evaluate("node => { node.scrollLeft = node.scrollWidth; }")
        wait_until(each, "found => found[0] > 30 && found[1] === 0")


def wait_until(node: Locator, is_so: str) -> None:
    """Wait until the edges of a node that fade out are so: they change with the next frame."""
    node.page.wait_for_function(f"node => ({is_so})(({EDGES})(node))", arg=node.element_handle())


def test_nothing_is_asked_while_the_page_is_hidden(context: BrowserContext, gateway: Looked) -> None:
    page = context.new_page()
    page.clock.install()
    page.goto(gateway.admin)
    expect(page.locator(".node").first).to_be_visible()
    with page.expect_response(lambda reply: "/api/traffic?since=" in reply.url) as asked:
        page.clock.run_for(2500)
    asked.value.finished()
    hide = """is => {
        Object.defineProperty(document, "hidden", { value: is, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.clock.run_for(60_000)
    assert requests == []
    with page.expect_request(lambda request: "/api/traffic" in request.url):
        page.evaluate(hide, False)


def test_a_gateway_that_is_gone_is_told(context: BrowserContext, tmp_path: Path) -> None:
    admin = free_port()
    text = CONFIG.replace('admin: {bind: "127.0.0.1:0"}', f'admin: {{bind: "127.0.0.1:{admin}"}}')
    page = context.new_page()
    ready = page.locator("#ready")
    with looked(tmp_path, text) as gateway:
        page.goto(gateway.admin)
        expect(page.locator(".node").first).to_be_visible()
        expect(ready).to_have_text("ready")
    expect(page.get_by_role("status").first).to_contain_text("the gateway does not respond")
    expect(ready).to_have_text("no answer")
    page.get_by_role("navigation").get_by_role("link", name="Playground").click()
    assert faults_in(page, OPPOSITES) == []
    with looked(tmp_path, text):
        expect(ready).to_have_text("ready")
        expect(page.get_by_label("Model", exact=True)).to_have_value("fourfold")  # asked for again
    assert page.locator("#connection").inner_text() == ""


def place(text: str, value: str) -> str:
    """Where a value stands first in the file."""
    before = text[: text.index(value)].split("\n")
    column = len(before[-1]) + 1
    return f"gateway.yaml:{len(before)}:{column}"


def test_the_configuration_has_its_warnings_and_why_it_did_not_reload(context: BrowserContext, tmp_path: Path) -> None:
    with looked(tmp_path) as gateway:
        page = opened(context, gateway, "configuration")
        marked = page.locator(".lines .marked")
        expect(marked).to_have_count(1)
        expect(marked).to_contain_text("gone:")
        expect(marked).to_contain_text("no policy limits the duration of calls to the backend 'gone'")
        text = gateway.file.read_text()
        expect(marked).to_contain_text(place(text, "gone:"))
        warnings = page.get_by_role("region", name="Warnings")
        expect(warnings).to_contain_text(place(text, "gone:"))
        warnings.get_by_role("link", name=re.compile("^line ")).click()
        here = page.locator(".lines .here")
        expect(here).to_contain_text("gone:")
        expect(here).to_be_focused()
        wrong = text.replace("backend: gone", "backend: away").replace("max_in_flight: 1", "max_in_flight: many")
        gateway.file.write_text(wrong)
        assert gateway.reload() == 422
        failure = page.get_by_role("region", name="The last reload failed")
        expect(failure.locator("li")).to_have_count(2)
        page.get_by_role("searchbox").fill("max_in_flight")
        assert faults_in(page, OPPOSITES) == []
        page.get_by_role("searchbox").fill("")
        errors = page.locator(".lines .wrong")
        for key, value in (("max_in_flight", "many"), ("backend", "away")):
            told = failure.locator("li").filter(has_text=value)
            expect(told).to_contain_text(place(wrong, value))
            told.get_by_role("link").focus()
            page.keyboard.press("Enter")
            expect(here).to_contain_text(re.compile(f"^[0-9 ]*{key}:.*error in the new file.*{value}"))
            expect(here).to_contain_text(place(wrong, value))
            expect(here).to_be_in_viewport()
            expect(here).to_be_focused()
        told.get_by_role("link").click()  # once more, to the line that the address has already
        expect(here).to_be_focused()
        expect(errors).to_have_count(2)
        gateway.file.write_text("listeners: [\n")
        assert gateway.reload() == 422
        expect(failure).to_contain_text("gateway.yaml:")
        expect(failure.get_by_role("link")).to_have_count(0)  # a file that is no YAML has no keys
        gateway.file.write_text(text.replace("model: broken", "model: changed"))
        assert gateway.reload() == 200
        expect(page.get_by_role("region", name="The last reload failed")).to_be_hidden()
        page.get_by_role("searchbox").fill("changed")
        expect(page.locator(".lines li")).to_contain_text(["routes:", re.compile("match:"), "model: changed"])


MIRRORED = CONFIG.replace(
    '{match: {model: "*"}, backend: tensors}',
    '{match: {model: "*"}, backend: tensors, policies: [{mirror: {backend: other, sample: 1}}]}',
).replace("  gone:\n", "  other: {protocol: v2-rest, endpoints: ['http://127.0.0.1:OTHER'], safe: true}\n  gone:\n")


class Different(QuietHandler):
    """A server of V2 whose answer to `double` is 1 where 2 is right."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        data = [1.0, 4.0, 6.0] if "double" in self.path else []
        output = {"name": "y", "datatype": "FP64", "shape": [1, 3], "data": data}
        self.send_json({"model_name": "double", "outputs": [output]})

    def do_GET(self) -> None:
        tensor = {"datatype": "FP64", "shape": [-1, 3]}
        inputs, outputs = [{"name": "x", **tensor}], [{"name": "y", **tensor}]
        self.send_json({"name": "double", "platform": "", "inputs": inputs, "outputs": outputs})


def test_what_a_mirror_has_found_is_shown_below_the_routes(context: BrowserContext, tmp_path: Path) -> None:
    with (
        in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Different)) as address,
        looked(tmp_path, MIRRORED.replace("OTHER", str(port_of(address)))) as gateway,
    ):
        page = opened(context, gateway, "routes")
        mirrors = page.get_by_role("region", name="Counts of mirrors")
        expect(mirrors.locator("tbody td")).to_contain_text(["*", "other", "100 %", "0", "0", "0", "0"])
        gateway.infer("double", times=3)
        expect(mirrors.locator("tbody td").nth(4)).to_have_text("3")  # different
        expect(mirrors.locator("tbody td").nth(3)).to_have_text("0")  # equal
        expect(mirrors.locator("tbody td").nth(7)).to_have_text(re.compile(r"^\d.* ms$"))
        differences = page.get_by_role("region", name="Last differences of *")
        expect(differences.locator("tbody tr")).to_have_count(3)
        row = differences.locator("tbody tr").first
        expect(row).to_contain_text("double")
        assert faults_in(page, OPPOSITES) == []
        expect(row).to_contain_text(re.compile("y.*2.*1"))


def test_the_page_asks_for_the_key_and_keeps_it_in_its_tab_only(
    context: BrowserContext, browser: Browser, tmp_path: Path
) -> None:
    key, entry = new_key("operator")
    text = CONFIG.replace('admin: {bind: "127.0.0.1:0"}', 'admin: {bind: "127.0.0.1:0", auth: {}}')
    text += f"auth: {{keys: {{file: {key_file(tmp_path, entry)}}}}}\nprincipals: {{operator: {{permissions: [all]}}}}\n"
    with looked(tmp_path, text) as gateway:
        page = opened(context, gateway)
        asked = page.get_by_role("dialog", name="This gateway requires a key")
        expect(asked).to_be_visible()
        assert faults_in(page, OPPOSITES) == []
        field = page.get_by_label("Key or token")
        expect(field).to_be_focused()
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(asked).to_contain_text("unknown API key")
        expect(page.locator(".node")).to_have_count(0)
        field.fill(key)
        page.keyboard.press("Enter")
        expect(page.locator(".node").first).to_be_visible()
        expect(asked).to_be_hidden()
        page.reload()
        expect(page.locator(".node").first).to_be_visible()
        assert key in page.evaluate("JSON.stringify(sessionStorage)")
        assert key not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        other = opened(context, gateway)
        expect(other.get_by_role("dialog")).to_be_visible()
        page.get_by_role("button", name="Forget key").click()
        expect(asked).to_be_visible()


def test_the_page_of_the_api_works_without_a_network(page: Page) -> None:
    page.get_by_role("link", name="API").click()
    expect(page.get_by_text("/api/traffic")).to_be_visible()


def playground(context: BrowserContext, gateway: Looked) -> Page:
    """The playground with the values of the signature: they replace what is typed before."""
    page = opened(context, gateway, "playground?model=double")
    expect(page.get_by_label("Values")).to_have_value("0")
    return page


def press(page: Page, button: str) -> None:
    """Press a button of the playground, and wait for the tab with its result."""
    page.get_by_role("button", name=button, exact=True).click()
    tab = "Reply" if button == "Send" else button
    expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_the_playground_is_used_by_the_keyboard_alone(context: BrowserContext, gateway: Looked) -> None:
    page = playground(context, gateway)
    values = page.get_by_label("Values")
    values.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("1, x")
    page.get_by_label("Shape").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("'x' is not a number")).to_be_visible()
    expect(values).to_be_focused()
    expect(values).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Control+A")
    page.keyboard.type("4")
    page.get_by_role("button", name="Send").focus()
    page.keyboard.press("Space")
    expect(page.locator(".outcome")).to_have_text("OK")
    expect(page.get_by_role("region", name="Outputs")).to_contain_text("[[8.0]]")
    page.get_by_role("tab", name="v2-rest").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("tabpanel", name="v2-grpc")).to_contain_text("field 1: 6 bytes")


NUMBER_STOPS = """() => {
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
    const stops = all.filter((each) => each.tabIndex >= 0 && !each.disabled && each.checkVisibility());
    stops.forEach((each, at) => { each.dataset.stop = at; });
    stops[0].focus();
    return stops.length;
}"""
"""Numbers what the key Tab should stop at, in the order of the page, and goes to the first."""
STOP = """() => {
    const found = document.activeElement, style = getComputedStyle(found);
    const isShown = style.outlineStyle !== "none" || style.boxShadow !== "none";
    return [found.dataset.stop ?? "", isShown, `${found.tagName} ${found.textContent}`];
}"""


@pytest.mark.parametrize("button", ["Send", "Explain", "Snippets"])
def test_the_key_tab_walks_through_the_whole_playground(context: BrowserContext, gateway: Looked, button: str) -> None:
    """Every control is reached, in the order of the page, and shows that it has the focus; the last leads out."""
    page = playground(context, gateway)
    for each in page.locator("main details").all():
        each.evaluate("(found) => { found.open = true; }")
    press(page, button)
    count = page.evaluate(NUMBER_STOPS)
    assert count > 30
    walked, hidden = [0], []
    for _ in range(2 * count):
        page.keyboard.press("Tab")
        stop, is_shown, what = page.evaluate(STOP)
        if what.startswith("BODY"):
            break
        if stop:  # else a region that scrolls: Chromium itself stops at these
            walked.append(int(stop))
            hidden += [] if is_shown else [what]
    assert walked == list(range(count))
    assert hidden == []


def test_the_playground_shows_hostile_names_as_text_and_the_way(context: BrowserContext, gateway: Looked) -> None:
    page = playground(context, gateway)
    page.get_by_label("Model").fill(HOSTILE)
    page.get_by_label("Model").press("Tab")
    expect(page.get_by_text("Querying the server for the signature…")).to_be_hidden()
    expect(page.locator("legend")).to_contain_text("x")
    for button in ("Explain", "Snippets", "Send"):
        press(page, button)
    expect(page.locator(".outcome")).to_have_text("OK")
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator(".stages")).to_contain_text("posterior: ")
    expect(page.locator(".stages")).to_contain_text(HOSTILE)
