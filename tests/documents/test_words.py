"""Pages that readers read from beginning to end stay short."""

from tests.documents.pages import ROOT
from tests.documents.words import counted, words

LOOKED_UP = {ROOT / "docs/runbook.md"}
"""Long pages in which readers look up single rows, such as log lines."""
MOST = 2500


def test_code_and_generated_tables_are_no_words_of_a_person() -> None:
    written = "# A title\n\nTwo words, | a cell | --- |\n"
    code = "```yaml\nlisteners: []\n```\n"
    generated = "<!-- keys: begin -->\n| `bind` | text |\n<!-- keys: end -->\n"
    assert words(written + code + generated) == words(written) == 6


def test_no_page_is_long() -> None:
    long = {page.relative_to(ROOT): number for page, number in counted().items() if number > MOST}
    assert {ROOT / page for page in long} <= LOOKED_UP, long
