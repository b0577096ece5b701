"""Every policy has a page, with the rows of its keys from the generated table of `docs/configuration.md`.

`make pages` writes them (`tests/config/document.py`).
"""

import re
from pathlib import Path

import pytest

from gateway.assembly import registry

DOCS = Path(__file__).parents[2] / "docs"
HEAD = "| key | default | value | meaning |\n|---|---|---|---|\n"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"


def rows(policy: str) -> str:
    """The table of a policy's keys, whose names are shortened."""
    keys = re.compile(rf"^\| `backends\.\*\.policies\[\]\.{policy}\.(.*)$\n", re.M)
    return HEAD + "".join(f"| `{row}\n" for row in keys.findall((DOCS / "configuration.md").read_text()))


def page(policy: str) -> Path:
    """The page of a policy."""
    return DOCS / "policies" / f"{policy}.md"


def documented(policy: str, text: str) -> str:
    """The text of the policy's page with the table between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page(policy)}: write the lines {BEGIN.strip()!r} and {END.strip()!r} below `## Keys`")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{rows(policy)}{END}{rest.partition(END)[2]}"


@pytest.mark.parametrize("policy", sorted(registry.policies()))
def test_the_page_of_a_policy_has_its_keys(policy: str) -> None:
    text = page(policy).read_text()
    assert text == documented(policy, text), "run `make pages`"
