"""Servers that a running gateway starts on real clusters, HyperQueue and SLURM. No test leaves a job at the engine."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from gateway.cli.options import catalog
from gateway.config import load_with_warnings
from gateway.core.log_limit import LogLimit
from gateway.runtime.app import Gateway
from gateway.servers import sizing, started_server
from gateway.servers.engines.hyperqueue import PythonClient
from tests.interop.processes import wait_until_stopped
from tests.limits import GENEROUS, until
from tests.servers.clusters import hyperqueue_process, slurm_is_missing, slurm_processes
from tests.servers.jobs import processes_with, until_no_process_with
from tests.servers.test_running_servers import (
    CONFIG,
    EVALUATE,
    SCRIPT,
    Running,
    busy_script,
    eight_values,
    evaluate,
    failure,
    gateway_process,
    job_script,
    script_of_the_real_server,
    server_of_process,
    serving,
)  # fmt: skip

pytestmark = pytest.mark.real
MISSING = slurm_is_missing()


def config_with(engine: str, folder: Path, keys: str = "max: 1") -> str:
    return CONFIG.replace("engine: process", engine).replace("FOLDER", str(folder)).replace("KEYS", keys)


class Cluster:
    """A running cluster: what tests ask of it and do to it beside the gateway."""

    engine: str
    keys: str
    """What `servers` has for it."""
    variable: str
    """The variable of a job that has its id."""

    controller: "subprocess.Popen[str] | subprocess.Popen[bytes]"

    def config(self, folder: Path, keys: str = "max: 1") -> str:
        return config_with(self.keys, folder, keys)

    def running(self, folder: Path, keys: str = "max: 1") -> AbstractAsyncContextManager[Running]:
        return serving(self.config(folder, keys))

    def script(self, folder: Path, call: str = "pass", before: str = "") -> None:
        """A job script as UM-Bridge's own, that runs `before` first, with a server that runs `call` in each call."""
        text = SCRIPT.replace("HQ_JOB_ID", self.variable)
        job_script(folder, text.replace("#!/bin/bash\n", f"#!/bin/bash\n{before}\n"), call)

    async def jobs(self) -> int:
        """How many jobs are not over."""
        raise NotImplementedError

    def end(self, job: str) -> None:
        """Tell the engine to end a job."""
        raise NotImplementedError

    async def check_that_nothing_is_left(self, folder: Path) -> None:
        jobs: int | None = None
        try:
            async with asyncio.timeout(GENEROUS):
                while jobs := await self.jobs():  # noqa: ASYNC110 - it happens at the engine
                    await asyncio.sleep(0.1)
                await until_no_process_with(str(folder))
        except TimeoutError:
            pytest.fail(f"left for {GENEROUS:g} s: {jobs} jobs and the processes {processes_with(str(folder))}")


class HyperQueueCluster(Cluster):
    engine, variable = "hyperqueue", "HQ_JOB_ID"

    def __init__(self, controller: "subprocess.Popen[str]", directory: Path) -> None:
        self.controller: subprocess.Popen[str] = controller
        self.directory = directory
        self.keys = f'engine: hyperqueue, directory: "{directory}"'

    async def jobs(self) -> int:
        asked = PythonClient(self.directory)
        try:
            known = await asked.jobs([str(each) for each in range(1, 1000)])
        finally:
            await asked.close()
        return sum(not each.completed for each in known.values())

    def add_worker(self, cores: int) -> None:
        assert self.controller.stdin is not None
        self.controller.stdin.write(f"{cores}\n")
        self.controller.stdin.flush()

    def end(self, job: str) -> None:
        # What a worker does when `hq job cancel` is called, which the Python client has no call for.
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                if f"HQ_JOB_ID={job}".encode() in variables and b"watcher.py" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGTERM)
            except OSError:
                continue


class SlurmCluster(Cluster):
    engine, variable, keys = "slurm", "SLURM_JOB_ID", "engine: slurm"

    def __init__(self, controller: "subprocess.Popen[bytes]") -> None:
        self.controller = controller

    async def jobs(self) -> int:
        words = ["squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING"]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)
        return len(done.stdout.splitlines())

    def end(self, job: str) -> None:
        subprocess.run(["scancel", job], check=True)


