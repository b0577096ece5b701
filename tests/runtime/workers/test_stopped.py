"""Processes of a gateway with several workers that are stopped (SIGSTOP): they hold connections, and notice nothing."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from gateway.runtime.process import process_state
from tests.cli.commands import started
from tests.runtime.workers.served import Served, ended
from tests.runtime.workers.test_serving import all_answer, config

pytestmark = pytest.mark.long


def test_only_a_process_that_was_stopped_is() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            assert process_state(process.pid) != "T"
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert process_state(process.pid) == "T"
        finally:
            process.kill()
    assert process_state(process.pid) != "T"


async def test_a_worker_that_is_stopped_is_killed_and_started_again(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(config())
    with started("serve", "--config", str(tmp_path / "gateway.yaml"), stderr=subprocess.PIPE) as (process, lines):
        assert process.stderr is not None
        gateway = Served(process, lines)
        stopped = max(gateway.workers)
        os.kill(stopped, signal.SIGSTOP)
        text = ""
        while "runs again" not in text:
            text = await asyncio.to_thread(process.stderr.readline)
            assert text, "the gateway has ended"
            assert "is blocked" not in text
        await ended({stopped})
        await all_answer(gateway)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGCONT])
async def test_no_worker_outlives_its_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    """Also one that is stopped, and would keep the addresses from the next gateway."""
    (tmp_path / "gateway.yaml").write_text(config())
    with started("serve", "--config", str(tmp_path / "gateway.yaml")) as (process, lines):
        workers = Served(process, lines).workers
        assert len(workers) == 2
        os.kill(max(workers), number)
        process.kill()
        await ended(workers)
