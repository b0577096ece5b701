"""The metrics page, `/metrics` on the health port: counts of requests (`RequestMetrics`), the gateway's state at the
time of the scrape (`StateMetrics`), and process metrics.

A separate thread renders the page. The thread does not wait for the event loop, because it reads only single values
from the running gateway, and copies collections in one interpreter step.
"""

import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.admin.loop_lag import LoopLag
from gateway.admin.state import GatewayState
from gateway.assembly import registry
from gateway.assembly.part import ProcessLoad, Workers
from gateway.assembly.server_info import INFO
from gateway.bridge.graphs.calls import CALLS_COUNTED, CANCELLED, ERRORS, FALLBACKS, SECONDS
from gateway.config.keys import Config
from gateway.config.routes import OF_GRAPHS
from gateway.core.globs import wildcards
from gateway.core.messages import Headers, Message
from gateway.core.transport import ListenerCounts
from gateway.observing.families import Family
from gateway.observing.finished import Reader
from gateway.observing.request_metrics import ModelLabels, RequestMetrics
from gateway.routing.backend import Backend
from gateway.routing.endpoint import DrainState
from gateway.routing.health import State
from gateway.routing.on_demand import started
from gateway.routing.placement.slots import PlacedSlots, placed
from gateway.routing.placement.table import ReplicaState
from gateway.transports.listener_connections import PROCESS_CONNECTIONS
from gateway.transports.memory import PROCESS_MEMORY

IN_FLIGHT = Family(
    "gateway_requests_in_flight", "gauge", ("listener",), "Requests that have begun to arrive and have no response yet."
)
CONNECTIONS = Family("gateway_connections_open", "gauge", ("listener",), "Open client connections.")
CONNECTIONS_LIMIT = Family(
    "gateway_connections_limit", "gauge", (), "Maximum number of client connections on all listeners together."
)
CONNECTIONS_REFUSED = Family(
    "gateway_connections_refused_total",
    "counter",
    ("listener",),
    "Connections that the gateway refused because of a limit or an overload.",
)
CONNECTIONS_UNRECOGNISED = Family(
    "gateway_connections_unrecognised_total",
    "counter",
    ("listener",),
    "Connections to an address with several transports whose first bytes matched no protocol.",
)
CALLS = Family(
    "gateway_backend_calls_in_flight",
    "gauge",
    ("backend",),
    "Calls to endpoints without a response yet.",
)
SLOTS = Family(
    "gateway_backend_slots", "gauge", ("backend",), "Maximum number of calls in flight, if `max_in_flight` is set."
)
QUEUE_LENGTH = Family("gateway_queue_length", "gauge", ("backend",), "Calls that wait for a free slot.")
QUEUE_LIMIT = Family(
    "gateway_queue_limit",
    "gauge",
    ("backend",),
    "Maximum number of waiting calls, if `max_in_flight` is set.",
)
ENDPOINTS = Family(
    "gateway_endpoints", "gauge", ("backend", "state"), "Endpoints by state: unknown, up, degraded or down."
)
ENDPOINT_UP = Family(
    "gateway_endpoint_up",
    "gauge",
    ("backend", "endpoint"),
    "0 while the endpoint is down and gets no calls, otherwise 1.",
)
DRAIN = Family(
    "gateway_endpoint_drain",
    "gauge",
    ("backend", "endpoint"),
    "0 while the endpoint serves, 1 while it drains and still has calls, 2 when it is drained.",
)
EJECTIONS = Family(
    "gateway_endpoint_ejections_total",
    "counter",
    ("backend", "endpoint"),
    "Number of ejections of the endpoint. After failed calls, an ejected endpoint gets no calls for some time.",
)
PLACED = Family(
    "gateway_placed_models",
    "gauge",
    ("backend", "endpoint", "state"),
    "Models at each endpoint of a backend with `placement`, by state: held, loading, unloading or failed.",
)
LOADS = Family(
    "gateway_model_loads_total",
    "counter",
    ("backend", "outcome"),
    "Loads of models by `placement`, by outcome: loaded or failed.",
)
UNLOADS = Family("gateway_model_unloads_total", "counter", ("backend",), "Models that `placement` unloaded.")
SERVERS = Family(
    "gateway_servers",
    "gauge",
    ("backend", "state"),
    "Model servers that the gateway has started, by state: starting, serving, draining or ending.",
)
SERVER_STARTS = Family(
    "gateway_server_starts_total", "counter", ("backend",), "Model servers that the gateway has started."
)
SERVER_FAILURES = Family(
    "gateway_server_failures_total",
    "counter",
    ("backend",),
    "Model servers that did not start in time, or whose jobs ended unexpectedly.",
)
OF_POLICIES = tuple(
    Family(each.name, each.kind, each.labels, each.text)
    for metrics in registry.policy_metrics().values()
    for each in metrics
)
"""The metrics that policies declare."""