@contextmanager
def started(engine: str, cores: int = 4) -> Iterator[Cluster]:
    if engine == "hyperqueue":
        with hyperqueue_process(cores) as (process, directory):
            yield HyperQueueCluster(process, directory)
    else:
        with slurm_processes(cores) as (environment, daemons), pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            yield SlurmCluster(daemons["slurmctld"])


SLURM = pytest.param("slurm", marks=pytest.mark.skipif(MISSING is not None, reason=f"no SLURM: {MISSING}"))


@pytest.fixture(scope="module", params=["hyperqueue", SLURM])
def module_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with started(request.param) as cluster:
        yield cluster


@pytest.fixture
async def cluster(module_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(started_server, "_lines", LogLimit(started_server.log, lines=1000))
    monkeypatch.setattr(f"gateway.servers.engines.{module_cluster.engine}.POLL_SECONDS", 0.2)
    yield module_cluster
    await module_cluster.check_that_nothing_is_left(tmp_path)


async def job_of(gateway: Gateway) -> str:
    """The engine's id of the only job. A job may begin before the gateway has the answer that names it."""

    def ids() -> list[str]:
        return [each.id for each in gateway.state.status().backends["lab"].servers or () if each.id]

    await until(lambda: bool(ids()))
    (found,) = ids()
    return found


async def test_the_python_server_of_um_bridge_is_started_from_zero_by_a_job_script_of_its_form(
    cluster: Cluster, tmp_path: Path
) -> None:
    script_of_the_real_server(tmp_path, cluster.variable)
    async with cluster.running(tmp_path, "max: 2") as here:
        assert not await cluster.jobs()
        await eight_values(here.http)
        assert 1 <= await cluster.jobs() <= 2
    assert not await cluster.jobs()


async def test_a_server_without_calls_is_ended(cluster: Cluster, tmp_path: Path) -> None:
    cluster.script(tmp_path)
    async with cluster.running(tmp_path, "max: 1, idle: 0.2") as here:
        first = await evaluate(here.http)
        await here.log.until("has ended: no call for 0.2 s")
        assert not await cluster.jobs()
        assert await evaluate(here.http) != first


async def test_a_job_that_is_ended_at_the_engine_while_it_works(cluster: Cluster, tmp_path: Path) -> None:
    busy, stuck = busy_script(tmp_path, cluster.script)
    async with cluster.running(tmp_path) as here:
        call = asyncio.ensure_future(failure(here.http))
        await asyncio.to_thread(busy.read_bytes)
        job = await job_of(here.gateway)
        await asyncio.to_thread(cluster.end, job)
        text = await call
        assert f"({job}) " in text
        assert "a server of" in text  # the end of its output
        stuck.unlink()
        await evaluate(here.http)


async def test_a_job_that_is_ended_at_the_engine_before_its_server_is_there(cluster: Cluster, tmp_path: Path) -> None:
    go, began = tmp_path / "go", tmp_path / "began"
    os.mkfifo(began)
    cluster.script(tmp_path, before=f"[ -e {go} ] || {{ echo > {began}; sleep 987; }}")
    async with cluster.running(tmp_path) as here:
        call = asyncio.ensure_future(evaluate(here.http))
        await asyncio.to_thread(began.read_bytes)
        go.touch()
        await asyncio.to_thread(cluster.end, await job_of(here.gateway))
        assert "before it served" in await here.log.until("a server has failed")
        await call


async def test_a_job_that_is_being_ended_gets_no_more_calls(cluster: Cluster, tmp_path: Path) -> None:
    """Also if its server goes on answering until it is killed."""
    cluster.script(tmp_path, before="trap '' TERM")
    async with cluster.running(tmp_path, "max: 2") as here:
        first = await evaluate(here.http)
        await asyncio.to_thread(cluster.end, await job_of(here.gateway))
        await here.log.until("gets no more calls: the engine is ending its job")
        assert await evaluate(here.http) != first


async def test_a_job_that_no_node_can_run(cluster: Cluster, tmp_path: Path) -> None:
    """Calls get the engine's reason when `start_timeout` is over."""
    cluster.script(tmp_path)
    async with cluster.running(tmp_path, "max: 1, start_timeout: 4, resources: {cpus: 1000}") as here:
        text = await failure(here.http)
        assert "servers.start_timeout" in text
        reason = {"hyperqueue": "waiting for a worker; it needs cpus=1000", "slurm": "PartitionConfig"}
        assert reason[cluster.engine] in text
    if isinstance(cluster, HyperQueueCluster):  # the entry of a job that waits is left until a worker takes it
        await asyncio.to_thread(cluster.add_worker, 1000)


async def test_a_job_that_the_engine_refuses(cluster: Cluster, tmp_path: Path) -> None:
    """Calls get its words after a few attempts."""
    cluster.script(tmp_path)
    async with cluster.running(tmp_path, "max: 1, resources: {options: [--partition=absent]}") as here:
        text = await failure(here.http)
        assert "3 servers in a row failed to start" in text
        reason = {"hyperqueue": "--partition is not supported", "slurm": "invalid partition specified: absent"}
        assert reason[cluster.engine] in text


@pytest.mark.parametrize(
    ("engine", "what"), [("slurm", "SLURM's commands (sbatch, "), ("hyperqueue", "HyperQueue's Python client")]
)
async def test_an_engine_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, what: str
) -> None:
    """`gateway check` says so, and calls get an error soon."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("gateway.servers.engines.hyperqueue.is_installed", lambda: False)
    job_script(tmp_path)
    text = config_with(f"engine: {engine}", tmp_path)
    (tmp_path / "gateway.yaml").write_text(text)
    _, warnings = load_with_warnings(tmp_path / "gateway.yaml", catalog())
    (warning,) = (str(each) for each in warnings if "cannot start servers" in str(each))
    assert f"this machine cannot start servers: the engine '{engine}' needs {what}" in warning
    async with serving(text) as here:
        assert f"it needs {what}" in await failure(here.http)


@pytest.mark.parametrize("keep", [False, True])
async def test_a_gateway_that_was_killed_finds_its_jobs_again(cluster: Cluster, tmp_path: Path, keep: bool) -> None:
    cluster.script(tmp_path)
    text = cluster.config(tmp_path, f"max: 2, keep: {str(keep).lower()}")
    first = await server_of_process(tmp_path, text, signal.SIGKILL)
    async with gateway_process(tmp_path, text) as (process, http):
        assert await evaluate(http) == first
        assert await cluster.jobs() == 1
        process.terminate()
        await process.wait()
    assert await cluster.jobs() == keep
    assert (await server_of_process(tmp_path, text, signal.SIGKILL) == first) is keep
    # earlier jobs do not fit any more
    assert await server_of_process(tmp_path, cluster.config(tmp_path, "max: 2, resources: {cpus: 2}")) != first
    assert not await cluster.jobs()


async def test_a_gateway_that_is_killed_while_a_job_starts_finds_it_again(cluster: Cluster, tmp_path: Path) -> None:
    go, began = tmp_path / "go", tmp_path / "began"
    os.mkfifo(began)
    cluster.script(tmp_path, before=f"[ -e {go} ] || echo > {began}; until [ -e {go} ]; do sleep 0.05; done")
    async with gateway_process(tmp_path, cluster.config(tmp_path)) as (process, http):
        call = asyncio.ensure_future(http.post("/Evaluate", json=EVALUATE))
        await asyncio.to_thread(began.read_bytes)
        process.kill()
        await asyncio.gather(process.wait(), call, return_exceptions=True)
    go.touch()
    async with gateway_process(tmp_path, cluster.config(tmp_path)) as (process, http):
        await evaluate(http)
        assert await cluster.jobs() == 1
        process.terminate()
        await process.wait()


async def test_a_job_whose_submission_the_gateway_did_not_survive_is_found_or_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It was killed after the submission and before it could remember the id."""
    cluster.script(tmp_path)
    text = cluster.config(tmp_path, "max: 1, keep: true")
    await server_of_process(tmp_path, text, signal.SIGKILL)
    jobs = tmp_path / "state/jobs.json"
    saved = jobs.read_text()
    id_ = saved.partition('"id": "')[2].partition('"')[0]
    assert id_
    jobs.write_text(saved.replace(f'"id": "{id_}"', '"id": ""'))
    await server_of_process(tmp_path, text.replace("keep: true", "keep: false"))


