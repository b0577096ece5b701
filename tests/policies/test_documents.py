"""Every policy has a page, with the rows of its keys from the generated table of `docs/configuration.md`."""

import re
from pathlib import Path

import pytest

from gateway import registry

DOCS = Path(__file__).parents[2] / "docs"
HEAD = "| key | default | value | meaning |\n|---|---|---|---|\n"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"


def rows(policy: str) -> str:
    """The table of a policy's keys, whose names are shortened."""
    keys = re.compile(rf"^\| `backends\.\*\.policies\[\]\.{policy}\.(.*)$\n", re.M)
    return HEAD + "".join(f"| `{row}\n" for row in keys.findall((DOCS / "configuration.md").read_text()))


@pytest.mark.parametrize("policy", sorted(registry.policies()))
def test_the_page_of_a_policy_has_its_keys(policy: str) -> None:
    page = (DOCS / "policies" / f"{policy}.md").read_text()
    told = page.split(BEGIN)[1].split(END)[0]
    assert told == rows(policy), f"put this between the marks:\n{rows(policy)}"