_OF_STEP = ("graph", "step")
OF_STEPS = {
    CALLS_COUNTED: Family(
        "gateway_graph_step_calls_total", "counter", _OF_STEP, "Model calls by the steps of `models`."
    ),
    ERRORS: Family(
        "gateway_graph_step_errors_total", "counter", _OF_STEP, "Failed model calls by the steps of `models`."
    ),
    CANCELLED: Family(
        "gateway_graph_step_cancelled_total", "counter", _OF_STEP,
        "Model calls by the steps of `models` that ended early, because the client left or another step failed.",
    ),
    FALLBACKS: Family(
        "gateway_graph_step_fallbacks_total", "counter", _OF_STEP, "Model calls in the `fallback` of a step."
    ),
    SECONDS: Family(
        "gateway_graph_step_seconds_total", "counter", _OF_STEP,
        "Total duration of the model calls by the steps of `models`, in seconds.",
    ),
}  # fmt: skip
"""The metrics of graph steps, by the counted event."""

MEMORY = Family("gateway_memory_in_flight_bytes", "gauge", (), "Bytes of message bodies of 16 KiB and more.")
MEMORY_LIMIT = Family("gateway_memory_limit_bytes", "gauge", (), "Maximum bytes of message bodies (`limits.memory`).")
LAG = Family(
    "gateway_event_loop_lag_seconds",
    "gauge",
    (),
    "Maximum delay of the event loop in the last 15 to 30 seconds, in seconds.",
)
SHEDDING = Family(
    "gateway_shedding_level",
    "gauge",
    (),
    "Load shedding: 0 refuses nothing, 1 new connections, 2 also large requests, 3 all requests with a body.",
)
SHED = Family(
    "gateway_shed_total",
    "counter",
    (),
    "Connections and requests that the gateway refused because of an overload.",
)
TRACES_SENT = Family(
    "gateway_traces_sent_total", "counter", (), "Sampled requests whose spans the collector accepted (`tracing`)."
)
TRACES_DROPPED = Family(
    "gateway_traces_dropped_total",
    "counter",
    (),
    "Sampled requests whose spans were lost, because too many were waiting or the collector did not accept them.",
)
PAYLOADS_SENT = Family(
    "gateway_payload_log_sent_total",
    "counter",
    (),
    "Requests and responses that the file or the receiver of the payload log accepted (`log.payloads`).",
)
PAYLOADS_DROPPED = Family(
    "gateway_payload_log_dropped_total",
    "counter",
    (),
    "Requests and responses that the payload log lost, because too many bytes were waiting or they were not accepted.",
)

WORKERS = Family("gateway_workers", "gauge", (), "Processes that serve clients.")
WORKER_RESTARTS = Family(
    "gateway_worker_restarts_total",
    "counter",
    (),
    "Number of times that a worker ended and the gateway started it again.",
)
READY = Family("gateway_ready", "gauge", (), "1 while the gateway accepts requests, 0 while it starts or stops.")
BUILD = Family("gateway_build_info", "gauge", ("version", "python"), "Always 1; the versions are in the labels.")
RELOADS = Family(
    "gateway_configuration_reloads_total", "counter", (), "Number of configuration changes since the start."
)
RELOAD_SUCCESSFUL = Family(
    "gateway_configuration_last_reload_successful",
    "gauge",
    (),
    "0 if the last reload failed, and the previous configuration is still in use; otherwise 1.",
)
LOADED = Family(
    "gateway_configuration_loaded_timestamp_seconds",
    "gauge",
    (),
    "Unix time at which the gateway loaded the configuration in use.",
)

_PLACE_STATES = (ReplicaState.HELD, ReplicaState.LOADING, ReplicaState.UNLOADING, ReplicaState.FAILED)
_DRAINS = {DrainState.DRAINING: 1, DrainState.DRAINED: 2}
SERVER_STATES = ("starting", "serving", "draining", "ending")


