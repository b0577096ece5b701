"""Submits, monitors and stops the jobs of one backend's servers at their engine, for `fleet`. Also adopts or ends jobs
that an earlier gateway left, even at an engine that the backend no longer uses.

The state file contains a job from before its submission until the engine reports that the job has ended."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from gateway.core.frozen import frozen
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.servers.asked_engine import AskedEngine, OpenEngine
from gateway.servers.engine import EngineError, Job, JobReport, JobState, RefusedError
from gateway.servers.locating import free_port
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import back_off
from gateway.servers.started_server import ServerPhase, StartedServer, log, tell
from gateway.servers.state_file import SavedJob, StateFile, name_for

LOST = JobReport(JobState.LOST)


class AdoptionDecision(Enum):
    """The decision about a job of an earlier gateway."""

    USED = "used"
    ENDED = "ended"
    FORGOTTEN = "forgotten"
    """The job has already ended."""


@frozen
class OrphanedJob:
    """A job of an earlier gateway: the saved data (with the job's id, if known), the engine's report, and the
    decision."""

    saved: SavedJob
    report: JobReport
    fate: AdoptionDecision


def _decide(
    saved: Collection[SavedJob], reports: Mapping[str, JobReport], settings: ServersSettings, fits: str, most: int
) -> list[OrphanedJob]:
    """Return the decision about each job, based on the engine's reports. At most `most` jobs are adopted, all with the
    settings in `fits`."""
    left: list[OrphanedJob] = []
    for each in saved:
        report = reports.get(each.id, LOST) if each.id else LOST
        if report.state.is_over:
            fate = AdoptionDecision.FORGOTTEN
        elif each.fits != fits or each.backend != settings.backend or report.state is JobState.ENDING or most <= 0:
            fate = AdoptionDecision.ENDED
        else:
            fate, most = AdoptionDecision.USED, most - 1
        left.append(OrphanedJob(each, report, fate))
    return left


def _is_here(job: SavedJob, settings: ServersSettings) -> bool:
    """Return whether the job is at the engine in these settings. A job that is known only by its folder also counts."""
    return job.engine in ("", settings.engine)


async def _end_elsewhere(
    asked: AskedEngine, jobs: Collection[SavedJob], backend: str, over: Callable[[str], None]
) -> None:
    """Cancel jobs at the engine `asked`, which the backend no longer uses, and retry until all jobs have ended. The
    function calls `over` with the name of each job that has ended."""
    left = {each.name: each for each in jobs}
    tries = 0
    try:
        while left:
            try:
                with log_and_continue(f"ending jobs that an earlier gateway left of backend {backend!r}", EngineError):
                    await asked.open()
                    for each in await _ended(asked, list(left.values())):
                        over(left.pop(each.name).name)
            except EngineError as error:
                if not tries:
                    text = "backend %r: ending jobs of an earlier gateway failed so far: %s (%s)"
                    tell(backend, logging.ERROR, text, ", ".join(left), error)
            tries += 1
            if left:
                await asyncio.sleep(back_off(tries))
    finally:
        await asked.close()


async def _ended(asked: AskedEngine, jobs: Collection[SavedJob]) -> list[SavedJob]:
    """Cancel the jobs at the engine. Return the jobs that have ended."""
    ids = await _ids_of(asked, jobs)
    await asked.ask(asked.engine.cancel(list(ids.values())))
    reports = await asked.ask(asked.engine.reports(list(ids.values())))
    return [each for each in jobs if each.name not in ids or reports.get(ids[each.name], LOST).state.is_over]


async def _ids_of(asked: AskedEngine, jobs: Collection[SavedJob]) -> dict[str, str]:
    """Return a map from job names to the engine's job ids, for jobs with a known id and for jobs that the engine
    finds."""
    known = {each.name: each.id for each in jobs if each.id}
    unknown = [each.name for each in jobs if not each.id]
    return known | dict(await asked.ask(asked.engine.find(unknown)))


CLOSE_SECONDS = 30.0
"""Maximum time for the jobs to end when the gateway stops, in seconds."""
CLOSE_ATTEMPTS = 3
"""The maximum number of attempts to stop the jobs when the gateway stops and the engine is unreachable."""
KEEP_SECONDS = 5.0
"""Maximum time for submissions in progress when the gateway stops and its jobs continue, in seconds."""


class JobObserver(Protocol):
    """Receives changes of jobs."""

    def job_is_over(self, server: StartedServer) -> None:
        """Handle the engine's report that this server's job has ended. The server is in its last phase."""

    def job_is_being_ended(self, server: StartedServer) -> None:
        """Handle a job that the engine cancelled, or that reached its time limit, while its server was in use."""

    def job_is_refused(self, server: StartedServer, why: str) -> None:
        """Handle a job whose submission failed, if an immediate retry is pointless."""


class Jobs:
    """The jobs of one backend's servers. `fits` is the fingerprint of their settings. `open_engine` starts the engine,
    and returns the engine and its polling interval in seconds. Set `observer` before any other use."""

    observer: JobObserver

    def __init__(
        self,
        settings: ServersSettings,
        fits: str,
        state: StateFile,
        open_engine: OpenEngine,
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.engine = AskedEngine(settings, open_engine, clock)
        self.servers: dict[str, StartedServer] = {}
        """The servers whose jobs have not ended, by name."""
        self.changed = asyncio.Event()
        """Set when a job has changed."""
        self._fits = fits
        self._state = state
        self._open_engine = open_engine
        self._clock = clock
        self._gone: deque[StartedServer] = deque(maxlen=32)
        self._busy: set[asyncio.Task[None]] = set()
        """The submissions and cancellations in progress."""
        self._elsewhere: list[asyncio.Task[None]] = []
        """The tasks that stop jobs at previous engines of the backend."""
        self._asked_at = -1e9
        self._asking: asyncio.Task[None] | None = None

    def at(self, address: str) -> StartedServer | None:
        """Return the server at `address`, including servers whose jobs have ended recently."""
        known = [*self.servers.values(), *reversed(self._gone)]
        return next((each for each in known if each.address == address), None)

    def phases(self, phase: ServerPhase) -> list[StartedServer]:
        """Return the servers in this phase."""
        return [each for each in self.servers.values() if each.phase is phase]

    # Adopting jobs

    async def open(self) -> None:
        """Open the state file and the engine, unless they are already open.

        Raises:
            EngineError: the file or the engine is unusable.
        """
        if not self.engine.is_open:
            await asyncio.to_thread(self._state.open)
            await self.engine.open()

    async def adopt(self, most: int) -> list[tuple[StartedServer, str]]:
        """Adopt the jobs that an earlier gateway left. Return at most `most` useful jobs with their previous addresses,
        and stop all other jobs.

        Raises:
            EngineError: the engine cannot be queried. No job is adopted.
        """
        left = self._state.left_for(self.settings.backend)
        here = [each for each in left if _is_here(each, self.settings)]
        ids = await _ids_of(self.engine, here)
        here = [replace(each, id=ids.get(each.name, "")) for each in here]
        reports = await self.engine.ask(self.engine.engine.reports(list(ids.values())))
        # another backend with this folder might have taken some of the jobs
        taken = {each.name for each in self._state.take(left)}
        self._end_elsewhere([each for each in left if each.name in taken and not _is_here(each, self.settings)])
        here = [each for each in here if each.name in taken]
        decided = _decide(here, reports, self.settings, self._fits, most)
        return [(self._taken(each), each.saved.address) for each in decided if self._is_left(each)]

    def _is_left(self, job: OrphanedJob) -> bool:
        """Return whether the job is useful. Stop or forget a job that is not useful."""
        if job.fate is AdoptionDecision.FORGOTTEN:
            self._state.remove(job.saved.name)
        elif job.fate is AdoptionDecision.ENDED:
            self.end(self._taken(job), "it no longer matches the configuration")
        return job.fate is AdoptionDecision.USED

    def _taken(self, job: OrphanedJob) -> StartedServer:
        saved, now = job.saved, self._clock()
        folder = self._state.job_folder(saved.name)
        server = StartedServer(saved.name, folder, saved.port, now, saved.submitted or None)
        server.id, server.report = saved.id, job.report
        self.servers[server.name] = server
        self._state.change(saved)
        return server

    def _end_elsewhere(self, jobs: list[SavedJob]) -> None:
        for engine, directory in dict.fromkeys((each.engine, each.directory) for each in jobs):
            settings = replace(self.settings, engine=engine, directory=Path(directory) if directory else None)
            asked = AskedEngine(settings, self._open_engine, self._clock)
            there = [each for each in jobs if (each.engine, each.directory) == (engine, directory)]
            ending = _end_elsewhere(asked, there, self.settings.backend, self._state.remove)
            self._elsewhere.append(spawn(ending))

    # Submitting jobs

    def submit(self) -> None:
        """Start one more server."""
        name = name_for(self.settings.backend, secrets.token_hex(4))
        server = StartedServer(name, self._state.job_folder(name), free_port(), self._clock())
        self.servers[name] = server
        self._in_background(self._submitted(server))

    async def _submitted(self, server: StartedServer) -> None:
        try:
            await self._state.add(self._saved(server))
            server.id = await self.engine.ask(self.engine.engine.submit(self._job(server)))
        except (EngineError, OSError) as error:
            self._not_submitted(server, error)
            return
        self.engine.answered()
        self.remember(server)
        text = "backend %r: %s is submitted to the engine %s"
        tell(self.settings.backend, logging.INFO, text, server.label, self.settings.engine)
        if server.phase is ServerPhase.ENDING:  # the decision to stop the server was made during the submission
            await self._cancel(server)
        self.changed.set()

    def _job(self, server: StartedServer) -> Job:
        settings = self.settings
        folder = Path(settings.command[0]).parent if settings.is_script else Path.cwd()
        environment = {"PORT": str(server.port), "UMBRIDGE_LOADBALANCER_COMM_FILEDIR": str(server.folder)}
        command = tuple(each.replace("{port}", str(server.port)) for each in settings.command)
        output = server.output.path
        return Job(server.name, command, settings.is_script, folder, output, environment, settings.resources)

    def _not_submitted(self, server: StartedServer, error: EngineError | OSError) -> None:
        server.report = JobReport(JobState.FAILED, str(error))
        self._remove(server)
        if isinstance(error, EngineError) and not isinstance(error, RefusedError):
            self.engine.failed(error)
        else:
            why = str(error) if isinstance(error, EngineError) else str(error.strerror)
            self.observer.job_is_refused(server, why)

    def remember(self, server: StartedServer) -> None:
        """Save the current data of the server."""
        self._state.change(self._saved(server))

    def _saved(self, server: StartedServer) -> SavedJob:
        settings = self.settings
        return SavedJob(
            name=server.name,
            id=server.id,
            backend=settings.backend,
            engine=settings.engine,
            directory=str(settings.directory or ""),
            fits=self._fits,
            port=server.port,
            address=server.address,
            submitted=server.submitted,
        )

    # Monitoring jobs

    async def look(self) -> None:
        """Query the engine for all jobs if the polling interval has passed, and log the output of the jobs.

        Raises:
            EngineError: the engine cannot be queried.
        """
        if self.servers and self._clock() >= max(self._asked_at + self.engine.poll, self.engine.next_at):
            await self.ask()
        for server in self.servers.values():
            self._log_output(server)
        self._state.write_again()

    async def ask(self) -> None:
        """Query the engine for all jobs. Callers that arrive during the query receive the same response.

        Raises:
            EngineError: the engine cannot be queried.
        """
        if self._asking is None or self._asking.done():
            self._asking = spawn(self._ask_engine())
        await asyncio.shield(self._asking)

    async def _ask_engine(self) -> None:
        servers = {each.id: each for each in self.servers.values() if each.id}
        if not servers:
            return
        reports = await self.engine.ask(self.engine.engine.reports(list(servers)))
        self._asked_at = self._clock()
        self.engine.answered()
        for job, server in servers.items():
            with log_and_continue(f"noting what became of {server.label}"):
                self._note(server, reports.get(job, LOST))

    def _note(self, server: StartedServer, report: JobReport) -> None:
        server.note(report)
        if server.report.state.is_over and server.name in self.servers:
            self._log_output(server)
            self.observer.job_is_over(server)
            self._remove(server)
        elif server.report.state is JobState.ENDING and server.phase in (ServerPhase.SERVING, ServerPhase.DRAINING):
            self.observer.job_is_being_ended(server)

    def _log_output(self, server: StartedServer) -> None:
        if log.isEnabledFor(logging.DEBUG):
            for line in server.output.new_lines():
                log.debug("job %s prints: %s", server.name, line)

    def _remove(self, server: StartedServer) -> None:
        self.servers.pop(server.name, None)
        self._gone.append(server)
        self._state.remove(server.name)
        server.over.set()
        self.changed.set()

    # Stopping jobs

    def end(self, server: StartedServer, why: str) -> None:
        """Stop the job of a server that receives no calls. If the job's submission is in progress, stop the job
        afterwards."""
        if server.phase is not ServerPhase.ENDING:
            server.phase, server.why = ServerPhase.ENDING, why
            if server.id:
                self._in_background(self._cancel(server))

    async def _cancel(self, server: StartedServer) -> None:
        """Stop the job, and retry until the engine reports that the job has ended."""
        tries = 0
        while not server.over.is_set():
            try:
                with log_and_continue(f"ending {server.label}", EngineError):
                    await self.engine.ask(self.engine.engine.cancel([server.id]))
                    await self.ask()
            except EngineError as error:
                self.engine.failed(error)
            if server.over.is_set():
                return
            tries += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self.engine.poll * 2**tries, 30.0)):
                    await server.over.wait()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def all_over(self) -> None:
        """Return when all jobs have ended, including jobs of an earlier gateway that are being stopped."""
        while self.servers or self._busy:
            await asyncio.gather(*(each.over.wait() for each in list(self.servers.values())), *self._busy)
        if self._elsewhere:
            await asyncio.wait(self._elsewhere)

    async def close(self, *, keep: bool) -> None:
        """Stop all jobs, or detach from the jobs if `keep` is True. Return when the stopped jobs have ended. If
        stopping takes too long, the next gateway stops the remaining jobs."""
        if not keep:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._end_all()
            except (TimeoutError, EngineError) as error:
                left = ", ".join(each.label for each in self.servers.values())
                text = "backend %r: jobs remain that the next gateway will end: %s (%s)"
                log.error(text, self.settings.backend, left, error or "no time left")
        elif self._busy:  # jobs whose submission is in progress are also kept
            await asyncio.wait(self._busy, timeout=KEEP_SECONDS)
        tasks = {*self._busy, *self._elsewhere, *([] if self._asking is None else [self._asking])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.engine.close()

    async def _end_all(self) -> None:
        failures = 0
        while (self.servers or self._busy) and self.engine.is_open:
            for each in self.servers.values():  # a job whose submission is in progress is cancelled afterwards
                each.phase, each.why = ServerPhase.ENDING, each.why or "the gateway ends"
            ids = [each.id for each in self.servers.values() if each.id]
            try:
                await self.engine.ask(self.engine.engine.cancel(ids))
                await self.ask()
            except EngineError:
                failures += 1
                if failures == CLOSE_ATTEMPTS:
                    raise
            if self._busy:
                await asyncio.wait(self._busy, timeout=self.engine.poll)
            elif self.servers:
                await asyncio.sleep(self.engine.poll)
