"""The state of the running gateway, which the Gateway sets. The readers are the status API, the console, the
playground, the OpenAPI documents, the metrics page, the health port, the history and the workers' reports."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from gateway.admin import status
from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates
from gateway.assembly.observing import Observing
from gateway.assembly.part import Workers
from gateway.assembly.server_info import INFO
from gateway.config.keys import Config
from gateway.config.keys import Ready as ReadyRule
from gateway.core.transport import ListenerCounts
from gateway.observing.counters import Counters
from gateway.observing.recent import RecentRequests
from gateway.policies.places import Numbers, ReportedStates, numbers, states_of_principal
from gateway.transports.shedding import SheddingState


class GatewayState:
    """The running gateway. Do not keep references to `config`, `assembly` and `listeners`, because a reload replaces
    them.

    - `config`: the configuration in use; `assembly`: the routes and backends created from it.
    - `ready`: True if the gateway has started and is not stopping.
    - `listeners`: the listeners by name; if workers serve them, the sums of their counts.
    - `loaded_at`: the time when the configuration was loaded.
    - `reloads`: the number of configuration changes since the gateway started.
    - `last_reload_error`: the reason why the last reload failed; None if the reload succeeded.
    - `own_shedding`: rejects work while this process is overloaded; None if load shedding is off.
    - `observing`: the counts and logs of requests.

    If there are several `workers`, the numbers are totals of all workers.
    """

    def __init__(
        self,
        config: Config,
        assembly: Assembly,
        observing: Observing,
        certificates: Certificates,
        workers: Workers | None = None,
    ) -> None:
        self.config = config
        self.assembly = assembly
        self.ready = False
        self.listeners: Mapping[str, ListenerCounts] = {}
        self.loaded_at = datetime.now(UTC)
        self.reloads = 0
        self.last_reload_error: status.LoadError | None = None
        self.own_shedding: SheddingState | None = None
        self.observing = observing
        self._certificates = certificates
        self._workers = workers

    async def is_ready(self, rule: ReadyRule) -> bool:
        """Return True if the gateway is ready according to `rule`, the setting `ready` of the health port or of the
        configuration (for gRPC's health service)."""
        return self.ready and not await self.assembly.readiness.why_not(rule)

    async def refresh_counts(self) -> None:
        """Add all completed requests to the counts, in all processes."""
        self.observing.flush()
        if self._workers is not None:
            await self._workers.gather()

    @property
    def counters(self) -> Counters:
        """Return the request counters, up to date with all completed requests."""
        self.observing.flush()
        return self.observing.counters

    @property
    def recent_requests(self) -> RecentRequests:
        """Return the last requests, up to date with all completed requests."""
        self.observing.flush()
        return self.observing.recent

    @property
    def shedding(self) -> SheddingState | None:
        """Return the load shedding of all processes; None if load shedding is off."""
        return self.own_shedding if self._workers is None else self._workers.totals.shedding()

    @property
    def graph_steps(self) -> Mapping[tuple[str, str], Counter[str]]:
        """Return the counts of each graph step in all processes, by the names of the graph and the step."""
        others = {} if self._workers is None else self._workers.totals.graph_steps
        found = {key: Counter(counts) for key, counts in list(others.items())}
        for graph, model in self.assembly.graphs.models.items():
            for step, counts in list(model.calls.counts.items()):
                found.setdefault((graph, step), Counter()).update(counts)
        return found

    @property
    def policy_numbers(self) -> Numbers:
        """Return the values of the policies' metrics in all processes."""
        if self._workers is not None:
            return self._workers.totals.policy_numbers()
        metrics, states = registry.policy_metrics(), self.assembly.policing.states
        return numbers(((place, name, each.status()) for place, name, each in states if name in metrics), metrics)

    @property
    def policy_states(self) -> ReportedStates:
        """Return the place in the configuration, the name, and the state of each stateful policy."""
        if self._workers is not None:
            return self._workers.totals.policies()
        return [(place, name, state.status()) for place, name, state in self.assembly.policing.states]

    def principal_states(self, name: str) -> ReportedStates:
        """Return the place, the policy's name, and the data for each policy with data about this principal."""
        if self._workers is not None:
            return self._workers.principal_states(name)
        return states_of_principal(self.assembly.policing.states, name)

    def status(self) -> status.GatewayStatus:
        """Return the current state, for the status API."""
        counters, shedding, observing = self.counters, self.shedding, self.observing
        return status.GatewayStatus(
            version=INFO.version,
            ready=self.ready,
            configuration=status.ConfigurationStatus(
                loaded_at=self.loaded_at, reloads=self.reloads, last_error=self.last_reload_error
            ),
            listeners={
                each.name: status.listener_status(each, listener, counters.of_listener(each.name))
                for each in self.config.listeners
                if (listener := self.listeners.get(each.name)) is not None
            },
            shedding=None
            if shedding is None
            else status.SheddingStatus(since=shedding.since, refused=shedding.refused),
            backends={
                name: status.backend_status(backend, counters.of_backend(name))
                for name, backend in self.assembly.backends.items()
            },
            policies=[
                status.PolicyStatus(place=place, policy=name, state=dict(state))
                for place, name, state in self.policy_states
            ],
            last_errors=list(counters.last_errors()),
            tracing=None
            if observing.tracing is None
            else status.TracingStatus(sent=observing.traces.sent, dropped=observing.traces.dropped),
            certificates=[
                status.CertificateStatus(
                    used_by=list(each.used_by),
                    certificate=each.files.certificate or None,
                    expires=each.expires,
                    error=each.error,
                )
                for each in self._certificates.materials
            ],
        )
