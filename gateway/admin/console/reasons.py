"""Explanations of error reasons, in the JSON for the console's page."""

from collections.abc import Set

from pydantic import BaseModel

from gateway.admin.console.explanations import EXPLANATIONS
from gateway.observing.faults import Fault, fault


class ExplainedReason(BaseModel):
    """An error reason and its explanation."""

    meaning: str
    look_at: str
    fault: Fault
    """The party that caused the error. Only server errors need an operator."""


def explained(reasons: Set[str]) -> dict[str, ExplainedReason]:
    """Return the explanations of these values of Reason. Other strings get no explanation."""
    return {
        reason.value: ExplainedReason(meaning=text.meaning, look_at=text.look_at, fault=fault(reason.value))
        for reason, text in EXPLANATIONS.items()
        if reason.value in reasons
    }
