"""The supervisor of a gateway with several workers: starts workers, restarts workers that exit, and acts on behalf of
all workers.
"""

import asyncio
import logging
import os
import pickle
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gateway.admin.health import STALLED_SECONDS
from gateway.assembly.assembly import Assembly
from gateway.assembly.part import GatewayPart
from gateway.config.keys import Config
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.surviving import all_surviving, log_and_continue, log_survived
from gateway.core.tasks import spawn
from gateway.policies.places import ReportedStates
from gateway.runtime.app.replacing import ReloadError
from gateway.runtime.process import process_state
from gateway.runtime.workers.channel import Channel, ChannelClosedError, Handlers
from gateway.runtime.workers.owner import Generation, HeldSlots, endpoint_of
from gateway.runtime.workers.reports import ListenerOfWorkers, Processes, Totals
from gateway.runtime.workers.reserved_addresses import Addresses
from gateway.runtime.workers.shared_policies import SharedPolicies
from gateway.runtime.workers.slots import RelayedEndpoint
from gateway.runtime.workers.worker_config import limited_backends, share

if TYPE_CHECKING:
    from gateway.admin.state import GatewayState
    from gateway.runtime.app import Gateway

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.5
"""Maximum wait for the workers' counts, in seconds. After that, totals omit the missing counts."""
GATHER_INTERVAL = 1.0
SECONDS_TO_START = 60.0
"""Maximum startup time of a worker, in seconds. After that, the supervisor kills and restarts the worker."""
SECONDS_TO_CLOSE = 10.0
"""Maximum time for a drained worker to close everything, in seconds. After that, the supervisor kills the worker."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
"""Maximum delay before the supervisor restarts a worker that has exited, in seconds. The delay doubles each time the
worker has run for less than LONGEST_PAUSE."""


class WorkerError(Exception):
    """A worker cannot start. The message contains the reason."""


class WorkerProcess:
    """One worker from the supervisor's point of view: its process, its channel, and the slots that it holds."""

    def __init__(self, supervisor: "Supervisor", number: int) -> None:
        self.number = number
        self.is_ready = False
        self.restarts = 0
        self.addresses: Mapping[str, str] = {}
        self.references: Sequence[str] = ()
        self.slots = HeldSlots()
        self._supervisor = supervisor
        self._process: asyncio.subprocess.Process | None = None
        self.channel: Channel

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and make it serve the current configuration.

        Raises:
            WorkerError: the worker cannot serve the configuration, or has exited.
        """
        try:
            async with asyncio.timeout(SECONDS_TO_START):
                await self._start()
        except ChannelClosedError:
            raise WorkerError(f"worker {self.number} has ended while it started") from None
        except TimeoutError:
            raise WorkerError(f"worker {self.number} was not ready within {SECONDS_TO_START:g} s") from None
        except GatewayError as error:
            raise WorkerError(error.message) from error
        except OSError as error:
            raise WorkerError(f"the process of worker {self.number} failed to start: {error.strerror}") from error

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        slots = self.slots = HeldSlots()
        handlers: Handlers = {
            "take": slots.take,
            "again": slots.again,
            "answer": slots.answer,
            "give_back": slots.give_back,
            "leave": slots.leave,
            "learned": partial(self._supervisor.learned, self),
            "is_backend_ready": self._supervisor.is_backend_ready,
            "switched": partial(self._supervisor.switched, self),
            "take_request": self._supervisor.shared_policies.take,
        }
        self.channel = channel = Channel(handlers, slots.end)
        with theirs:
            # Use a separate session, so Ctrl-C at a terminal goes only to the supervisor, which forwards it.
            command = (sys.executable, "-m", "gateway.runtime.workers", str(theirs.fileno()))
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command, pass_fds=(theirs.fileno(),), start_new_session=True
                )
            except BaseException:
                ours.close()
                raise
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=ours)
        config, is_first = self._supervisor.config, self.number == 1
        drained = self._supervisor.drained
        slots.join(generation := self._supervisor.generation)
        error, self.addresses, self.references = await channel.ask(
            "start", pickle.dumps(config), generation.number, is_first, drained
        )
        if error:
            raise WorkerError(error)
        async with self._supervisor.reloading:
            now = self._supervisor.config
            if now is not config and (error := await self.reload(now, self._supervisor.generation)):
                raise WorkerError(error)
            self.is_ready = True
        if self._supervisor.drained != drained:
            await self._supervisor.tell_drained()

    async def reload(self, config: Config, generation: Generation) -> str:
        """Change to `config`, which the supervisor already uses.

        Return an empty string, or the reason why the worker cannot change."""
        self.slots.join(generation)
        return str(await self.channel.ask("reload", pickle.dumps(config), generation.number))

    async def ended(self) -> int:
        """Wait for the process to exit, and return its exit status. A negative status is the negated number of the
        signal that killed the process."""
        assert self._process is not None
        status = await self._process.wait()
        self.is_ready = False
        self.channel.close()
        return status

    def kill(self) -> None:
        """Kill the process immediately."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


