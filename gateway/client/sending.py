"""One request of a `map`: its points, its attempts, and the result for each point. `map.Window` plans it;
`map.evaluations` runs it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import uniform
from time import monotonic
from typing import TypeAlias, TypeVar

from gateway.client import requests
from gateway.client.batches import (
    MOST_BYTES,
    NOT_A_ROW,
    PARTS,
    AlikePoints,
    Batched,
    NotOfRows,
    alike,
    check_same,
    split,
    stacked,
)
from gateway.client.errors import ClientError, ConnectError, Timeout
from gateway.client.map_arguments import MapArguments
from gateway.client.outputs import Outputs
from gateway.client.results import Evaluation, Point
from gateway.core.errors import Reason, Status
from gateway.core.requests import Answer, Response

T = TypeVar("T")

LONGEST_WAIT = 300.0
"""Maximum wait before another attempt, in seconds.

If a server requires a longer wait, the client does not retry."""
MOST_CONNECTION_TRIES = 5
"""Maximum number of extra attempts for a point whose request could not reach the server. The number is low, so a map
with a wrong address fails within seconds."""
FIRST_WAIT, WAIT_GROWS_TO = 0.1, 10.0
"""Initial and maximum wait before another attempt, in seconds, if the server does not specify a time. The wait doubles
with each attempt."""

LATER = frozenset({Reason.OVERLOADED, Reason.RATE_LIMITED, Reason.NOT_READY, Reason.CIRCUIT_OPEN})
"""The error reasons of a server that has not started the request and would accept it later."""


@dataclass(frozen=True)
class ClientCalls:
    """The client's functions that a map calls."""

    infer: Callable[..., Awaitable[Outputs]]
    ask: Callable[..., Awaitable[Answer]]
    batched: Callable[[str, str, bool], Awaitable[Batched | None]]
    """Returns how a model version takes batches; None if the client must send each point separately.

    The last argument is True if the map's caller declares that rows are independent."""


IndexedPoint: TypeAlias = tuple[int, Point]
"""A point, and its index among the points."""


class FailedBatch:
    """A failed request with several points. The client sends its points again in smaller requests."""

    def __init__(self, rows: int, within: "FailedBatch | None") -> None:
        self.rows = rows
        self.within = within
        """The failed request that contained this request, if any."""
        self.left = rows
        """Number of points that have not ended yet."""
        self.has_failing_point = False


@dataclass(frozen=True)
class Sending:
    """Points that share a request. A Sending without points queries whether the model takes batches."""

    points: Sequence[IndexedPoint] = ()
    batched: Batched | None = None
    """How the model takes batches; set if the request contains several points."""
    check: Evaluation | None = None
    """A point that was evaluated in its own request.

    The client sends this point again together with the others, and checks that the point's result is the same."""
    tries: int = 0
    """The number of earlier attempts for these points."""
    part_of: FailedBatch | None = None


@dataclass(frozen=True)
class SendingEnd:
    """The result of a Sending.

    `parts` contains the points that the client must send in other requests. The reason is `error`, or `not_of_rows` if
    the model returns different results for several points than for single points."""

    evaluations: Sequence[Evaluation] = ()
    seconds: float = 0.0
    """The duration of the last attempt."""
    weight: int = 0
    """See `BatchSize.succeeded`."""
    parts: Sequence[Sending] = ()
    error: ClientError | None = None
    not_of_rows: str = ""
    batched: Batched | None = None
    """The result of the query whether the model takes batches."""


def _shortened(point: Point) -> str:
    text = repr(point)
    return text if len(text) <= 200 else f"{text[:200]} ..."


async def send(calls: ClientCalls, arguments: MapArguments, sending: Sending) -> SendingEnd:
    """Send points, and repeat while the server requests a later attempt and `retries` allows it."""
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
    """Like `_send_one`, for several points. If the points are not alike, or the request fails, the client must send
    them in separate requests."""
    points, check = sending.points, sending.check
    first, *others = alike([point for _, point in points], batched.signature)
    if others or first.key == NOT_A_ROW:
        return SendingEnd(parts=[part for group in (first, *others) for part in _of_group(sending, group)])
    if check is not None:
        (own,) = alike([check.point], batched.signature)
        if own.key != first.key:  # the point cannot check points of a different kind
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
    """Return the requests for the points of one group, together or separately."""
    part = replace(sending, points=[sending.points[at] for at in group.at], check=None)
    return _cut(part, 1) if group.key == NOT_A_ROW else [part]


def _cut(sending: Sending, rows: int) -> list[Sending]:
    """Return the points in groups of `rows` points."""
    points = sending.points
    return [replace(sending, points=points[at : at + rows], check=None) for at in range(0, len(points), rows)]


async def _tried(call: Callable[[], Awaitable[T]], arguments: MapArguments) -> tuple[T | ClientError, int, float]:
    """Make a call, and repeat it while the server requests a later attempt. Return the result or last error, the number
    of attempts, and the duration of the last attempt in seconds."""
    tries = 0
    while True:
        tries += 1
        began = monotonic()
        try:
            return await call(), tries, monotonic() - began
        except ClientError as error:
            seconds = seconds_until_next(error, tries)
            if seconds is None or tries > arguments.retries:
                return error, tries, monotonic() - began
        await asyncio.sleep(seconds)


def _is_of_points(error: ClientError) -> bool:
    """Return True if one of the points, or the number of points, might have caused the error. Return False if each
    point alone would fail for the same reason."""
    if isinstance(error, ConnectError | Timeout):
        return error.sent
    return error.reason not in LATER and error.status not in _OF_NO_POINT


_OF_NO_POINT = frozenset({Status.NOT_FOUND, Status.UNAUTHENTICATED, Status.PERMISSION_DENIED})
"""Statuses of errors that concern the model or the client, not the points."""


def seconds_until_next(error: ClientError, tries: int) -> float | None:
    """Return the seconds to wait before the next attempt, after `tries` attempts. Return None if another attempt would
    not help, or might run the model twice.

    The wait is the time that the server specifies. If the server specifies none, the wait doubles with each attempt.
    The client adds up to 10% to the wait, because calls that the server rejected together should not be repeated
    together. If a call waited for a free slot until its deadline, the gateway's timeout error also specifies a time,
    because the gateway never sent the call to a model server."""
    named = error.retry_after
    if isinstance(error, ConnectError) or (isinstance(error, Timeout) and not error.sent):
        if error.sent or tries > MOST_CONNECTION_TRIES:
            return None
    elif error.reason not in LATER and (named is None or error.reason is Reason.TOO_LARGE):
        return None
    if named is None:
        named = min(FIRST_WAIT * 2.0 ** (tries - 1), WAIT_GROWS_TO)
    return None if named > LONGEST_WAIT else uniform(named, 1.1 * named)