@pytest.mark.parametrize("content", [b"", b'[{"name": "lab-00000'])
async def test_jobs_whose_gateway_was_killed_end_although_its_state_file_is_damaged(
    cluster: Cluster, tmp_path: Path, content: bytes
) -> None:
    cluster.script(tmp_path)
    text = cluster.config(tmp_path, "max: 1, keep: true")
    first = await server_of_process(tmp_path, text, signal.SIGKILL)
    (tmp_path / "state/jobs.json").write_bytes(content)
    async with serving(text.replace("keep: true", "keep: false")) as here:
        assert await evaluate(here.http) != first


async def test_jobs_of_the_engine_that_a_backend_had_before_are_ended(cluster: Cluster, tmp_path: Path) -> None:
    cluster.script(tmp_path)
    text = cluster.config(tmp_path, "max: 1, keep: true")
    first = await server_of_process(tmp_path, text, signal.SIGKILL)
    job_script(tmp_path)
    other = text.replace(cluster.keys, "engine: process").replace("keep: true", "keep: false")
    async with serving(other) as here:
        assert await evaluate(here.http) != first
        async with asyncio.timeout(GENEROUS):
            while await cluster.jobs():  # noqa: ASYNC110 - it happens at the engine
                await asyncio.sleep(0.1)
        await until(lambda: len(json.loads((tmp_path / "state/jobs.json").read_bytes())) == 1)


