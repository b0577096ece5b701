"""One request of a `map`: the points that travel in it, tries again, and what became of each point."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import uniform
from time import monotonic
from typing import TypeAlias, TypeVar

from gateway.client import requests
from gateway.client.batch_size import MOST_BYTES, PARTS
from gateway.client.batches import NOT_A_ROW, AlikePoints, Batched, NotOfRows, alike, check_same, split, stacked
from gateway.client.errors import ClientError, ConnectError, Timeout
from gateway.client.map_arguments import MapArguments
from gateway.client.outputs import Outputs
from gateway.client.results import Evaluation, Point
from gateway.core.errors import Reason, Status
from gateway.core.types import Answer, Response

T = TypeVar("T")

LONGEST_WAIT = 300.0
"""Seconds. A server that asks to come back later than this gets no other try."""
MOST_CONNECTION_TRIES = 5
"""Further tries of a point whose request found no server: a wrong address is told within seconds."""
FIRST_WAIT, WAIT_GROWS_TO = 0.1, 10.0
"""Seconds before another try where the server names none: doubled with each, up to the second number."""

LATER = frozenset({Reason.OVERLOADED, Reason.RATE_LIMITED, Reason.NOT_READY, Reason.CIRCUIT_OPEN})
"""Reasons of errors of servers that have not begun the request, and would take it later."""


@dataclass(frozen=True)
class ClientCalls:
    """The functions of a client that a map calls."""

    infer: Callable[..., Awaitable[Outputs]]
    ask: Callable[..., Awaitable[Answer]]
    batched: Callable[[str, str, bool], Awaitable[Batched | None]]
    """Returns the batches of a model and a version; None if its points are sent alone. The last argument: the caller of
    the map says that rows are independent."""


IndexedPoint: TypeAlias = tuple[int, Point]
"""A point, and its index among the points."""


class FailedBatch:
    """A request of several points that failed, and whose points are sent again in parts."""

    def __init__(self, rows: int, within: "FailedBatch | None") -> None:
        self.rows = rows
        self.within = within
        """That of which it was a part."""
        self.left = rows
        """The points that have not ended."""
        self.has_failing_point = False


@dataclass(frozen=True)
class Sending:
    """Points that travel in one request; without points, the question whether the model takes batches."""

    points: Sequence[IndexedPoint] = ()
    batched: Batched | None = None
    """What is known of the model, where there are several points."""
    check: Evaluation | None = None
    """A point that was evaluated alone. It is sent once more with these, to see whether its answer is the same."""
    tries: int = 0
    """How often these points were sent before."""
    part_of: FailedBatch | None = None


@dataclass(frozen=True)
class SendingEnd:
    """The end of a Sending. Where the points have to be sent otherwise, `parts` says how; `error` is why, or
    `not_of_rows` if the model's answers to several points are not those to each."""

    evaluations: Sequence[Evaluation] = ()
    seconds: float = 0.0
    """The duration of the last try."""
    weight: int = 0
    """As in `BatchSize.succeeded`."""
    parts: Sequence[Sending] = ()
    error: ClientError | None = None
    not_of_rows: str = ""
    batched: Batched | None = None
    """The answer to the question."""


def _shortened(point: Point) -> str:
    text = repr(point)
    return text if len(text) <= 200 else f"{text[:200]} ..."


async def send(calls: ClientCalls, arguments: MapArguments, sending: Sending) -> SendingEnd:
    """Send points, and again as long as the server asks to try later and `retries` allows it."""
    if not sending.points:
        return SendingEnd(batched=await calls.batched(arguments.model, arguments.version, arguments.batch is not None))
    if len(sending.points) == 1 and sending.check is None:
        return await _send_one(calls, arguments, sending)
    assert sending.batched is not None
    return await _send_several(calls, arguments, sending, sending.batched)


async def _send_one(calls: ClientCalls, arguments: MapArguments, sending: Sending) -> SendingEnd:
    ((index, point),) = sending.points
    arrays, inputs = ((), point) if isinstance(point, Mapping) else ((point,), None)
    infer = partial(
        calls.infer, arguments.model, *arrays, inputs=inputs, outputs=arguments.outputs,
        parameters=arguments.parameters, version=arguments.version, cast=arguments.cast, timeout=arguments.timeout,
    )  # fmt: skip
    found, tries, seconds = await _tried(infer, arguments)
    tries += sending.tries
    if isinstance(found, ClientError):
        found.add_note(f"at point {index}, {_shortened(point)}")
        return SendingEnd((Evaluation(index, point, tries, None, found.with_traceback(None)),), seconds)
    weight = max(sum(each.nbytes for each in found.values()), getattr(point, "nbytes", 0))
    return SendingEnd((Evaluation(index, point, tries, found),), seconds, weight)


