"""Every page of the console, of a gateway with each example file, in a real browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, Response, expect

from tests.admin.console.browser import CHROMIUM
from tests.admin.console.gateways import admin_of
from tests.cli.commands import ROOT, started

pytestmark = [pytest.mark.real(CHROMIUM), pytest.mark.long]

EXAMPLES = [ROOT / "config/gateway.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]
BIND = re.compile(r"""bind: ["']?((?:tcp|unix)://)?[^"',}\s]+["']?""")
ADMIN = re.compile(r"^admin:.*(\n +.*)*", re.MULTILINE)


def served(path: Path, folder: Path) -> Path:
    """A copy of the example with free ports, a console without a key, and a log of text: a gateway with a JSON log
    prints no addresses."""
    text = BIND.sub(lambda found: f'bind: "{"tcp://" if found[1] else ""}127.0.0.1:0"', path.read_text())
    text = ADMIN.sub("", text).replace("format: json, ", "") + '\nadmin: {bind: "127.0.0.1:0"}\n'
    copy = folder / path.name
    text = text.replace("/var/log/", f"{folder}/").replace("${HOME}/lab", str(ROOT / "config/examples/hpc"))
    copy.write_text(text)
    return copy


LAST_ASKED = {
    "Models": "models", "Placement": "placement", "Graphs": "graphs", "Playground": "models",
    "Requests": "requests", "Errors": "errors", "Access": "certificates", "Configuration": "configuration",
}  # fmt: skip
"""What a view asks the gateway last before it has all that it shows, below `/api/`."""


@contextmanager
def answered(page: Page, path: str | None) -> Iterator[None]:
    """Wait until the gateway has answered this question of what is done in between."""
    if path is None:
        yield
        return
    with page.expect_response(re.compile(rf"/api/{path}(\?|$)")):
        yield


def is_wrong(reply: Response) -> bool:
    """True if the gateway failed; the servers of the examples are not there, so no signature is known."""
    return reply.status >= 400 and "/api/models/signature" not in reply.url


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_page_opens(context: BrowserContext, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started("serve", "--config", str(served(path, tmp_path))) as (_, lines):
        wrong: list[str] = []
        page = context.new_page()
        page.on("response", lambda reply: wrong.append(f"{reply.status} {reply.url}") if is_wrong(reply) else None)
        page.goto(admin_of(lines))
        expect(page.locator(".node").first).to_be_visible()
        for view in page.get_by_role("navigation").get_by_role("link").all():
            name = re.sub(r"\d.*", "", view.inner_text())
            if not view.is_visible():  # the gateway has nothing of it
                continue
            with answered(page, LAST_ASKED.get(name)):
                view.click()
            expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.locator(".lines li").first).to_be_visible()  # Configuration is the last one
        for kind, listed in (("route", "routes"), ("backend", "backends")):
            for each in page.request.get(f"{page.url.split('/console')[0]}/api/topology").json()[listed]:
                with answered(page, "requests"):
                    page.goto(f"{page.url.split('#')[0]}#/{kind}?of={quote(each['name'], safe='')}")
                expect(page.get_by_role("region", name="About")).to_contain_text("since the start")
        assert wrong == []
        expect(page.locator("#connection")).to_be_empty()
