"""The playground in a real browser, in front of servers that hang, refuse, and answer what nobody expects."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from gateway.auth.keys import new_key
from tests.admin.asking import key_file
from tests.admin.console.accessibility import OPPOSITES, faults_in
from tests.admin.console.browser import CHROMIUM, opened
from tests.admin.console.gateways import CONFIG, HOSTILE, Looked, looked
from tests.admin.console.hostile_server import ELEMENTS, SCRIPT, HostileServer, hostile_server
from tests.limits import GENEROUS

pytestmark = pytest.mark.real(CHROMIUM)

HOSTILE_CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
admin: {bind: "127.0.0.1:0"}
backends:
  hostile: {protocol: v2-rest, endpoints: ["http://ADDRESS"], policies: [{timeout: {seconds: 30}}]}
  gone: {protocol: v2-rest, endpoints: ["http://127.0.0.1:NOTHING"]}
routes:
  - {match: {model: gone}, backend: gone}
  - {match: {model: "*"}, backend: hostile}
"""
MOST_SHOWN = 400_000
"""Characters of the whole page, whatever came back."""


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with hostile_server() as found:
        yield found


@pytest.fixture(scope="module")
def gateway(server: HostileServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with looked(tmp_path_factory.mktemp("hostile"), HOSTILE_CONFIG.replace("ADDRESS", server.address)) as found:
        yield found


def chosen(context: BrowserContext, gateway: Looked, model: str, more: str = "") -> Page:
    """The playground with a model chosen."""
    page = opened(context, gateway, f"playground?model={model}{more}")
    expect(page.get_by_label("Values")).to_have_value("0")
    return page


def sent(page: Page) -> None:
    """Send, and wait until the answer is shown."""
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".outcome")).to_be_visible()


def expect_usable(page: Page) -> None:
    """The page shows a bounded text, no markup of others, and answers to clicks."""
    assert page.evaluate("document.body.textContent.length") < MOST_SHOWN
    assert page.locator("main img, main script, main b").count() == 0
    page.get_by_role("navigation").get_by_role("link", name="Routes").click()
    expect(page.locator("main tbody tr")).to_have_count(2)


