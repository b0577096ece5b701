"""A real browser, Debian's Chromium, for the tests and the pictures of the console."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.admin.console.gateways import Looked

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str:
    """The path of a Chromium; empty where there is none."""
    return next((path for each in PROGRAMS if (path := shutil.which(each))), "")


def opened(context: BrowserContext, gateway: Looked, view: str = "") -> Page:
    """A new page of the console: `view` is what its address has after `#/`."""
    page = context.new_page()
    page.goto(f"{gateway.admin}/console/#/{view}" if view else gateway.admin)
    return page


CHROMIUM = " or ".join(PROGRAMS)
"""What the marker `real` says that a test needs."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium. Its sandbox does not run as root."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=arguments)
        yield browser
        browser.close()
