"""A worker that cannot be started is an error that the supervisor knows, so that it tries again."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.assembly.assembly import RequestsInFlight
from gateway.runtime.workers import supervisor
from gateway.runtime.workers.owner import Generation
from gateway.runtime.workers.supervisor import WorkerError, WorkerProcess
from tests.descriptors import open_descriptors


async def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors: list[int] = []

    async def fail(*_: object, pass_fds: tuple[int, ...], **__: object) -> None:
        descriptors.extend(pass_fds)
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    before = open_descriptors()
    with pytest.raises(WorkerError, match="worker 2 failed to start: Resource temporarily unavailable"):
        await WorkerProcess(stub(), 2).start()
    assert descriptors
    assert open_descriptors() == before


async def test_a_process_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SECONDS_TO_START", 0.2)
    create = asyncio.create_subprocess_exec

    async def silent(*_: object, **more: Any) -> asyncio.subprocess.Process:
        return await create("sleep", "60", **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", silent)
    worker = WorkerProcess(stub(), 1)
    try:
        with pytest.raises(WorkerError, match=r"worker 1 was not ready within 0\.2 s"):
            await worker.start()
    finally:
        worker.kill()
        await worker.ended()


def stub() -> Any:
    """What a worker asks of its supervisor while it starts."""
    return SimpleNamespace(
        gateway=None,
        config=None,
        generation=Generation(0, {}, RequestsInFlight()),
        drained=[],
        learned=id,
        switched=id,
        is_backend_ready=id,
        reloading=asyncio.Lock(),
        shared_policies=SimpleNamespace(take=id),
    )
