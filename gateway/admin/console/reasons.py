"""The meaning of error reasons, in the page's JSON."""

from collections.abc import Set

from pydantic import BaseModel

from gateway.admin.console.explanations import EXPLANATIONS
from gateway.observing.faults import Fault, fault


class ExplainedReason(BaseModel):
    """A reason of errors."""

    meaning: str
    look_at: str
    fault: Fault
    """The party that caused the error. Only server errors need an operator."""


def explained(reasons: Set[str]) -> dict[str, ExplainedReason]:
    """Return the explanations of these values of Reason. Texts that are not a value of Reason have no explanation."""
    return {
        reason.value: ExplainedReason(meaning=text.meaning, look_at=text.look_at, fault=fault(reason.value))
        for reason, text in EXPLANATIONS.items()
        if reason.value in reasons
    }
