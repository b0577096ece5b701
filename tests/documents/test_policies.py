"""The lists of policies are complete."""

import re

from gateway.assembly.registry import policies
from tests.cli.commands import ROOT


def test_each_policy_has_a_row_in_the_list_of_policies() -> None:
    page = (ROOT / "docs/policies/README.md").read_text()
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\1\.md\)", page, re.MULTILINE)) == sorted(policies())


def test_the_page_about_workers_names_each_policy_with_a_state() -> None:
    page = (ROOT / "docs/workers.md").read_text()
    with_state = {name for name, policy in policies().items() if hasattr(policy, "state")}
    assert {name for name in with_state if f"`{name}`" not in page and f"`{name}:" not in page} == set()
