"""All configuration keys in docs/coming-from.md exist."""

import re

import pytest

from gateway.assembly import registry
from gateway.config import Catalog, json_schema
from tests.config.document import keys
from tests.documents.pages import ROOT, slugify

PAGE = (ROOT / "docs/coming-from.md").read_text("utf-8")
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
KEYS = {key.name for key in keys(json_schema(Catalog({}, registry.policies())))}


@pytest.mark.parametrize("program", SECTIONS)
def test_the_words_here_are_keys_of_the_configuration_or_protocols(program: str) -> None:
    rows = [line.split("|") for line in SECTIONS[program].splitlines() if line.startswith("| ")]
    named = {word for _, _, here, *_ in rows[1:] for word in re.findall("`([^`]+)`", here)}
    assert len(named) > 4
    assert named - KEYS - registry.protocols().keys() == set()


@pytest.mark.parametrize("program", SECTIONS)
def test_each_program_is_found_from_the_top_and_has_a_page_to_read_next(program: str) -> None:
    assert f"[{program}](#{slugify(program)})" in PAGE
    assert re.search(r"Read next:\s\[", SECTIONS[program])
