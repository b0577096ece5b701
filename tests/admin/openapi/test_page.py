"""The documentation page in a real browser, with a real gateway behind it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.admin.console.browser import CHROMIUM
from tests.admin.console.gateways import Looked, looked

pytestmark = pytest.mark.real(CHROMIUM)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    with looked(tmp_path_factory.mktemp("documents")) as found:
        yield found


def test_one_chooses_the_admin_port_or_a_listener_and_a_model(context: BrowserContext, gateway: Looked) -> None:
    page = context.new_page()
    page.goto(f"{gateway.admin}/docs")
    document = page.get_by_role("main")
    expect(document).to_contain_text("/api/topology")
    expect(page.get_by_label("Model", exact=True)).to_be_hidden()

    page.get_by_label("API", exact=True).select_option("http")
    expect(document).to_contain_text("/v2/models/{model}/infer")
    expect(document).to_contain_text("/Evaluate")
    expect(document).not_to_contain_text("/api/topology")

    page.get_by_label("Model", exact=True).fill("add_sub")
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator("#operations-v2-rest-post_v2_models_model_infer").get_by_role("button").first.click()
    expect(document).to_contain_text("INPUT0")
    expect(document).not_to_contain_text("Try it out")
    expect(page.get_by_label("API", exact=True)).to_have_value("http")

    page.goto(f"{gateway.admin}/docs?listener=http&model=nothing")
    expect(page.get_by_role("alert")).to_contain_text("nothing")