class Supervisor:
    """The process that starts the workers and owns their shared state.

    `gateway serve` uses a Supervisor instead of a Gateway, so it has the same methods for commands.

    `gateway` is the supervisor's own part, which owns the backends' state and serves the health port and the status
    API."""

    def __init__(self, config: Config, count: int) -> None:
        self._count = count
        self._addresses = Addresses()
        self.config = self._shared(config)
        """The configuration of the workers."""
        self.gateway: Gateway
        self.workers = [WorkerProcess(self, number) for number in range(1, count + 1)]
        self._watches: list[asyncio.Task[None]] = []
        self._is_ending = False
        self.reloading = asyncio.Lock()
        self.generation: Generation
        """The supervisor's Backends for `config`. During a reload, `gateway` already has newer Backends."""
        self._number = 0
        self._limited = limited_backends(config)
        self.shared_policies = SharedPolicies()
        self._offline: set[str] = set()
        """The names of the listeners that a client has switched offline."""
        self._told_drained: list[tuple[str, str]] = []
        """The last value of `drained` sent to the workers."""
        self.totals = Totals(lambda: self.gateway, lambda name: name in self._limited)
        self.process = Processes(lambda: [os.getpid(), *(each.pid for each in self._running())])

    @property
    def part(self) -> GatewayPart:
        """The supervisor's own part of the gateway."""
        return GatewayPart(
            serves=False,
            has_references=False,
            prepare=self._prepare,
            endpoint=partial(RelayedEndpoint, partial(self._tell_all, "learn")),
            workers=self,
        )

    def _prepare(self, assembly: Assembly) -> None:
        """Make the shared policies of a new Assembly available to workers, and notify workers when models change."""
        self.shared_policies.prepare(assembly)
        for name in assembly.placed.all:
            assembly.backends[name].on_other_models(partial(self._tell_all, "lists_others", str(name)))

    def _newest(self) -> Generation:
        assembly = self.gateway.state.assembly
        return Generation(self._number, assembly.backends, assembly.streams)

    def is_one_ready(self) -> bool:
        """Return True if at least one worker is ready."""
        return any(each.is_ready for each in self.workers)

    def numbers(self) -> tuple[int, int]:
        """Return the number of running workers, and the number of restarts."""
        return len(self._running()), sum(each.restarts for each in self.workers)

    def principal_states(self, name: str) -> ReportedStates:
        """For each policy whose state all workers share, return its location, its name, and the state of one
        principal."""
        return self.shared_policies.of_principal(name)

    async def gather(self) -> None:
        """Fetch the workers' counts. If a worker does not respond within GATHER_SECONDS, add its report when it
        arrives."""
        if running := self._running():
            await asyncio.wait([spawn(self._fetch(each)) for each in running], timeout=GATHER_SECONDS)

    async def _fetch(self, worker: WorkerProcess) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                self.totals.add(worker.number, pickle.loads(await worker.channel.ask("report")))
        except ChannelClosedError:
            return
        except TimeoutError:
            log.error("killing worker %d: its event loop is blocked for %g s", worker.number, STALLED_SECONDS)
            worker.kill()

    async def clear_caches(self, place: str) -> None:
        """Clear the workers' caches at `place`, or all their caches if `place` is empty.

        Kill workers that do not respond within STALLED_SECONDS, which also removes their caches."""
        if running := self._running():
            asked = [each.channel.ask("clear_caches", place) for each in running]
            await asyncio.wait(asked, timeout=STALLED_SECONDS)

    @property
    def drained(self) -> list[tuple[str, str]]:
        """The endpoints that receive no calls because they are drained, as pairs of protocol and address."""
        backends = self.gateway.state.assembly.backends.values()
        drained = {
            (str(one.protocol.name), each.address) for one in backends for each in one.endpoints if not each.takes_calls
        }
        return sorted(drained)

    async def tell_drained(self) -> None:
        """Send the list of drained endpoints to all workers.

        Kill workers that do not respond within STALLED_SECONDS."""
        self._told_drained = drained = self.drained
        if running := self._running():
            await asyncio.wait([each.channel.ask("drained", drained) for each in running], timeout=STALLED_SECONDS)

    async def has_calls(self, protocol: str, address: str) -> bool:
        """Return True if a worker has calls in flight to an endpoint, or does not respond in time."""
        asked = [each.channel.ask("has_calls", protocol, address) for each in self._running()]
        if not asked:
            return False
        done, late = await asyncio.wait(asked, timeout=GATHER_SECONDS)
        return bool(late) or any(each.exception() is None and each.result() for each in done)

    async def _gather_again(self) -> NoReturn:
        """Fetch the workers' counts periodically, so few counts are lost if a worker is killed.

        Also kill workers whose processes are stopped (by a signal) in two consecutive checks, because the kernel
        continues to send them connections."""
        stopped: set[int] = set()
        while True:
            await asyncio.sleep(GATHER_INTERVAL)
            with log_and_continue("reading the workers' counters"):
                await self.gather()
            with log_and_continue("announcing drained endpoints to the workers"):
                if self.drained != self._told_drained:  # a reload has removed an endpoint or added it again
                    await self.tell_drained()
            with log_and_continue("looking for stopped workers"):
                stopped = self._kill_stopped(stopped)

    def _kill_stopped(self, before: set[int]) -> set[int]:
        """Kill the workers whose processes are stopped and were also stopped `before`. Return the processes that are
        stopped now."""
        stopped = {each.pid for each in self._running() if process_state(each.pid) == "T"}
        for each in self._running():
            if each.pid in stopped & before:
                log.error("killing worker %d: its process %d is stopped (SIGSTOP)", each.number, each.pid)
                each.kill()
        return stopped

    def _renew_listeners(self) -> None:
        """Create a ListenerOfWorkers for each listener of the current configuration."""
        listeners = self.gateway.state.listeners
        self.gateway.state.listeners = {
            each.name: listeners.get(each.name) or ListenerOfWorkers(str(replace(each.bind, scheme="")))
            for each in self.config.listeners
        }

    async def start(self) -> None:
        """Start the gateway and all workers. If this call is cancelled, call `drain` to stop the parts that have
        started.

        Raises:
            BindError: an address cannot be bound.
            WorkerError: a worker cannot start.
        """
        await self.gateway.start()
        self.generation = self._newest()
        self._renew_listeners()
        try:
            await asyncio.gather(*(each.start() for each in self.workers))
        except Exception:
            self._is_ending = True
            for each in self.workers:
                each.kill()
            await self.gateway.drain(0)
            raise
        self._watches = [spawn(self._watch(each)) for each in self.workers]
        self._watches.append(spawn(self._gather_again()))

    def announce_end(self) -> None:
        """See Gateway."""
        self._is_ending = True
        self.gateway.announce_end()
        for each in self._running():
            each.channel.tell("announce_end")

    async def drain(self, seconds: float) -> int:
        """See Gateway. All workers drain in parallel, and then their processes exit."""
        self._is_ending = True
        self.gateway.announce_end()
        given_up = await all_surviving("draining a worker", (_drained(each, seconds) for each in self._running()))
        for each in self.workers:
            if each.is_ready:
                each.channel.tell("exit")
            else:
                each.kill()
        await all_surviving("waiting for the end of a worker", (each.ended() for each in self.workers if each.pid))
        await self.gateway.drain(0)
        self._addresses.release()
        return sum(given_up)

    async def reload(self, config: Config) -> tuple[str, ...]:
        """See Gateway.

        The supervisor changes first, then one worker. If this worker cannot change, the supervisor changes back.
        Otherwise, all other workers change, which have the same code and configuration. If one of them still cannot
        change, the supervisor restarts it.

        Raises:
            BindError: an address cannot be bound. ReloadError: the change requires a restart, or the gateway is
            stopping.
        """
        async with self.reloading:
            with _in_use(self.generation):
                return await self._reload(config)

    async def _reload(self, config: Config) -> tuple[str, ...]:
        kept_keys = {"workers": self.config.workers, "reference": self.config.reference}
        before, new = self.gateway.state.config, config.model_copy(update=kept_keys)
        shared = self._shared(new)
        limited = limited_backends(config)
        self._limited |= limited  # both configurations are in use
        found = await self._change(self._own(shared, config))
        running, newest = self._running(), self._newest()
        if running and (why := await _reloaded(running[0], shared, newest)):
            await self._change(before)
            self.generation = self._newest()
            self._limited = limited_backends(before)
            self._addresses.release_unused(self.config)
            raise ReloadError(why)
        self.config, self.generation = shared, newest
        others = running[1:]
        errors = await asyncio.gather(*(_reloaded(each, shared, newest) for each in others))
        for worker, error in zip(others, errors, strict=True):
            if error:
                log.error("restarting worker %d, because it cannot reload: %s", worker.number, error)
                worker.kill()
        self._addresses.release_unused(shared)
        self._limited = limited
        self._renew_listeners()
        return found

    async def _change(self, config: Config) -> tuple[str, ...]:
        """Change the supervisor's own part. Calls in flight do not delay the change, because the supervisor counts them
        only for display."""
        for name, backend in self.gateway.state.assembly.backends.items():
            if name not in self._limited:
                for each in backend.endpoints:
                    each.in_flight = 0
        before = self.gateway.state.assembly.backends
        found = await self.gateway.reload(config)
        self._number += self.gateway.state.assembly.backends is not before
        return found

    def reopen_logs(self) -> None:
        """See Gateway."""
        self.gateway.reopen_logs()
        for each in self._running():
            each.channel.tell("reopen_logs")

    @property
    def state(self) -> "GatewayState":
        """The state of the supervisor's own part of the gateway."""
        return self.gateway.state

    async def is_backend_ready(self, name: str) -> bool:
        """Return True if the backend is ready."""
        found = self.gateway.state.assembly.backends.get(name)
        return found is not None and await found.is_ready()

    def learned(self, source: WorkerProcess, *news: Any) -> None:
        """Apply an endpoint event that a worker reports, and forward it to the other workers."""
        backend, address, event, arguments, named = news
        endpoint = endpoint_of(self.gateway, backend, address)
        if endpoint is not None:
            endpoint.learn(event, arguments, named)
        for each in self._running():
            if each is not source:
                each.channel.tell("learn", *news)

    def switched(self, source: WorkerProcess, listener: str, is_online: bool) -> None:
        """Record that a client of one worker has switched a listener offline or online, and notify the other
        workers."""
        (self._offline.discard if is_online else self._offline.add)(listener)
        for each in self._running():
            if each is not source:
                each.channel.tell("switch", listener, is_online)

    def _tell_all(self, kind: str, *news: Any) -> None:
        for each in self._running():
            each.channel.tell(kind, *news)

    def _shared(self, config: Config) -> Config:
        return share(self._addresses.shared(config), self._count)

    def _own(self, shared: Config, config: Config) -> Config:
        """Return the configuration for the supervisor's own part."""
        return config.model_copy(update={"listeners": shared.listeners})

    def own(self, config: Config) -> Config:
        """Return `config` with the addresses that the workers bind."""
        return self._own(self.config, config)

    def _running(self) -> list[WorkerProcess]:
        return [each for each in self.workers if each.is_ready]

    async def _watch(self, worker: WorkerProcess) -> None:
        """Restart the worker each time it exits."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        began = loop.time()
        while True:
            pid, status = worker.pid, await worker.ended()
            self.totals.forget(worker.number)
            if self._is_ending:
                return
            if loop.time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            log.error("worker %d (process %d) has ended %s; the gateway starts it again", worker.number, pid, how)
            await asyncio.sleep(pause)
            pause, began = min(2 * pause, LONGEST_PAUSE), loop.time()
            await self._restart(worker)

    async def _restart(self, worker: WorkerProcess) -> None:
        if self._is_ending:
            return
        worker.restarts += 1
        try:
            await worker.start()
            self._inform(worker)
        except WorkerError as error:
            log.error("worker %d cannot start: %s", worker.number, error)
            worker.kill()
        except Exception as error:
            log_survived(f"starting worker {worker.number}", error)
            worker.kill()
        else:
            log.info("worker %d runs again (process %d)", worker.number, worker.pid)

    def _inform(self, worker: WorkerProcess) -> None:
        """Send a newly started worker the endpoint events that other workers have reported."""
        for name, backend in self.gateway.state.assembly.backends.items():
            for each in backend.endpoints:
                if isinstance(each, RelayedEndpoint) and (news := each.news()) is not None:
                    worker.channel.tell("learn", str(name), each.address, *news)
        for listener in self.config.listeners:
            if listener.allow_offline and listener.name in self._offline:
                worker.channel.tell("switch", str(listener.name), False)


async def _drained(worker: WorkerProcess, seconds: float) -> int:
    try:
        async with asyncio.timeout(seconds + SECONDS_TO_CLOSE):
            return int(await worker.channel.ask("drain", seconds))
    except ChannelClosedError:
        return 0
    except TimeoutError:
        worker.kill()
        return 0


@contextmanager
def _in_use(generation: Generation) -> Iterator[None]:
    """Keep the generation in use during the block, in which a worker can start to use it."""
    generation.users.began()
    try:
        yield
    finally:
        generation.users.ended()


async def _reloaded(worker: WorkerProcess, config: Config, generation: Generation) -> str:
    """Make the worker change to `config`, and return the reason if it cannot.

    Return an empty string if the worker has changed, or if it has exited and will restart with `config`."""
    try:
        return await worker.reload(config, generation)
    except ChannelClosedError:
        return ""
    except GatewayError as error:
        return error.message