def test_a_server_that_hangs_can_be_left(context: BrowserContext, gateway: Looked, server: HostileServer) -> None:
    page = chosen(context, gateway, "hangs")
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_be_hidden()
    page.get_by_role("button", name="Send").click()
    assert server.hanging.wait(GENEROUS)
    expect(page.get_by_role("status").filter(has_text="Waiting for the response…")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    page.get_by_role("tab", name="Snippets").click()  # the page is used meanwhile
    expect(page.get_by_role("tabpanel", name="Snippets")).to_be_visible()
    cancel.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Cancelled")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_focused()
    expect(cancel).to_be_hidden()
    page.get_by_role("navigation").get_by_role("link", name="Listeners").click()
    expect(page.locator("main tbody tr").first.locator("td").nth(10)).to_have_text("0")  # in flight
    expect_usable(page)


def test_a_server_that_hangs_ends_with_the_time_limit(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "hangs")
    page.get_by_text("Parameters, headers, version, time limit").click()
    page.get_by_label("Time limit").fill("0.5")
    sent(page)
    expect(page.locator(".outcome")).to_contain_text("no response within 0.5 s")
    expect(page.locator(".outcome .badge")).to_have_text("DEADLINE_EXCEEDED")
    expect(page.get_by_role("tabpanel", name="v2-rest (as received)")).to_contain_text("No reply.")
    expect_usable(page)


def test_when_to_try_again_is_shown(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "busy")
    sent(page)
    expect(page.locator(".outcome .badge")).to_have_text("RESOURCE_EXHAUSTED")
    expect(page.locator(".outcome")).to_contain_text(SCRIPT)
    expect(page.locator(".facts")).to_contain_text("Try again after7 s")
    expect_usable(page)


def test_a_backend_without_an_endpoint_that_answers_is_shown(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "playground?model=gone")
    expect(page.get_by_role("status").filter(has_text="The signature is unknown")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("x")
    page.get_by_label("Values").fill("1")
    sent(page)
    expect(page.locator(".outcome .badge")).to_have_text("UNAVAILABLE")
    expect(page.get_by_role("tabpanel", name="v2-rest (as received)")).to_contain_text("status 503")
    expect_usable(page)


def test_why_a_server_lists_no_models_is_told(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "models")
    without = page.get_by_role("region", name="Servers that list no models")
    expect(without).to_contain_text(re.compile("gone: .*(refused|connect)"))
    expect(without).not_to_contain_text("hostile")
    busy = page.locator("main tbody tr").filter(has_text="busy")
    expect(busy).to_contain_text(SCRIPT)  # why it is so, says the server
    page.get_by_role("button", name="gone").click()
    expect(page.get_by_role("region", name="Signature")).to_contain_text(re.compile("refused|connect"))
    without.get_by_role("link", name="gone").click()
    expect(page.locator(".node.chosen")).to_contain_text("gone")


def test_markup_of_a_server_stays_text(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "markup")
    sent(page)
    outputs = page.get_by_role("region", name="Outputs")
    expect(outputs).to_contain_text(HOSTILE)
    expect(outputs).to_contain_text(SCRIPT)
    expect(outputs).to_contain_text("(25,000 characters)")
    for tab in ("v2-grpc", "graphpipe", "umbridge", "mip"):
        page.get_by_role("tab", name=tab).click()
    page.get_by_role("tab", name="Request").click()
    expect_usable(page)


def test_an_error_of_megabytes_is_cut(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "rude")
    sent(page)
    expect(page.locator(".outcome")).to_contain_text("characters)")
    expect(page.locator(".outcome")).to_contain_text(SCRIPT)
    expect_usable(page)


def test_the_beginning_of_a_million_elements_is_shown_and_all_can_be_saved(
    context: BrowserContext, gateway: Looked, tmp_path: Path
) -> None:
    page = chosen(context, gateway, "million")
    sent(page)
    outputs = page.get_by_role("region", name="Outputs")
    expect(outputs).to_contain_text(f"Only the first of {ELEMENTS:,} elements are shown.")
    assert len(outputs.inner_text()) < 20_000
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save the whole response").click()
    saving.value.save_as(tmp_path / "reply.json")
    found = json.loads((tmp_path / "reply.json").read_bytes())
    assert found["outputs"][0]["data"] == [0.5] * ELEMENTS
    page.get_by_role("tab", name="umbridge").click()
    expect(page.get_by_role("tabpanel", name="umbridge")).to_contain_text("appear only in their own protocol")
    expect_usable(page)


def test_outputs_beyond_those_that_are_shown_are_counted(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "many")
    sent(page)
    expect(page.get_by_role("region", name="Outputs").locator("tbody tr")).to_have_count(64)
    expect(page.get_by_role("tabpanel", name="Reply")).to_contain_text("936 more outputs are not shown.")
    expect_usable(page)


def test_numbers_that_are_none_and_bytes_that_are_no_text_are_shown(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "strange", "&listener=grpc&protocol=v2-grpc")
    sent(page)
    outputs = page.get_by_role("region", name="Outputs")
    expect(outputs).to_contain_text("[NaN, Infinity, -Infinity, 5e-324]")
    expect(outputs).to_contain_text(r"\\xff\\xfe<b>")
    expect_usable(page)


EXPLAINING = """
auth: {keys: {file: KEYS}}
principals: {guest: {permissions: [plain]}, user: {permissions: [plain]}, analyst: {permissions: [plain, why]}}
permissions: {plain: [{operations: [infer, metadata]}], why: [{operations: [explain]}]}
"""


def test_why_a_reply_is_not_explained_is_told(context: BrowserContext, tmp_path: Path) -> None:
    made = {name: new_key(name) for name in ("user", "analyst")}
    keys = key_file(tmp_path, *(entry for _, entry in made.values()))
    listeners = """listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {}, allow_explain: true}
  - {name: open, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {anonymous: guest}, allow_explain: true}
  - {name: silent, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: brief, bind: "127.0.0.1:0", protocols: [v2-rest], allow_explain: true, errors: {detail: brief}}
admin:"""
    text = re.sub(r"listeners:.*?admin:", listeners, CONFIG, flags=re.DOTALL)
    with looked(tmp_path, text + EXPLAINING.replace("KEYS", str(keys))) as gateway:
        page = chosen(context, gateway, "double")
        shown = page.get_by_role("tabpanel", name="Explain")

        def explained(listener: str, key: str, why: str) -> None:
            page.get_by_label("Listener", exact=True).select_option(listener)
            if page.get_by_label("Key for the listener").is_visible():
                page.get_by_label("Key for the listener").fill(key)
            page.get_by_role("button", name="Send").click()
            expect(page.locator(".waiting button")).to_be_hidden()
            page.get_by_role("tab", name="Explain").click()
            expect(shown).to_contain_text(why)

        explained("silent", "", "its key allow_explain is false")
        why = "The request has no key. Listener 'http' explains requests to clients with the permission explain"
        explained("http", "", why)
        explained("http", "wrong", "The listener did not accept the key")
        why = "principal 'user', which does not have the permission explain for model 'double'"
        explained("http", made["user"][0], why)
        why = "The request has no key, and 'guest', the principal of clients without a key, does not have"
        explained("open", "", why)
        explained("brief", "", "With errors.detail: brief")
        explained("http", made["analyst"][0], "The path of the request that was just sent.")


def test_nothing_in_the_playground_has_a_fault_in_any_theme_or_width(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "million")
    page.get_by_text("Parameters, headers, version, time limit").click()
    page.get_by_role("button", name="Add an input").click()
    page.get_by_label("Name", exact=True).fill("y")
    page.get_by_label("Values").last.fill("none")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[aria-invalid]").first).to_be_visible()
    assert faults_in(page, OPPOSITES) == []
    page.get_by_role("button", name="Remove input 2").click()
    sent(page)
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator(".stages")).to_be_visible()
    for tab in ("Reply", "Request", "Explain", "Snippets"):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.get_by_role("tabpanel", name=tab, exact=True)).to_be_visible()
        expect(page.locator(".waiting button")).to_be_hidden()
        assert faults_in(page, OPPOSITES) == [], tab


