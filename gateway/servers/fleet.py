"""The servers of one backend: starts them on an engine, finds out where they are, gives them to the backend, and ends
them.

A server is one job of the engine. It is

    starting -> serving -> draining -> ending
        |          |                     ^
        +----------+---------------------+

and leaves the fleet from each of these when the engine says that its job is over. A fleet looks at everything again
at an interval, and as soon as a call waits or fails. `sizing` decides how many servers there should be.
"""

import asyncio
import json
import logging
import os
import re
import secrets
import shutil
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from time import time
from typing import Any, Protocol, TypeVar

from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.core.tasks import spawn
from gateway.servers.announcement import announced
from gateway.servers.engine import Engine, EngineError, Job, JobReport, JobState
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import Demand, back_off, margin, surplus, wanted_starts
from gateway.servers.state_file import SavedJob, StateFile

T = TypeVar("T")

log = logging.getLogger(__name__)
_lines = LogLimit(log, lines=60)

ATTEMPTS = 3
"""Failed starts in a row after which the calls that wait get an error."""
OUTPUT_SHOWN = 2000
"""The last bytes of a job's output that errors and log lines have."""
OUTPUT_LOGGED = 16384
"""The most bytes of a job's output that are logged in one turn."""
ENGINE_SECONDS = 60.0
"""How long an engine may take to answer."""
FAST, SLOW = 0.1, 1.0
"""Seconds between two looks: while something is expected to change, and otherwise."""
CLOSE_SECONDS = 30.0
"""How long the jobs may take to end when the gateway ends."""


class ServerPhase(Enum):
    """What a server is doing."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    """It gets no new calls; those in flight end."""
    ENDING = "ending"
    """Its job is being ended."""


class Use(Protocol):
    """How much a server that was given to the backend is used."""

    @property
    def in_flight(self) -> int:
        """Calls in flight, abandoned ones that are still computed included."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight, questions for metadata included."""

    @property
    def calls(self) -> int:
        """Calls that it has been given."""

    @property
    def last_used(self) -> float:
        """When its last call ended, on the fleet's clock; when it was added, before the first one."""


class Consumer(Protocol):
    """The backend as its fleet sees it."""

    @property
    def waiting(self) -> int:
        """Calls that wait."""

    @property
    def is_closed(self) -> bool:
        """Whether no request will come any more."""

    @property
    def slots(self) -> int:
        """Calls that one server runs at once; 0: any number."""

    @property
    def call_seconds(self) -> float | None:
        """How long a call takes; None if that is unknown."""

    def why_not(self, address: str) -> str:
        """Why this address (HOST:PORT) cannot be one of the backend; empty if it can."""

    async def is_ready(self, address: str) -> bool:
        """Whether the server at this address answers that it is ready."""

    def add(self, address: str, use: Use | None = None) -> Use:
        """Send calls to the server at this address. `use`: how it was used so far, if it is not a new server."""

    def remove(self, address: str) -> None:
        """Send no more calls there. Calls in flight go on."""

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail all calls that wait. `detail` is for those only who may see what servers print."""


@frozen
class JobFailure:
    """Why a job has ended. `detail`: the end of its output, which may have paths or secrets in it."""

    text: str
    detail: str = ""


@frozen
class ServerReport:
    """A server, for operators."""

    name: str
    id: str
    """The engine's; empty before it has taken the job."""
    phase: str
    state: str
    """What the engine says of the job."""
    reason: str
    address: str
    since: float
    """Seconds since 1970 at which its job was submitted."""
    calls: int


