"""What the console says of an error is what the runbook says."""

import re
from pathlib import Path

from gateway.admin.console.explanations import EXPLANATIONS
from gateway.core.errors import Reason

RUNBOOK = (Path(__file__).parents[3] / "docs/runbook.md").read_text("utf-8")
TABLE = RUNBOOK.split("## Errors\n")[1].split("\n## ")[0]
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def test_the_explanations_are_those_of_the_runbook() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \|$", TABLE, re.MULTILINE)
    wanted = {name: tuple(LINK.sub(r"\1", text) for text in texts) for name, *texts in rows}
    assert {reason.value: (text.meaning, text.look_at) for reason, text in EXPLANATIONS.items()} == wanted
    assert EXPLANATIONS.keys() == set(Reason)
