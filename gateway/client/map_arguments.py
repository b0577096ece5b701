"""The arguments of `map` and `as_completed`, and their validation before the first request."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from gateway.bridge.settings import Cast
from gateway.client.batches import MOST_ROWS
from gateway.client.progress import Progress
from gateway.client.requests import Wanted, check_model
from gateway.client.results import Point
from gateway.client.settings import UNSET, Seconds

Points: TypeAlias = Iterable[Point] | Mapping[str, Sequence[Any]]
"""An iterable of points, or a mapping from each input to an array with one row per point."""


@dataclass(frozen=True)
class MapArguments:
    """The arguments of `map` and `as_completed`, whose docstrings describe them.

    Raises:
        ValueError: an argument is invalid.
    """

    model: str
    points: Points
    _: KW_ONLY
    most: int = 64
    batch: int | None = None
    retries: int = 100
    errors: Literal["raise", "return"] = "raise"
    progress: Progress = False
    resume: str | os.PathLike[str] | None = None
    outputs: Wanted = None
    parameters: Mapping[str, object] | None = None
    version: str = ""
    cast: Cast = "refuse"
    timeout: Seconds = UNSET

    def __post_init__(self) -> None:
        check_model(self.model)
        if self.most < 1:
            raise ValueError(f"most is {self.most}, expected at least 1 call in parallel")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch is {self.batch}, expected at least 1 point in a request")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}, expected 0 or more")
        if self.errors not in ("raise", "return"):
            raise ValueError(f"errors is {self.errors!r}, expected 'raise' or 'return'")
        if isinstance(self.points, str | bytes) or not isinstance(self.points, Iterable):
            raise ValueError(f"the points are {type(self.points).__name__}, expected an array or an iterable")
        if isinstance(self.points, Mapping):
            _check_columns(self.points)

    @property
    def total(self) -> int | None:
        """Return the number of points; None if unknown, for example for a generator."""
        points = next(iter(self.points.values())) if isinstance(self.points, Mapping) else self.points
        return len(points) if isinstance(points, Sized) else None

    @property
    def most_rows(self) -> int:
        """Return the maximum number of points in one request. A point from a generator can depend on the results of
        earlier points, so the client does not collect such points into batches unless `batch` is set."""
        if self.batch is not None:
            return self.batch
        return 1 if self.total is None else MOST_ROWS

    def __iter__(self) -> Iterator[Point]:
        """Yield each point when the caller requests it."""
        points = self.points
        if not isinstance(points, Mapping):
            # Iterating over a pandas DataFrame yields column names instead of rows. Other arrays can be files, whose
            # rows are read during iteration.
            return iter(np.asarray(points) if hasattr(points, "columns") else points)
        return (dict(zip(points, row, strict=True)) for row in zip(*points.values(), strict=True))


def _check_columns(columns: Mapping[str, Sequence[Any]]) -> None:
    if not columns:
        raise ValueError("the points are an empty mapping, expected for each input an array with a row for each point")
    lengths = {name: len(column) if isinstance(column, Sized) else None for name, column in columns.items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {'none' if size is None else size}" for name, size in lengths.items())
        raise ValueError(f"the inputs need one row for each point, as many of each: {told}")
