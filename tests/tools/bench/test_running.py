"""The processes of a generator: what each is told, what it tells, and how it ends."""

import gc
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

import numpy as np
import pytest

from gateway.client.settings import ServerArguments
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tasks import spawn
from gateway.core.tensors import tensor
from gateway.tools.bench.load import Plan
from gateway.tools.bench.measured import Measured
from gateway.tools.bench.running import LoadJob, ProcessesRun, RunFailed, _work
from gateway.tools.bench.target import Question
from tests.client.servers import served
from tests.interop.processes import free_port
from tests.limits import until
from tests.running_gateway import reference

T = TypeVar("T")


def job(address: str, seconds: float | None = None, requests: int | None = None) -> LoadJob:
    x = tensor("x", np.array([[1.5]]))
    request = Request(Operation.INFER, "double", inputs=(replace(x, data=bytes(x.data)),))
    plan = Plan(0.0, "constant", 2, seconds, requests, 0.0)
    return LoadJob(ServerArguments(address), Question(request, "refuse", None, 0), plan, None, 1)


def talked(load: LoadJob, talk: "Callable[[Connection[Any, Any]], T]") -> T:
    """Run the program of one process here, while `talk` speaks with it as the first process does."""
    here, there = Pipe()
    before = signal.getsignal(signal.SIGINT)

    def other() -> T:
        try:
            return talk(here)
        except BaseException:
            here.close()  # which ends the process
            raise

    with closing(here), closing(there), ThreadPoolExecutor() as pool:
        result = pool.submit(other)
        try:
            _work(load, there)
        finally:
            signal.signal(signal.SIGINT, before)
        return result.result()


def test_a_process_begins_when_told_and_tells_how_far_it_is_until_it_is_stopped() -> None:
    def talk(pipe: "Connection[Any, Any]") -> list[Any]:
        heard = [pipe.recv()]
        pipe.send("stop")  # before it began, which changes nothing
        pipe.send("go")
        while heard[-1] in ("ready", (0, 0)):
            heard.append(pipe.recv())
        pipe.send("stop")
        while not isinstance(heard[-1], Measured):
            heard.append(pipe.recv())
        return heard

    with served("v2-rest", "double") as address:
        first, *reports, measured = talked(job(address, seconds=1000), talk)
    assert (first, measured.errors, measured.seconds < 900) == ("ready", {}, True)
    assert 0 < reports[-1][0] <= measured.requests


def test_a_process_tells_why_it_failed() -> None:
    address = f"127.0.0.1:{free_port()}"
    told = talked(job(f"v2-rest://{address}"), lambda pipe: pipe.recv())
    assert isinstance(told, RunFailed)
    assert str(told) == f"a process of the generator failed: http://{address}: connection refused"


def test_a_process_ends_if_the_first_process_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    def talk(pipe: "Connection[Any, Any]") -> None:
        assert pipe.recv() == "ready"
        pipe.close()

    with served("v2-rest", "double") as address, pytest.raises(SystemExit) as ended:
        talked(job(address), talk)
    assert ended.value.code == 1
    del ended
    gc.collect()
    assert caplog.text == ""  # no task is left to the collector, which would say so on standard error


@pytest.mark.long
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_the_first_process_ends_the_others_and_notices_if_one_dies(how: str) -> None:
    async with reference("v2-rest", "double") as place:
        run = ProcessesRun(job(f"v2-rest://{place.rpartition('://')[2]}", seconds=1000), 1)
        try:
            await run.prepare()
            [process] = multiprocessing.active_children()
            running = spawn(run.run())
            await until(lambda: run.ended()[0] > 0)
            if how == "stopped":
                run.stop()
                measured = await running
                assert (run.ended(), measured.errors) == ((measured.requests, 0), {})
            else:
                process.kill()
                with pytest.raises(RunFailed, match=r"^a process of the generator ended$"):
                    await running
        finally:
            await run.close()
        assert multiprocessing.active_children() == []
