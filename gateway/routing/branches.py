"""Routes with several backends: `Split` chooses a backend, and `Branches` sends the call, with fallbacks.

A split chooses one of the backends for each call. By default, the choice is random, in proportion to the weights. Calls
of one sequence, and calls with the same value of the `sticky` header, always go to the same backend, in every process
and replica. This choice uses rendezvous hashing: a hash of the value and the backend's name gives each backend a score,
and the highest score wins. Therefore, a weight change moves only as many values to other backends as necessary.
`fallback` lists the backends to use, in order, if the chosen backend cannot respond.

| request | backend |
|---|---|
| a call: inference, explanation, derivative, stream | the backend that the split chooses, then the fallbacks |
| model readiness | all in parallel; a single ready backend is enough |
| load, unload, trace and log settings | only the first backend of the split |
| anything else (metadata, configuration, ...) | the first backend of the split, then the fallbacks |

The gateway continues with the next backend only if the error proves that the call did not run: the request could not be
sent, the queue is full, the server is not ready, or the server does not have the model. If a backend fails to respond
in any other way, the call might have run. In this case, the gateway continues only if the backend is `safe`. The
gateway does not use a fallback after errors in the request or the model. A call of a sequence has no fallback, because
only one backend has the state of the sequence.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from hashlib import blake2b
from itertools import accumulate
from math import log
from random import Random

from gateway.core.errors import GatewayError, Reason, Status, TransportError, drop_tracebacks
from gateway.core.frozen import frozen, replace
from gateway.core.log_limit import LogLimit
from gateway.core.operations import CALLS, CONTROL_OPERATIONS, Operation
from gateway.core.requests import Answer, Request, Response
from gateway.core.tasks import spawn
from gateway.core.transport import Handler, StreamHandler
from gateway.routing.sequences import sequence_of

_lines = LogLimit(logging.getLogger(__name__))


RANDOM = Random()
"""The source of the random choices of all splits."""


class Split:
    """Chooses one of several backends for each call, in proportion to their weights.

    - `weights`: The name of each backend, and its weight. At least one weight is above 0.
    - `header`: The name of the `sticky` header in lower case, or an empty string.
    - `random`: Returns random numbers from 0 (inclusive) to 1 (exclusive).
    """

    def __init__(
        self, weights: Sequence[tuple[str, int]], header: str = "", random: Callable[[], float] = RANDOM.random
    ) -> None:
        self._weights = [(at, name.encode(), weight) for at, (name, weight) in enumerate(weights) if weight]
        self._bounds = list(accumulate(weight for _, weight in weights))
        self._header = header
        self._random = random
        self.taking = tuple(at for at, _, _ in self._weights)
        """The indices of backends with a weight above 0."""
        self.first = self.taking[0]

    def choose(self, request: Request) -> int:
        """Return the index of the backend for `request`.

        Raises:
            GatewayError: INVALID_ARGUMENT if the `sequence_id` is too long.
        """
        sequence = sequence_of(request)
        if sequence is not None:
            return self._by_hash(f"sequence {sequence[1]} {sequence[0]}")
        value = request.headers.get(self._header) if self._header else ""
        if value:
            return self._by_hash(f"header {value}")
        return bisect_right(self._bounds, self._random() * self._bounds[-1])

    def _by_hash(self, value: str) -> int:
        key = value.encode("utf-8", "surrogatepass")
        return max(self._weights, key=lambda each: _score(key, each[1], each[2]))[0]


def _score(key: bytes, name: bytes, weight: int) -> float:
    """Return the score of a backend for a value. Over many values, each backend has the highest score in proportion to
    its weight, because `-log(uniform) / weight` is exponentially distributed with the rate `weight`."""
    number = int.from_bytes(blake2b(b"%d %s %s" % (len(name), name, key), digest_size=6).digest())
    return weight / -log((number + 0.5) / 2**48)


NOT_RUN = frozenset({Reason.OVERLOADED, Reason.NOT_READY, Reason.CIRCUIT_OPEN})
"""Error reasons that prove that a call was rejected before it ran."""
_NO_ANSWER = frozenset({Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED})


@frozen
class Branch:
    """One backend of a route, for the clients of one protocol.

    `safe` is True if the gateway can send a call again even if the first attempt might have run."""

    backend: str
    handler: Handler
    stream: StreamHandler
    safe: bool = False


class Branches:
    """A Handler that sends a request to one of a route's backends, and to the fallbacks if that backend cannot respond.

    - `own`: The backends in the split, or the only backend.
    - `fallback`: The backends to use after the chosen one, in order.
    """

    def __init__(self, own: Sequence[Branch], split: Split, fallback: Sequence[Branch] = ()) -> None:
        self._own = tuple(own)
        self._split = split
        self._first = self._own[split.first]
        self._fallback = tuple(fallback)
        self._ready = (*(self._own[at] for at in split.taking), *self._fallback)

    def __call__(self, request: Request) -> Awaitable[Answer]:
        """Return the response of the first backend that responds.

        Raises:
            GatewayError, DecodeError: the error of the last backend; if that backend does not have the model and an
                earlier backend was unreachable, the error of the earlier backend.
        """
        operation = request.operation
        if operation in CONTROL_OPERATIONS:
            return self._first.handler(request)
        if operation is Operation.MODEL_READY:
            return self._is_ready(request)
        chosen = self._own[self._split.choose(request)] if operation in CALLS else self._first
        return self._answer(request, self._chain(chosen, request)) if self._fallback else chosen.handler(request)

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the responses of the first backend that responds.

        Raises:
            GatewayError, DecodeError: the errors of a call, possibly after some responses.
        """
        chain = self._chain(self._own[self._split.choose(request)], request)
        unreached: GatewayError | None = None
        for at, branch in enumerate(chain):
            begun = False
            try:
                async with aclosing(branch.stream(request)) as responses:
                    async for response in responses:
                        begun = True
                        yield response
                return
            except GatewayError as error:
                if begun or not self._goes_on(error, request, chain, at):
                    raise _final_error(error, unreached)  # noqa: B904 - one of the two, each with its own cause
                unreached = _unreached(error, unreached)

    def _chain(self, chosen: Branch, request: Request) -> tuple[Branch, ...]:
        """Return the backends to use, in order."""
        return (chosen,) if sequence_of(request) is not None else (chosen, *self._fallback)

    async def _answer(self, request: Request, chain: Sequence[Branch]) -> Answer:
        unreached: GatewayError | None = None
        for at, branch in enumerate(chain):
            try:
                return await branch.handler(request)
            except GatewayError as error:
                if not self._goes_on(error, request, chain, at):
                    raise _final_error(error, unreached)  # noqa: B904 - one of the two, each with its own cause
                unreached = _unreached(error, unreached)
        raise AssertionError("a chain has at least one backend")

    def _goes_on(self, error: GatewayError, request: Request, chain: Sequence[Branch], at: int) -> bool:
        """Decide whether to use the next backend after `chain[at]` failed. Log the switch, or the failure of the entire
        chain."""
        branch = chain[at]
        if not _may_be_asked_elsewhere(error, branch, request):
            return False
        # Log NOT_FOUND only for debugging: a fallback often serves models that a new server does not have yet.
        level = logging.DEBUG if error.status is Status.NOT_FOUND else logging.WARNING
        key = ("fallback", branch.backend, len(chain) - at, level)
        if at + 1 < len(chain):
            text = "backend %r cannot answer, so the gateway tries backend %r: %s"
            _lines.write(key, level, text, branch.backend, chain[at + 1].backend, error.message)
            return True
        if at:
            names = ", ".join(repr(each.backend) for each in chain)
            _lines.write(key, level, "no backend of a route can answer (%s): %s", names, error.message)
        return False

    async def _is_ready(self, request: Request) -> Answer:
        """Return whether the model is ready in any backend that receives calls. Query all these backends in parallel.

        Raises:
            GatewayError: all backends failed; this is the error of the first one.
        """
        # Copy the request for each backend, because a Handler can set fields of its request while it runs.
        asking = [spawn(_answer_or_error(branch, replace(request))) for branch in self._ready]
        try:
            for each in asyncio.as_completed(asking):
                if await each is True:
                    return True
        finally:
            for task in asking:
                task.cancel()
        found = [task.result() for task in asking]
        answers = [each for each in found if not isinstance(each, GatewayError)]
        if not answers:
            assert isinstance(found[0], GatewayError)
            raise found[0]
        return answers[0]


