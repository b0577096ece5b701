"""The file in which a gateway remembers its jobs: whatever becomes of it, no job is forgotten."""

import asyncio
import json
import logging
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from gateway.servers.engine import EngineError
from gateway.servers.state_file import SavedJob, StateFile, name_for
from tests.limits import GENEROUS, until
from tests.running_gateway import config_of
from tests.servers.test_running_servers import (
    CONFIG,
    EVALUATE,
    SCRIPT,
    config,
    evaluate,
    failure,
    gone,
    job_script,
    processes,
    running,
    server_of_process,
    serving,
)  # fmt: skip

pytestmark = pytest.mark.long

COARSE = SavedJob("lab-00000001", "71", "lab", "slurm", "", "fits", 4242, "node1:4242", 1.5)
FINE = SavedJob("lab-00000002", "72", "lab", "slurm", "", "fits", 4243, "", 2.5)


def opened(folder: Path, *backends: str) -> StateFile:
    state = StateFile(folder)
    for each in backends or ("lab",):
        state.used_by(each)
    state.open()
    return state


def written(folder: Path) -> bytes:
    """A file with two jobs, as a gateway that was killed leaves it."""
    state = opened(folder)
    for each in (COARSE, FINE):
        state.job_folder(each.name).mkdir(parents=True)
        state.change(each)
    state.close()
    return (folder / "jobs.json").read_bytes()


def left(folder: Path, backend: str = "lab", *backends: str) -> list[SavedJob]:
    state = opened(folder, *backends)
    try:
        return state.left_for(backend)
    finally:
        state.close()


def test_jobs_are_as_they_were(tmp_path: Path) -> None:
    written(tmp_path)
    assert left(tmp_path) == [COARSE, FINE]


def test_every_job_is_known_by_its_folder_wherever_the_file_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = written(tmp_path)
    for size in range(len(whole)):
        caplog.clear()
        (tmp_path / "jobs.json").write_bytes(whole[:size])
        assert [each.name for each in left(tmp_path)] == [COARSE.name, FINE.name]
        (line,) = (each.getMessage() for each in caplog.records if each.levelno == logging.ERROR)
        assert f"{tmp_path}/jobs.json is unusable" in line
        assert (tmp_path / "jobs.json.unreadable").read_bytes() == whole[:size]


@pytest.mark.parametrize(
    "content",
    [
        "null", "{}", '{"version": 2, "jobs": []}', "[1]", '["a"]', "[{}]", '[{"name": 1}]', '[{"name": "../../etc"}]',
        '[{"name": "/etc-00000001"}]', '[{"name": "..-00000001/.."}]', "[" * 100000, "\x00", "[NaN]",
    ],
)  # fmt: skip
def test_what_is_no_list_of_jobs_is_kept_aside(tmp_path: Path, content: str) -> None:
    written(tmp_path)
    (tmp_path / "jobs.json").write_text(content)
    assert left(tmp_path) == [SavedJob(COARSE.name), SavedJob(FINE.name)]
    assert (tmp_path / "jobs.json.unreadable").read_text() == content


def test_what_can_neither_be_read_nor_kept_aside_is_an_error(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "jobs.json").write_text("{}")
    (tmp_path / "jobs.json.unreadable").mkdir()
    with pytest.raises(EngineError, match=r"jobs\.json cannot be used, nor moved away: Is a directory$"):
        left(tmp_path)
    (tmp_path / "jobs.json").unlink()
    shutil.rmtree(tmp_path / "jobs")
    (tmp_path / "jobs").touch()
    with pytest.raises(EngineError, match=r"jobs cannot be read: Not a directory$"):
        left(tmp_path)


def test_what_a_newer_version_adds_is_left_out_and_what_it_changes_is_as_if_unknown(tmp_path: Path) -> None:
    jobs = json.loads(written(tmp_path))
    jobs[0] |= {"cluster": "north", "address": ["node1", 4242]}
    jobs[1] |= {"port": "4243", "submitted": float("nan")}
    del jobs[1]["fits"]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    found = [
        SavedJob(COARSE.name, "71", "lab", "slurm", "", "fits", 4242, "", 1.5),
        SavedJob(FINE.name, "72", "lab", "slurm", "", "", 0, "", 0.0),
    ]
    assert left(tmp_path) == found


def test_a_backend_takes_its_own_jobs_and_those_of_backends_that_are_gone(tmp_path: Path) -> None:
    state = opened(tmp_path)
    own, other, gone_, named = (
        SavedJob(name_for(backend, f"0000000{at}"), "7", backend, "slurm")
        for at, backend in enumerate(("lab", "other", "gone", "named"))
    )
    for each in (own, other, gone_):
        state.change(each)
    state.job_folder(named.name).mkdir(parents=True)
    state.close()
    assert left(tmp_path, "lab", "lab", "other", "named") == [own, gone_]
    assert left(tmp_path, "other", "lab", "other", "named") == [other, gone_]
    assert left(tmp_path, "named", "lab", "other", "named") == [gone_, SavedJob(named.name)]


