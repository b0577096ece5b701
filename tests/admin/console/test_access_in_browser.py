"""Keys and certificates in a real browser, and the button that has the configuration read again."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from gateway.auth.keys import new_key, write_keys
from tests.admin.console.accessibility import faults_in_every_look
from tests.admin.console.browser import needs_chromium
from tests.admin.console.gateways import CONFIG, Looked, looked

pytestmark = needs_chromium

KEY, ENTRY = new_key("alice", note="the laptop")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    folder = tmp_path_factory.mktemp("access")
    (folder / "keys.yaml").write_text(write_keys([ENTRY, new_key("bob")[1]]))
    access = f'auth: {{keys: {{file: "{folder}/keys.yaml"}}}}\nprincipals: {{"*": {{permissions: [all]}}}}\n'
    with looked(folder, access + CONFIG.replace('admin: {bind: "127.0.0.1:0"}', ADMIN)) as found:
        yield found


ADMIN = 'admin: {bind: "127.0.0.1:0", auth: {}}'


def test_keys_are_listed_and_the_one_that_looks_was_just_used(context: BrowserContext, gateway: Looked) -> None:
    page = context.new_page()
    page.goto(f"{gateway.admin}/console/#/access")
    page.get_by_label("Key or token").fill(KEY)
    page.get_by_role("button", name="Continue").click()
    rows = page.get_by_role("table", name="Keys").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="alice")).to_contain_text("less than a minute ago")
    expect(rows.filter(has_text="bob")).to_contain_text("not since the start")
    expect(page.get_by_role("main")).to_contain_text("No listener, port or backend uses TLS.")
    assert faults_in_every_look(page) == []
    page.get_by_role("searchbox", name="Filter keys").fill("laptop")
    expect(rows).to_have_count(1)


def test_the_configuration_is_read_again_by_a_button(context: BrowserContext, gateway: Looked) -> None:
    page = context.new_page()
    page.goto(f"{gateway.admin}/console/#/configuration")
    page.get_by_label("Key or token").fill(KEY)
    page.get_by_role("button", name="Continue").click()
    text = gateway.file.read_text()

    def reload() -> None:
        page.get_by_role("button", name="Reload", exact=True).click()
        page.get_by_role("button", name="Really reload").click()

    reload()
    main = page.get_by_role("main")
    expect(main).to_contain_text("The file says what is in use.")
    gateway.file.write_text(text.replace("model: broken", "model: changed"))
    reload()
    expect(main).to_contain_text(re.compile("Changed: .*routes"))
    gateway.file.write_text(text.replace("backend: gone", "backend: away"))
    reload()
    expect(main).to_contain_text("The file has errors. Nothing has changed.")
    expect(page.get_by_role("region", name="The last reload failed")).to_contain_text("away")
