"""The documentation site builds without warnings, and its pages load nothing from the network."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml

from tests.documents.pages import ROOT, pages
from tests.documents.site import SITE, build, from_the_top, path_on_site

pytestmark = pytest.mark.long

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
NOT_READ = {"PACKAGE.md", "tests/README.md"}
"""Pages without an entry in the navigation: the page for a package index, and the pages for contributors."""


@pytest.fixture(scope="module")
def _built() -> None:
    done = build()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr


def in_navigation(nav: list[Any]) -> Iterator[str]:
    for each in nav:
        value = next(iter(each.values())) if isinstance(each, dict) else each
        if isinstance(value, str):
            yield value
        else:
            yield from in_navigation(value)


def test_the_navigation_has_every_page_once() -> None:
    listed = list(in_navigation(CONFIG["nav"]))
    written = {str(path) for page in pages() if (path := path_on_site(page))} - NOT_READ
    assert sorted(written - set(listed)) == [], "add these pages to `nav` in mkdocs.yml"
    assert sorted(set(listed) - written) == [], "`nav` in mkdocs.yml names pages that do not exist"
    assert len(listed) == len(set(listed)), "`nav` in mkdocs.yml names a page twice"


class Loaded(HTMLParser):
    """Collects the addresses that a browser loads to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(attributes.get("src") or "")
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.addresses.append(attributes.get("href") or "")


@pytest.mark.parametrize(
    ("link", "moved"),
    [
        ("[a](quick-start.md)", "[a](docs/quick-start.md)"),
        ("![a](images/connects.svg)", "![a](docs/images/connects.svg)"),
        ("[a](../CONTRIBUTING.md#b)", "[a](CONTRIBUTING.md#b)"),
        ("[a](#b), [a](https://modelglot.example/b)", "[a](#b), [a](https://modelglot.example/b)"),
    ],
)
def test_the_links_of_the_first_page_are_those_from_the_top(link: str, moved: str) -> None:
    assert from_the_top(link) == moved


@pytest.mark.usefixtures("_built")
def test_the_first_page_is_the_one_of_docs() -> None:
    assert "Find your page" in (SITE / "index.html").read_text("utf-8")


@pytest.mark.usefixtures("_built")
def test_every_page_is_built() -> None:
    for path in filter(None, map(path_on_site, pages())):
        assert (SITE / path.parent / ("index" if path.name == "README.md" else path.stem)).with_suffix(".html").exists()


@pytest.mark.usefixtures("_built")
def test_the_pages_load_nothing_from_elsewhere() -> None:
    for page in SITE.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text("utf-8"))
        assert [address for address in loaded.addresses if re.match("(https?:)?//", address)] == [], page


@pytest.mark.usefixtures("_built")
def test_the_style_sheets_load_nothing_from_elsewhere() -> None:
    for sheet in SITE.rglob("*.css"):
        assert not re.search(r"""(url\(["']?|@import ["']?)(https?:)?//""", sheet.read_text("utf-8")), sheet
