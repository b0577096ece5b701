"""The supervisor of workers that fail, hang or refuse. The workers are in this process, at the other ends of the real
channels."""

import asyncio
import logging
import os
import pickle
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from gateway.routing.endpoint import Drain
from gateway.runtime.app import Gateway
from gateway.runtime.app.replacing import ReloadError
from gateway.runtime.workers import supervisor as module
from gateway.runtime.workers.channel import Channel
from gateway.runtime.workers.reports import ListenerOfWorkers, Reporter
from gateway.runtime.workers.supervisor import Supervisor, WorkerError
from tests.limits import settle, until
from tests.running_gateway import config_of, running_gateway
from tests.skipping_loop import skip

CONFIG = """
workers: 2
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], allow_offline: true}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:1", "127.0.0.1:2"], health: {probe: none}}}
routes: [{match: {model: m}, backend: lab}]
"""
COUNTING = f"""
limits: {{shed: {{}}}}
models:
  graph: {{inputs: {{x: "INT32 [-1]"}}, steps: {{one: {{model: m, inputs: {{x: $x}}}}}}, outputs: {{y: $one}}}}
{CONFIG}
"""
OTHER = CONFIG.replace("model: m", "model: other")
BOUND: tuple[str, dict[str, str], list[str]] = "", {"http": "127.0.0.1:1"}, []
FAILED = "the gateway failed; its log says why"
Answer = Callable[..., Any]
FIRST_PAUSE, LONGEST_PAUSE, GATHER_INTERVAL, STALLED_SECONDS, SECONDS_TO_CLOSE = 1e3, 1e5, 1e4, 1e6, 1e3
"""The supervisor's times, so long that they pass only when a test lets them pass, on a slow machine too."""


@pytest.fixture(autouse=True)
def _long_times(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {
        "FIRST_PAUSE": FIRST_PAUSE,
        "LONGEST_PAUSE": LONGEST_PAUSE,
        "GATHER_INTERVAL": GATHER_INTERVAL,
        "GATHER_SECONDS": FIRST_PAUSE,
        "STALLED_SECONDS": STALLED_SECONDS,
        "SECONDS_TO_START": STALLED_SECONDS,
        "SECONDS_TO_CLOSE": SECONDS_TO_CLOSE,
    }
    for name, seconds in times.items():
        monkeypatch.setattr(module, name, seconds)


async def never(*values: object) -> None:
    await asyncio.Event().wait()


def fails(*values: object) -> None:
    raise ValueError(values)


def says(value: object) -> Answer:
    return lambda *_: value


class Process:
    """A worker, and its process as the supervisor sees it. `told` has the messages that came, except for reports."""

    def __init__(self, number: int, answers: Mapping[str, Answer]) -> None:
        self.pid = 10_000_000 + number  # more than a system gives
        self.returncode: int | None = None
        self.told: list[tuple[Any, ...]] = []
        self._over = asyncio.Event()
        defaults: dict[str, Answer] = {"start": says(BOUND), "reload": says(""), "drain": says(0), "has_calls": bool}
        kinds = ("learn", "switch", "drained", "clear_caches", "announce_end", "reopen_logs", "report")
        defaults |= {kind: says(None) for kind in kinds} | {"exit": lambda: self.end(0)}
        self.channel = Channel(
            {kind: self._noted(kind, each) for kind, each in (defaults | dict(answers)).items()}, lambda: None
        )

    def _noted(self, kind: str, answer: Answer) -> Answer:
        def noted(*values: Any) -> Any:
            if kind != "report":
                self.told.append((kind, *values))
            return answer(*values)

        return noted

    def of(self, kind: str) -> list[Any]:
        """The values of the messages of one kind, as lists."""
        return [values for told, *values in self.told if told == kind]

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    def end(self, status: int) -> None:
        self.returncode = status
        self._over.set()
        self.channel.close()

    def kill(self) -> None:
        self.end(-9)


class Lab:
    """A supervisor, and the processes that it has started."""

    def __init__(self, *answers: Mapping[str, Answer], text: str = CONFIG) -> None:
        self.processes: list[Process] = []
        self.next = list(answers)
        """What the next workers answer, where it is not what all answer."""
        config = config_of(text)
        self.supervisor = Supervisor(config, 2)
        self.supervisor.gateway = Gateway(self.supervisor.own(config), part=self.supervisor.part)
        state, metrics = self.supervisor.gateway.state, self.supervisor.gateway.metrics
        self._report = {"report": lambda: pickle.dumps(Reporter(state, metrics).report())}

    async def create(self, *command: str, pass_fds: tuple[int], start_new_session: bool) -> Process:
        """What is called in place of asyncio's `create_subprocess_exec`."""
        process = Process(len(self.processes), self._report | dict(self.next.pop(0) if self.next else {}))
        self.processes.append(process)
        end = socket.socket(fileno=os.dup(pass_fds[0]))
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: process.channel, sock=end)
        return process

    async def started(self, number: int) -> Process:
        """The process of this number, once it is ready."""
        await until(lambda: len(self.processes) > number, 0)
        await until(lambda: self.processes[number].pid in [each.pid for each in self.supervisor._running()], 0)
        return self.processes[number]


