"""Keys and certificates in a real browser, and the button that has the configuration read again."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from gateway.auth.keys import new_key, read_keys
from tests.admin.asking import key_file
from tests.admin.console.accessibility import faults_in_every_look
from tests.admin.console.browser import CHROMIUM, opened
from tests.admin.console.gateways import CONFIG, Looked, looked

pytestmark = pytest.mark.real(CHROMIUM)

KEY, ENTRY = new_key("alice", note="the laptop")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    folder = tmp_path_factory.mktemp("access")
    keys = str(key_file(folder, ENTRY, new_key("bob")[1]))
    text = CONFIG.replace('admin: {bind: "127.0.0.1:0"', 'admin: {bind: "127.0.0.1:0", auth: {}').replace(
        "backend: gone}", f"backend: gone, {LIMIT}}}"
    )
    with looked(folder, ACCESS.replace("FILE", keys) + text) as found:
        yield found


ACCESS = """
auth: {keys: {file: FILE}}
permissions: {doubling: [{operations: [infer], models: ["dou*"]}, {operations: [admin], listeners: [http]}]}
principals: {alice: {permissions: [doubling, all]}, "b*": {permissions: [doubling]}}
"""
LIMIT = "policies: [{rate_limit: {requests: 1000, seconds: 60, by: principal}}]"


def with_key(context: BrowserContext, gateway: Looked, view: str) -> Page:
    page = opened(context, gateway, view)
    page.get_by_label("Key or token").fill(KEY)
    page.get_by_role("button", name="Continue").click()
    return page


def test_keys_are_listed_and_the_one_that_looks_was_just_used(context: BrowserContext, gateway: Looked) -> None:
    page = with_key(context, gateway, "access")
    rows = page.get_by_role("table", name="Keys").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="alice")).to_contain_text("less than a minute ago")
    expect(rows.filter(has_text="bob")).to_contain_text("not since the start")
    expect(page.get_by_role("main")).to_contain_text("No listener, port or backend uses TLS.")
    assert faults_in_every_look(page) == []
    page.get_by_role("searchbox", name="Filter keys").fill("laptop")
    expect(rows).to_have_count(1)


@pytest.mark.parametrize("width", [1101, 1280, 1361])
def test_every_view_has_its_whole_link_beside_the_button_to_forget_the_key(
    context: BrowserContext, gateway: Looked, width: int
) -> None:
    page = with_key(context, gateway, "access")
    page.set_viewport_size({"width": width, "height": 800})
    expect(page.get_by_role("button", name="Forget key")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Access")).to_be_visible()
    room, needed = page.get_by_role("navigation").evaluate("row => [row.clientWidth, row.scrollWidth]")
    assert needed <= room


def test_a_key_is_created_shown_once_and_revoked(context: BrowserContext, gateway: Looked) -> None:
    page = with_key(context, gateway, "access")
    page.get_by_text("Create a key").click()
    page.get_by_label("Principal", exact=True).fill("carol")
    page.get_by_label("Note").fill("for the cluster")
    page.get_by_label("Expires").fill("2099-01-31")
    page.get_by_role("button", name="Create key").click()
    shown = page.locator(".new-key")
    expect(shown).to_contain_text("Copy it now, because it cannot be shown again.")
    key = shown.locator("code").inner_text()
    row = page.get_by_role("table", name="Keys").locator("tbody tr").filter(has_text="for the cluster")
    expect(row).to_contain_text("carol")
    assert faults_in_every_look(page) == []
    entry = read_keys(gateway.file.parent / "keys.yaml").find(key.encode())
    assert entry is not None
    assert (entry.principal, entry.expires is not None) == ("carol", True)
    page.reload()
    expect(row).to_be_visible()
    expect(page.locator(".new-key")).to_have_text("")
    row.get_by_role("button", name="Revoke").click()
    row.get_by_role("button", name="Really revoke").click()
    expect(row.locator(".badge").first).to_have_text("revoked")
    expect(row.get_by_role("button")).to_have_count(0)


def test_without_a_key_for_the_console_no_key_is_created(context: BrowserContext, tmp_path: Path) -> None:
    with looked(tmp_path, ACCESS.replace("FILE", str(key_file(tmp_path, ENTRY))) + CONFIG) as gateway:
        page = opened(context, gateway, "access")
        page.get_by_text("Create a key").click()
        expect(page.get_by_role("main")).to_contain_text("Keys cannot be changed here")
        expect(page.get_by_role("main")).to_contain_text("set `admin.auth`")
        expect(page.get_by_role("button", name="Create key")).to_have_count(0)
        expect(page.locator("main tbody").get_by_role("button")).to_have_count(0)


def test_a_principal_has_its_permissions_limits_and_keys(context: BrowserContext, gateway: Looked) -> None:
    page = with_key(context, gateway, "principal?of=bob")
    permissions, limits, keys = (
        page.locator("div.part").filter(has=page.get_by_role("heading", name=name))
        for name in ("Permissions", "Rate limits", "API keys")
    )
    expect(permissions).to_contain_text("From the entry b* in principals, the first that matches its name.")
    expect(permissions.locator("tbody tr")).to_have_text(
        ["doublingrun models (infer)dou*all", "doublinguse the status API and this console (admin)allhttp"]
    )
    expect(permissions).to_contain_text("Listeners without authentication (every client has full access): http")
    expect(limits.locator("tbody tr")).to_have_text("broken1,000 in 60 s1,0001,000now")
    expect(keys.locator("tbody tr")).to_contain_text("not since the start")
    assert faults_in_every_look(page) == []
    page.goto(f"{gateway.admin}/console/#/principal?of=nobody")
    expect(permissions).to_contain_text("No entry of principals matches this name")


def test_the_configuration_is_read_again_by_a_button(context: BrowserContext, gateway: Looked) -> None:
    page = with_key(context, gateway, "configuration")
    text = gateway.file.read_text()

    def reload() -> None:
        button = page.get_by_role("button", name=re.compile("^(R|Really r)eload$"))
        while button.inner_text() != "Really reload":  # a page that is still being built forgets the first press
            button.click()
        button.click()

    reload()
    main = page.get_by_role("main")
    expect(main).to_contain_text("The file matches the configuration in use.")
    gateway.file.write_text(text.replace("model: broken", "model: changed"))
    reload()
    expect(main).to_contain_text(re.compile("Changed: .*routes"))
    gateway.file.write_text(text.replace("backend: gone", "backend: away"))
    reload()
    expect(main).to_contain_text("The file has errors. Nothing has changed.")
    expect(page.get_by_role("region", name="The last reload failed")).to_contain_text("away")
