"""One model over many points: which of them are in flight, what is tried again, and what became of each."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from itertools import count
from random import uniform
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from gateway.bridge.settings import Cast
from gateway.client.errors import ClientError, ConnectError, Timeout
from gateway.client.outputs import Outputs
from gateway.client.progress import Ended, Progress, progress_bar
from gateway.client.requests import Wanted, check_model
from gateway.client.results import Evaluation, Point
from gateway.client.settings import UNSET, Seconds
from gateway.core.errors import Reason
from gateway.core.tasks import spawn

Points: TypeAlias = Iterable[Point] | Mapping[str, Sequence[Any]]
"""Points one by one, or for each input an array whose rows are those of the points."""
Infer: TypeAlias = Callable[..., Awaitable[Outputs]]

LONGEST_WAIT = 300.0
"""Seconds. A server that asks to come back later than this gets no other try."""
MOST_CONNECTION_TRIES = 5
"""Further tries of a point whose request found no server: a wrong address is told within seconds."""
FIRST_WAIT, WAIT_GROWS_TO = 0.1, 10.0
"""Seconds before another try where the server names none: doubled with each, up to the second number."""

LATER = frozenset({Reason.OVERLOADED, Reason.RATE_LIMITED, Reason.NOT_READY, Reason.CIRCUIT_OPEN})
"""Reasons of errors of servers that have not begun the request, and would take it later."""


@dataclass(frozen=True)
class MapArguments:
    """The arguments of `map` and `as_completed`, which describe them.

    Raises:
        ValueError: one is wrong.
    """

    model: str
    points: Points
    _: KW_ONLY
    most: int = 64
    retries: int = 100
    errors: Literal["raise", "return"] = "raise"
    progress: Progress = False
    outputs: Wanted = None
    parameters: Mapping[str, object] | None = None
    version: str = ""
    cast: Cast = "refuse"
    timeout: Seconds = UNSET

    def __post_init__(self) -> None:
        check_model(self.model)
        if self.most < 1:
            raise ValueError(f"most is {self.most}, expected at least 1 call at once")
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
        """The number of points; None where nobody knows it, as of a generator."""
        points = next(iter(self.points.values())) if isinstance(self.points, Mapping) else self.points
        return len(points) if isinstance(points, Sized) else None

    def __iter__(self) -> Iterator[Point]:
        """The points, each when it is asked for."""
        points = self.points
        if not isinstance(points, Mapping):
            # A table of pandas gives the names of its columns in place of its rows. Other arrays may be files, which
            # are read as they are asked for.
            return iter(np.asarray(points) if hasattr(points, "columns") else points)
        return (dict(zip(points, row, strict=True)) for row in zip(*points.values(), strict=True))


def _check_columns(columns: Mapping[str, Sequence[Any]]) -> None:
    if not columns:
        raise ValueError("the points are an empty mapping, expected for each input an array with a row for each point")
    lengths = {name: len(column) if isinstance(column, Sized) else None for name, column in columns.items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {'none' if size is None else size}" for name, size in lengths.items())
        raise ValueError(f"the inputs need one row for each point, as many of each: {told}")


class Window:
    """The points that are in flight: `due` begins some, `ended` ends one. A progress bar is shown while the window is
    entered.

    After the first error no others begin, unless errors are to be returned; those in flight go on.
    """

    def __init__(self, arguments: MapArguments) -> None:
        self.arguments = arguments
        self._points = enumerate(arguments)
        self._in_flight = 0
        self._failure: Evaluation | None = None
        self._bar = progress_bar(arguments.progress, arguments.model, arguments.total)
        self._note: Ended

    def __enter__(self) -> Self:
        self._note = self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def due(self) -> Iterator[tuple[int, Point]]:
        """The points that begin now, each with its index."""
        while self._in_flight < self.arguments.most and self._failure is None:
            begun = next(self._points, None)
            if begun is None:
                return
            self._in_flight += 1
            yield begun

    def ended(self, evaluation: Evaluation) -> Evaluation:
        """Note the end of one, and return it."""
        self._in_flight -= 1
        if evaluation.error is not None and self.arguments.errors == "raise" and self._failure is None:
            self._failure = evaluation
        self._note(evaluation.tries, evaluation.error is not None)
        return evaluation

    def shows(self, evaluation: Evaluation) -> bool:
        """Whether the caller is to see this end: not that of a point whose error is raised."""
        return evaluation.error is None or self.arguments.errors == "return"

    def check(self) -> None:
        """Raise the error that ended the map early, if one did."""
        if self._failure is not None and self._failure.error is not None:
            raise self._failure.error


async def evaluations(infer: Infer, window: Window) -> AsyncGenerator[Evaluation, None]:
    """The evaluations of a window's points as they end, in tasks of the running loop. Closing the generator cancels
    those in flight."""
    tasks: set[asyncio.Task[Evaluation]] = set()
    ended: asyncio.Queue[asyncio.Task[Evaluation]] = asyncio.Queue()
    try:
        while True:
            for index, point in window.due():
                task = spawn(evaluate(infer, window.arguments, index, point))
                tasks.add(task)
                task.add_done_callback(ended.put_nowait)
            if not tasks:
                return
            task = await ended.get()
            tasks.remove(task)
            yield window.ended(task.result())
    finally:
        for task in tasks:
            task.cancel()


def _shortened(point: Point) -> str:
    text = repr(point)
    return text if len(text) <= 200 else f"{text[:200]} ..."


async def evaluate(infer: Infer, arguments: MapArguments, index: int, point: Point) -> Evaluation:
    """Send one point, and again as long as the server asks to try later and `retries` allows it."""
    arrays, inputs = ((), point) if isinstance(point, Mapping) else ((point,), None)
    for tries in count(1):
        try:
            found = await infer(
                arguments.model, *arrays, inputs=inputs, outputs=arguments.outputs, parameters=arguments.parameters,
                version=arguments.version, cast=arguments.cast, timeout=arguments.timeout,
            )  # fmt: skip
            return Evaluation(index, point, tries, found)
        except ClientError as error:
            seconds = seconds_until_next(error, tries)
            if seconds is None or tries > arguments.retries:
                error.add_note(f"at point {index}, {_shortened(point)}")
                return Evaluation(index, point, tries, None, error.with_traceback(None))
        await asyncio.sleep(seconds)
    raise AssertionError


def seconds_until_next(error: ClientError, tries: int) -> float | None:
    """The seconds to wait before the next try after `tries` of them; None if another try would not help, or might run
    the model twice.

    They are the server's, or a time that doubles with each try; and up to a tenth more, so that the many calls that are
    told the same do not come back at once. A gateway names them also in a timeout, if the call waited for a free slot
    until its time was over: it was never sent.
    """
    named = error.retry_after
    if isinstance(error, ConnectError) or (isinstance(error, Timeout) and not error.sent):
        if error.sent or tries > MOST_CONNECTION_TRIES:
            return None
    elif error.reason not in LATER and (named is None or error.reason is Reason.TOO_LARGE):
        return None
    if named is None:
        named = min(FIRST_WAIT * 2.0 ** (tries - 1), WAIT_GROWS_TO)
    return None if named > LONGEST_WAIT else uniform(named, 1.1 * named)
