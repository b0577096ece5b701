"""A real browser, Debian's Chromium, for the tests and the pictures of the console."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str:
    """The path of a Chromium; empty where there is none."""
    return next((path for each in PROGRAMS if (path := shutil.which(each))), "")


needs_chromium = pytest.mark.real(" or ".join(PROGRAMS))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium. Its sandbox does not run as root."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=arguments)
        yield browser
        browser.close()
