"""The console explains every reason; the runbook's table is made of the same texts."""

from gateway.admin.console.explanations import EXPLANATIONS
from gateway.core.errors import Reason


def test_every_reason_is_explained() -> None:
    assert EXPLANATIONS.keys() == set(Reason)
