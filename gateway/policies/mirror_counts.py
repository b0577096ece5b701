"""The results of a mirror: counts, and the most recent differences."""

from collections import Counter, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum

from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.policies.comparing import Difference, Elements, Largest, OutputDifference

MOST_KEPT = 10
"""Maximum number of stored differences."""
LONGEST_MODEL = 100
"""Maximum number of stored characters of a model's name."""
LONGEST_ERROR = 500
"""Maximum number of stored characters of an error from the mirror's backend."""


class MirrorOutcome(StrEnum):
    """The outcome of a mirrored request. The values are the words in metrics and `/status`."""

    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "failed"
    """The mirror's backend did not respond: it was unreachable, took too long, or rejected the call."""
    DROPPED = "dropped"
    """The request was not mirrored because too many mirrored calls were in flight, or used too much memory."""


class DropCause(StrEnum):
    """The reason why the mirror's backend did not receive a request."""

    CALLS = "calls"
    MEMORY = "memory"
    STOPPING = "stopping"


@frozen
class KeptDifference:
    """A difference, the request that caused it, and a `text` that describes it."""

    at: datetime
    request_id: str
    operation: str
    model: str
    text: str
    difference: Difference

    def shown(self) -> Mapping[str, object]:
        """Return the difference as JSON."""
        status = self.difference.status
        return {
            "at": self.at.isoformat(timespec="milliseconds"),
            "request_id": self.request_id,
            "operation": self.operation,
            "model": self.model,
            "text": self.text,
            "status": None if status is None else {"expected": status[0].name, "actual": status[1].name},
            "outputs": [_output(each) for each in self.difference.outputs],
        }


class MirrorCounts:
    """Counts since the start. Only the event loop's thread changes them, and the thread that renders metrics reads
    them."""

    def __init__(self) -> None:
        self.outcomes: Counter[MirrorOutcome] = Counter()
        self.differences: Counter[str] = Counter()
        """Number of requests by the part in which their responses differ. A request counts once for each such part."""
        self.failures: Counter[str] = Counter()
        """Number of requests without a response from the mirror's backend, by reason."""
        self.drops: Counter[DropCause] = Counter()
        self.in_flight = 0
        self.bytes = 0
        """Number of bytes in requests and responses in flight."""
        self.seconds = 0.0
        """Total duration of the successful calls to the mirror's backend, in seconds. `expected_seconds` is the
        corresponding duration for the route's backend."""
        self.expected_seconds = 0.0
        self.last: deque[KeptDifference] = deque(maxlen=MOST_KEPT)

    @property
    def compared(self) -> int:
        """Number of requests whose responses were compared."""
        return self.outcomes[MirrorOutcome.EQUAL] + self.outcomes[MirrorOutcome.DIFFERENT]

    def dropped(self, cause: DropCause) -> None:
        """Count a request that was not mirrored."""
        self.outcomes[MirrorOutcome.DROPPED] += 1
        self.drops[cause] += 1

    def failed(self, error: GatewayError) -> None:
        """Count a request to which the mirror's backend did not respond."""
        self.outcomes[MirrorOutcome.FAILED] += 1
        self.failures[error.reason.value] += 1

    def answered(self, expected_seconds: float, seconds: float) -> None:
        """Record that both backends responded, with their response times."""
        self.expected_seconds += expected_seconds
        self.seconds += seconds

    def equal(self) -> None:
        """Count a request with equal responses."""
        self.outcomes[MirrorOutcome.EQUAL] += 1

    def differed(self, difference: Difference, text: str, request_id: str, operation: str, model: str) -> None:
        """Count a request with different responses; `text` describes the difference."""
        self.outcomes[MirrorOutcome.DIFFERENT] += 1
        self.differences.update(kind.value for kind in difference.kinds)
        self.last.appendleft(
            KeptDifference(datetime.now(UTC), request_id, operation, model[:LONGEST_MODEL], text, difference)
        )

    def shown(self) -> dict[str, object]:
        """Return the counts as JSON."""
        compared = self.compared
        return {
            **{outcome.value: self.outcomes[outcome] for outcome in MirrorOutcome},
            "differences": dict(self.differences),
            "failures": dict(self.failures),
            "drops": {cause.value: count for cause, count in list(self.drops.items())},
            "in_flight": self.in_flight,
            "bytes": self.bytes,
            "mean_seconds": {
                "expected": round(self.expected_seconds / compared, 6),
                "actual": round(self.seconds / compared, 6),
            }
            if compared
            else None,
            "last_differences": [each.shown() for each in list(self.last)],
        }


def _output(difference: OutputDifference) -> Mapping[str, object]:
    shown: dict[str, object] = {"output": difference.output, "kind": difference.kind.value}
    if difference.expected or difference.actual:
        shown |= {"expected": difference.expected, "actual": difference.actual}
    if difference.elements is not None:
        shown |= _elements(difference.elements)
    return shown


def _elements(elements: Elements) -> Mapping[str, object]:
    first = [{"index": list(each.index), "expected": each.expected, "actual": each.actual} for each in elements.first]
    return {
        "differing": elements.count,
        "elements": elements.of,
        "first": first,
        "largest": {
            "absolute": _largest(elements.absolute),
            "relative": _largest(elements.relative),
            "ulp": _largest(elements.ulp),
        },
    }


def _largest(largest: Largest | None) -> Mapping[str, object] | None:
    return None if largest is None else {"value": largest.value, "index": list(largest.index)}
