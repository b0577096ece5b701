"""Circuits, which stop calls to a model for some seconds after it has failed too often. `circuit_breaker` uses them."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from enum import Enum

from gateway.core.frozen import frozen

MOST_CIRCUITS = 1000
"""Maximum number of models whose failures are stored, because clients choose model names. Above this number, the models
with the oldest last failure are forgotten."""
LONGEST = 8
"""A circuit stays open for at most this many times its `seconds`."""
TRIAL_SECONDS = 1.0
"""Retry delay, in seconds, in the errors for calls that are rejected during a trial."""


class CircuitState(Enum):
    """The state that decides whether a model gets calls."""

    CLOSED = "closed"
    """The model gets all calls."""
    OPEN = "open"
    """The model gets no calls."""
    HALF_OPEN = "half-open"
    """The model gets one call, the trial, whose result determines the next state."""


@frozen
class CircuitRules:
    """The rules for opening a circuit. It opens after `failures` consecutive failures, or if more than `share` of the
    last `calls` calls failed. It stays open for `seconds`; each failed trial doubles this time."""

    failures: int
    seconds: float
    share: float | None = None
    calls: int = 20


class Circuit:
    """The circuit of one model, which gets all calls (closed), no calls (open), or one trial call (half-open).

    `epoch` counts the state changes. The result of a call that began before the last change is ignored."""

    __slots__ = ("_openings", "_recent", "_row", "_rules", "epoch", "state", "until")

    def __init__(self, rules: CircuitRules) -> None:
        self._rules = rules
        self.state = CircuitState.CLOSED
        self.epoch = 0
        self.until = 0.0
        self._row = 0
        self._openings = 0
        self._recent: deque[bool] = deque(maxlen=rules.calls)
        """For each of the last calls, True if it failed."""

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
        """Return the number of seconds after which a rejected call might be accepted."""
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
    """The circuits of models that have failed recently. A model without failures has no circuit, so a call to it costs
    only one lookup.

    `changed` is called with the model and its Circuit when a circuit opens or closes."""

    def __init__(
        self, rules: CircuitRules, clock: Callable[[], float], changed: Callable[[Hashable, Circuit], None]
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._changed = changed
        self.known: OrderedDict[Hashable, Circuit] = OrderedDict()
        """The circuit with the oldest last failure is first."""

    def admit(self, model: Hashable) -> tuple[int, float]:
        """For a call to `model` that begins now, return its epoch, to be passed with the call's result, and 0.0. If the
        call is rejected, the second value is the number of seconds after which a call might be accepted."""
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
        """Record the first response of a stream, with which a trial succeeds. Return the epoch to pass with the
        stream's result."""
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
