"""Each policy has a page in `docs/policies` with all its keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import registry
from gateway.config import Catalog, json_schema
from tests.config.test_schema import BEGIN, END, ROOT, default, keys, values

FOLDER = ROOT / "docs" / "policies"
POLICIES = sorted(registry.policies())
SCHEMA = json_schema(Catalog({}, registry.policies()))


def page(policy: str) -> Path:
    return FOLDER / f"{policy}.md"


def table(policy: str) -> str:
    return "| key | default | value | meaning |\n|---|---|---|---|\n" + "".join(_rows(policy))


def _rows(policy: str) -> Iterator[str]:
    above = f"backends.*.policies[].{policy}."
    for key, required, part in keys(SCHEMA):
        if key.startswith(above):
            meaning = " ".join(part["description"].split())
            name = key.removeprefix(above)
            yield f"| `{name}` | {default(required, part)} | {values(SCHEMA, part)} | {meaning} |\n"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_has_every_key(policy: str) -> None:
    """After a change of the keys, put what this test expects between the page's two marks."""
    text = page(policy).read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table(policy)


def test_every_page_is_of_a_policy() -> None:
    assert sorted(each.stem for each in FOLDER.glob("*.md")) == POLICIES
