"""Errors of bodies that fit no template."""

from collections.abc import Sequence

from gateway.core.errors import DecodeError


class MisfitError(DecodeError):
    """A body that is not as its template. Of several templates another may fit it. Any other DecodeError says that the
    template is meant, but something in the body is wrong."""


def explained(errors: Sequence[DecodeError], what: str) -> DecodeError:
    """One error for a body that fits none of several `what`: the first that is no misfit, else all of them."""
    if len(errors) == 1:
        return errors[0]
    inside = next((error for error in errors if not isinstance(error, MisfitError)), None)
    if inside is not None:
        return inside
    reasons = "; ".join(f"{at + 1}. {error}" for at, error in enumerate(dict.fromkeys(map(str, errors))))
    return MisfitError(f"the body fits none of the form's {len(errors)} {what}: {reasons}")
