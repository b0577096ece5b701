"""The meaning of the reasons of errors, as the page's JSON has it."""

from collections.abc import Set

from pydantic import BaseModel

from gateway.admin.console.explanations import EXPLANATIONS


class ExplainedReason(BaseModel):
    """A reason of errors."""

    meaning: str
    look_at: str


def explained(reasons: Set[str]) -> dict[str, ExplainedReason]:
    """The explanations of these values of Reason. Texts that are no Reason have none."""
    return {
        reason.value: ExplainedReason(meaning=text.meaning, look_at=text.look_at)
        for reason, text in EXPLANATIONS.items()
        if reason.value in reasons
    }
