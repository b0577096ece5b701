"""Reads the load reports in responses from a backend's servers."""

import logging
from collections.abc import Callable

from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.load import orca
from gateway.routing.load.reported import Measure, ReportedLoads

log = logging.getLogger(__name__)

PAUSE = 60.0
"""How long the gateway ignores a server's reports after a malformed report, in seconds."""


class LoadReports:
    """Records the loads in the replies from all current endpoints of `choice`.

    The load is the value of `metric` in each report or, if `metric` is empty, the value that `orca.load` prefers."""

    def __init__(
        self,
        choice: EndpointChoice,
        metric: str,
        measure: Measure,
        loads: ReportedLoads,
        clock: Callable[[], float],
        *,
        over_grpc: bool = False,
    ) -> None:
        self._choice = choice
        self._metric = metric
        self._measure = measure
        self._over_grpc = over_grpc
        self._loads = loads
        self._clock = clock
        self._endpoints: tuple[Endpoint, ...] = ()
        self._paused: dict[Endpoint, float] = {}
        """For each endpoint, the time until which its reports are ignored."""

    def start(self) -> None:
        """Start reading reports."""
        self._choice.on_change = self._among
        self._among((*self._choice.endpoints, *self._choice.drained))

    def cancel(self) -> None:
        """Stop reading reports."""
        self._choice.on_change = None
        self._among(())

    async def stop(self) -> None:
        """See `cancel`."""
        self.cancel()

    def _among(self, endpoints: tuple[Endpoint, ...]) -> None:
        before, self._endpoints = set(self._endpoints), endpoints
        for endpoint in endpoints:
            if endpoint not in before:
                endpoint.watch_replies(self.note)
        for endpoint in before.difference(endpoints):
            endpoint.unwatch_replies(self.note)
            self._paused.pop(endpoint, None)
            self._loads.forget(endpoint)

    def note(self, endpoint: Endpoint, reply: Message) -> None:
        """Record the load in a reply from `endpoint`, if there is one. Log and ignore malformed reports."""
        if self._paused and self._paused.get(endpoint, 0.0) > self._clock():
            return
        try:
            load = orca.load(orca.report(reply.headers, over_grpc=self._over_grpc), self._metric)
        except DecodeError as error:
            if endpoint not in self._paused:
                text = "backend %r at %s: its load is unknown, its calls in flight count instead: %s"
                log.warning(text, self._choice.name, endpoint.address, error)
            self._paused[endpoint] = self._clock() + PAUSE
            return
        if load is not None:
            self._loads.note(endpoint, load, self._measure)
            if self._paused:
                self._paused.pop(endpoint, None)