async def _send_several(calls: ClientCalls, arguments: MapArguments, sending: Sending, batched: Batched) -> SendingEnd:
    """As `_send_one`, of several points. Those that are not alike have to be sent apart, and so have those of a request
    that fails."""
    points, check = sending.points, sending.check
    first, *others = alike([point for _, point in points], batched.signature)
    if others or first.key == NOT_A_ROW:
        return SendingEnd(parts=[part for group in (first, *others) for part in _of_group(sending, group)])
    if check is not None:
        (own,) = alike([check.point], batched.signature)
        if own.key != first.key:  # it says nothing about these
            return SendingEnd(parts=_cut(sending, 1))
        first = AlikePoints(first.key, [*first.at, len(points)], [*first.arrays, *own.arrays])
    row = max(sum(each.nbytes for each in first.arrays[0]), 1)
    if len(points) > 1 and len(points) * row > MOST_BYTES:
        return SendingEnd(parts=_cut(sending, max(1, MOST_BYTES // row)))
    inputs = stacked(first)
    request = requests.several(arguments.model, inputs, arguments.outputs, arguments.parameters, arguments.version)
    answer, tries, seconds = await _tried(
        partial(calls.ask, request, cast=arguments.cast, timeout=arguments.timeout), arguments
    )
    tries += sending.tries
    if isinstance(answer, ClientError):
        if _is_of_points(answer):
            failed = replace(sending, part_of=FailedBatch(len(points), sending.part_of), tries=tries)
            return SendingEnd(parts=_cut(failed, -(-len(points) // PARTS)), error=answer)
        answer.add_note(f"at points {points[0][0]} to {points[-1][0]}, which were in one request")
        error = answer.with_traceback(None)
        return SendingEnd([Evaluation(index, point, tries, None, error) for index, point in points], seconds)
    assert isinstance(answer, Response)
    try:
        outputs = split(answer, first, batched)
        if check is not None:
            check_same(check.outputs, outputs.pop())
    except NotOfRows as error:
        return SendingEnd(parts=_cut(replace(sending, tries=tries), 1), not_of_rows=str(error))
    found = [Evaluation(index, point, tries, each) for (index, point), each in zip(points, outputs, strict=True)]
    weight = max(sum(len(each.data) for each in tensors) for tensors in (inputs, answer.outputs)) // len(first.at)
    return SendingEnd(found, seconds, weight)


def _of_group(sending: Sending, group: AlikePoints) -> list[Sending]:
    """The points of one group, together or each by itself."""
    part = replace(sending, points=[sending.points[at] for at in group.at], check=None)
    return _cut(part, 1) if group.key == NOT_A_ROW else [part]


def _cut(sending: Sending, rows: int) -> list[Sending]:
    """The points in parts of so many."""
    points = sending.points
    return [replace(sending, points=points[at : at + rows], check=None) for at in range(0, len(points), rows)]


async def _tried(call: Callable[[], Awaitable[T]], arguments: MapArguments) -> tuple[T | ClientError, int, float]:
    """Make a call, and repeat it as long as the server asks to retry later. Return its result or last error, the number
    of attempts, and the duration of the last attempt in seconds."""
    for tries in count(1):
        began = monotonic()
        try:
            return await call(), tries, monotonic() - began
        except ClientError as error:
            seconds = seconds_until_next(error, tries)
            if seconds is None or tries > arguments.retries:
                return error, tries, monotonic() - began
        await asyncio.sleep(seconds)
    raise AssertionError


def _is_of_points(error: ClientError) -> bool:
    """Whether the error of several points may be that of one of them, or of their number: each would not have failed
    for the same reason."""
    if isinstance(error, ConnectError | Timeout):
        return error.sent
    return error.reason not in LATER and error.status not in _OF_NO_POINT


_OF_NO_POINT = frozenset({Status.NOT_FOUND, Status.UNAUTHENTICATED, Status.PERMISSION_DENIED})
"""The statuses of errors that are about the model or the client, whatever the points."""


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
