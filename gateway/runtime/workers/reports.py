"""The reports in which workers send their counts, and the totals that the supervisor computes from the reports."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.admin.metrics import Metrics
from gateway.admin.state import GatewayState
from gateway.assembly import registry
from gateway.assembly.part import ProcessLoad
from gateway.core.frozen import frozen
from gateway.observing.counters import Counters
from gateway.observing.recent import RecentRequests
from gateway.observing.request_metrics import Counted
from gateway.policies.places import Numbers, ReportedStates, StateMetric, numbers
from gateway.transports.memory import PROCESS_MEMORY
from gateway.transports.shedding import Level

if TYPE_CHECKING:
    from gateway.runtime.app import Gateway


@frozen
class WorkerReport:
    """A report from one worker.

    Cumulative values (`grown`, `counters`, `counted`) contain the increase since the previous report. `recent` contains
    the requests since that report.

    `grown` contains refused and unrecognized connections by listener, `shed`, `sent` and `dropped` spans, `logged` and
    `unlogged` messages of the payload log, and counts of graph steps. `key_uses` contains, by key id, the time of each
    API key's last use and the number of uses since the previous report. `connections` and `requests` are the numbers of
    open connections and requests, by listener. `calls` is the number of calls in flight, by backend and endpoint
    address."""

    grown: Mapping[tuple[str, str], int]
    counters: Counters
    recent: RecentRequests
    key_uses: Mapping[str, tuple[float, int]]
    counted: Counted
    connections: Mapping[str, int]
    requests: Mapping[str, int]
    calls: Mapping[tuple[str, str], int]
    load: ProcessLoad
    shedding: tuple[int, datetime | None]
    policies: ReportedStates


_STEP = "step "
"""The prefix of graph-step counts in `grown`.

The second part of the key consists of the graph's name, a line feed, and the step's name.
"""


class Reporter:
    """Runs in a worker, and creates reports about the worker's part of the gateway."""

    def __init__(self, state: GatewayState, metrics: Metrics) -> None:
        self._state = state
        self._metrics = metrics
        self._told: Counter[tuple[str, str]] = Counter()
        self._told_uses: dict[str, int] = {}

    def report(self) -> WorkerReport:
        """Return the current report."""
        state, metrics = self._state, self._metrics
        counters, listeners, shedding = state.counters, list(state.listeners.items()), state.shedding
        traces, payloads = state.observing.traces, state.observing.payload_logs.counts
        now = Counter({("refused", name): each.refused_connections for name, each in listeners})
        now.update({("unrecognised", name): each.unrecognised_connections for name, each in listeners})
        now.update({("sent", ""): traces.sent, ("dropped", ""): traces.dropped})
        now.update({("logged", ""): payloads.sent, ("unlogged", ""): payloads.dropped})
        now["shed", ""] = 0 if shedding is None else shedding.refused
        for (graph, step), counts in state.graph_steps.items():
            now.update({(f"{_STEP}{what}", f"{graph}\n{step}"): number for what, number in counts.items()})
        grown, self._told = now - self._told, now
        backends = state.assembly.backends.items()
        return WorkerReport(
            grown=grown,
            counters=counters.take(),
            recent=state.recent_requests.take(),
            key_uses=self._key_uses(),
            counted=metrics.requests.take(),
            connections={name: each.open_connections for name, each in listeners},
            requests={name: each.unanswered_requests for name, each in listeners},
            calls={(str(name), one.address): one.in_flight for name, each in backends for one in each.endpoints},
            load=ProcessLoad(PROCESS_MEMORY.used, metrics.lag.longest),
            shedding=(0, None) if shedding is None else (int(shedding.level), shedding.since),
            policies=[(place, name, dict(state)) for place, name, state in state.policy_states],
        )

    def _key_uses(self) -> Mapping[str, tuple[float, int]]:
        access = self._state.assembly.authentication.access
        before, uses = self._told_uses, list(access.credentials.uses.items())
        self._told_uses = {id: use.number for id, use in uses}
        grown = ((id, use.last, self._told_uses[id] - before.get(id, 0)) for id, use in uses)
        return {id: (last, number) for id, last, number in grown if number}