class StateMetrics(Collector):
    """Metrics of a gateway's current state, which another thread reads at each scrape. `load` contains the memory and
    the event-loop lag of the gateway's processes. `workers` is None for a gateway with one process."""

    def __init__(self, state: GatewayState, load: Callable[[], ProcessLoad], workers: Workers | None = None) -> None:
        self._state = state
        self._load = load
        self._workers = workers

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so the registry does not collect all metrics only to read their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        yield from _listeners(list(self._state.listeners.items()))
        yield from _backends(list(self._state.assembly.backends.items()))
        of_policies = self._state.policy_numbers
        yield from (_values(each, of_policies[each.name].items()) for each in OF_POLICIES)
        steps = self._state.graph_steps
        for what, family in OF_STEPS.items():
            yield _values(family, [(key, counts[what]) for key, counts in steps.items()])
        yield from self._process()
        yield from self._configuration()

    def _process(self) -> Iterator[Metric]:
        load = self._load()
        yield _value(MEMORY, load.memory)
        yield _value(MEMORY_LIMIT, PROCESS_MEMORY.limit)
        yield _value(LAG, load.lag)
        shedding = self._state.shedding
        yield _value(SHEDDING, 0 if shedding is None else shedding.level)
        yield _value(SHED, 0 if shedding is None else shedding.refused)
        yield _value(TRACES_SENT, self._state.observing.traces.sent)
        yield _value(TRACES_DROPPED, self._state.observing.traces.dropped)
        yield _value(PAYLOADS_SENT, self._state.observing.payload_logs.counts.sent)
        yield _value(PAYLOADS_DROPPED, self._state.observing.payload_logs.counts.dropped)
        running, restarts = (1, 0) if self._workers is None else self._workers.numbers()
        yield _value(WORKERS, running)
        yield _value(WORKER_RESTARTS, restarts)

    def _configuration(self) -> Iterator[Metric]:
        state = self._state
        yield _value(READY, int(state.ready))
        yield _values(BUILD, [((INFO.version, platform.python_version()), 1)])
        yield _value(RELOADS, state.reloads)
        yield _value(RELOAD_SUCCESSFUL, int(state.last_reload_error is None))
        yield _value(LOADED, state.loaded_at.timestamp())


def _listeners(listeners: list[tuple[str, ListenerCounts]]) -> Iterator[Metric]:
    yield _values(IN_FLIGHT, [((name,), each.unanswered_requests) for name, each in listeners])
    yield _values(CONNECTIONS, [((name,), each.open_connections) for name, each in listeners])
    yield _value(CONNECTIONS_LIMIT, PROCESS_CONNECTIONS.limit)
    yield _values(CONNECTIONS_REFUSED, [((name,), each.refused_connections) for name, each in listeners])
    yield _values(CONNECTIONS_UNRECOGNISED, [((name,), each.unrecognised_connections) for name, each in listeners])


def _backends(backends: list[tuple[str, Backend]]) -> Iterator[Metric]:
    yield _values(CALLS, [((name,), sum(one.in_flight for one in each.endpoints)) for name, each in backends])
    limited = [(name, each) for name, each in backends if each.max_in_flight]
    yield _values(SLOTS, [((name,), each.capacity) for name, each in limited])
    yield _values(QUEUE_LENGTH, [((name,), len(each.queue)) for name, each in backends])
    yield _values(QUEUE_LIMIT, [((name,), each.local.queue_settings.length) for name, each in limited])
    states = [(name, Counter(one.health.state for one in each.endpoints)) for name, each in backends]
    yield _values(ENDPOINTS, [((name, state.value), count[state]) for name, count in states for state in State])
    drains = [((name, one.address), one.drain) for name, each in backends for one in each.endpoints]
    yield _values(DRAIN, [(labels, 0 if drain is None else _DRAINS[drain.state]) for labels, drain in drains])
    endpoints = [((name, one.address), one.health) for name, each in backends for one in each.endpoints]
    yield _values(ENDPOINT_UP, [(labels, int(health.is_up)) for labels, health in endpoints])
    yield _values(EJECTIONS, [(labels, health.ejected) for labels, health in endpoints])
    yield from _placements(placed(dict(backends)))
    starters = [(name, each.starter) for name, each in started(dict(backends)).items() if each.starter]
    phases = [(name, Counter(one.phase for one in each.reports())) for name, each in starters]
    yield _values(SERVERS, [((name, phase), count[phase]) for name, count in phases for phase in SERVER_STATES])
    yield _values(SERVER_STARTS, [((name,), each.starts) for name, each in starters])
    yield _values(SERVER_FAILURES, [((name,), each.failures) for name, each in starters])


