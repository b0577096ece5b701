"""The watcher of a job. It reads from a folder which command to run, and writes there how the command ended.

Engines start it without `site`, which coverage needs; these tests start it with `site`.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.servers.watcher import ExitReason, LeaseFile, start_time, write_state
from tests.interop.processes import eventually
from tests.limits import GENEROUS

LEASE = "keep"
WAITS = "echo begun; exec sleep 600"


class Watched:
    """A folder, and the watcher that runs its job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, script: str | list[str], lease: str = LEASE, **more: Any) -> "subprocess.Popen[bytes]":
        """Write the job and its lease, and start the watcher. `more` overrides the job's defaults."""
        command = ["sh", "-c", script] if isinstance(script, str) else script
        job = {"command": command, "output": str(self.folder / "out"), "output_bytes": 2**20, "memory": None}
        job |= {"seconds": None, "grace": 0.2, "stdin": False, **more}
        (self.folder / "job.json").write_text(json.dumps(job))
        if lease:
            (self.folder / "lease").write_text(lease)
        return self.again()

    def again(self) -> "subprocess.Popen[bytes]":
        """Start a watcher for the job that is in the folder."""
        self.close()
        command = [sys.executable, "-m", "gateway.servers.watcher", str(self.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        return self.process

    def ended(self) -> dict[str, Any]:
        """What the watcher wrote at its end."""
        assert self.process is not None
        self.process.wait(GENEROUS)
        return self.state

    def close(self) -> None:
        """End the watcher, which ends its job."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.terminate()
            self.process.communicate(timeout=GENEROUS)

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "state.json").read_text()))

    @property
    def output(self) -> str:
        path = self.folder / "out"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("script", "code", "expected"),
    [
        ("echo hello; echo error >&2", 0, {"exit_code": 0, "signal": None}),
        ("exit 3", 3, {"exit_code": 3, "signal": None}),
        ("kill -KILL $$", 128 + 9, {"exit_code": None, "signal": 9}),
    ],
)
def test_a_job_that_ends_by_itself(watched: Watched, script: str, code: int, expected: dict[str, Any]) -> None:
    assert watched.start(script).wait(GENEROUS) == code
    state = watched.ended()
    assert {key: state[key] for key in expected} == expected
    assert (state["why"], state["started"] <= state["ended"]) == (ExitReason.ITSELF, True)
    assert watched.output == ("hello\nerror\n" if code == 0 else "")


def test_a_command_that_does_not_start(watched: Watched) -> None:
    watched.start(["/no/such/program"])
    state = watched.ended()
    assert state["why"].startswith(f"{ExitReason.NOT_STARTED}: ")
    assert (state["started"], state["exit_code"]) == (None, None)


def test_a_job_runs_only_once(watched: Watched) -> None:
    watched.start("echo once")
    watched.ended()
    watched.again()
    assert watched.ended()["why"] == ExitReason.AGAIN
    assert watched.output == "once\n"


def test_a_job_without_a_lease_does_not_start(watched: Watched) -> None:
    watched.start("echo begun", lease="")
    state = watched.ended()
    assert (state["why"], state["started"], watched.output) == (ExitReason.CANCELLED, None, "")


def cancel(watched: Watched) -> None:
    (watched.folder / "lease").unlink()


def end_by_engine(watched: Watched) -> None:
    assert watched.process is not None
    watched.process.send_signal(signal.SIGTERM)


def close_input(watched: Watched) -> None:
    assert watched.process is not None
    assert watched.process.stdin is not None
    watched.process.stdin.close()
    watched.process.stdin = None


def abandon(watched: Watched) -> None:
    """From now on, the lease must change within a tenth of a second."""
    (watched.folder / "lease").write_text("0.1 1")


@pytest.mark.parametrize(
    ("stdin", "act", "grace", "why"),
    [
        (False, cancel, 1, ExitReason.CANCELLED),
        (False, end_by_engine, 1, ExitReason.ENGINE),
        (True, close_input, 1, ExitReason.ABANDONED),
        (False, abandon, 1, ExitReason.ABANDONED),
        (False, cancel, 0, ExitReason.CANCELLED),  # as a watcher that the machine stops for longer than the grace
    ],
    ids=["cancelled", "by the engine", "input closed", "lease not renewed", "late"],
)
def test_a_job_that_is_ended_takes_its_processes_along(
    watched: Watched, stdin: bool, act: Callable[[Watched], None], grace: int, why: str
) -> None:
    """The job has a process that ignores SIGTERM and whose parent is gone."""
    orphan = "(sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' &)"
    watched.start(f"{orphan}; while :; do sleep 600; done", stdin=stdin, grace=grace)
    assert eventually(lambda: watched.output.endswith("\n"), GENEROUS)
    act(watched)
    assert watched.ended()["why"] == why
    assert eventually(lambda: not start_time(int(watched.output)), GENEROUS)


def test_a_job_ends_when_its_time_is_over(watched: Watched) -> None:
    watched.start("exec sleep 600", seconds=0.1)
    state = watched.ended()
    assert state["why"] == ExitReason.TIME
    assert not start_time(state["group"])


def test_output_begins_anew_in_a_full_file(watched: Watched) -> None:
    watched.start([sys.executable, "-c", "print('x' * 300_000)"], output_bytes=100_000)
    watched.ended()
    assert watched.output.endswith("x\n")
    assert len(watched.output) + (watched.folder / "out.1").stat().st_size <= 300_001
    assert (watched.folder / "out.1").stat().st_size > 100_000


def test_a_full_file_keeps_its_output_if_nothing_follows(watched: Watched) -> None:
    """The output of a job that failed is in the error that clients get."""
    watched.start("printf 123456789", output_bytes=8)
    watched.ended()
    assert watched.output == "123456789"


def test_a_job_has_no_more_memory_than_it_may(watched: Watched) -> None:
    watched.start([sys.executable, "-c", "bytes(2**30)"], memory=2**29)
    assert watched.ended()["exit_code"] == 1
    assert "MemoryError" in watched.output


def test_a_job_ends_with_a_watcher_that_is_killed(watched: Watched) -> None:
    process = watched.start(WAITS)
    assert eventually(lambda: watched.output == "begun\n" and (watched.folder / "state.json").exists(), GENEROUS)
    group = watched.state["group"]
    process.kill()
    process.wait(GENEROUS)
    assert eventually(lambda: not start_time(group), GENEROUS)


def test_a_lease_that_cannot_be_read_for_a_moment_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    path.write_text("1000 1")
    lease = LeaseFile(path)
    assert lease.lost() is None
    path.unlink()
    path.mkdir()  # stands for an error of the file system
    assert lease.lost() is None
    path.rmdir()
    assert lease.lost() == ExitReason.CANCELLED


def test_output_on_a_full_disk_is_lost_and_the_job_goes_on(watched: Watched) -> None:
    watched.start(f"echo lost; touch {watched.folder}/after", output="/dev/full")
    assert (watched.ended()["exit_code"], (watched.folder / "after").exists()) == (0, True)


def test_a_state_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = tmp_path / "absent"
    write_state(absent, why="")
    told = f"watcher: cannot write {absent}/state.json: [Errno 2] No such file or directory: '{absent}/state.new'\n"
    assert capsys.readouterr().err == told