class ListenerOfWorkers:
    """A listener from the supervisor's point of view: all workers have bound it, and its counts are totals of all
    workers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.refused_connections = self.unrecognised_connections = 0
        self.open_connections = self.unanswered_requests = 0


class SheddingOfAll:
    """The combined load shedding of all workers, with the attributes of a Shedding."""

    def __init__(self) -> None:
        self.level = Level.NOTHING
        self.since: datetime | None = None
        self.refused = 0


class Totals:
    """Runs in the supervisor, and adds up the workers' reports."""

    def __init__(self, gateway: "Callable[[], Gateway]", is_limited: Callable[[str], bool]) -> None:
        self._gateway = gateway
        self._is_limited = is_limited
        self._last: dict[int, WorkerReport] = {}
        """The last report of each running worker, by worker number."""
        self._shedding = SheddingOfAll()
        self.graph_steps: dict[tuple[str, str], Counter[str]] = {}
        """The counts of each graph step, by graph name and step name."""
        self._ended: Numbers = {}
        """The policy counts of workers that have exited."""

    def add(self, worker: int, report: WorkerReport) -> None:
        """Add the report of a worker."""
        gateway = self._gateway()
        state, observing = gateway.state, gateway.observing
        observing.counters.add(report.counters)
        observing.recent.add(report.recent)
        credentials = state.assembly.authentication.access.credentials
        for id, (last, number) in report.key_uses.items():
            credentials.add_uses(id, last, number)
        gateway.metrics.requests.add(report.counted)
        for (what, name), number in report.grown.items():
            listener = state.listeners.get(name)
            if what == "shed":
                self._shedding.refused += number
            elif what == "sent":
                observing.traces.sent += number
            elif what == "dropped":
                observing.traces.dropped += number
            elif what == "logged":
                observing.payload_logs.counts.sent += number
            elif what == "unlogged":
                observing.payload_logs.counts.dropped += number
            elif what.startswith(_STEP):
                graph, _, step = name.partition("\n")
                counts = self.graph_steps.setdefault((graph, step), Counter())
                counts[what.removeprefix(_STEP)] += number
            elif isinstance(listener, ListenerOfWorkers):
                counter = f"{what}_connections"
                setattr(listener, counter, getattr(listener, counter) + number)
        self._last[worker] = report
        self._add_up()

    def forget(self, worker: int) -> None:
        """Remove the open connections, requests and calls of a worker that has exited. The counts of its policies
        stay."""
        last = self._last.pop(worker, None)
        if last is not None:
            for name, counts in numbers(last.policies, _counters()).items():
                self._ended.setdefault(name, Counter()).update(counts)
            self._add_up()

    def shedding(self) -> SheddingOfAll | None:
        """The combined load shedding of all workers, or None if load shedding is not configured."""
        return None if self._gateway().state.config.limits.shed is None else self._shedding

    def load(self) -> ProcessLoad:
        """The combined load of all workers."""
        loads = [each.load for each in list(self._last.values())]
        return ProcessLoad(sum(each.memory for each in loads), max((each.lag for each in loads), default=0.0))

    def policies(self) -> list[tuple[str, str, Mapping[str, object]]]:
        """Return the policies of all workers. Each state includes its worker's number."""
        return [
            (place, name, {"worker": number, **state})
            for number, report in sorted(self._last.items())
            for place, name, state in report.policies
        ]

    def policy_numbers(self) -> Numbers:
        """Return the values of the policies' metrics for all workers, including the counts of workers that have
        exited."""
        running = [each for report in list(self._last.values()) for each in report.policies]
        found = numbers(running, registry.policy_metrics())
        for name, counts in list(self._ended.items()):
            found[name].update(counts)
        return found

    def _add_up(self) -> None:
        state, reports = self._gateway().state, list(self._last.values())
        for name, listener in state.listeners.items():
            if isinstance(listener, ListenerOfWorkers):
                listener.open_connections = sum(each.connections.get(name, 0) for each in reports)
                listener.unanswered_requests = sum(each.requests.get(name, 0) for each in reports)
        for name, backend in state.assembly.backends.items():
            if not self._is_limited(name):  # otherwise the supervisor counts them itself
                for one in backend.endpoints:
                    one.in_flight = sum(each.calls.get((str(name), one.address), 0) for each in reports)
        shedding = self._shedding
        shedding.level = Level(max((each.shedding[0] for each in reports), default=0))
        shedding.since = min((each.shedding[1] for each in reports if each.shedding[1] is not None), default=None)


def _counters() -> Mapping[str, Sequence[StateMetric]]:
    """Return only the policy metrics that are counters."""
    found = registry.policy_metrics().items()
    return {name: [each for each in metrics if each.kind == "counter"] for name, metrics in found}


class Processes(Collector):
    """Process statistics for several processes combined: sums, the earliest start time, and the lowest file-descriptor
    limit. The sums keep the CPU time of processes that have exited."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._seconds: dict[int, float] = {}

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so the registry does not collect all metrics only to read their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        found: dict[str, Metric] = {}
        values: dict[str, list[float]] = {}
        for pid in self._pids():
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                found.setdefault(metric.name, metric)
                for sample in metric.samples:
                    values.setdefault(metric.name, []).append(sample.value)
                    if metric.name == "process_cpu_seconds":
                        self._seconds[pid] = sample.value
        for name, metric in found.items():
            sample = metric.samples[0]
            if name == "process_cpu_seconds":
                value = sum(self._seconds.values())
            elif name in ("process_start_time_seconds", "process_max_fds"):
                value = min(values[name])
            else:
                value = sum(values[name])
            metric.samples[:] = [Sample(sample.name, sample.labels, value)]
            yield metric
