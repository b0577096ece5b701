"""Errors of bodies that match no template, and of messages that no template can carry. If a form has several templates,
the error explains the closest one."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from gateway.core.errors import DecodeError, ElementError, GatewayError

Place: TypeAlias = tuple[int, int]
"""The position of a body's first difference from its template: the depth in objects and lists, and the approximate
offset in bytes."""

TOP: Place = (0, 0)
STRUCTURE: Place = (100, 0)
"""The place of a body whose objects and lists match the template."""


class MisfitError(DecodeError):
    """A body that does not match its template, but could match another template.

    Any other DecodeError means that this is the right template, and that the body is wrong.

    `place` is the first difference. The deeper it is, the closer the template is to the body."""

    def __init__(self, text: str, place: Place = TOP) -> None:
        super().__init__(text)
        self.place = place


def without_frames(error: DecodeError) -> DecodeError:
    """Return the error without its causes and the frames that they came through, because the variables of each frame
    hold copies of the body. The error is kept while other templates are tried."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def explained(errors: Sequence[DecodeError], what: str) -> DecodeError:
    """Return one error for a body that matches none of several `what`: the first error of a type other than
    MisfitError, or otherwise an error that lists the deepest differences."""
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
    """How far a template can carry a message. The values are the places in which it fails, the best last."""

    PLACES = 1
    """The template has no place for a part of the message, or the message has no content for a place."""
    SHAPES = 2
    """A tensor has a shape or a datatype that its place cannot have."""
    ELEMENTS = 3
    """An element cannot be represented."""


class UnwrittenError(GatewayError):
    """A message that a template cannot carry. `fit` is how far the template can carry it."""

    def __init__(self, error: GatewayError, fit: Fit) -> None:
        super().__init__(error.status, error.reason, error.message, error.retry_after)
        self.fit = fit


def better(best: UnwrittenError | None, error: GatewayError, fit: Fit) -> UnwrittenError:
    """Return the error of the closer template, or the first error if both are equally close. `fit` applies to `error`
    if its own type does not determine it."""
    if isinstance(error, ElementError):
        fit = Fit.ELEMENTS
    elif isinstance(error, UnwrittenError):
        fit = error.fit
    return best if best is not None and best.fit >= fit else UnwrittenError(error, fit)