async def test_a_server_is_replaced_before_the_time_of_its_job_is_over(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "margin", lambda lifetime, call_seconds: lifetime - 3.0)
    cluster.script(tmp_path)
    async with cluster.running(tmp_path, "min: 1, max: 2, resources: {seconds: 60}") as here:
        first = await evaluate(here.http)
        await here.log.until(" serves at ")
        await here.log.until(" serves at ")
        await here.log.until("gets no more calls: its walltime is nearly over")
        assert await evaluate(here.http) != first


@asynccontextmanager
async def stopped(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The engine gives no answers meanwhile."""
    monkeypatch.setattr(f"gateway.servers.engines.{cluster.engine}.ANSWER", 1.0)
    cluster.controller.send_signal(signal.SIGSTOP)
    wait_until_stopped(cluster.controller.pid)
    try:
        yield
    finally:
        cluster.controller.send_signal(signal.SIGCONT)
        monkeypatch.setattr(f"gateway.servers.engines.{cluster.engine}.ANSWER", 30.0)


async def test_an_engine_that_is_down_for_a_while(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.script(tmp_path)
    async with cluster.running(tmp_path) as here:
        async with stopped(cluster, monkeypatch):
            call = asyncio.ensure_future(evaluate(here.http))
            assert "no answer within 1 s" in await here.log.until("the gateway cannot manage its servers")
            assert not call.done()
        first = await call
        async with stopped(cluster, monkeypatch):
            await here.log.until("the gateway cannot manage its servers")
            assert await evaluate(here.http) == first
        assert await evaluate(here.http) == first


async def test_a_hyperqueue_server_that_is_started_anew(tmp_path: Path) -> None:
    """It does not know the jobs of before, and counts its jobs from 1 again."""
    with hyperqueue_process(2) as (process, directory):
        cluster = HyperQueueCluster(process, directory)
        cluster.script(tmp_path)
        async with cluster.running(tmp_path) as here:
            first = await evaluate(here.http)
            assert await job_of(here.gateway) == "1"
            process.kill()
            await asyncio.to_thread(process.wait)
            with hyperqueue_process(2, directory):
                assert await evaluate(here.http) != first
                assert await job_of(here.gateway) == "1"
                await here.gateway.drain(0)
                assert not await cluster.jobs()
                await until_no_process_with(str(tmp_path))
