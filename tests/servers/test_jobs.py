"""A fleet and its jobs, with an engine that the test answers for: what comes between a question and its answer."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from gateway.core.tasks import spawn
from gateway.servers import fleet as fleet_module
from gateway.servers import jobs as jobs_module
from gateway.servers import state_file
from gateway.servers.consumer import Use
from gateway.servers.engine import EngineError, Job, JobReport, JobState
from gateway.servers.fleet import StartedServers
from gateway.servers.jobs import Jobs
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import FailedStarts
from gateway.servers.started_server import JobFailure, JobOutput, ServerPhase, StartedServer
from gateway.servers.state_file import SavedJob, StateFile
from tests.limits import GENEROUS, settle, until
from tests.skipping_loop import skip


class Engine:
    """Runs nothing: jobs are in `reported` until the test, or `cancel`, changes it."""

    def __init__(self) -> None:
        self.reported: dict[str, JobReport] = {}
        self.submitted: list[Job] = []
        self.fails: Callable[[str], None] = lambda what: None
        """Called with the name of each question; what it raises is the answer."""
        self.is_closed = False

    async def submit(self, job: Job) -> str:
        self.fails("submit")
        self.submitted.append(job)
        self.reported[str(len(self.submitted))] = JobReport(JobState.RUNNING, host="127.0.0.1")
        return str(len(self.submitted))

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        return {}

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        self.fails("reports")
        return {each: self.reported[each] for each in ids if each in self.reported}

    async def cancel(self, ids: Collection[str]) -> None:
        self.fails("cancel")
        for each in ids:
            self.reported[each] = JobReport(JobState.CANCELLED)

    async def close(self) -> None:
        self.is_closed = True


class ServerUse:
    in_flight, is_idle, calls, last_used = 0, True, 0, 0.0


class Backend:
    """A Consumer for which one call waits. `asked` are the addresses of servers that wait for the answer whether they
    are ready, which is that of the future."""

    is_closed, slots, call_seconds = False, 1, None

    def __init__(self) -> None:
        self.waiting = 1
        self.addresses: list[str] = []
        self.failures: list[str] = []
        self.added: asyncio.Queue[str] = asyncio.Queue()
        self.asked: asyncio.Queue[asyncio.Future[bool]] = asyncio.Queue()

    def why_not(self, address: str) -> str:
        return ""

    async def is_ready(self, address: str) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(answer)
        return await answer

    def add(self, address: str, use: Use | None = None) -> Use:
        self.addresses.append(address)
        self.added.put_nowait(address)
        return ServerUse()

    def remove(self, address: str) -> None:
        self.addresses.remove(address)

    def fail_waiting(self, text: str, detail: str) -> None:
        self.waiting = 0
        self.failures.append(text)


def settings(folder: Path, **keys: object) -> ServersSettings:
    usual = {"backend": "lab", "engine": "fake", "command": ("server",), "is_script": False, "state": folder}
    return ServersSettings(**{**usual, **keys})  # type: ignore[arg-type]


class Lab:
    """A fleet with its engine, its backend, and what it remembers; for jobs of before, another engine."""

    def __init__(self, folder: Path, **keys: object) -> None:
        self.engine, self.backend, self.other = Engine(), Backend(), Engine()
        self.engines = {"fake": self.engine, "other": self.other}
        self.state = StateFile(folder)
        self.state.used_by("lab")
        self.jobs = Jobs(settings(folder, **keys), "fits", self.state, self._open, monotonic)
        self.fleet = StartedServers(self.jobs, monotonic)

    def _open(self, settings: ServersSettings) -> tuple[Engine, float]:
        return self.engines[settings.engine], 0.01

    def start(self) -> None:
        self.fleet.attach(self.backend)
        self.fleet.start()

    async def close(self) -> None:
        await self.fleet.close()
        self.state.close()


@asynccontextmanager
async def lab(folder: Path, **keys: object) -> AsyncIterator[Lab]:
    found = Lab(folder, **keys)
    found.start()
    try:
        yield found
    finally:
        await found.close()


def saved(folder: Path) -> list[str]:
    """The ids of the jobs that are remembered."""
    return [each.id for each in state_file.read((folder / "jobs.json").read_bytes())]


def save(folder: Path, job: SavedJob) -> None:
    state = StateFile(folder)
    state.open()
    state.change(job)
    state.close()


async def test_a_server_whose_job_is_over_while_it_is_asked_whether_it_is_ready_gets_no_calls(tmp_path: Path) -> None:
    async with lab(tmp_path) as found:
        answer = await found.backend.asked.get()
        (server,) = found.jobs.servers.values()
        found.engine.reported["1"] = JobReport(JobState.FAILED, "node down")
        await found.jobs.ask()  # as for a call that has failed at another server
        answer.set_result(True)
        again = await found.backend.asked.get()  # the next server
        assert found.backend.addresses == []
        assert server.name not in found.jobs.servers
        again.set_result(False)
    assert saved(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), KeyError("id")])
async def test_a_submission_with_an_unexpected_error_leaves_nothing_behind_and_is_tried_again(
    tmp_path: Path, error: Exception
) -> None:
    def fails(what: str) -> None:
        if what == "submit":
            found.engine.fails = lambda what: None
            raise error

    async with lab(tmp_path) as found:
        found.engine.fails = fails
        answer = await found.backend.asked.get()
        assert len(found.jobs.servers) == 1
        assert len(found.engine.submitted) == 1
        answer.set_result(False)


async def test_a_job_is_ended_in_the_end_although_the_engine_fails_in_an_unexpected_way(tmp_path: Path) -> None:
    failed = 0

    def fails(what: str) -> None:
        nonlocal failed
        if what == "cancel" and failed < 2:
            failed += 1
            raise OSError(24, "Too many open files")

    async with lab(tmp_path) as found:
        (await found.backend.asked.get()).set_result(False)
        (server,) = found.jobs.servers.values()
        found.engine.fails = fails
        found.jobs.end(server, "the test ends it")
        await asyncio.wait_for(server.over.wait(), GENEROUS)
        assert failed == 2


async def test_jobs_are_ended_with_the_gateway_although_the_engine_cannot_be_reached_for_a_moment(
    tmp_path: Path,
) -> None:
    failed = 0

    def fails(what: str) -> None:
        nonlocal failed
        failed += 1
        if failed < jobs_module.CLOSE_ATTEMPTS:
            raise EngineError("socket timed out")

    async with lab(tmp_path) as found:
        (await found.backend.asked.get()).set_result(True)
        found.engine.fails = fails
    assert found.engine.reported["1"].state is JobState.CANCELLED


async def test_jobs_that_cannot_be_ended_are_left_to_the_next_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "CLOSE_SECONDS", 0.2)

    def fails(what: str) -> None:
        raise OSError(24, "Too many open files")

    async with lab(tmp_path) as found:
        (await found.backend.asked.get()).set_result(True)
        found.engine.fails = fails
    assert "jobs remain that the next gateway will end: job lab-" in caplog.text
    assert saved(tmp_path) == ["1"]


AT_ANOTHER_ENGINE = SavedJob("lab-00000001", "7", "lab", "other", "", "fits")


async def test_a_fleet_that_is_replaced_ends_the_jobs_at_the_engine_before_first(tmp_path: Path) -> None:
    save(tmp_path, AT_ANOTHER_ENGINE)
    asked, is_up = asyncio.Event(), False

    def fails(what: str) -> None:
        asked.set()
        if not is_up:
            raise EngineError("it is down")

    found = Lab(tmp_path)
    found.other.fails = fails
    found.other.reported["7"] = JobReport(JobState.RUNNING)
    found.backend.waiting = 0
    found.start()
    await asked.wait()
    found.fleet.retire()
    retired = asyncio.ensure_future(found.fleet.retired())
    asked.clear()
    await asked.wait()
    assert not retired.done()
    is_up = True
    await retired
    assert found.other.reported["7"].state is JobState.CANCELLED
    assert found.other.is_closed
    await found.close()
    assert saved(tmp_path) == []


async def test_an_engine_before_is_left_when_the_gateway_ends(tmp_path: Path) -> None:
    save(tmp_path, AT_ANOTHER_ENGINE)
    asked = asyncio.Event()

    def fails(what: str) -> None:
        asked.set()
        raise EngineError("it is down")

    found = Lab(tmp_path)
    found.other.fails = fails
    found.start()
    await asked.wait()
    await found.close()
    assert found.other.is_closed
    assert saved(tmp_path) == ["7"]


async def test_a_server_that_is_adopted_does_not_count_as_one_that_was_started_in_no_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    save(tmp_path, SavedJob("lab-00000001", "7", "lab", "fake", "", "fits", 4242, "127.0.0.1:4242", 1.0))
    found = Lab(tmp_path, max=2)
    found.engine.reported["7"] = JobReport(JobState.RUNNING, host="127.0.0.1")
    found.start()
    (await found.backend.asked.get()).set_result(True)  # the second one
    assert await found.backend.added.get() == "127.0.0.1:4242"
    assert await found.backend.added.get() != "127.0.0.1:4242"
    assert caplog.text.count("is adopted") == caplog.text.count("serves at") == 1
    await found.close()


def test_servers_that_fail_together_count_as_one_failed_start() -> None:
    now = 0.0
    failed = FailedStarts(lambda: now)
    for _ in range(8):
        failed.add(JobFailure("no licence"))
    assert (failed.in_a_row, failed.next_at) == (1, 0.5)
    assert failed.waits_in_vain(is_starting=False, limit=600.0, reason=lambda: "") is None
    for _ in range(2):
        now = failed.next_at
        failed.add(JobFailure("no licence"))
    assert failed.in_a_row == 3
    assert failed.waits_in_vain(is_starting=False, limit=600.0, reason=lambda: "") is not None


# The state file


async def test_a_file_that_is_written_slowly_does_not_hold_the_gateway_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go = threading.Event(), threading.Event()
    waited: list[bool] = []

    def fsync(file: int) -> None:
        began.set()
        waited.append(go.wait(GENEROUS))

    monkeypatch.setattr("os.fsync", fsync)
    async with lab(tmp_path) as found:
        assert await asyncio.to_thread(began.wait, GENEROUS)
        assert not found.engine.submitted  # not before it is remembered
        go.set()
        (await found.backend.asked.get()).set_result(True)
    assert all(waited)
    assert saved(tmp_path) == []


def test_what_changes_while_the_file_is_written_is_in_it_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go = threading.Event(), threading.Event()
    writes = 0

    def fsync(file: int) -> None:
        nonlocal writes
        writes += 1
        began.set()
        assert go.wait(GENEROUS)

    monkeypatch.setattr("os.fsync", fsync)
    state = StateFile(tmp_path)
    state.open()
    state.change(SavedJob("lab-00000000"))
    assert began.wait(GENEROUS)
    for number in range(1, 100):
        state.change(SavedJob(f"lab-{number:08x}"))
    for number in range(98):
        state.remove(f"lab-{number:08x}")
    go.set()
    state.close()
    names = [each.name for each in state_file.read((tmp_path / "jobs.json").read_bytes())]
    assert names == ["lab-00000062", "lab-00000063"]
    assert writes == 2


def test_a_job_of_no_backend_is_taken_by_one_of_those_that_share_the_folder(tmp_path: Path) -> None:
    save(tmp_path, SavedJob("gone-00000001", "7", "gone", "slurm"))
    state = StateFile(tmp_path)
    state.used_by("coarse")
    state.used_by("fine")
    state.open()
    left = [state.left_for(each) for each in ("coarse", "fine")]
    assert [len(state.take(each)) for each in left] == [1, 0]
    state.close()


# What a server writes


def test_the_end_of_the_output_begins_with_a_whole_line_and_has_no_control_characters(tmp_path: Path) -> None:
    output = JobOutput(tmp_path / "output")
    assert output.end() == ""
    output.path.write_bytes(b"first\n" + b"x" * 1000 + b"\n" + b"y" * 997 + b"\x1b\a\xff\n")
    assert output.end() == "y" * 997 + "  \ufffd"
    output.path.write_bytes(b"z" * 3000)
    assert output.end() == "z" * 2000


def test_new_lines_of_the_output_are_read_once_and_whole(tmp_path: Path) -> None:
    output = JobOutput(tmp_path / "output")
    assert list(output.new_lines()) == []
    output.path.write_bytes(b"one\ntw")
    assert list(output.new_lines()) == ["one"]
    output.path.write_bytes(b"one\ntwo\n\xff\n")
    assert list(output.new_lines()) == ["two", "\ufffd"]
    assert list(output.new_lines()) == []
    output.path.write_bytes(b"anew\n")  # the file was full
    assert list(output.new_lines()) == ["anew"]
    output.path.write_bytes(b"anew\n" + b"x" * 20_000 + b"\n")
    assert [len(each) for _ in range(2) for each in output.new_lines()] == [16384, 20_000 - 16384]


async def test_what_a_server_prints_is_in_the_log_of_the_level_debug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "gateway.servers")
    async with lab(tmp_path) as found:
        answer = await found.backend.asked.get()
        (server,) = found.jobs.servers.values()
        server.output.path.write_text("loading the model\n")
        await found.jobs.look()
        assert f"job {server.name} prints: loading the model" in caplog.messages
        answer.set_result(False)


# How servers end


async def serving(found: Lab) -> StartedServer:
    """The first server, which serves."""
    (await found.backend.asked.get()).set_result(True)
    await found.backend.added.get()
    (server,) = found.jobs.servers.values()
    found.backend.waiting = 0
    return server


async def test_a_server_that_the_engine_ends_finishes_its_calls(tmp_path: Path) -> None:
    async with lab(tmp_path) as found:
        server = await serving(found)
        use = server.use = ServerUse()
        use.is_idle = False
        found.engine.reported["1"] = JobReport(JobState.ENDING, "maintenance", "127.0.0.1")
        for _ in range(2):
            await found.jobs.ask()
        assert (found.backend.addresses, server.phase) == ([], ServerPhase.DRAINING)
        assert (server.shown().reason, server.why) == ("maintenance", "the engine is ending its job")
        assert server.failure == JobFailure(f"job {server.name} (1) is being ended (maintenance)")
        found.fleet.call_waits()
        await settle()
        assert server.phase is ServerPhase.DRAINING
        found.backend.waiting = 1
        found.fleet.resize(settings(tmp_path, start_timeout=0.0))
        await until(lambda: bool(found.backend.failures))
        found.fleet.resize(settings(tmp_path))
        assert found.backend.failures[0] == (
            f"no server within 0 s: job {server.name} (1) is draining, being ended (maintenance); raise "
            "`servers.start_timeout` if starts take longer"
        )
        use.is_idle = True
        found.fleet.call_waits()
        await asyncio.wait_for(server.over.wait(), GENEROUS)
        assert found.engine.reported["1"].state is JobState.CANCELLED


async def test_a_call_that_failed_at_a_server_tells_why_the_server_is_gone(tmp_path: Path) -> None:
    async def failure_at(address: str) -> JobFailure | None:
        finding = spawn(found.fleet.failure_at(address))
        await skip(fleet_module.GONE_SECONDS)
        return await finding

    async with lab(tmp_path, min=1) as found:
        server = await serving(found)
        assert await failure_at("127.0.0.1:1") is None
        with socket.create_server(("127.0.0.1", server.port)):
            assert await failure_at(server.address) is None
        gone = f"job {server.name} (1) is running, but its server no longer accepts connections"
        address = server.address
        assert await failure_at(address) == JobFailure(gone)
        assert (found.backend.addresses, server.phase) == ([], ServerPhase.ENDING)
        await asyncio.wait_for(server.over.wait(), GENEROUS)
        assert await failure_at(address) == JobFailure(gone)


async def test_a_server_that_starts_for_a_configuration_before_is_ended(tmp_path: Path) -> None:
    async with lab(tmp_path) as found:
        answer = await found.backend.asked.get()
        (server,) = found.jobs.servers.values()
        found.backend.waiting, found.backend.is_closed = 0, True
        found.fleet.retire()
        answer.set_result(False)
        await found.fleet.retired()
        assert server.why == "the configuration has changed"
        assert found.engine.reported["1"].state is JobState.CANCELLED


async def test_an_adopted_server_waits_for_the_backend_that_uses_it(tmp_path: Path) -> None:
    save(tmp_path, SavedJob("lab-00000001", "7", "lab", "fake", "", "fits", 4242, "127.0.0.1:4242", 1.0))
    found = Lab(tmp_path)
    found.engine.reported["7"] = JobReport(JobState.RUNNING, host="127.0.0.1")
    found.fleet.start()
    await until(lambda: bool(found.fleet.reports()))
    await settle()
    assert [each.phase for each in found.fleet.reports()] == ["starting"]
    await found.close()
    assert found.engine.reported["7"].state is JobState.CANCELLED


async def test_an_unexpected_error_does_not_end_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet_module, "SLOW", 0.01)
    found = Lab(tmp_path)
    submit = found.jobs.submit

    def broken() -> None:
        monkeypatch.setattr(found.jobs, "submit", submit)
        raise KeyError("a slot")

    monkeypatch.setattr(found.jobs, "submit", broken)
    found.start()
    (await found.backend.asked.get()).set_result(False)
    assert "backend 'lab': unexpected error while managing its servers" in caplog.messages
    await found.close()


# Jobs whose submission is in progress


def submission(engine: Engine) -> tuple[asyncio.Event, asyncio.Event]:
    """Makes submissions wait: the first event is set when one has arrived, the second lets it go on."""
    submit, arrived, go = engine.submit, asyncio.Event(), asyncio.Event()

    async def waiting(job: Job) -> str:
        arrived.set()
        await go.wait()
        return await submit(job)

    engine.submit = waiting  # type: ignore[method-assign]
    return arrived, go


async def test_a_job_that_is_ended_before_it_is_submitted_is_cancelled_afterwards(tmp_path: Path) -> None:
    found = Lab(tmp_path)
    arrived, go = submission(found.engine)
    found.start()
    await arrived.wait()
    (server,) = found.jobs.servers.values()
    for why in ("the test ends it", "once more"):
        found.jobs.end(server, why)
    found.backend.waiting = 0
    go.set()
    await asyncio.wait_for(server.over.wait(), GENEROUS)
    assert (server.why, found.engine.reported["1"].state) == ("the test ends it", JobState.CANCELLED)
    await found.close()


async def test_a_job_whose_submission_ends_after_the_gateway_is_kept(tmp_path: Path) -> None:
    found = Lab(tmp_path, keep=True)
    arrived, go = submission(found.engine)
    found.start()
    await arrived.wait()
    closing = asyncio.ensure_future(found.close())
    await settle()
    go.set()
    await closing
    assert (saved(tmp_path), found.engine.reported["1"].state) == (["1"], JobState.RUNNING)
