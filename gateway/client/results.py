"""The results of a `map`: the evaluation of each point, and a sequence of all outputs."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, overload

import numpy as np

from gateway.client import decorators
from gateway.client.errors import ClientError
from gateway.client.outputs import Array, Outputs, brief
from gateway.core.html_tables import html_table

Point: TypeAlias = object
"""The inputs of one call: a mapping from input names to values, or the value of the first input (an array, a number or
a list)."""

SHOWN_ROWS = 10
"""Number of points in the table that a notebook shows."""


@dataclass(frozen=True)
class Evaluation:
    """The result of one point.

    `tries` is the number of attempts. `error` is the error of the last attempt, or None if that attempt succeeded."""

    index: int
    """The index of the point, from 0."""
    point: Point
    tries: int
    found: Outputs | None = None
    error: ClientError | None = None

    def __repr__(self) -> str:
        end = self.found if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return f"<{type(self).__name__} of point {self.index}: {end}>"

    @property
    @decorators.brief
    def outputs(self) -> Outputs:
        """Return the outputs.

        Raises:
            ClientError: the point failed.
        """
        if self.found is None:
            assert self.error is not None
            raise self.error
        return self.found


class Results(Sequence[Outputs]):
    """A sequence of the outputs of each point.

    Accessing the outputs of a failed point raises the point's error; failed points have no placeholder value. `errors`
    maps the indices of failed points to their errors.

    If a `map` ended early, `len()` is the number of points up to the last completed point, and `missing` lists the
    points without a result."""

    def __init__(self) -> None:
        self.done: dict[int, Outputs] = {}
        """The outputs of the points that succeeded, by index, in the order in which the points ended."""
        self.errors: dict[int, ClientError] = {}
        """The errors of the points that failed, by index."""
        self._length = 0

    @contextmanager
    def kept_by_errors(self, total: int | None) -> Iterator[None]:
        """If an exception (an error or an interrupt) ends the block early, attach these results to it as the attribute
        `results`. `total` is the number of points, or None if unknown."""
        try:
            yield
        except BaseException as error:
            error.results = self  # type: ignore[attr-defined]
            points = f"{len(self.done)} points" if total is None else f"{len(self.done)} of {total} points"
            error.add_note(f"`results` of this {type(error).__name__} has the {points} that were done")
            raise

    def add(self, evaluation: Evaluation) -> None:
        """Store the result of one point."""
        if evaluation.found is not None:
            self.done[evaluation.index] = evaluation.found
        elif evaluation.error is not None:
            self.errors[evaluation.index] = evaluation.error
        self._length = max(self._length, evaluation.index + 1)

    @property
    def missing(self) -> list[int]:
        """Return the indices of points that have not ended."""
        return [index for index in range(self._length) if index not in self.done and index not in self.errors]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Outputs: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outputs]: ...
    @decorators.brief
    def __getitem__(self, index: int | slice) -> Outputs | list[Outputs]:
        """Return the outputs of one point or of several points.

        Raises:
            ClientError: the error of a failed point.
            IndexError: the index is out of range, or the point has no evaluation.
        """
        if isinstance(index, slice):
            return [self._at(each) for each in range(*index.indices(self._length))]
        return self._at(range(self._length)[index])

    @decorators.brief_generator
    def __iter__(self) -> Generator[Outputs, None, None]:
        yield from map(self._at, range(self._length))

    @decorators.brief
    def array(self, output: str = "", *, fill: float | None = None) -> Array:
        """Return one output of all points as one array, with a row for each point.

        `output` is the name of the output; optional if the model has only one output. If `fill` is set, the rows of
        points without a result contain this number, for example NaN.

        Raises:
            ClientError: a point failed, and `fill` is None.
            ValueError: the name is missing or unknown, the shapes differ, or the datatype cannot hold `fill`.
        """
        if fill is None or len(self.done) == self._length:
            return self._stacked([_one(each, output) for each in self])
        if not self.done:
            raise ValueError("all points failed, so the shape of a row is unknown; see their `errors`")
        found = {index: _one(each, output) for index, each in self.done.items()}
        rows = self._stacked(list(found.values()))
        whole = np.empty((self._length, *rows.shape[1:]), rows.dtype)
        if rows.dtype.kind == "O" or (
            rows.dtype.kind in "iub" and not np.can_cast(np.min_scalar_type(fill), rows.dtype, "same_kind")
        ):
            raise ValueError(f"{fill} is no value of the output's datatype {rows.dtype}")
        whole[:] = fill
        whole[list(found)] = rows
        return whole

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._progress_text()}>"

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show: a table of the first points."""
        names = list(dict.fromkeys(name for each in self.done.values() for name in each))
        rows = [self._row(index, names) for index in range(min(self._length, SHOWN_ROWS))]
        if self._length > SHOWN_ROWS:
            rows.append(["..."] * (len(names) + 1))
        return html_table(["point", *names], rows, self._progress_text())

    def _row(self, index: int, names: list[str]) -> list[str]:
        if index in self.done:
            found = self.done[index]
            return [str(index), *(brief(found[name]) if name in found else "" for name in names)]
        error = self.errors.get(index)
        told = "not evaluated" if error is None else f"{type(error).__name__}: {error}"
        return [str(index), told, *[""] * (len(names) - 1)]

    def _progress_text(self) -> str:
        told = f"{len(self.done)} of {self._length} points"
        told += f", {len(self.errors)} failed" if self.errors else ""
        return f"{told}, {len(missing)} not evaluated" if (missing := self.missing) else told

    def _at(self, index: int) -> Outputs:
        if index in self.done:
            return self.done[index]
        if index in self.errors:
            raise self.errors[index]
        raise IndexError(f"point {index} was not evaluated; check `errors`")

    def _stacked(self, rows: list[Array]) -> Array:
        return np.stack(rows) if rows else np.empty(0)


def _one(outputs: Outputs, name: str) -> Array:
    if (name and name not in outputs) or (not name and len(outputs) != 1):
        raise ValueError(f"the outputs are {', '.join(map(repr, outputs))}; name one of them")
    return outputs[name] if name else next(iter(outputs.values()))
