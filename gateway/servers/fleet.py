"""Manages the servers of one backend. This module decides when servers start and stop, and adds ready servers to the
backend.

A fleet checks its servers at an interval, and immediately when a call waits or fails. `sizing` contains the decision
rules for the number of servers, the wait after failed starts, and the time at which a server stops. `jobs` carries out
the decisions at the engine, and adopts jobs of an earlier gateway.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import time

from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.servers.consumer import Consumer
from gateway.servers.engine import EngineError, RefusedError
from gateway.servers.jobs import Jobs
from gateway.servers.locating import locate, refuses
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import (
    Demand,
    FailedStarts,
    described,
    ends_soon,
    is_expected,
    stop,
    surplus,
    wanted_starts,
    why_over,
)
from gateway.servers.started_server import JobFailure, ServerPhase, ServerReport, StartedServer, log, tell

FAST, SLOW = 0.1, 1.0
"""The intervals between two checks, in seconds: FAST while the fleet expects a change, and SLOW at other times."""
GONE_SECONDS = 2.0
"""The maximum time for finding out whether the server of a failed call is gone, in seconds."""


class StartedServers:
    """The model servers that the gateway has started for one backend. Only this object uses their jobs. Call `start`,
    then `attach` for each backend that takes over the servers, and finally `close`."""

    def __init__(self, jobs: Jobs, clock: Callable[[], float]) -> None:
        self._jobs = jobs
        jobs.observer = self
        self._clock = clock
        self._consumer: Consumer | None = None
        self._wake = jobs.changed
        self._task: asyncio.Task[None] | None = None
        self._is_adopted = False
        self._is_retired = False
        self._open_at = -1e9
        self._failed = FailedStarts(clock)
        self._waited, self._looked_at = 0.0, clock()
        self._start_seconds: float | None = None
        self.starts = 0
        self.failures = 0

    @property
    def settings(self) -> ServersSettings:
        """The current server settings."""
        return self._jobs.settings

    # For the gateway

    def start(self) -> None:
        """Start monitoring the servers."""
        if self._task is None:
            self._task = spawn(self._run())

    def attach(self, consumer: Consumer) -> None:
        """Make `consumer` the user of the servers from now on."""
        self._consumer = consumer
        for each in self._jobs.phases(ServerPhase.SERVING):
            each.use = consumer.add(each.address, each.use)
        self._wake.set()

    def resize(self, settings: ServersSettings) -> None:
        """Apply new settings, which describe the same jobs as before."""
        self._jobs.settings = settings
        self._wake.set()

    def retire(self) -> None:
        """Stop the servers after the current calls have ended, and start new servers only for calls that are already
        waiting."""
        self._is_retired = True
        self._wake.set()

    async def retired(self) -> None:
        """Return when a retired fleet has no jobs left."""
        await self._jobs.all_over()

    async def close(self) -> None:
        """Stop all jobs, or detach from the jobs if they are kept. Return when the stopped jobs have ended. If stopping
        takes too long, the next gateway stops the remaining jobs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._consumer is not None:  # such as a request for the model list whose client has disconnected
            self._consumer.fail_waiting("the gateway stops", "")
        await self._jobs.close(keep=self.settings.keep and not self._is_retired)

    # For the backend

    def call_waits(self) -> None:
        """Check whether the fleet must start a server for a waiting call."""
        self._wake.set()

    async def failure_at(self, address: str) -> JobFailure | None:
        """Return why the server at `address`, to which a call has failed, is gone, or None if the server still
        exists."""
        server = self._jobs.at(address)
        if server is None or server.over.is_set():
            return None if server is None else server.failure
        is_gone = await self._takes_no_connections(server)
        is_used = server.phase in (ServerPhase.SERVING, ServerPhase.DRAINING)
        if is_gone and is_used and server.failure is None:
            state = server.report.state.value
            self._fail(server, f"{server.label} is {state}, but its server no longer accepts connections")
        return server.failure

    async def _takes_no_connections(self, server: StartedServer) -> bool:
        """Return whether the server's address refuses connections. The method waits for the engine's report, which
        contains the reason if the job ends shortly after its server."""
        is_gone, began = False, self._clock()
        with suppress(TimeoutError, EngineError):
            async with asyncio.timeout(GONE_SECONDS):
                while is_gone or self._clock() < began + GONE_SECONDS / 4:
                    is_gone = await refuses(server.address)
                    await self._jobs.ask()
                    if server.phase is ServerPhase.ENDING or server.over.is_set():
                        break
                    await asyncio.sleep(max(FAST, min(self._jobs.engine.poll / 4, 0.5)))
        return is_gone

    @property
    def can_serve(self) -> bool:
        """True if a call would start a server now. After a failed start, the value is False until the next start is
        permitted."""
        return self._clock() >= max(self._failed.next_at, self._jobs.engine.next_at)

    def reports(self) -> list[ServerReport]:
        """Return a report for each server whose job has not ended."""
        return [each.shown() for each in list(self._jobs.servers.values())]

    # The loop

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except RefusedError as error:  # for example, required software is missing
                self._note_failure(JobFailure(str(error)))
                self._open_at = self._failed.next_at
            except EngineError as error:
                self._jobs.engine.failed(error)
            except Exception:
                log.exception("backend %r: unexpected error while managing its servers", self.settings.backend)
                await asyncio.sleep(SLOW)
            self._fail_waiting()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            await asyncio.sleep(0.01)  # calls usually arrive in groups

    def _pause(self) -> float:
        poll = self._jobs.engine.poll
        waiting = 0 if self._consumer is None else self._consumer.waiting
        changing = any(each.phase is not ServerPhase.SERVING for each in self._jobs.servers.values())
        return max(FAST, poll / 5) if waiting or changing else min(SLOW, poll)

    async def _turn(self) -> None:
        if not await self._is_open():
            return
        await self._jobs.look()
        await asyncio.gather(*(self._look_for(each) for each in self._jobs.phases(ServerPhase.STARTING)))
        for server in list(self._jobs.servers.values()):
            with log_and_continue(f"managing {server.label}", EngineError):
                self._check(server)
        self._size()

    async def _is_open(self) -> bool:
        """Open the engine and adopt the jobs of an earlier gateway, unless this was already done."""
        if self._is_adopted:
            return True
        if self._clock() < max(self._open_at, self._jobs.engine.next_at):
            return False
        await self._jobs.open()
        for server, address in await self._jobs.adopt(0 if self._is_retired else self.settings.max):
            tell(self.settings.backend, logging.INFO, "backend %r: %s of an earlier gateway is adopted", server.label)
            if address and self._consumer is not None and not self._consumer.why_not(address):
                self._serve(server, address)
        self._is_adopted = True
        return True

    # Starting servers

    def _size(self) -> None:
        """Start and stop servers according to the queue."""
        if self._consumer is None or self._is_replaced:
            return
        waiting, now = self._consumer.waiting, self._clock()
        self._waited = self._waited + waiting * (now - self._looked_at) if waiting else 0.0
        self._looked_at = now
        if self.can_serve:
            for _ in range(self._missing(self._consumer)):
                self._waited = 0.0
                self.starts += 1
                self._jobs.submit()
        if not waiting:
            for server in self._superfluous():
                self._drain(server, f"no call for {self.settings.idle:g} s")

    def _missing(self, consumer: Consumer) -> int:
        """Return the number of servers to start now."""
        starting, serving = self._jobs.phases(ServerPhase.STARTING), self._jobs.phases(ServerPhase.SERVING)
        when = time() + (self._start_seconds or 0.0)
        count = wanted_starts(
            Demand(consumer.waiting, self._waited, consumer.slots, consumer.call_seconds, self._start_seconds),
            starting=len(starting),
            serving=sum(not ends_soon(each, when, consumer.call_seconds) for each in serving),
            existing=len(self._jobs.servers),
            least=0 if self._is_retired else self.settings.min,
            most=self.settings.max,
        )
        if self._failed.in_a_row:
            return 0 if starting else min(count, 1)  # one server suffices to test whether starts work again
        return count

    def _superfluous(self) -> list[StartedServer]:
        """Return the unnecessary servers that have been idle for at least `idle` seconds. The server with the longest
        idle time comes first."""
        settings, now = self.settings, self._clock()
        starting, serving = self._jobs.phases(ServerPhase.STARTING), self._jobs.phases(ServerPhase.SERVING)
        idle = [(now - each.use.last_used, each) for each in serving if each.use is not None and each.use.is_idle]
        idle.sort(key=lambda pair: -pair[0])
        seconds = [each for each, _ in idle]
        count = surplus(seconds, settings.idle, starting=len(starting), serving=len(serving), least=settings.min)
        return [server for _, server in idle[:count]]

    @property
    def _is_replaced(self) -> bool:
        """True if the fleet is retired and all its earlier requests have ended."""
        return self._is_retired and (self._consumer is None or self._consumer.is_closed)

    async def _look_for(self, server: StartedServer) -> None:
        """Find out whether a starting server is ready."""
        with log_and_continue(f"looking for {server.label}", EngineError):
            await self._locate(server)

    async def _locate(self, server: StartedServer) -> None:
        if self._consumer is None:
            return
        located = await locate(server, self._jobs.servers.values(), self._consumer)
        if server.phase is not ServerPhase.STARTING or server.over.is_set():  # changed while waiting
            return
        if located.address:
            self._has_started(server, located.address)
            return
        if located.fault and located.fault != server.fault:
            text = "backend %r: the announcement of %s: %s"
            tell(self.settings.backend, logging.WARNING, text, server.label, located.fault)
        server.fault = located.fault

    def _has_started(self, server: StartedServer, address: str) -> None:
        """Handle a server that has become ready: update the mean start time, and start sending it calls."""
        took = self._clock() - server.began
        self._start_seconds = took if self._start_seconds is None else (self._start_seconds + took) / 2
        self._serve(server, address)
        text = "backend %r: %s serves at %s after %.3g s"
        tell(self.settings.backend, logging.INFO, text, server.label, address, took)

    def _serve(self, server: StartedServer, address: str) -> None:
        """Start sending calls to the server."""
        assert self._consumer is not None
        server.address, server.phase, server.fault = address, ServerPhase.SERVING, ""
        server.use = self._consumer.add(address)
        self._jobs.remember(server)

    # Stopping servers

    def _check(self, server: StartedServer) -> None:
        """Stop a server that should not continue."""
        if server.phase is ServerPhase.DRAINING:
            if server.is_idle:
                self._end(server, server.why)
            return
        if server.phase is ServerPhase.SERVING and server.has_answered:
            self._failed.served()
        seconds = None if self._consumer is None else self._consumer.call_seconds
        found = stop(
            server,
            self.settings,
            now=self._clock(),
            wall=time(),
            call_seconds=seconds,
            is_replaced=self._is_replaced,
        )
        if found is None:
            return
        if found.failed:
            self._fail(server, found.why)
        elif server.phase is ServerPhase.SERVING:
            self._drain(server, found.why)
        else:
            self._end(server, found.why)

    def _drain(self, server: StartedServer, why: str) -> None:
        self._leave(server)
        server.phase, server.why = ServerPhase.DRAINING, why
        tell(self.settings.backend, logging.INFO, "backend %r: %s gets no more calls: %s", server.label, why)
        if server.is_idle:
            self._end(server, why)

    def _end(self, server: StartedServer, why: str) -> None:
        """Stop the job of a server that has no calls, or that has failed."""
        self._leave(server)
        self._jobs.end(server, why)

    def _leave(self, server: StartedServer) -> None:
        """Stop sending calls to the server."""
        if server.phase is ServerPhase.SERVING and self._consumer is not None:
            self._consumer.remove(server.address)

    def _fail(self, server: StartedServer, text: str) -> None:
        self._note_failure(server.fails(text))
        self._end(server, text)

    # Reports on jobs

    def job_is_over(self, server: StartedServer) -> None:
        """Handle the engine's report that this server's job has ended."""
        if server.phase is ServerPhase.ENDING:
            tell(self.settings.backend, logging.INFO, "backend %r: %s has ended: %s", server.label, server.why)
        else:
            self._note_failure(server.fails(why_over(server)), counts=not is_expected(server))
        self._leave(server)

    def job_is_being_ended(self, server: StartedServer) -> None:
        """Handle a job that was cancelled at the engine, or that has reached its time limit."""
        server.fails(f"{server.label} is {described(server.report)}")
        if server.phase is ServerPhase.SERVING:
            self._drain(server, "the engine is ending its job")

    def job_is_refused(self, server: StartedServer, why: str) -> None:
        """Handle a job that could not be submitted."""
        self._note_failure(JobFailure(f"{server.label} cannot be submitted: {why}"))

    def _note_failure(self, failure: JobFailure, *, counts: bool = True) -> None:
        """Record a failed job. If `counts` is True, the job counts as a failed start, which delays the next start."""
        self.failures += 1
        if counts:
            self._failed.add(failure)
        output = f"; the end of its output:\n{failure.detail}" if failure.detail else "; it has no output"
        tell(self.settings.backend, logging.WARNING, "backend %r: a server has failed: %s%s", failure.text, output)

    def _fail_waiting(self) -> None:
        """Fail calls that have waited too long."""
        consumer = self._consumer
        if consumer is None or not consumer.waiting or self._jobs.phases(ServerPhase.SERVING):
            self._failed.nobody_waits()
            return
        is_starting = bool(self._jobs.phases(ServerPhase.STARTING))
        limit = self.settings.start_timeout
        failure = self._failed.waits_in_vain(is_starting=is_starting, limit=limit, reason=self._why_waiting)
        if failure is not None:
            consumer.fail_waiting(failure.text, failure.detail)

    def _why_waiting(self) -> str:
        """Return why the servers are not ready."""
        if self._jobs.engine.error:
            return self._jobs.engine.error
        if self._failed.last is not None:
            return self._failed.last.text
        servers = self._jobs.servers.values()
        states = [f"{each.label} is {each.phase.value}, {described(each.report)}" for each in servers]
        return ", ".join(states) or "waiting for the first start"


def fitting(settings: ServersSettings, parts: Iterable[object]) -> str:
    """Return a fingerprint of job settings. The fingerprints of jobs that can replace each other are equal. `parts` are
    additional values that the jobs depend on."""
    return json.dumps(
        [
            settings.engine, settings.command, settings.is_script, str(settings.directory), settings.keep,
            str(settings.resources), *map(str, parts),
        ]
    )  # fmt: skip