async def _answer_or_error(branch: Branch, request: Request) -> Answer | GatewayError:
    try:
        return await branch.handler(request)
    except GatewayError as error:
        return error


def _final_error(error: GatewayError, unreached: GatewayError | None) -> GatewayError:
    """Return the error for the client, usually the last backend's error. If that backend does not have the model but an
    earlier one was unreachable, return the earlier error, because the model might exist."""
    return unreached if unreached is not None and error.status is Status.NOT_FOUND else error


def _unreached(error: GatewayError, before: GatewayError | None) -> GatewayError | None:
    """Return the last error of an unreachable backend."""
    if error.status is Status.NOT_FOUND:
        return before
    drop_tracebacks(error)  # tracebacks would keep the request in memory as long as the error
    return error


def _may_be_asked_elsewhere(error: GatewayError, branch: Branch, request: Request) -> bool:
    """Return whether another backend can serve the request after `branch` responded with `error`."""
    repeatable = branch.safe or request.operation not in CALLS
    if error.status is Status.NOT_FOUND:
        return True
    if isinstance(error, TransportError):
        may_have_run = error.sent and not repeatable
        return not may_have_run and (error.status in _NO_ANSWER or error.reason in NOT_RUN) and _has_time(request)
    if error.reason in NOT_RUN:
        return True
    return repeatable and error.status in _NO_ANSWER and _has_time(request)


def _has_time(request: Request) -> bool:
    return request.deadline is None or asyncio.get_running_loop().time() < request.deadline