def _placements(placed: Mapping[str, PlacedSlots]) -> Iterator[Metric]:
    counts: dict[tuple[str, ...], int] = {}
    for name, slots in placed.items():
        endpoints = slots.local.endpoints
        counts |= {(name, one.address, state.value): 0 for one in endpoints for state in _PLACE_STATES}
        for model in list(slots.placements.models.values()):
            for place in list(model.places.values()):
                if (key := (name, place.endpoint.address, place.state.value)) in counts:
                    counts[key] += 1
    yield _values(PLACED, counts.items())
    loaders = [(name, each.loader) for name, each in placed.items() if each.loader is not None]
    loaded = [((name, "loaded"), each.loads) for name, each in loaders]
    yield _values(LOADS, [*loaded, *(((name, "failed"), each.failed_loads) for name, each in loaders)])
    yield _values(UNLOADS, [((name,), each.unloads) for name, each in loaders])


def _value(family: Family, value: float) -> Metric:
    return _values(family, [((), value)])


def _values(family: Family, values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    metric = family.counter() if family.kind == "counter" else family.gauge()
    for labels, value in values:
        metric.add_metric(labels, value)
    return metric


class MetricsPage:
    """Renders metrics in the Prometheus text format or in OpenMetrics, whichever the client prefers."""

    def __init__(self, *collectors: Collector, process: Collector | None = None) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        for each in (*collectors, process or ProcessCollector(registry=None)):
            self._registry.register(each)
        GCCollector(registry=self._registry)

    def reply(self, asked: Message) -> Message:
        """Return the response to a scrape. Rendering the page takes milliseconds, or seconds with very many label
        values. This method is safe to call in any thread. The listener compresses the response for clients that accept
        gzip."""
        encode, content_type = choose_encoder(asked.headers.get("accept"))
        fields = Headers([(b"content-type", content_type.encode())])
        return Message(status=200, headers=fields, parts=tuple(self._parts(encode)))

    def _parts(self, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
        """Yield the page, one metric at a time. If a metric is split into several parts, only the first part has the
        metric's comments."""
        name, end = "", b""
        for metric in self._registry.collect():
            text = encode(_Only(metric))
            if text.endswith(_END):  # OpenMetrics
                text, end = text.removesuffix(_END), _END
            if metric.name == name:
                text = _COMMENTS.sub(b"", text)
            name = metric.name
            yield text
        yield end


_END = b"# EOF\n"
_COMMENTS = re.compile(rb"\A(?:#[^\n]*\n)+")


class _Only(Collector):
    """A registry that contains one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return the metric."""
        return (self._metric,)


class Metrics:
    """The metrics of a gateway, which survive a reload of the configuration. `renew` applies a configuration; `stop`
    ends the measurements."""

    def __init__(self, state: GatewayState, workers: Workers | None = None) -> None:
        self.lag = LoopLag()
        self.requests = RequestMetrics(ModelLabels(0), (1.0,))
        load = self._load if workers is None else workers.totals.load
        process = None if workers is None else workers.process
        self._page = MetricsPage(self.requests, StateMetrics(state, load, workers), process=process)

    def _load(self) -> ProcessLoad:
        return ProcessLoad(PROCESS_MEMORY.used, self.lag.longest)

    def reader(self, config: Config) -> Reader | None:
        """Return the reader of request counts; None if the configuration has no page that shows the counts."""
        return self.requests.count if _has_page(config) else None

    def page(self, config: Config) -> MetricsPage | None:
        """Return the page of the health port; None if the configuration has no page."""
        return self._page if _has_page(config) else None

    def renew(self, config: Config) -> None:
        """Apply a configuration. Counters keep their values unless the buckets have changed. Delete the counters of
        removed listeners, routes, backends and models."""
        self.requests.models.renew(config.metrics.models, _named_models(config))
        self.requests.renew(config.metrics.buckets)
        routes = {*(each.name for each in config.routes), *(f"{OF_GRAPHS}{name}" for name in config.models)}
        self.requests.forget([each.name for each in config.listeners], routes, config.backends)
        self.stop()
        if _has_page(config):
            self.lag.start()

    def stop(self) -> None:
        """Stop measuring event-loop lag."""
        self.lag.stop()


def _has_page(config: Config) -> bool:
    return config.health is not None and config.metrics.enabled


def _named_models(config: Config) -> Iterator[str]:
    """Yield the model names in routes and listeners that are not globs."""
    yield from (each.model for each in config.listeners if each.model)
    for route in config.routes:
        if (model := route.match.model) is not None and not wildcards(model):
            yield model
