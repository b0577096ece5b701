"""Circuits: which models of a place failed so often that they get no calls for a while."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from enum import Enum

from gateway.core.frozen import frozen

MOST_CIRCUITS = 1000
"""The most models whose failures are remembered; beyond it those that failed least recently are forgotten. Clients
choose the names of models."""
LONGEST = 8
"""A circuit is open for at most this many times its `seconds`."""
TRIAL_SECONDS = 1.0
"""While a trial runs, other calls are told to come back after this time."""


class CircuitState(Enum):
    """Whether a model gets calls."""

    CLOSED = "closed"
    """It gets all calls."""
    OPEN = "open"
    """It gets none."""
    HALF_OPEN = "half-open"
    """It gets one call, the trial, which decides what comes next."""


@frozen
class CircuitRules:
    """When a circuit opens, and for how long: `failures` in a row, or more than `share` of the last `calls` failed.
    `seconds` is the first time; each trial that fails doubles it."""

    failures: int
    seconds: float
    share: float | None = None
    calls: int = 20


class Circuit:
    """The state of one model under `circuit_breaker`: it gets all calls (closed), no calls (open), or one trial call
    (half-open).

    `epoch` counts the changes of state. A call that began before the last change says nothing about the time since.
    """

    __slots__ = ("_openings", "_recent", "_row", "_rules", "epoch", "state", "until")

    def __init__(self, rules: CircuitRules) -> None:
        self._rules = rules
        self.state = CircuitState.CLOSED
        self.epoch = 0
        self.until = 0.0
        self._row = 0
        self._openings = 0
        self._recent: deque[bool] = deque(maxlen=rules.calls)
        """Whether each of the last calls failed."""

    @property
    def is_flawless(self) -> bool:
        """There is nothing to remember."""
        return self.state is CircuitState.CLOSED and not self._row and not any(self._recent)

    def admits(self, now: float) -> bool:
        """Whether a call may go to the model. The first call after the circuit was open is the trial."""
        if self.state is CircuitState.OPEN and now >= self.until:
            self._become(CircuitState.HALF_OPEN)
            return True
        return self.state is CircuitState.CLOSED

    def wait(self, now: float) -> float:
        """The seconds after which a refused call may be admitted."""
        return self.until - now if self.state is CircuitState.OPEN else TRIAL_SECONDS

    def succeeded(self) -> None:
        """Note that a call succeeded."""
        if self.state is CircuitState.HALF_OPEN:
            self._openings = 0
            self._recent.clear()
            self._become(CircuitState.CLOSED)
        self._row = 0
        if self._rules.share is not None:
            self._recent.append(False)

    def failed(self, now: float) -> None:
        """Note that a call failed."""
        self._row += 1
        if self._rules.share is not None:
            self._recent.append(True)
        if self.state is CircuitState.HALF_OPEN or self._row >= self._rules.failures or self._exceeds_share():
            self.until = now + self._rules.seconds * min(2**self._openings, LONGEST)
            self._openings = min(self._openings + 1, LONGEST)
            self._become(CircuitState.OPEN)

    def abandoned(self, now: float) -> None:
        """Note that a call ended without telling whether the model works."""
        if self.state is CircuitState.HALF_OPEN:  # the next call is the trial
            self.until = now
            self._become(CircuitState.OPEN)

    def _exceeds_share(self) -> bool:
        recent, share = self._recent, self._rules.share
        return share is not None and len(recent) == self._rules.calls and sum(recent) > share * len(recent)

    def _become(self, state: CircuitState) -> None:
        self.state = state
        self.epoch += 1


class Circuits:
    """The circuits of the models that failed lately. A model without failures has none, so that it costs one lookup.

    `changed` is called with the model and its Circuit when one has opened or closed.
    """

    def __init__(
        self, rules: CircuitRules, clock: Callable[[], float], changed: Callable[[Hashable, Circuit], None]
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._changed = changed
        self.known: OrderedDict[Hashable, Circuit] = OrderedDict()
        """The one whose last failure is the longest ago comes first."""

    def admit(self, model: Hashable) -> tuple[int, float]:
        """The epoch of a call to `model` that begins now, which its outcome is noted with, and 0.0; or, if it is
        refused, the seconds after which the next may be admitted."""
        circuit = self.known.get(model)
        if circuit is None:
            return 0, 0.0
        now = self._clock()
        wait = 0.0 if circuit.admits(now) else circuit.wait(now)
        return circuit.epoch, wait

    def succeeded(self, model: Hashable, epoch: int) -> None:
        """Note that a call of this epoch succeeded."""
        circuit = self.known.get(model)
        if circuit is None or circuit.epoch != epoch:
            return
        circuit.succeeded()
        if circuit.is_flawless:
            del self.known[model]
        if circuit.epoch != epoch:
            self._changed(model, circuit)

    def responded(self, model: Hashable, epoch: int) -> int:
        """Note the first response of a stream, with which a trial has succeeded. Returns the epoch that the stream's
        outcome is noted with."""
        circuit = self.known.get(model)
        if circuit is None or circuit.epoch != epoch or circuit.state is not CircuitState.HALF_OPEN:
            return epoch
        self.succeeded(model, epoch)
        return 0

    def failed(self, model: Hashable, epoch: int) -> None:
        """Note that a call of this epoch failed."""
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
        """Note that a call of this epoch ended without telling whether the model works: its client left, or its request
        was wrong."""
        circuit = self.known.get(model)
        if circuit is not None and circuit.epoch == epoch:
            circuit.abandoned(self._clock())
