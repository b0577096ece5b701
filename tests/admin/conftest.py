"""Fixtures of the tests in a real browser. Its library is imported when one of them asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.admin.console.browser import chromium
from tests.limits import GENEROUS

EXPECTED = (
    "Failed to load resource",  # Chromium's line for a reply with an error: 401 is part of a test
    "This document requires 'TrustedHTML' assignment",  # what another test provokes
)
"""The beginnings of lines that may stand in the browser's console."""

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect

    expect.set_options(timeout=GENEROUS * 1000)
    with chromium() as found:
        yield found


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that nothing is known to, and in which nothing may go wrong: no error in its console, no dialog of a
    script, no request to another origin."""
    wrong: list[str] = []
    origins: set[str] = set()

    def refuse(shown: Dialog) -> None:
        wrong.append(f"a dialog: {shown.message}")
        shown.dismiss()

    found = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", reduced_motion="reduce")
    found.set_default_timeout(GENEROUS * 1000)
    found.on("console", lambda line: wrong.append(line.text) if line.type in ("error", "warning") else None)
    found.on("weberror", lambda error: wrong.append(str(error.error)))
    found.on("dialog", refuse)
    found.on("request", lambda request: origins.add(urlsplit(request.url).netloc))
    yield found
    found.close()
    assert [line for line in wrong if not line.startswith(EXPECTED)] == []
    assert len(origins) == 1