class StartedServer:
    """One server and its job."""

    def __init__(self, name: str, folder: Path, port: int, began: float) -> None:
        self.name = name
        self.folder = folder
        """Where it announces itself, and where its output is."""
        self.port = port
        self.id = ""
        self.phase = ServerPhase.STARTING
        self.report = JobReport(JobState.WAITING)
        self.submitted = time()
        self.began = began
        """When it was submitted, on the fleet's clock."""
        self.running_since: float | None = None
        """When the engine was first seen to run it, in seconds since 1970."""
        self.address = ""
        self.use: Use | None = None
        self.unfinished = ""
        self.fault = ""
        """What is wrong with its announcement."""
        self.why = ""
        """Why it is drained or ended."""
        self.has_failed = False
        """It ends because it failed."""
        self.logged = 0
        """Bytes of its output that were logged."""
        self.failure: JobFailure | None = None
        """Why its job is over, if it ended by itself."""
        self.over = asyncio.Event()

    @property
    def output(self) -> Path:
        """The file with what the job prints."""
        return self.folder / "output"

    @property
    def label(self) -> str:
        """What errors and log lines call its job."""
        return f"job {self.name} ({self.id})" if self.id else f"job {self.name}"


class Fleet:
    """The servers of one backend. Call `start`, then `attach` it to each backend that takes over, then `close`.

    `open_engine` starts the engine and returns it with the seconds between two questions for reports.
    """

    def __init__(
        self,
        settings: ServersSettings,
        fits: str,
        state: StateFile,
        open_engine: Callable[[ServersSettings], tuple[Engine, float]],
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self._fits = fits
        self._state = state
        self._open_engine = open_engine
        self._clock = clock
        self._consumer: Consumer | None = None
        self._engine: Engine | None = None
        self._poll = SLOW
        self._servers: dict[str, StartedServer] = {}
        self._gone: deque[StartedServer] = deque(maxlen=32)
        """The last servers whose jobs are over, for calls that failed with them."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._busy: set[asyncio.Task[None]] = set()
        """Jobs that are being submitted or ended."""
        self._is_adopted = False
        self._is_retired = False
        self._asked_at = -1e9
        self._asking: asyncio.Task[None] | None = None
        self._engine_error = ""
        self._engine_failures = 0
        self._open_at = -1e9
        self._start_at = -1e9
        self._failed_in_a_row = 0
        self._failure: JobFailure | None = None
        """That of the last start."""
        self._unserved_since: float | None = None
        """Since when calls wait and no server is there."""
        self._waited, self._looked_at = 0.0, clock()
        self._start_seconds: float | None = None
        self.starts = 0
        self.failures = 0

    # What the gateway does with it

    def start(self) -> None:
        """Begin to look after the servers."""
        if self._task is None:
            self._task = spawn(self._run())

    def attach(self, consumer: Consumer) -> None:
        """Give the servers to `consumer` from now on."""
        self._consumer = consumer
        for each in self._servers.values():
            if each.phase is ServerPhase.SERVING:
                each.use = consumer.add(each.address, each.use)
        self._wake.set()

    def resize(self, settings: ServersSettings) -> None:
        """Use other settings, which say nothing else of a job than before."""
        self.settings = settings
        self._wake.set()

    def retire(self) -> None:
        """End the servers after the last calls from before; start others only for those of these calls that wait."""
        self._is_retired = True
        self._wake.set()

    async def retired(self) -> None:
        """Return when no job is left of a fleet that was retired."""
        while self._servers or self._busy:
            await asyncio.gather(*(each.over.wait() for each in list(self._servers.values())), *self._busy)

    async def close(self) -> None:
        """End all jobs, or leave them if they are kept. Returns when they have ended; if that takes too long, the next
        gateway ends those that are left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._consumer is not None:  # such as a question for a list of models, whose client has gone
            self._consumer.fail_waiting("the gateway stops", "")
        if not self.settings.keep or self._is_retired:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._end_all()
            except (TimeoutError, EngineError) as error:
                left = ", ".join(each.label for each in self._servers.values())
                text = "backend %r: jobs are left that the next gateway will end: %s (%s)"
                log.error(text, self.settings.backend, left, error or "no time left")
        elif self._busy:  # what is being submitted now is kept, too
            await asyncio.wait(self._busy, timeout=5.0)
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy)
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

    async def _end_all(self) -> None:
        if self._busy:
            await asyncio.wait(self._busy)
        while (ids := [each.id for each in self._servers.values() if each.id]) and self._engine is not None:
            for each in self._servers.values():
                each.phase, each.why = ServerPhase.ENDING, each.why or "the gateway ends"
            await self._engine.cancel(ids)
            await self._ask()
            if self._servers:
                await asyncio.sleep(self._poll)

    # What the backend tells and asks

    def call_waits(self) -> None:
        """Look whether a server has to be started."""
        self._wake.set()

    async def failure_at(self, address: str, seconds: float = 2.0) -> JobFailure | None:
        """Why the server at `address`, to which a call has just failed, is gone; None if it is not."""
        server = next((each for each in self._servers.values() if each.address == address), None)
        if server is None:
            server = next((each for each in reversed(self._gone) if each.address == address), None)
            return None if server is None else server.failure
        refuses, began = False, self._clock()
        with suppress(TimeoutError, EngineError):
            async with asyncio.timeout(seconds):
                # A job may end just after its server, and then says why.
                while refuses or self._clock() < began + seconds / 4:
                    refuses = await _refuses(address)
                    await self._ask()
                    if server.phase is ServerPhase.ENDING or server.over.is_set():
                        break
                    await asyncio.sleep(FAST)
        if refuses and not server.over.is_set() and server.phase in (ServerPhase.SERVING, ServerPhase.DRAINING):
            text = f"{server.label} is {server.report.state.value}, but its server takes no connections any more"
            self._fail(server, text)
            return JobFailure(text, _end_of(server.output))
        return server.failure

    @property
    def can_serve(self) -> bool:
        """Whether a server would be started for a call now: after a failed start not before the next one is due."""
        return self._clock() >= self._start_at

    def reports(self) -> list[ServerReport]:
        """All servers whose jobs are not over."""
        return [
            ServerReport(
                each.name, each.id, each.phase.value, each.report.state.value,
                each.report.reason or each.fault or each.why, each.address, each.submitted,
                0 if each.use is None else each.use.calls,
            )
            for each in list(self._servers.values())
        ]  # fmt: skip

    # The loop

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except EngineError as error:
                self._engine_failed(error)
            except Exception:
                log.exception("backend %r: unexpected error while looking after its servers", self.settings.backend)
                await asyncio.sleep(SLOW)
            self._fail_waiting()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            await asyncio.sleep(0.01)  # calls come in numbers

    def _pause(self) -> float:
        waiting = 0 if self._consumer is None else self._consumer.waiting
        changing = any(each.phase is not ServerPhase.SERVING for each in self._servers.values())
        return max(FAST, self._poll / 5) if waiting or changing else min(SLOW, self._poll)

    async def _turn(self) -> None:
        if not await self._is_open():
            return
        now = self._clock()
        if self._servers and now - self._asked_at >= self._poll:
            await self._ask()
        for server in list(self._servers.values()):
            self._log_output(server)
        await asyncio.gather(*(self._look_for(each) for each in self._in(ServerPhase.STARTING)))
        for server in list(self._servers.values()):
            self._check(server)
        self._size()

    async def _is_open(self) -> bool:
        """Open the engine and take over the jobs of an earlier gateway, unless that is done."""
        if self._engine is None:
            if self._clock() < self._open_at:
                return False
            await asyncio.to_thread(self._state.open)
            self._engine, self._poll = await asyncio.to_thread(self._open_engine, self.settings)
            self._engine_error, self._engine_failures = "", 0
        if not self._is_adopted:
            if self._clock() < self._open_at:
                return False
            await self._adopt()
            self._is_adopted = True
        return True

    def _engine_failed(self, error: EngineError) -> None:
        self._engine_failures += 1
        self._open_at = self._start_at = self._clock() + back_off(self._engine_failures)
        self._asked_at = self._clock() + back_off(self._engine_failures) - self._poll
        if str(error) != self._engine_error:
            log.error("backend %r: its servers cannot be managed: %s", self.settings.backend, error)
        self._engine_error = str(error)

    async def _adopt(self) -> None:
        """Take over the jobs that an earlier gateway has left, and end those that do not fit any more."""
        mine = [each for each in self._state.earlier if each.backend == self.settings.backend]
        mine = [each for each in mine if each.engine == self.settings.engine]
        reports = await self._within(self._opened.reports([each.id for each in mine if each.id]))
        adopted = 0
        for each in mine:
            self._state.earlier.remove(each)
            report = reports.get(each.id, JobReport(JobState.LOST))
            if report.state.is_over:
                self._forget_saved(each)
                if each.id and report.state is JobState.CANCELLED:
                    self._in_background(self._cancel_earlier(each))
                continue
            server = StartedServer(each.name, self._folder(each.name), each.port, self._clock())
            server.id, server.address, server.submitted, server.report = each.id, "", each.submitted, report
            self._servers[server.name] = server
            fits = each.fits == self._fits and not self._is_retired and adopted < self.settings.max
            if not fits:
                self._end(server, "it does not fit the configuration any more")
                continue
            adopted += 1
            text = "backend %r: %s of an earlier gateway is adopted"
            _lines.write(self.settings.backend, logging.INFO, text, self.settings.backend, server.label)
            if each.address and self._consumer is not None and not self._consumer.why_not(each.address):
                self._serve(server, each.address)

    async def _cancel_earlier(self, job: SavedJob) -> None:
        with suppress(EngineError):
            await self._opened.cancel([job.id])

    def _forget_saved(self, job: SavedJob) -> None:
        self._state.remove(job.name)
        shutil.rmtree(self._folder(job.name), ignore_errors=True)

    @property
    def _opened(self) -> Engine:
        if self._engine is None:
            raise EngineError(f"{self.settings.engine}: it is not open")
        return self._engine

    async def _within(self, asked: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                return await asked
        except TimeoutError as error:
            raise EngineError(f"{self.settings.engine}: no answer within {ENGINE_SECONDS:g} s") from error

    # Starting

    def _size(self) -> None:
        """Start and end servers as the queue asks for."""
        if self._consumer is None or self._is_replaced:
            return
        settings, consumer, now = self.settings, self._consumer, self._clock()
        waiting = consumer.waiting
        self._waited = self._waited + waiting * (now - self._looked_at) if waiting else 0.0
        self._looked_at = now
        starting = self._in(ServerPhase.STARTING)
        serving = self._in(ServerPhase.SERVING)
        demand = Demand(waiting, self._waited, consumer.slots, consumer.call_seconds, self._start_seconds)
        if now >= self._start_at:
            count = wanted_starts(
                demand,
                starting=len(starting),
                serving=len(serving),
                existing=len(self._servers),
                least=0 if self._is_retired else settings.min,
                most=settings.max,
            )
            if self._failed_in_a_row:
                count = min(count, 1)  # one is enough to find out whether it works again
                if starting:
                    count = 0
            for _ in range(count):
                self._submit()
        uses = [(now - each.use.last_used, each) for each in serving if each.use and each.use.is_idle]
        if waiting:
            return
        uses.sort(key=lambda pair: -pair[0])
        idle = [seconds for seconds, _ in uses]
        count = surplus(idle, settings.idle, starting=len(starting), serving=len(serving), least=settings.min)
        for _, server in uses[:count]:
            self._drain(server, f"no call for {settings.idle:g} s")

    @property
    def _is_replaced(self) -> bool:
        """It was retired, and no request from before is left."""
        return self._is_retired and (self._consumer is None or self._consumer.is_closed)

    def _in(self, phase: ServerPhase) -> list[StartedServer]:
        return [each for each in self._servers.values() if each.phase is phase]

    def _submit(self) -> None:
        name = f"{_safe(self.settings.backend)}-{secrets.token_hex(4)}"
        server = self._servers[name] = StartedServer(name, self._folder(name), _free_port(), self._clock())
        self._waited = 0.0
        self.starts += 1
        self._in_background(self._submitted(server))

    async def _submitted(self, server: StartedServer) -> None:
        settings = self.settings
        folder = Path(settings.command[0]).parent if settings.is_script else Path.cwd()
        environment = {"PORT": str(server.port), "UMBRIDGE_LOADBALANCER_COMM_FILEDIR": str(server.folder)}
        command = tuple(each.replace("{port}", str(server.port)) for each in settings.command)
        job = Job(server.name, command, settings.is_script, folder, server.output, environment, settings.resources)
        try:
            server.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._save(server)
            server.id = await self._within(self._opened.submit(job))
        except (EngineError, OSError) as error:
            server.report = JobReport(JobState.FAILED, str(error))
            self._remove(server)
            if isinstance(error, EngineError):
                self._engine_failed(error)
            else:
                self._note_failure(JobFailure(f"{server.label} cannot be submitted: {error.strerror}"))
            return
        self._engine_error, self._engine_failures = "", 0
        self._save(server)
        text = "backend %r: %s is submitted to the engine %s"
        _lines.write(settings.backend, logging.INFO, text, settings.backend, server.label, settings.engine)
        if server.phase is ServerPhase.ENDING:  # decided while it was submitted
            await self._cancel(server)
        self._wake.set()

    def _folder(self, name: str) -> Path:
        return self._state.folder / "jobs" / name

    def _save(self, server: StartedServer) -> None:
        settings = self.settings
        saved = SavedJob(
            server.name, server.id, settings.backend, settings.engine, self._fits, server.port, server.address,
            server.submitted,
        )  # fmt: skip
        self._state.put(saved)

    async def _look_for(self, server: StartedServer) -> None:
        """Find out whether a server that starts has announced itself, or answers at its port."""
        assert self._consumer is not None or not server.id
        consumer = self._consumer
        if consumer is None or not server.id:
            return
        found = await asyncio.to_thread(announced, server.folder)
        address = found.address
        if found.unfinished:  # a line without an end counts when it has stayed the same for a turn
            address = address or (found.unfinished if found.unfinished == server.unfinished else "")
            server.unfinished = found.unfinished
        if address:
            why = consumer.why_not(address) or self._why_not(server, address)
            if not why:
                self._serve(server, address)
                return
            found_fault = f"{address} cannot be used: {why}"
        else:
            found_fault = found.fault
        if found_fault and found_fault != server.fault:
            text = "backend %r: the announcement of %s: %s"
            _lines.write(self.settings.backend, logging.WARNING, text, self.settings.backend, server.label, found_fault)
        server.fault = found_fault
        if server.report.host and not address:
            asked = f"{server.report.host}:{server.port}"
            if not consumer.why_not(asked) and await consumer.is_ready(asked) and server.phase is ServerPhase.STARTING:
                self._serve(server, asked)

    def _why_not(self, server: StartedServer, address: str) -> str:
        other = next((each for each in self._servers.values() if each is not server and each.address == address), None)
        if other is not None:
            return f"it is that of {other.label}"
        host = address.rpartition(":")[0].strip("[]")
        here = {"localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname(), socket.getfqdn()}
        if server.report.host in ("127.0.0.1", "::1") and host not in here and not host.startswith("127."):
            return "the job runs on this machine, which has another name"
        return ""

    def _serve(self, server: StartedServer, address: str) -> None:
        assert self._consumer is not None
        server.address, server.phase, server.fault = address, ServerPhase.SERVING, ""
        took = self._clock() - server.began
        self._start_seconds = took if self._start_seconds is None else (self._start_seconds + took) / 2
        server.use = self._consumer.add(address)
        self._save(server)
        text = "backend %r: %s serves at %s after %.3g s"
        _lines.write(self.settings.backend, logging.INFO, text, self.settings.backend, server.label, address, took)

    # Ending

    def _check(self, server: StartedServer) -> None:
        """End a server that should not go on."""
        settings, now = self.settings, self._clock()
        use = server.use
        if server.phase is ServerPhase.STARTING:
            if self._is_replaced:
                self._end(server, "the configuration has changed")
            elif now - server.began >= settings.start_timeout:
                state = server.report.state.value + (f" ({server.report.reason})" if server.report.reason else "")
                text = f"{server.label} did not serve within {settings.start_timeout:g} s (servers.start_timeout)"
                text = f"{text}: it is {state}"
                self._fail(server, f"{text}; its announcement: {server.fault}" if server.fault else text)
        elif server.phase is ServerPhase.SERVING:
            if use is not None and use.calls and use.calls > use.in_flight:
                self._failed_in_a_row = 0
            if self._is_replaced:
                self._drain(server, "the configuration has changed")
            elif settings.calls_per_server and use is not None and use.calls >= settings.calls_per_server:
                self._drain(server, f"{use.calls} calls (servers.calls_per_server)")
            elif self._ends_soon(server):
                self._drain(server, "its walltime is nearly over")
        elif server.phase is ServerPhase.DRAINING and (use is None or use.is_idle):
            self._end(server, server.why)

    def _ends_soon(self, server: StartedServer) -> bool:
        if server.report.ends is None:
            return False
        began = server.running_since or server.submitted
        calls = None if self._consumer is None else self._consumer.call_seconds
        return time() >= server.report.ends - margin(server.report.ends - began, calls)

    def _drain(self, server: StartedServer, why: str) -> None:
        if self._consumer is not None:
            self._consumer.remove(server.address)
        server.phase, server.why = ServerPhase.DRAINING, why
        text = "backend %r: %s gets no more calls: %s"
        _lines.write(self.settings.backend, logging.INFO, text, self.settings.backend, server.label, why)
        if server.use is None or server.use.is_idle:
            self._end(server, why)

    def _end(self, server: StartedServer, why: str) -> None:
        """Cancel the job of a server that has no calls, or that failed."""
        if server.phase is ServerPhase.ENDING:
            return
        self._leave(server)
        server.phase, server.why = ServerPhase.ENDING, why
        if server.id:
            self._in_background(self._cancel(server))

    def _leave(self, server: StartedServer) -> None:
        if server.phase is ServerPhase.SERVING and self._consumer is not None:
            self._consumer.remove(server.address)

    def _fail(self, server: StartedServer, text: str) -> None:
        server.has_failed = True
        server.failure = JobFailure(text, _end_of(server.output))
        self._note_failure(server.failure)
        self._end(server, text)

    async def _cancel(self, server: StartedServer) -> None:
        """End the job, again and again until the engine says that it is over."""
        tries = 0
        while not server.over.is_set():
            try:
                await self._within(self._opened.cancel([server.id]))
                await self._ask()
            except EngineError as error:
                self._engine_failed(error)
            if server.over.is_set():
                return
            tries += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._poll * 2**tries, 30.0)):
                    await server.over.wait()

    # What the engine says

    async def _ask(self) -> None:
        """Ask the engine for all jobs; who asks meanwhile gets the same answer."""
        if self._asking is None or self._asking.done():
            self._asking = spawn(self._ask_engine())
        await asyncio.shield(self._asking)

    async def _ask_engine(self) -> None:
        servers = {each.id: each for each in self._servers.values() if each.id}
        if not servers:
            return
        reports = await self._within(self._opened.reports(list(servers)))
        self._asked_at = self._clock()
        self._engine_error, self._engine_failures = "", 0
        for job, server in servers.items():
            report = reports.get(job, JobReport(JobState.LOST))
            if report.state is JobState.RUNNING and server.running_since is None:
                server.running_since = time()
            server.report = report
            if report.state.is_over and server.name in self._servers:
                self._is_over(server)

    def _is_over(self, server: StartedServer) -> None:
        """The engine says that the job of this server will not run again."""
        self._log_output(server)
        report = server.report
        was = server.phase
        reason = f" ({report.reason})" if report.reason else ""
        if was is ServerPhase.ENDING:
            text = "backend %r: %s has ended: %s"
            _lines.write(self.settings.backend, logging.INFO, text, self.settings.backend, server.label, server.why)
        else:
            during = "before it served" if was is ServerPhase.STARTING else "while it served"
            fault = f"; its announcement: {server.fault}" if server.fault else ""
            text = f"{server.label} {_said(report.state)}{reason} {during}{fault}"
            server.failure = JobFailure(text, _end_of(server.output))
            is_expected = was is ServerPhase.DRAINING or (
                was is ServerPhase.SERVING and server.use is not None and server.use.calls > server.use.in_flight
            )
            self._note_failure(server.failure, counts=not is_expected)
        self._remove(server)

    def _note_failure(self, failure: JobFailure, *, counts: bool = True) -> None:
        """Note that a job failed; the next start waits longer if it `counts` as a failed start."""
        self.failures += 1
        if counts:
            self._failed_in_a_row += 1
            self._failure = failure
            self._start_at = self._clock() + back_off(self._failed_in_a_row)
        output = f"; the end of its output:\n{failure.detail}" if failure.detail else "; it has no output"
        text = "backend %r: a server has failed: %s%s"
        _lines.write(self.settings.backend, logging.WARNING, text, self.settings.backend, failure.text, output)

    def _remove(self, server: StartedServer) -> None:
        self._leave(server)
        self._servers.pop(server.name, None)
        self._gone.append(server)
        with suppress(OSError):
            self._state.remove(server.name)
        shutil.rmtree(server.folder, ignore_errors=True)
        server.over.set()
        self._wake.set()

    def _fail_waiting(self) -> None:
        """Answer calls that wait in vain."""
        consumer, now = self._consumer, self._clock()
        if consumer is None or not consumer.waiting or self._in(ServerPhase.SERVING):
            self._unserved_since = None
            return
        if self._unserved_since is None:
            self._unserved_since = now
        limit, failure = self.settings.start_timeout, self._failure
        if failure is not None and self._failed_in_a_row >= ATTEMPTS and not self._in(ServerPhase.STARTING):
            text = f"{self._failed_in_a_row} servers in a row could not be started; the last: {failure.text}"
        elif now - self._unserved_since >= limit:
            reason = self._engine_error or (failure.text if failure is not None else "") or self._why_waiting()
            text = f"no server within {limit:g} s (servers.start_timeout): {reason}"
        else:
            return
        self._unserved_since = None
        consumer.fail_waiting(text, failure.detail if failure is not None else "")

    def _why_waiting(self) -> str:
        states = [f"{each.label} is {each.phase.value}, {each.report.state.value}" for each in self._servers.values()]
        return ", ".join(states) or "none was started yet"

    def _log_output(self, server: StartedServer) -> None:
        """Log what the job has printed since the last turn."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        try:
            size = server.output.stat().st_size
            start = server.logged if server.logged <= size else 0
            with server.output.open("rb") as file:
                file.seek(start)
                data = file.read(OUTPUT_LOGGED)
        except OSError:
            return
        whole, end, _ = data.rpartition(b"\n")
        if not end and len(data) == OUTPUT_LOGGED:
            whole = data
        server.logged = start + len(whole) + len(end)
        for line in whole.decode("utf-8", "replace").splitlines():
            log.debug("job %s prints: %s", server.name, line)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)


def _said(state: JobState) -> str:
    return {
        JobState.ENDED: "ended",
        JobState.FAILED: "failed",
        JobState.CANCELLED: "was cancelled",
        JobState.TIMED_OUT: "was ended by the engine, its time being over,",
        JobState.LOST: "is not known to the engine any more",
    }.get(state, state.value)


def _end_of(output: Path) -> str:
    """The last lines of a job's output."""
    try:
        with output.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - OUTPUT_SHOWN, 0))
            data = file.read(OUTPUT_SHOWN)
    except OSError:
        return ""
    if size > OUTPUT_SHOWN:
        data = data.partition(b"\n")[2] or data
    text = data.decode("utf-8", "replace").strip()
    return "".join(each if each.isprintable() or each in "\n\t" else " " for each in text)


def _safe(name: str) -> str:
    """A backend's name as it can stand in the names of files and jobs."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-")[:40] or "backend"


def _free_port() -> int:
    """A port that is free on this machine now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


async def _refuses(address: str) -> bool:
    """Whether nobody takes connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


def fitting(settings: ServersSettings, parts: Iterable[object]) -> str:
    """What jobs are started from, as a text that is equal for those that can replace each other. `parts` is what else
    they depend on."""
    return json.dumps(
        [
            settings.engine, settings.command, settings.is_script, str(settings.directory), settings.keep,
            str(settings.resources), *map(str, parts),
        ]
    )  # fmt: skip
