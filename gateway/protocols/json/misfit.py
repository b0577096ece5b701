"""Errors of bodies that fit no template, and of messages that none can carry. Of several templates the one that fits
best is explained."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from gateway.core.errors import DecodeError, ElementError, GatewayError

Place: TypeAlias = tuple[int, int]
"""Where a body differs from its template: so many objects and lists deep, and about at this byte."""

TOP: Place = (0, 0)
STRUCTURE: Place = (100, 0)
"""That of a body whose objects and lists are those of the template."""


class MisfitError(DecodeError):
    """A body that is not as its template. Of several templates another may fit it. Any other DecodeError says that the
    template is meant, but something in the body is wrong.

    `place` is the first difference: the deeper it is, the better the template fits.
    """

    def __init__(self, text: str, place: Place = TOP) -> None:
        super().__init__(text)
        self.place = place


def without_frames(error: DecodeError) -> DecodeError:
    """The error, to be kept while others are tried, without its causes and the frames that they came through: the
    variables of each hold copies of the body."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def explained(errors: Sequence[DecodeError], what: str) -> DecodeError:
    """One error for a body that fits none of several `what`: the first that is no misfit, else those of the templates
    that fit the body deepest."""
    inside = next((error for error in errors if not isinstance(error, MisfitError)), None)
    if inside is not None:
        return inside
    places = [error.place for error in errors if isinstance(error, MisfitError)]
    nearest = {str(error): error for error, place in zip(errors, places, strict=True) if place == max(places)}
    if len(nearest) == 1:
        return next(iter(nearest.values()))
    few = "" if min(places) == max(places) else "; the nearest"
    reasons = "; ".join(f"{at + 1}. {error}" for at, error in enumerate(nearest))
    return MisfitError(f"the body fits none of the form's {len(errors)} {what}{few}: {reasons}", max(places))


class Fit(IntEnum):
    """How far a template can carry a message: the places in which it fails, the best last."""

    PLACES = 1
    """It has no place for something, or nothing for a place."""
    SHAPES = 2
    """A tensor has a shape or a datatype that its place cannot have."""
    ELEMENTS = 3
    """An element cannot be spelled."""


class UnwrittenError(GatewayError):
    """A message that a template cannot carry; `fit` says how far it does."""

    def __init__(self, error: GatewayError, fit: Fit) -> None:
        super().__init__(error.status, error.reason, error.message, error.retry_after)
        self.fit = fit


def better(best: UnwrittenError | None, error: GatewayError, fit: Fit) -> UnwrittenError:
    """The one of two errors whose template fits better, the first of equal ones. `fit` is that of `error` if nothing
    else is known of it."""
    if isinstance(error, ElementError):
        fit = Fit.ELEMENTS
    elif isinstance(error, UnwrittenError):
        fit = error.fit
    return best if best is not None and best.fit >= fit else UnwrittenError(error, fit)
