"""The measurements of a run. `Load` fills them, and `report` prints them."""

from gateway.tools.bench.histogram import LatencyHistogram

BATCH = 4096
"""Number of durations to collect before adding them to a histogram as one batch."""


class Measured:
    """The requests of a run, or of several merged runs. The figures exclude requests of the warm-up.

    - `latency`: Durations of successful requests, from the scheduled time to the complete response.
    - `service`: Durations of successful requests, from the time of sending.
    - `failed`: Durations of failed requests, from the scheduled time.
    - `lag`: Delays that the generator itself caused, for all requests.
    - `errors`, `examples`: By status, the number of errors and the message of the first error.
    - `waited`: Number of requests that the generator sent late because `in_flight` requests were in flight.
    - `unsent`: Number of requests that were due before the end and were never sent for the same reason.
    - `cut`: Number of requests in flight when the run was interrupted.
    - `sent_bytes`, `received_bytes`: Size of messages, without HTTP heads and framing.
    - `seconds`: Duration of the measurement.
    - `cpu`: The generator's CPU time during the measurement, in all processes.
    - `processes`: Number of generators.
    """

    def __init__(self) -> None:
        self.latency = LatencyHistogram()
        self.service = LatencyHistogram()
        self.failed = LatencyHistogram()
        self.lag = LatencyHistogram()
        self.errors: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.waited = self.unsent = self.cut = 0
        self.sent_bytes = self.received_bytes = 0
        self.seconds = self.cpu = 0.0
        self.processes = 1
        self._latencies: list[float] = []
        self._services: list[float] = []
        self._lags: list[float] = []

    @property
    def succeeded(self) -> int:
        """The number of successes."""
        return self.latency.count + len(self._latencies)

    @property
    def failures(self) -> int:
        """The number of errors."""
        return sum(self.errors.values())

    @property
    def requests(self) -> int:
        """The number of requests that ended."""
        return self.succeeded + self.failures

    @property
    def rate(self) -> float:
        """Requests per second that ended."""
        return self.requests / self.seconds if self.seconds else 0.0

    def succeed(self, latency: float, service: float, lag: float) -> None:
        """Count a success."""
        self._latencies.append(latency)
        self._services.append(service)
        self._lags.append(lag)
        if len(self._lags) >= BATCH:
            self.settle()

    def fail(self, status: str, text: str, latency: float, lag: float) -> None:
        """Count an error."""
        self.errors[status] = self.errors.get(status, 0) + 1
        self.examples.setdefault(status, text)
        self.failed.add([latency])
        self._lags.append(lag)

    def settle(self) -> None:
        """Add the collected durations to the histograms. Call this before you read them."""
        for histogram, kept in (
            (self.latency, self._latencies),
            (self.service, self._services),
            (self.lag, self._lags),
        ):
            histogram.add(kept)
            kept.clear()

    def merge(self, other: "Measured", *, at_once: bool) -> None:
        """Add the measurements of another run. It ran at the same time if `at_once` is set, otherwise later. Both runs
        must be settled."""
        for name in ("latency", "service", "failed", "lag"):
            getattr(self, name).merge(getattr(other, name))
        for status, number in other.errors.items():
            self.errors[status] = self.errors.get(status, 0) + number
            self.examples.setdefault(status, other.examples[status])
        self.waited += other.waited
        self.unsent += other.unsent
        self.cut += other.cut
        self.sent_bytes += other.sent_bytes
        self.received_bytes += other.received_bytes
        self.cpu += other.cpu
        if at_once:
            self.seconds = max(self.seconds, other.seconds)
            self.processes += other.processes
        else:
            self.seconds += other.seconds
