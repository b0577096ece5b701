"""The policy `circuit_breaker: {failures: 20, seconds: 10}`: a model that keeps failing receives no calls for some
seconds."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing
from enum import Enum
from time import monotonic
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from gateway.core.documented import Documented
from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.core.operations import CALLS
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.places import PolicyState, ShownStates

MOST_CIRCUITS = 1000
"""Maximum number of models whose failures are stored. The limit is necessary because clients choose model names. Above
this number, the models with the oldest last failure are forgotten."""
LONGEST = 8
"""The maximum time that a circuit stays open, as a multiple of its `seconds`."""
TRIAL_SECONDS = 1.0
"""The retry delay in errors for calls that are rejected during a trial, in seconds."""


class CircuitState(Enum):
    """The state that determines whether a model receives calls."""

    CLOSED = "closed"
    """The model receives all calls."""
    OPEN = "open"
    """The model receives no calls."""
    HALF_OPEN = "half-open"
    """The model receives one call, the trial, whose result determines the next state."""


@frozen
class CircuitRules:
    """The rules for opening a circuit. A circuit opens after `failures` consecutive failures, or if more than the
    fraction `share` of the last `calls` calls failed. It stays open for `seconds`; each failed trial doubles this
    time."""

    failures: int
    seconds: float
    share: float | None = None
    calls: int = 20


class Circuit:
    """The circuit of one model, which receives all calls (closed), no calls (open), or one trial call (half-open).

    `epoch` is the number of state changes. The result of a call that began before the last change is ignored."""

    __slots__ = ("_openings", "_recent", "_row", "_rules", "epoch", "state", "until")

    def __init__(self, rules: CircuitRules) -> None:
        self._rules = rules
        self.state = CircuitState.CLOSED
        self.epoch = 0
        self.until = 0.0
        self._row = 0
        self._openings = 0
        self._recent: deque[bool] = deque(maxlen=rules.calls)
        """For each of the last calls, True if the call failed."""

    @property
    def is_flawless(self) -> bool:
        """True if no failures are stored."""
        return self.state is CircuitState.CLOSED and not self._row and not any(self._recent)

    def admits(self, now: float) -> bool:
        """Return True if a call can go to the model now. The first call after the open period is the trial."""
        if self.state is CircuitState.OPEN and now >= self.until:
            self._become(CircuitState.HALF_OPEN)
            return True
        return self.state is CircuitState.CLOSED

    def wait(self, now: float) -> float:
        """Return the time after which a rejected call might be accepted, in seconds."""
        return self.until - now if self.state is CircuitState.OPEN else TRIAL_SECONDS

    def succeeded(self) -> None:
        """Record a successful call."""
        if self.state is CircuitState.HALF_OPEN:
            self._openings = 0
            self._recent.clear()
            self._become(CircuitState.CLOSED)
        self._row = 0
        if self._rules.share is not None:
            self._recent.append(False)

    def failed(self, now: float) -> None:
        """Record a failed call."""
        self._row += 1
        if self._rules.share is not None:
            self._recent.append(True)
        if self.state is CircuitState.HALF_OPEN or self._row >= self._rules.failures or self._exceeds_share():
            self.until = now + self._rules.seconds * min(2**self._openings, LONGEST)
            self._openings = min(self._openings + 1, LONGEST)
            self._become(CircuitState.OPEN)

    def abandoned(self, now: float) -> None:
        """Record a call whose result does not show whether the model works."""
        if self.state is CircuitState.HALF_OPEN:  # so the next call is the trial
            self.until = now
            self._become(CircuitState.OPEN)

    def _exceeds_share(self) -> bool:
        recent, share = self._recent, self._rules.share
        return share is not None and len(recent) == self._rules.calls and sum(recent) > share * len(recent)

    def _become(self, state: CircuitState) -> None:
        self.state = state
        self.epoch += 1


class Circuits:
    """The circuits of models that have failed recently. A model without failures has no circuit; a call to this model
    costs only one lookup.

    `changed` is called with the model and its Circuit when a circuit opens or closes."""

    def __init__(
        self, rules: CircuitRules, clock: Callable[[], float], changed: Callable[[Hashable, Circuit], None]
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._changed = changed
        self.known: OrderedDict[Hashable, Circuit] = OrderedDict()
        """The circuits by model. The circuit with the oldest last failure is first."""

    def admit(self, model: Hashable) -> tuple[int, float]:
        """Return two values for a call to `model` that begins now: the epoch to pass with the call's result, and 0.0.
        If the call is rejected, the second value is the time after which a call might be accepted, in seconds."""
        circuit = self.known.get(model)
        if circuit is None:
            return 0, 0.0
        now = self._clock()
        wait = 0.0 if circuit.admits(now) else circuit.wait(now)
        return circuit.epoch, wait

    def succeeded(self, model: Hashable, epoch: int) -> None:
        """Record a successful call of this epoch."""
        circuit = self.known.get(model)
        if circuit is None or circuit.epoch != epoch:
            return
        circuit.succeeded()
        if circuit.is_flawless:
            del self.known[model]
        if circuit.epoch != epoch:
            self._changed(model, circuit)

    def responded(self, model: Hashable, epoch: int) -> int:
        """Record the first response of a stream. If the stream is a trial, this response makes the trial succeed.
        Return the epoch to pass with the stream's result."""
        circuit = self.known.get(model)
        if circuit is None or circuit.epoch != epoch or circuit.state is not CircuitState.HALF_OPEN:
            return epoch
        self.succeeded(model, epoch)
        return 0

    def failed(self, model: Hashable, epoch: int) -> None:
        """Record a failed call of this epoch."""
        circuit = self.known.get(model)
        if circuit is None:
            circuit = self.known[model] = Circuit(self._rules)
            if len(self.known) > MOST_CIRCUITS:
                self.known.popitem(last=False)
        if circuit.epoch != epoch:
            return
        self.known.move_to_end(model)
        circuit.failed(self._clock())
        if circuit.epoch != epoch:
            self._changed(model, circuit)

    def abandoned(self, model: Hashable, epoch: int) -> None:
        """Record a call of this epoch whose result does not show whether the model works, because the client
        disconnected or the request was invalid."""
        circuit = self.known.get(model)
        if circuit is not None and circuit.epoch == epoch:
            circuit.abandoned(self._clock())