@contextmanager
def processes_of(lab: Lab) -> Iterator[None]:
    """Start the processes of the lab in place of real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", lab.create)
        yield


@asynccontextmanager
async def running(*answers: Mapping[str, Answer], text: str = CONFIG) -> AsyncIterator[Lab]:
    """A supervisor whose first workers give these answers."""
    lab = Lab(*answers, text=text)
    with processes_of(lab):
        await lab.supervisor.start()
        try:
            yield lab
        finally:
            await lab.supervisor.drain(0)


@pytest.mark.parametrize(
    ("start", "told"),
    [(says(("listener 'http': address in use", {}, [])), "listener 'http': address in use"), (fails, FAILED)],
    ids=["says why", "fails"],
)
async def test_a_worker_that_cannot_start_ends_the_others(start: Answer, told: str) -> None:
    lab = Lab({}, {"start": start})
    with processes_of(lab), pytest.raises(WorkerError) as caught:
        await lab.supervisor.start()
    assert (str(caught.value), [each.returncode for each in lab.processes]) == (told, [-9, -9])
    assert not lab.supervisor.state.ready
    await lab.supervisor.drain(0)


@pytest.mark.parametrize(
    "failure",
    [
        ("note_failure", ["refused"], {"unreachable": True}),
        ("probe_failed", ["refused", 1], {"refused": True}),
    ],
    ids=["call", "probe"],
)
async def test_a_worker_that_has_ended_starts_again_and_is_told_what_the_others_know(
    failure: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running() as lab:
        first, second = lab.processes
        news = "lab", "127.0.0.1:2", *failure
        first.channel.tell("learned", *news)
        first.channel.tell("learned", "gone", *news[1:])  # of a backend that a reload has removed here already
        first.channel.tell("switched", "http", False)
        await until(lambda: second.of("switch"), 0)
        assert (second.of("learn"), second.of("switch")) == ([[*news], ["gone", *news[1:]]], [["http", False]])
        assert not first.told[1:]
        second.end(3)
        await settle()
        await skip(FIRST_PAUSE)
        third = await lab.started(2)
        await until(lambda: third.of("switch"), 0)
        assert third.told[1:] == [("learn", *news), ("switch", "http", False)]
        assert lab.supervisor.numbers() == (2, 1)
    text = f"worker 2 (process {second.pid}) has ended with status 3; the gateway starts it again"
    assert [text, f"worker 2 runs again (process {third.pid})"] == [
        each.getMessage() for each in caplog.records if each.getMessage().startswith("worker 2")
    ]


async def test_the_pause_before_a_worker_starts_again_doubles_until_one_runs_for_long() -> None:
    async with running() as lab:
        number = 1
        for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, FIRST_PAUSE):
            if number == 4:
                await skip(2 * LONGEST_PAUSE)
            lab.processes[number].kill()
            await settle()
            await skip(0.9 * pause)
            assert len(lab.processes) == number + 1
            await skip(0.2 * pause)
            number += 1
            await lab.started(number)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (says(("no memory", {}, [])), "worker 2 cannot start: no memory"),
        (says("nonsense"), "unexpected error in starting worker 2; everything else continues"),
    ],
    ids=["says why", "nonsense"],
)
async def test_a_worker_that_cannot_start_again_is_killed_and_tried_again(
    start: Answer, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running({}, {}, {"start": start}) as lab:
        lab.processes[1].kill()
        await settle()
        await skip(FIRST_PAUSE)
        await until(lambda: told in caplog.text, 0)
        assert await lab.processes[2].wait() == -9
        assert lab.supervisor.numbers() == (1, 1)
        await settle()
        await skip(2 * FIRST_PAUSE)
        await lab.started(3)
        assert lab.supervisor.numbers() == (2, 2)


@pytest.mark.parametrize("why", ["", "no memory"])
async def test_what_changes_while_a_worker_starts_reaches_it_before_it_serves(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()

    async def slow(*values: object) -> object:
        await gate.wait()
        return BOUND

    async with running({}, {}, {"start": slow, "reload": says(why)}) as lab:
        lab.processes[1].kill()
        await settle()
        await skip(FIRST_PAUSE)
        await until(lambda: len(lab.processes) == 3 and lab.processes[2].of("start"), 0)
        await lab.supervisor.reload(config_of(OTHER))
        lab.supervisor.gateway.state.assembly.backends["lab"].endpoints[0].set_drain(Drain(0))
        gate.set()
        if why:
            await until(lambda: f"worker 2 cannot start: {why}" in caplog.text, 0)
            assert await lab.processes[2].wait() == -9
        else:
            third = await lab.started(2)
            await until(lambda: third.of("drained"), 0)
            assert third.of("drained") == [[[("v2-rest", "127.0.0.1:1")]]]
            ((config, _),) = third.of("reload")
            assert [str(each.match.model) for each in pickle.loads(config).routes] == ["other"]


@pytest.mark.parametrize(
    ("refuses", "told"),
    [(says("listener 'http': no"), "listener 'http': no"), (fails, FAILED)],
    ids=["says why", "fails"],
)
async def test_a_reload_that_the_first_worker_refuses_changes_nothing(refuses: Answer, told: str) -> None:
    async with running({"reload": refuses}) as lab:
        before = lab.supervisor.config, lab.supervisor.state.config
        with pytest.raises(ReloadError) as caught:
            await lab.supervisor.reload(config_of(OTHER))
        assert str(caught.value) == told
        assert (lab.supervisor.config, lab.supervisor.state.config) == before
        assert not lab.processes[1].of("reload")


async def test_a_worker_that_alone_refuses_a_reload_starts_again_with_the_new_configuration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running({}, {"reload": says("no memory")}) as lab:
        assert await lab.supervisor.reload(config_of(OTHER)) == ("route 'other' added", "route 'm' removed")
        assert "restarting worker 2, because it cannot reload: no memory" in caplog.text
        assert await lab.processes[1].wait() == -9
        await settle()
        await skip(FIRST_PAUSE)
        third = await lab.started(2)
        ((config, *_),) = third.of("start")
        assert [str(each.match.model) for each in pickle.loads(config).routes] == ["other"]


async def test_a_worker_that_ends_in_a_reload_does_not_hinder_it() -> None:
    async with running({"reload": lambda *_: lab.processes[0].kill()}) as lab:
        assert await lab.supervisor.reload(config_of(OTHER)) == ("route 'other' added", "route 'm' removed")
        assert lab.processes[1].of("reload")


async def test_a_worker_that_reports_nothing_for_long_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async with running({}, {"report": never}) as lab:
        await skip(GATHER_INTERVAL)
        await skip(0.9 * STALLED_SECONDS)
        assert lab.processes[1].returncode is None
        await skip(0.1 * STALLED_SECONDS)
        assert [each.returncode for each in lab.processes[:2]] == [None, -9]
    assert f"killing worker 2: its event loop is blocked for {STALLED_SECONDS:g} s" in caplog.text


async def test_the_counts_of_workers_are_added_up_once() -> None:
    """Each report tells what has grown since the one before."""
    async with running_gateway(COUNTING) as worker:
        observing, shedding, state = worker.observing, worker.state.own_shedding, worker.state
        reporter = Reporter(state, worker.metrics)
        step = state.assembly.graphs.models["graph"].calls.counts["one"] = Counter()
        listener = ListenerOfWorkers("127.0.0.1:1")
        state.listeners = {"http": listener}
        listener.open_connections = 10
        report = {"report": lambda: pickle.dumps(reporter.report())}
        async with running(report, report, text=COUNTING) as lab:
            assert shedding is not None
            for _ in range(2):
                observing.traces.sent += 3
                observing.traces.dropped += 1
                observing.payload_logs.counts.sent += 5
                observing.payload_logs.counts.dropped += 2
                shedding.refused += 4
                listener.refused_connections += 9
                state.assembly.authentication.access.credentials.add_uses("key", 7.0, 6)
                step.update(calls=8, errors=1)
                await lab.supervisor.gather()
            supervisor = lab.supervisor.gateway
            traces, payloads = supervisor.observing.traces, supervisor.observing.payload_logs.counts
            assert (traces.sent, traces.dropped, payloads.sent, payloads.dropped) == (6, 2, 10, 4)
            told = supervisor.state.status()
            assert told.listeners["http"].refused_connections == 18
            assert supervisor.state.listeners["http"].open_connections == 20  # both have ten
            assert told.shedding is not None
            assert told.shedding.refused == 8
            use = supervisor.state.assembly.authentication.access.credentials.uses["key"]
            assert (use.number, use.last) == (12, 7.0)
            assert supervisor.state.graph_steps == {("graph", "one"): {"calls": 16, "errors": 2}}


async def test_workers_are_told_that_a_reload_has_ended_a_drain() -> None:
    async with running() as lab:
        backends = lab.supervisor.gateway.state.assembly.backends
        await lab.supervisor.gateway.draining.begin("lab", "127.0.0.1:2", 0)
        assert [each.of("drained") for each in lab.processes] == [[[[("v2-rest", "127.0.0.1:2")]]]] * 2
        await lab.supervisor.reload(config_of(CONFIG.replace(', "127.0.0.1:2"', "")))
        assert lab.supervisor.gateway.state.assembly.backends is not backends
        await skip(GATHER_INTERVAL)
        await until(lambda: all(len(each.of("drained")) == 2 for each in lab.processes), 0)
        assert [each.of("drained")[1] for each in lab.processes] == [[[]]] * 2


async def test_an_endpoint_has_calls_if_a_worker_has_some_or_does_not_answer() -> None:
    for answers, expected in (({}, False), ({"has_calls": says(True)}, True), ({"has_calls": never}, True)):
        async with running({}, answers) as lab:
            asked = asyncio.ensure_future(lab.supervisor.has_calls("v2-rest", "127.0.0.1:1"))
            await until(lambda: all(each.of("has_calls") for each in lab.processes), 0)
            if answers.get("has_calls") is never:
                await skip(FIRST_PAUSE)
            assert await asked is expected


async def test_nobody_is_waited_for_while_no_worker_runs() -> None:
    async with running() as lab:
        for each in lab.processes:
            each.kill()
        await until(lambda: not lab.supervisor.is_one_ready(), 0)
        assert await lab.supervisor.has_calls("v2-rest", "127.0.0.1:1") is False
        await asyncio.gather(lab.supervisor.gather(), lab.supervisor.clear_caches(""), lab.supervisor.tell_drained())


async def test_the_end_waits_for_no_worker_that_hangs_or_has_ended() -> None:
    lab = Lab({"drain": says(5)}, {"drain": never})
    with processes_of(lab):
        await lab.supervisor.start()
        ending = asyncio.ensure_future(lab.supervisor.drain(STALLED_SECONDS))
        await until(lambda: lab.processes[1].of("drain"), 0)
        await skip(STALLED_SECONDS)
        assert not ending.done()
        await skip(SECONDS_TO_CLOSE)
        assert await ending == 5
    assert [each.returncode for each in lab.processes] == [0, -9]


async def test_a_worker_does_not_start_again_once_the_gateway_ends() -> None:
    async with running() as lab:
        lab.processes[1].kill()
        await until(lambda: lab.supervisor.numbers()[0] == 1, 0)
        await settle()
        assert await lab.supervisor.drain(0) == 0
        await skip(FIRST_PAUSE)
        assert len(lab.processes) == 2
