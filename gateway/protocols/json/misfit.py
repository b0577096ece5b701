"""Defines the errors for bodies that match no template, and for messages that no template can represent. If a form
contains several templates, the error explains the closest template."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from gateway.core.errors import DecodeError, ElementError, GatewayError

Place: TypeAlias = tuple[int, int]
"""The position of the first difference between a body and its template, which consists of the nesting depth and the
approximate offset in bytes."""

TOP: Place = (0, 0)
STRUCTURE: Place = (100, 0)
"""The Place for a body whose objects and lists match the template."""


class MisfitError(DecodeError):
    """A body that does not match its template, but could match another template.

    Any other DecodeError means that the body belongs to this template, but has an error.

    `place` is the position of the first difference. A deeper position means that the template is closer to the body."""

    def __init__(self, text: str, place: Place = TOP) -> None:
        super().__init__(text)
        self.place = place


def without_frames(error: DecodeError) -> DecodeError:
    """Return the error without its causes and tracebacks. The caller keeps the error while it tries other templates,
    and the variables in a traceback's frames contain copies of the body."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def explained(errors: Sequence[DecodeError], what: str) -> DecodeError:
    """Return one error for a body that matches none of several templates, which the message calls `what`. The result is
    the first error that is not a MisfitError, or an error that lists the deepest differences."""
    inside = next((error for error in errors if not isinstance(error, MisfitError)), None)
    if inside is not None:
        return inside
    places = [error.place for error in errors if isinstance(error, MisfitError)]
    nearest = {str(error): error for error, place in zip(errors, places, strict=True) if place == max(places)}
    if len(nearest) == 1:
        return next(iter(nearest.values()))
    few = "" if min(places) == max(places) else "; the nearest"
    reasons = "; ".join(f"{at + 1}. {error}" for at, error in enumerate(nearest))
    return MisfitError(
        f"the body matches no alternative of the form's {len(errors)} {what}{few}: {reasons}", max(places)
    )


class Fit(IntEnum):
    """The degree to which a template fits a message that it cannot represent. The values are the steps at which writing
    fails. A later step means a closer fit."""

    PLACES = 1
    """The template has no placeholder for a part of the message, or the message has no value for a placeholder."""
    SHAPES = 2
    """A tensor has a shape or a datatype that its placeholder does not allow."""
    ELEMENTS = 3
    """The template cannot represent an element."""


class UnwrittenError(GatewayError):
    """A message that a template cannot represent. `fit` states how closely the template fits the message."""

    def __init__(self, error: GatewayError, fit: Fit) -> None:
        super().__init__(error.status, error.reason, error.message, error.retry_after)
        self.fit = fit


def better(best: UnwrittenError | None, error: GatewayError, fit: Fit) -> UnwrittenError:
    """Return the error of the closer template, or `best` if both are equally close. `fit` applies to `error` if the
    error has no `fit` of its own."""
    if isinstance(error, ElementError):
        fit = Fit.ELEMENTS
    elif isinstance(error, UnwrittenError):
        fit = error.fit
    return best if best is not None and best.fit >= fit else UnwrittenError(error, fit)