def test_a_backend_that_does_not_answer_is_not_drawn_as_if_it_did(context: BrowserContext, gateway: Looked) -> None:
    page = opened(context, gateway, "playground?model=gone")
    page.get_by_label("Name", exact=True).fill("x")
    page.get_by_label("Values").fill("1")
    sent(page)  # so that the gateway knows
    page.get_by_role("button", name="Explain", exact=True).click()
    drawing = page.get_by_role("img", name=re.compile("Backend: gone, at present down; Reply: not sent, not reached"))
    expect(drawing).to_be_visible()
    expect(drawing.locator(".stage.down .title")).to_have_text("gone")
    expect(page.locator(".stages li.down")).to_contain_text(re.compile("http://127.0.0.1:.* is down: .*refused"))


def test_the_tab_of_snippets_writes_them_for_the_form_as_it_is(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "strange")
    snippets = page.get_by_role("tab", name="Snippets")
    panel = page.get_by_role("tabpanel", name="Snippets")
    snippets.click()
    expect(panel.get_by_role("region", name="Snippet for curl")).to_contain_text("/v2/models/strange/infer")
    expect(snippets).to_be_focused()
    page.get_by_role("tab", name="Reply", exact=True).click()
    page.get_by_label("Values").fill("0.625")
    snippets.click()
    expect(panel).to_contain_text("0.625")
    page.get_by_role("tab", name="Reply", exact=True).click()
    page.get_by_label("Values").fill("none")
    snippets.click()
    expect(panel).to_contain_text("'none' is not a number")
    expect(snippets).to_be_focused()


def test_the_link_of_the_view_is_in_sight_on_a_phone(context: BrowserContext, gateway: Looked) -> None:
    page = chosen(context, gateway, "busy")
    page.set_viewport_size({"width": 375, "height": 800})
    page.reload()
    expect(page.get_by_role("navigation").get_by_role("link", name="Playground")).to_be_in_viewport(ratio=0.95)


BRITTLE = """
  brittle:
    inputs: {x: "FP64 [-1, -1]"}
    steps: {only: {model: broken, inputs: {x: $x}}}
    outputs: {y: $only}
"""


def test_a_model_that_is_made_of_others_is_tried(context: BrowserContext, tmp_path: Path) -> None:
    text = CONFIG.replace("protocols: [v2-rest, umbridge]}", "protocols: [v2-rest, umbridge], allow_explain: true}", 1)
    with looked(tmp_path, text + BRITTLE) as gateway:
        page = opened(context, gateway, "graphs")
        page.get_by_role("link", name="Try it in the playground").click()
        expect(page.get_by_label("Model", exact=True)).to_have_value("fourfold")
        expect(page.locator("fieldset legend")).to_have_text("x FP64 [-1, -1]")
        page.get_by_label("Shape").fill("1, 2")
        page.get_by_label("Values").fill("1.5, 4")
        page.get_by_role("button", name="Explain", exact=True).click()
        way = page.locator(".stages")
        expect(way).to_contain_text(re.compile(r"Graph: 2 steps.*step first calls double \(\*\): "))
        sent(page)
        outputs = page.get_by_role("region", name="Outputs")
        expect(outputs.locator("tbody tr")).to_have_text(["yFP64[1, 2][[6.0, 16.0]]", "bothFP64[1, 2][[9.0, 24.0]]"])
        page.get_by_role("tab", name="Explain").click()
        expect(way).to_contain_text("models.fourfold: a model graph")
        expect(way).to_contain_text(re.compile(r"step first \(double\): .*\d ms.*step second \(double\): .*\d ms"))
        assert faults_in(page, OPPOSITES) == []
        page.get_by_role("tab", name="Snippets").click()
        expect(page.get_by_role("region", name="Snippet for curl")).to_contain_text("/v2/models/fourfold/infer")
        page.goto(f"{gateway.admin}/console/#/models")
        page.get_by_role("button", name="fourfold").click()
        signature = page.get_by_role("region", name="Signature")
        expect(signature).to_contain_text(re.compile("InputsName.*xFP64.*Outputs.*both"))
        page.goto(f"{gateway.admin}/console/#/playground?model=brittle")
        page.get_by_label("Values").fill("1")
        sent(page)
        expect(page.locator(".outcome .badge")).to_have_text("UNAVAILABLE")
        page.get_by_role("tab", name="Explain").click()
        expect(page.locator(".stages li.down").first).to_contain_text("Graph: 1 step")
