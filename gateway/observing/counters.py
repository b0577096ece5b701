"""Counters of requests and the last errors, for the status API."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from gateway.core.frozen import frozen
from gateway.core.record import OK, Record

MOST_ERRORS = 20
"""The last errors that are kept."""


@frozen
class RequestError:
    """A request that ended with an error, as the status API shows it. It has no text: that may hold something of the
    request. The log has more about it under the same request id."""

    at: datetime
    """In UTC."""
    request_id: str
    listener: str
    operation: str
    model: str
    """As the client named it; empty if the request could not be read."""
    route: str
    backend: str
    endpoint: str
    """Of the last try; empty if there was none."""
    status: str
    reason: str


class Counters:
    """Counts requests by their status: for each listener and for each backend."""

    def __init__(self) -> None:
        self._by_listener: dict[str, Counter[str]] = {}
        self._by_backend: dict[str, Counter[str]] = {}
        self._errors: deque[RequestError] = deque(maxlen=MOST_ERRORS)

    def count(self, records: Iterable[Record]) -> None:
        """Count requests that have ended."""
        for each in records:
            self._count(each)

    def _count(self, record: Record) -> None:
        status = record.status
        listener = self._by_listener.get(record.listener)
        if listener is None:
            listener = self._by_listener[record.listener] = Counter()
        listener[status] += 1
        if record.backend:
            backend = self._by_backend.get(record.backend)
            if backend is None:
                backend = self._by_backend[record.backend] = Counter()
            backend[status] += 1
        if status != OK:
            self._errors.append(
                RequestError(
                    datetime.now(UTC), record.id, record.listener, record.operation, record.model, record.route,
                    record.backend, record.endpoint, status, record.reason,
                )
            )  # fmt: skip

    def of_listener(self, name: str) -> Mapping[str, int]:
        """The number of requests that this listener got, by status."""
        return dict(self._by_listener.get(name, {}))

    def of_backend(self, name: str) -> Mapping[str, int]:
        """The number of requests for this backend, by status. Each counts for the backend that was asked last."""
        return dict(self._by_backend.get(name, {}))

    def last_errors(self) -> tuple[RequestError, ...]:
        """The last errors, the newest first."""
        return tuple(reversed(self._errors))