def test_what_cannot_be_read_stays_as_it_is_until_it_can(tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    written(tmp_path)
    file.rename(tmp_path / "kept")
    file.mkdir()
    state = StateFile(tmp_path)
    state.used_by("lab")
    for _ in range(2):
        with pytest.raises(EngineError, match=r"jobs\.json cannot be read: Is a directory"):
            state.open()
    file.rmdir()
    (tmp_path / "kept").rename(file)
    state.open()
    assert state.left_for("lab") == [COARSE, FINE]
    state.close()


# Running gateways

KEPT = "max: 1, keep: true"


async def kept_server(folder: Path) -> int:
    """The server that a gateway has left which was killed."""
    server = await server_of_process(folder, config(folder, KEPT), signal.SIGKILL)
    assert server in processes(folder)
    return server


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def changed(file: Path, **members: str) -> None:
    """Give these members to each job of the file."""
    file.write_text(json.dumps([{**each, **members} for each in json.loads(file.read_bytes())]))


@pytest.mark.parametrize("damage", [cut, Path.unlink, partial(changed, backend="gone")])
async def test_a_job_that_the_file_does_not_tell_enough_of_is_ended(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    job_script(tmp_path)
    server = await kept_server(tmp_path)
    damage(tmp_path / "state/jobs.json")
    async with serving(config(tmp_path, KEPT)) as here:
        assert await evaluate(here.http) != server
        assert server not in processes(tmp_path)
        await here.gateway.reload(here.gateway.state.config.model_copy(update={"backends": {}, "routes": ()}))
        await gone(tmp_path)


async def test_a_job_whose_submission_the_gateway_did_not_survive_is_found_by_its_name(tmp_path: Path) -> None:
    job_script(tmp_path)
    server = await kept_server(tmp_path)
    changed(tmp_path / "state/jobs.json", id="")
    assert await server_of_process(tmp_path, config(tmp_path, KEPT), signal.SIGKILL) == server
    assert await server_of_process(tmp_path, config(tmp_path)) != server
    assert not processes(tmp_path)


async def until_served(http: httpx.AsyncClient) -> None:
    """The next start is due a while after the last one that failed."""
    async with asyncio.timeout(GENEROUS):
        while (await http.post("/Evaluate", json=EVALUATE)).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_folder_that_cannot_be_used_is_named_in_the_log_and_in_errors(tmp_path: Path) -> None:
    job_script(tmp_path)
    (tmp_path / "state").write_text("")
    async with running(tmp_path, "max: 1, start_timeout: 0.5") as here:
        told = await failure(here.http)
        assert f"the folder {tmp_path}/state (servers.state) is unusable: File exists" in told
        await here.gateway.reload(config_of(config(tmp_path)))  # with time for a server to start
        (tmp_path / "state").unlink()
        await until_served(here.http)
        await here.log.until("the gateway cannot manage its servers: the folder")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def config_on(disk: Path, folder: Path, keys: str) -> str:
    """A configuration with its state on `disk`, and the script in `folder`."""
    return CONFIG.replace("FOLDER/state", f"{disk}/state").replace("FOLDER", str(folder)).replace("KEYS", keys)


def fill(disk: Path) -> None:
    with (disk / "full").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


async def test_a_full_disk_before_a_job_is_submitted(tmp_path: Path, small_disk: Path) -> None:
    """It is not submitted, since nobody would know of it."""
    job_script(tmp_path)
    (small_disk / "state").mkdir()
    (small_disk / "state/lock").touch()
    fill(small_disk)
    async with serving(config_on(small_disk, tmp_path, KEPT)) as here:
        assert "cannot be submitted: No space left on device" in await failure(here.http)
        assert not processes(small_disk)
        assert not list((small_disk / "state").glob("processes/*"))
        (small_disk / "full").unlink()
        await until_served(here.http)
        await here.gateway.reload(here.gateway.state.config.model_copy(update={"backends": {}, "routes": ()}))
        await gone(small_disk)


async def test_a_disk_that_is_full_after_a_job_was_submitted(tmp_path: Path, small_disk: Path) -> None:
    """The gateway goes on; what it could not write is written when there is room."""
    go, file = tmp_path / "go", small_disk / "state/jobs.json"
    job_script(tmp_path, SCRIPT.replace("#!/bin/bash\n", f"#!/bin/bash\nuntil [ -e {go} ]; do :; done\n"))
    async with running(small_disk, text=config_on(small_disk, tmp_path, "max: 1")) as here:
        asked = asyncio.ensure_future(evaluate(here.http))
        await here.log.until("is submitted to the engine process")
        fill(small_disk)
        go.touch()
        await here.log.until(f"writing {file} failed (No space left on device)")
        await asked
        assert json.loads(file.read_bytes())[0]["address"] == ""
        (small_disk / "full").unlink()
        await until(lambda: bool(json.loads(file.read_bytes())[0]["address"]))
