"""Evaluation of one model at many points: which points are in flight, and how many points share a request. `Client.map`
and `as_completed` use this module."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Self

from gateway.client.batches import TARGET, Batched, BatchSize
from gateway.client.map_arguments import MapArguments
from gateway.client.progress import Noted, progress_bar
from gateway.client.results import Evaluation
from gateway.client.results_file import ResultsFile
from gateway.client.sending import ClientCalls, IndexedPoint, Sending, SendingEnd, send
from gateway.core.errors import Reason
from gateway.core.tasks import spawn

log = logging.getLogger(__name__)

FOUND_AT_ONCE = 100
"""Maximum number of points to read from the file before other tasks of the event loop run."""


class Window:
    """The points in flight: `due` yields requests to send, and `ended` records the end of one.

    As a context manager, the window shows a progress bar. `seconds` is the time limit of a call.

    After the first error, the window starts no more points, unless the caller selects errors in the results
    (`errors="return"`). Points in flight continue."""

    def __init__(self, arguments: MapArguments, seconds: float | None = None) -> None:
        self.arguments = arguments
        self._points = enumerate(arguments)
        self._in_flight = 0
        self._failure: Evaluation | None = None
        self._bar = progress_bar(arguments.progress, arguments.model, arguments.total)
        self._note: Noted
        target = TARGET if seconds is None else min(TARGET, seconds / 10)
        self._size = BatchSize(arguments.most_rows, target)
        self._again: deque[Sending] = deque()
        self._batched: Batched | None = None
        self._is_asked, self._is_asking = self._size.is_one, False
        self._alone: Evaluation | None = None
        """The evaluation of one point in its own request.

        The window compares this evaluation with the result of the same point in the first request with several
        points."""
        self._is_checking = self._is_checked = self._is_told = False
        self._patience = 0.0
        self._file: ResultsFile | None = None
        self._found: list[Evaluation] = []
        """Evaluations from the `resume` file that the caller has not taken yet."""

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            if self.arguments.resume is not None:
                self._file = opened.enter_context(ResultsFile(self.arguments.resume, self.arguments))
            self._note = opened.enter_context(self._bar)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def due(self) -> Iterator[Sending]:
        """Yield the requests to send now."""
        self._patience = 0.0
        while self._in_flight < self.arguments.most and self._failure is None and not self._is_asking:
            self._patience = self._size.patience(self._in_flight)
            begun = None if self._patience else self._next()
            if begun is None:
                return
            self._in_flight += 1
            self._size.begun()
            yield begun

    def found(self) -> list[Evaluation]:
        """Return the evaluations read from the file since the last call of this method."""
        found, self._found = self._found, []
        for each in found:
            self._note(each.tries, False)
        return found

    def patience(self) -> float | None:
        """Return the seconds until the next request can start, even if all requests are still in flight.

        None means that the caller must wait for a request to end."""
        return self._patience or None

    def ended(self, sending: Sending, end: SendingEnd) -> Sequence[Evaluation]:
        """Record the end of a request, and return the evaluations that end with it."""
        in_flight, self._in_flight = self._in_flight, self._in_flight - 1
        if not sending.points:
            self._is_asking, self._batched = False, end.batched
            most = 1 if end.batched is None else end.batched.most
            if most is not None:
                self._size.stop(most)
            return ()
        if sending.check is not None:
            self._is_checking = False
        if end.not_of_rows:
            self._size.stop()
            self._tell(end.not_of_rows)
        if end.error is not None:
            self._size.failed(len(sending.points))
            if end.error.reason is Reason.TOO_LARGE:
                self._size.stop(len(end.parts[0].points))
        if end.parts:
            self._again.extendleft(reversed(end.parts))
            return ()
        self._learn(sending, end, in_flight)
        if self._file is not None:
            self._file.add(end.evaluations)
        for each in end.evaluations:
            if each.error is not None and self.arguments.errors == "raise" and self._failure is None:
                self._failure = each
            self._note(each.tries, each.error is not None)
        return end.evaluations

    def shows(self, evaluation: Evaluation) -> bool:
        """Return True if the caller receives this evaluation; False if the map raises its error instead."""
        return evaluation.error is None or self.arguments.errors == "return"

    def check(self) -> None:
        """Raise the error that ended the map early, if any."""
        if self._failure is not None and self._failure.error is not None:
            raise self._failure.error

    def _next(self) -> Sending | None:
        """Return the next request, without points that must wait for a check. Return None if no points are left."""
        begun = self._again.popleft() if self._again else self._taken()
        if not begun.points:
            return None
        if not self._is_asked:
            self._is_asked = self._is_asking = True
            self._again.appendleft(begun)
            return Sending()
        if len(begun.points) == 1:
            return begun
        if self._size.is_one or (not self._is_checked and (self._alone is None or self._is_checking)):
            return self._first(begun, 1)
        if self._is_checked:
            return replace(begun, batched=self._batched)
        self._is_checking = True
        if len(begun.points) == self._size.rows:
            begun = self._first(begun, self._size.rows - 1)
        return replace(begun, batched=self._batched, check=self._alone)

    def _first(self, sending: Sending, count: int) -> Sending:
        """Return a request with the first `count` points; the next request gets the remaining points."""
        self._again.appendleft(replace(sending, points=sending.points[count:]))
        return replace(sending, points=sending.points[:count])

    def _taken(self) -> Sending:
        """Return new points, which have not been in a request. Points that have a result in the file go to `_found`."""
        if self._file is None:
            return Sending(tuple(islice(self._points, self._size.rows)))
        taken: list[IndexedPoint] = []
        for index, point in self._points:
            found = self._file.find(index, point)
            if found is None:
                taken.append((index, point))
            else:
                self._found.append(found)
            if len(taken) + len(self._found) >= self._size.rows or len(self._found) >= FOUND_AT_ONCE:
                break
        return Sending(taken)

    def _learn(self, sending: Sending, end: SendingEnd, in_flight: int) -> None:
        """Adjust the batch size after points have ended."""
        failed = [each for each in end.evaluations if each.error is not None]
        if not failed:
            self._size.succeeded(len(sending.points), end.seconds, end.weight, in_flight)
            if sending.check is not None:
                self._is_checked = True
            elif not self._is_checked:
                self._alone = end.evaluations[0]
        of = sending.part_of
        while of is not None:
            of.left -= len(end.evaluations)
            of.has_failing_point = of.has_failing_point or bool(failed)
            if not of.left:
                self._size.decided(of.rows, is_at_fault=not of.has_failing_point)
                if self._size.is_one and not of.has_failing_point:
                    self._tell("requests of several points fail, and each of their points alone has a result")
            of = of.within

    def _tell(self, why: str) -> None:
        """Log once that every later request contains one point."""
        if not self._is_told:
            log.warning("model %r: %s; map sends one point in each request", self.arguments.model, why)
        self._is_told = True


async def evaluations(calls: ClientCalls, window: Window) -> AsyncGenerator[Evaluation, None]:
    """Yield the evaluations of a window's points as they end. The evaluations run in tasks of the running loop. Closing
    the generator cancels the points in flight."""
    tasks: dict[asyncio.Task[SendingEnd], Sending] = {}
    ended: asyncio.Queue[asyncio.Task[SendingEnd]] = asyncio.Queue()
    try:
        while True:
            for sending in window.due():
                task = spawn(send(calls, window.arguments, sending))
                tasks[task] = sending
                task.add_done_callback(ended.put_nowait)
            for each in (found := window.found()):
                yield each
            if found:
                await asyncio.sleep(0)  # lets other tasks run between groups of points from the file
                continue
            if not tasks:
                return
            try:
                async with asyncio.timeout(window.patience()):
                    task = await ended.get()
            except TimeoutError:
                continue
            for each in window.ended(tasks.pop(task), task.result()):
                yield each
    finally:
        for task in tasks:
            task.cancel()