log = logging.getLogger(__name__)

FAIR_SECONDS = 1.0
"""Minimum time, in seconds, that a call must have run to count as failed if the client's own deadline ended it. Without
this minimum, clients with short deadlines could make a model unavailable for other clients."""
_SLACK = 0.005
_LONGEST_SHOWN_NAME = 100

FaultStatus = Literal["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "UNKNOWN", "DATA_LOSS"]
FAULTS: tuple[FaultStatus, ...] = ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "UNKNOWN", "DATA_LOSS")


class Settings(Documented):
    """Rejects calls to a model that keeps failing, except for occasional trial calls. Each model and version has its
    own state."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    passes_unread: ClassVar[bool] = True

    failures: Annotated[int, Field(ge=1)] = 20
    """Number of consecutive failures after which a model receives no calls."""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10
    """Time without calls before a trial call, in seconds. Each failed trial call doubles the time, up to 8 times this
    value."""
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Fraction of failed calls among a model's last `calls` calls above which the model also receives no calls.
    Default: only consecutive failures count."""
    calls: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Number of recent calls that `share` covers."""
    statuses: Annotated[tuple[FaultStatus, ...], Field(min_length=1, strict=False)] = FAULTS
    """Error statuses that count as failures; all other errors do not."""


class CircuitBreaker(PolicyState):
    """The circuits of one `circuit_breaker` entry under `policies:`."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self.place = "circuit_breaker"
        self._clock = clock
        self._faults = frozenset(Status[name] for name in settings.statuses)
        self._lines = LogLimit(log)
        rules = CircuitRules(settings.failures, settings.seconds, settings.share, settings.calls)
        self._circuits = Circuits(rules, clock, self._log)

    async def call(self, handler: Handler, request: Request) -> Answer:
        """Return the response of `handler`, unless the circuit of the request's model is open."""
        model = request.model, request.version
        epoch, began = self._admit(model), self._clock()
        try:
            answer = await handler(request)
        except BaseException as error:
            self._note(model, epoch, request, began, error)
            raise
        self._circuits.succeeded(model, epoch)
        return answer

    async def stream(self, handler: StreamHandler, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the responses of `handler`, unless the circuit is open. A trial succeeds with its first response, and
        any other stream succeeds when it ends."""
        model = request.model, request.version
        epoch, began = self._admit(model), self._clock()
        is_first = True
        try:
            async with aclosing(handler(request)) as responses:
                async for response in responses:
                    if is_first:
                        epoch, is_first = self._circuits.responded(model, epoch), False
                    yield response
                    began = self._clock()
        except GeneratorExit:  # the client has disconnected
            self._circuits.succeeded(model, epoch)
            raise
        except BaseException as error:
            self._note(model, epoch, request, began, error)
            raise
        self._circuits.succeeded(model, epoch)

    def _admit(self, model: tuple[str, str]) -> int:
        epoch, wait = self._circuits.admit(model)
        if wait:
            text = f"model {_shown(model)} failed too often, so it gets no calls now; try again in {round(wait, 3):g} s"
            raise refusal(Reason.CIRCUIT_OPEN, text, retry_after=wait)
        return epoch

    def _note(self, model: tuple[str, str], epoch: int, request: Request, began: float, error: BaseException) -> None:
        """Record the result of a call that failed with `error`."""
        if self._is_fault(request, began, error):
            self._circuits.failed(model, epoch)
        else:
            self._circuits.abandoned(model, epoch)

    def _is_fault(self, request: Request, began: float, error: BaseException) -> bool:
        if isinstance(error, GatewayError):
            if error.status is Status.DEADLINE_EXCEEDED and self._is_deadline_of_client(request):
                return error.status in self._faults and self._had_fair_time(request, began)
            return error.status in self._faults
        if isinstance(error, asyncio.CancelledError):  # by an outer policy, or because the client disconnected
            is_over = self._is_deadline_of_client(request) and self._had_fair_time(request, began)
            return is_over and Status.DEADLINE_EXCEEDED in self._faults
        return False

    def _is_deadline_of_client(self, request: Request) -> bool:
        """Return True if the deadline that came with the call has passed."""
        return request.deadline is not None and self._clock() >= request.deadline - _SLACK

    def _had_fair_time(self, request: Request, began: float) -> bool:
        """Return True if the call ran for half of the limit of an outer `timeout` policy or, without a limit, for
        FAIR_SECONDS."""
        limit = request.time_limit
        return self._clock() - began >= (FAIR_SECONDS if limit is None else limit / 2)

    def status(self) -> Mapping[str, object]:
        """Return the models that have failed recently."""
        now = self._clock()
        return {
            "models": [
                {"model": _shown(model), "state": each.state.value, "seconds": max(0.0, round(each.until - now, 3))}
                for model, each in self._circuits.known.items()
                if each.state is not CircuitState.CLOSED
            ]
        }

    def _log(self, model: Hashable, circuit: Circuit) -> None:
        if circuit.state is CircuitState.OPEN:
            wait = circuit.wait(self._clock())
            self._lines.write(
                "open",
                logging.WARNING,
                "%s: model %s failed too often; no calls for %g s",
                self.place,
                _shown(model),
                wait,
            )
        else:
            self._lines.write("closed", logging.INFO, "%s: model %s works again", self.place, _shown(model))


def _shown(model: object) -> str:
    """Return a model and its version as text."""
    assert isinstance(model, tuple)
    name, version = model
    text = repr(name if len(name) <= _LONGEST_SHOWN_NAME else f"{name[:_LONGEST_SHOWN_NAME]}...")
    return f"{text} version {version[:_LONGEST_SHOWN_NAME]!r}" if version else text


state = ShownStates(CircuitBreaker)


def wrap(handler: Handler, settings: Settings) -> Handler:
    """Return a Handler that rejects calls to models that keep failing.

    The Handler raises:
        GatewayError: UNAVAILABLE (circuit-open)."""
    breaker = state(settings)

    def with_breaker(request: Request) -> Awaitable[Answer]:
        return breaker.call(handler, request) if request.operation in CALLS else handler(request)

    return with_breaker


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """Return a StreamHandler that rejects calls to models that keep failing. See `wrap`."""
    breaker = state(settings)

    def with_breaker(request: Request) -> AsyncGenerator[Response, None]:
        return breaker.stream(handler, request)

    return with_breaker
