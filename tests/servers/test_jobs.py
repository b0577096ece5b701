"""A fleet and its jobs, with an engine that the test answers for: what comes between a question and its answer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from gateway.servers import jobs as jobs_module
from gateway.servers import state_file
from gateway.servers.consumer import Use
from gateway.servers.engine import EngineError, Job, JobReport, JobState
from gateway.servers.fleet import StartedServers
from gateway.servers.jobs import Jobs
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import FailedStarts
from gateway.servers.started_server import JobFailure
from gateway.servers.state_file import SavedJob, StateFile
from tests.limits import GENEROUS


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
