"""Reads the Markdown pages of the repository: code blocks, headings and links, with line numbers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "config", "deploy", "tests")
"""The folders with pages, in addition to the top of the repository."""

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(
    r"<!-- (?:([a-z ]+): begin -->.*?<!-- \1: end|findings -->.*?<!-- end of findings|pair: [^>]*-->.*?<!-- end) -->",
    re.DOTALL,
)
"""Matches a generated part of a page."""
SAVED = re.compile(r"[Ss]ave\s(?:[^\n]|\n(?!\n))*`([\w.-]+)`:\n\n\Z")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
CHANGED = re.compile(r"(?:Add|Replace)\sth(?:[^\n]|\n(?!\n))*`([\w.-]+)`(?:, replacing [^:]*)?:\n\n\Z")
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\((?P<inline>[^)\s]+)\)|^\[[^]]+\]: *(?P<defined>\S+)|<(?P<bare>https?://[^>]+)>", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    page: Path
    line: int
    """The line of the opening fence; `text` starts on the next line."""
    language: str
    """The word after the fence; empty if there is none."""
    text: str
    """The content, without the indentation of the fence."""
    file: str = ""
    """The file in which the reader saves the block: the sentence before the block ends with "`FILE`:"."""
    changes: str = ""
    """The file that the block changes: its sections replace the sections with the same names, or are added. The
    sentence before the block begins with "Add th" or "Replace th", and ends with "`FILE`:"."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Link:
    page: Path
    line: int
    target: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def pages() -> tuple[Path, ...]:
    """Return every Markdown file of the repository."""
    nested = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return tuple(sorted([*ROOT.glob("*.md"), *nested]))


@cache
def blocks() -> tuple[Block, ...]:
    """Return the code blocks of all pages."""
    return tuple(block for page in pages() for block in blocks_of(page))


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        indent = found["indent"]
        code = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        file = SAVED.search(text, 0, found.start())
        changed = CHANGED.search(text, 0, found.start())
        names = (file[1] if file else "", changed[1] if changed else "")
        yield Block(page, _line(text, found.start()), found["language"], code, *names)


def prose(page: Path) -> str:
    """Return the page with empty lines instead of code, so that line numbers stay the same."""
    blank = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page.read_text("utf-8"))
    return INLINE_CODE.sub(lambda found: "`" + "x" * (len(found[0]) - 2) + "`", blank)


def links_of(page: Path) -> Iterator[Link]:
    text = prose(page)
    for found in LINK.finditer(text):
        target = found["inline"] or found["defined"] or found["bare"]
        yield Link(page, _line(text, found.start()), target)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the valid fragments (after `#`) of links to the page: the anchors of headings, by the rules of GitHub and
    of the site, and the anchors in tables of keys."""
    blank = FENCE.sub("", page.read_text("utf-8"))
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", blank, re.MULTILINE):
        slug = slugify(title)
        number = 1
        unique = slug
        while unique in found:
            unique = f"{slug}-{number}"
            number += 1
        found.add(unique)
    return frozenset(found | set(ANCHOR.findall(blank)))


def slugify(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
