"""The generated parts of the documentation are current."""

from pathlib import Path

import pytest

from tests.documents.generate import PAGES_OF_PHRASES, generated, pair, reasons
from tests.documents.pages import ROOT

GENERATED = generated()


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_generated_page_is_current(path: Path) -> None:
    assert path.read_text("utf-8") == GENERATED[path], "`make pages` writes it anew"


def test_a_pair_is_read_from_its_column_of_the_matrix() -> None:
    lines = pair("v2-rest", "umbridge").splitlines()
    assert lines[0] == "| `v2-rest` clients, `umbridge` servers | |"
    assert "| datatypes that arrive unchanged | FP64 |" in lines
    assert "| two rows | one call per row |" in lines
    assert "| id | kept |" in lines


def test_every_phrase_that_the_runbook_links_is_in_its_table() -> None:
    table = reasons()
    assert all(table.count(f"[{phrase}]({page})") == 1 for phrase, page in PAGES_OF_PHRASES.items())
