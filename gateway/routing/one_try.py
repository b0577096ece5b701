"""Sends one attempt of a call to an endpoint, with its deadline and its span. Also sends requests to all endpoints."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from gateway.core.deadlines import wait_until
from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Answer, Request
from gateway.core.spans import Span, begin
from gateway.routing.endpoint import Endpoint

T = TypeVar("T")

Send: TypeAlias = Callable[[Request, Endpoint], Awaitable[Answer]]


def begun(request: Request, endpoint: Endpoint) -> Request:
    """Begin an attempt of `request` at `endpoint`. The request must have `tries`. Return a copy with the attempt's
    deadline and time limit, or `request` itself if the call must end sooner or its attempts have no limit."""
    tries = request.tries
    assert tries is not None
    tries.began(endpoint.address)
    if tries.seconds is None:
        return request
    end = asyncio.get_running_loop().time() + tries.seconds
    if request.deadline is not None and request.deadline <= end:
        return request
    limit = tries.seconds if request.time_limit is None else min(request.time_limit, tries.seconds)
    return replace(request, deadline=end, time_limit=limit)


def in_time(one_try: Request, sent: Awaitable[T], backend: str, endpoint: Endpoint) -> Awaitable[T]:
    """Return the result of `sent`. Cancel it at the deadline of `one_try`.

    Raises:
        TransportError: DEADLINE_EXCEEDED (timeout) if the deadline passes.
    """
    assert one_try.deadline is not None
    return wait_until(one_try.deadline, sent, partial(_too_late, one_try, backend, endpoint))


async def send_in_time(send: Send, request: Request, backend: str, one_try: Request, endpoint: Endpoint) -> Answer:
    """Send `one_try`, an attempt of `request`, to `endpoint`. Raises the same errors as `in_time`."""
    sent = send(one_try, endpoint)
    answer = await (sent if one_try is request else in_time(one_try, sent, backend, endpoint))
    if request.tries is not None:
        request.tries.answered(endpoint.address)
    return answer


def _too_late(one_try: Request, backend: str, endpoint: Endpoint) -> TransportError:
    seconds = one_try.tries.seconds if one_try.tries is not None else None
    text = f"backend {backend!r} at {endpoint.address}: no answer within {seconds:g} s,"
    text = f"{text} the limit that the policy timeout sets for one try (timeout.per_try); raise it for slow models"
    return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=True)


def span_of_try(request: Request, backend: str, endpoint: Endpoint, protocol: Protocol, *, tls: bool) -> Span:
    """Return the span of an attempt of `request` that begins now."""
    record = request.record
    span = begin(record, "try", request.span)
    span.facts = {
        "backend": backend,
        "endpoint": endpoint.address,
        "protocol": protocol.name,
        "transport": protocol.transport,
        "tls": tls,
        "number": record.tries,
    }
    return span


async def ask_all(request: Request, backend: str, endpoints: Sequence[Endpoint], send: Send) -> Answer:
    """Send a request to all endpoints in parallel to keep their servers identical. Return their common response.

    Raises:
        GatewayError: the error of the first endpoint that failed, with its address if the backend has several
            endpoints; FAILED_PRECONDITION if the responses differ.
    """
    found = await asyncio.gather(*(send(request, each) for each in endpoints), return_exceptions=True)
    if request.operation in (Operation.LOAD, Operation.UNLOAD):
        for endpoint in endpoints:
            endpoint.changed()
    for endpoint, answer in zip(endpoints, found, strict=True):
        if isinstance(answer, GatewayError) and len(found) > 1 and not isinstance(answer, TransportError):
            text = f"backend {backend!r} at {endpoint.address}: {answer.message}"
            raise GatewayError(answer.status, answer.reason, text) from answer
        if isinstance(answer, BaseException):
            raise answer
        if answer != found[0]:
            text = f"endpoints {endpoints[0].address} and {endpoint.address} of backend {backend!r}"
            text = f"{text} differ in their {request.operation.value}"
            raise refusal(Reason.FAILED_PRECONDITION, f"{text}; serve the same on both")
    assert not isinstance(found[0], BaseException)
    return found[0]
