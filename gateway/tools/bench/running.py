"""Runs a load against one server, in this process or in several processes."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import uvloop

from gateway.client.settings import ServerArguments
from gateway.core.frozen import frozen, replace
from gateway.core.tasks import spawn
from gateway.tools.bench.clock import real_clock
from gateway.tools.bench.load import Load, Plan
from gateway.tools.bench.measured import Measured
from gateway.tools.bench.target import BenchSender, Question, prepared

REPORTS = 0.2
"""Seconds between two reports of a process."""


@frozen
class LoadJob:
    """A load to run. `timeout` is the timeout for each request in seconds; None means no timeout."""

    server: ServerArguments
    question: Question
    plan: Plan
    timeout: float | None
    connections: int


class Run(Protocol):
    """One run. Call `prepare` first, then `run`."""

    async def prepare(self) -> None:
        """Encode the request, and send it once.

        Raises:
            ClientError: the server is unreachable, or returns an error.
            ValueError: the request cannot be repeated.
            RunFailed: a process failed.
        """

    async def run(self) -> Measured:
        """Send the requests. Raise RunFailed if a process fails."""

    def stop(self) -> None:
        """Make `run` end immediately with the current measurements."""

    def ended(self) -> tuple[int, int]:
        """Return the number of completed requests, and the number of errors among them."""

    async def close(self) -> None:
        """Close the connections, and stop the processes."""


class RunFailed(Exception):  # noqa: N818 - as the errors of the client
    """One of the processes failed."""


def run_of(job: LoadJob, processes: int) -> Run:
    """Return a Run for a job."""
    return LocalRun(job) if processes == 1 else ProcessesRun(job, processes)


class LocalRun:
    """A Run in this process."""

    def __init__(self, job: LoadJob) -> None:
        self._job = job
        self._load: Load | None = None
        self._sender: BenchSender | None = None

    async def prepare(self) -> None:
        """See Run."""
        job = self._job
        settings = job.server.checked()
        encoded = await prepared(settings, job.question, job.timeout)
        self._sender = sender = BenchSender(settings, encoded, job.timeout, job.connections)
        self._load = Load(job.plan, sender, real_clock(), sender.request_bytes)

    async def run(self) -> Measured:
        """See Run."""
        assert self._load is not None
        return await self._load.run()

    def stop(self) -> None:
        """See Run."""
        if self._load is not None:
            self._load.stop()

    def ended(self) -> tuple[int, int]:
        """See Run."""
        return (0, 0) if self._load is None else (self._load.measured.requests, self._load.measured.failures)

    async def close(self) -> None:
        """See Run."""
        if self._sender is not None:
            await self._sender.close()


class ProcessesRun:
    """A Run that divides its plan among several processes."""

    def __init__(self, job: LoadJob, processes: int) -> None:
        self._job = job
        self._number = processes
        self._workers: list[_Worker] = []

    async def prepare(self) -> None:
        """See Run. This process sends the first request, so it reports the server's errors."""
        await prepared(self._job.server.checked(), self._job.question, self._job.timeout)
        # A fork would inherit this process's event loop and threads.
        context = multiprocessing.get_context("spawn")
        for share in range(self._number):
            here, there = context.Pipe()
            part = replace(self._job, plan=self._job.plan.part(share, self._number))
            process = context.Process(target=_work, args=(part, there), daemon=True)
            process.start()
            there.close()
            self._workers.append(_Worker(process, here))
        await asyncio.gather(*(each.ready for each in self._workers))

    async def run(self) -> Measured:
        """See Run."""
        for each in self._workers:
            each.pipe.send("go")
        first, *others = await asyncio.gather(*(each.measured for each in self._workers))
        for other in others:
            first.merge(other, at_once=True)
        return first

    def stop(self) -> None:
        """See Run."""
        for each in self._workers:
            if not each.measured.done():
                each.pipe.send("stop")

    def ended(self) -> tuple[int, int]:
        """See Run."""
        return sum(each.requests for each in self._workers), sum(each.failures for each in self._workers)

    async def close(self) -> None:
        """See Run."""
        for each in self._workers:
            each.close()


class _Worker:
    """One of the processes, from the first process's point of view."""

    def __init__(self, process: Any, pipe: "Connection[Any, Any]") -> None:
        self.pipe = pipe
        self.requests = self.failures = 0
        self._process = process
        self._loop = loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.measured: asyncio.Future[Measured] = loop.create_future()
        self._fd = pipe.fileno()
        _listen(loop, pipe, self._read)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        self.pipe.close()
        self._process.kill()
        self._process.join()
        self.ready.cancel()
        self.measured.cancel()

    def _read(self) -> None:
        try:
            told = self.pipe.recv()
        except EOFError:
            told = RunFailed("a process of the generator ended")
        match told:
            case "ready":
                self.ready.set_result(None)
            case Measured():
                self._loop.remove_reader(self._fd)
                self.requests, self.failures = told.requests, told.failures
                self.measured.set_result(told)
            case int(requests), int(failures):
                self.requests, self.failures = requests, failures
            case RunFailed():
                self._loop.remove_reader(self._fd)
                waiting = self.measured if self.ready.done() else self.ready
                waiting.set_exception(told)


def _listen(loop: asyncio.AbstractEventLoop, pipe: "Connection[Any, Any]", act: Callable[[], None]) -> None:
    """Call `act` whenever data is available in the pipe."""
    loop.add_reader(pipe.fileno(), act)
    os.set_blocking(pipe.fileno(), True)  # the loop made it non-blocking, which Connection does not support


def _work(job: LoadJob, pipe: "Connection[Any, Any]") -> None:
    """Run one of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first process stops this one
    uvloop.run(_run_part(job, pipe))


async def _run_part(job: LoadJob, pipe: "Connection[Any, Any]") -> None:
    run = LocalRun(job)
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[None] = loop.create_future()

    def on_word() -> None:
        try:
            word = pipe.recv()
        except EOFError:
            loop.remove_reader(pipe.fileno())  # its end would be told again while the connections are closed
            raise SystemExit(1) from None
        if word == "go":
            begun.set_result(None)
        elif begun.done():
            run.stop()

    async def report() -> None:
        while True:
            await asyncio.sleep(REPORTS)
            pipe.send(run.ended())

    try:
        await run.prepare()
        _listen(loop, pipe, on_word)
        pipe.send("ready")
        await begun
        reporting = spawn(report())
        measured = await run.run()
        reporting.cancel()
        pipe.send(measured)
    except Exception as error:
        pipe.send(RunFailed(f"a process of the generator failed: {error}"))
    finally:
        await run.close()
