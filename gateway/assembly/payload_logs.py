"""The payload logs of a gateway.

After a reload that changes `log.payloads`, the previous log stays open until all requests that began before the reload
have ended. The module also selects the calls to log.
"""

from collections.abc import Callable, Sequence
from random import random
from typing import TypeAlias

from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, port_alpn
from gateway.bridge.backend import BackendSide
from gateway.bridge.names import all_outputs, inputs_of, with_client_names
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.settings import Renaming, RouteSettings
from gateway.bridge.signatures import RouteSignatures
from gateway.config.keys import Config
from gateway.config.observing import PayloadLogConfig
from gateway.config.routes import OF_GRAPHS
from gateway.core.operations import CALLS
from gateway.core.protocol import Limits
from gateway.core.record import UNRECORDED
from gateway.core.requests import Request
from gateway.core.surviving import all_surviving
from gateway.core.transport import Connector, Destination, Select
from gateway.observing.payload_log.calls import PayloadLog, TensorNames
from gateway.observing.payload_log.copies import CopyBounds, KnownTensors, OtherNames, same_name
from gateway.observing.payload_log.events import EventForm
from gateway.observing.payload_log.queue import EntryQueue, PayloadLogCounts, Sink
from gateway.observing.payload_log.sinks import EventReceiver, PayloadFile, PayloadReceiver

SECONDS_FOR_LAST_ENTRIES = 5.0
"""The maximum time for writing or sending the remaining entries when a payload log closes, in seconds."""
_LONGEST_ANSWER = Limits(message=2**20)
"""The maximum size of a receiver's response, in bytes. The gateway ignores the content of the response."""


class PayloadLogs:
    """Payload logs, stored by their settings. `counts` contains the totals of all logs."""

    def __init__(self, certificates: Certificates) -> None:
        self.counts = PayloadLogCounts()
        self._certificates = certificates
        self._logs: list[tuple[PayloadLogConfig, PayloadLog]] = []
        self._closing: list[PayloadLog] = []
        """Logs that are still open but no longer configured."""

    def get(self, config: PayloadLogConfig | None) -> PayloadLog | None:
        """Return the payload log with these settings, or None if the settings disable it. Start the log if necessary.

        Raises:
            OSError: the log file cannot be opened.
        """
        if config is None:
            return None
        for settings, found in self._logs:
            if settings == config:
                return found
        queue = EntryQueue(self._sink(config), config.memory, self.counts)
        queue.start()
        log = PayloadLog(queue, config.sample, CopyBounds(config.max_bytes, config.hide))
        self._logs.append((config, log))
        return log

    def _sink(self, config: PayloadLogConfig) -> Sink:
        form = EventForm(config.source, config.namespace, is_binary=config.tensors == "binary")
        if config.is_file:
            return PayloadFile(config.to, form)
        headers = {name: each.get_secret_value() for name, each in config.headers.items()}
        receiver = EventReceiver(config.to, headers, config.events or "binary", config.timeout)
        return PayloadReceiver(receiver, self._connector(config), form)

    def _connector(self, config: PayloadLogConfig) -> Connector:
        tls = None if config.tls is None else self._certificates.client(config.tls, *port_alpn())
        connector: Connector = registry.transport("http").Connector(
            config.origin, connection_per_call=False, limits=_LONGEST_ANSWER, tls=tls
        )
        return connector

    def reopen(self) -> None:
        """Reopen the log files, because a log-rotation program might have renamed them."""
        for _, each in self._logs:
            each.queue.reopen()

    async def close(self, kept: PayloadLogConfig | None = None, seconds: float = SECONDS_FOR_LAST_ENTRIES) -> None:
        """Close all logs except the log with the settings `kept`. A log has `seconds` seconds to write its queued
        entries."""
        self._closing += [each for config, each in self._logs if config != kept]
        self._logs = [(config, each) for config, each in self._logs if config == kept]
        closing = list(self._closing)
        await all_surviving("closing a payload log", (each.stop(seconds) for each in closing))
        # Forget the logs only now: if this call is cancelled, the next one closes them.
        self._closing = [each for each in self._closing if each not in closing]


LogCalls: TypeAlias = Callable[[Select, Assembly], Select]
"""Wraps an Assembly's Select to also log calls."""


def log_calls(log: PayloadLog, config: Config, select: Select, assembly: Assembly) -> Select:
    """Wrap `select` to record in `log` a sample of the calls on the routes in `config`."""
    share, logged = log.share, _logged_routes(config)
    names: dict[str, TensorNames] = {}
    """The tensor names, by route name."""

    def selected(request: Request) -> Destination:
        destination = select(request)
        if random() >= share or request.operation not in CALLS or request.record is UNRECORDED:
            return destination
        route = destination.route
        if not route or (logged is not None and route not in logged):
            return destination
        if route not in names:
            names[route] = _names(destination, assembly)
        return log.logged(request, destination, names[route])

    return selected


def _logged_routes(config: Config) -> frozenset[str] | None:
    """Return the names of the logged routes, including routes to graphs, or None for all routes."""
    settings = config.log.payloads
    if settings is None or settings.routes is None:
        return None
    return frozenset((*settings.routes, *(f"{OF_GRAPHS}{name}" for name in settings.routes)))


def _names(destination: Destination, assembly: Assembly) -> TensorNames:
    settings = destination.translate
    if not isinstance(settings, RouteSettings):  # a graph uses the clients' names
        return TensorNames()
    rename = settings.rename
    find = _RouteTensors(settings, assembly.backend_sides[destination.backend])
    return TensorNames(_others(rename.inputs), _others(rename.outputs), find)


def _others(renamings: Sequence[Renaming]) -> OtherNames:
    if not renamings:
        return same_name
    names = {each.client: each.backend for each in renamings}
    return lambda name: names.get(name, name)


class _RouteTensors:
    """Looks up the tensors of a route's models by the names that its Bridge uses (`bridge.names`)."""

    def __init__(self, settings: RouteSettings, backend: BackendSide) -> None:
        self._settings = settings
        self._rewrite = Rewrite(settings, backend)
        self._signatures = RouteSignatures(self._rewrite)

    async def __call__(self, request: Request) -> KnownTensors:
        """Return the tensors of the model in `request`."""
        settings = self._settings
        signature = await self._signatures.model(self._rewrite.key(request))
        inputs, outputs = inputs_of(signature, settings), all_outputs(signature, settings)
        client = {spec.name: name for name, spec in inputs}
        names = [client.get(name, name) for name in settings.order] or [name for name, _ in inputs]
        return KnownTensors(with_client_names(inputs), with_client_names(outputs), tuple(names))
