"""Processes whose parents have ended, in a container whose first process is the gateway."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRON, ROOT, written
from tests.limits import GENEROUS

NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
PROGRAM = """
import asyncio, os, sys
import uvloop
from gateway.cli import orphans

async def main():
    assert os.getpid() == 1
    task = asyncio.create_task(orphans.reap(0.01))
    parents = [await asyncio.create_subprocess_exec("sh", "-c", "for n in 1 2 3; do sh -c 'echo $$' & done; exit 5",
               stdout=asyncio.subprocess.PIPE) for _ in range(5)]
    said = [await each.communicate() for each in parents]
    left = {int(pid) for out, _ in said for pid in out.split()}
    assert len(left) == 15
    assert [each.returncode for each in parents] == [5] * 5
    while any(os.path.exists(f"/proc/{pid}") for pid in left):
        await asyncio.sleep(0.01)
    late = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
    assert await late.wait() == 7
    task.cancel()

(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
print("reaped")
"""
SERVING = """
import os, runpy, signal, subprocess, sys, threading, time
from gateway.cli import orphans

def leave_orphan():
    pid = int(subprocess.run(["sh", "-c", "sh -c 'echo $$' &"], stdout=subprocess.PIPE).stdout)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)
    print("reaped", flush=True)
    os.kill(1, signal.SIGTERM)

orphans.SECONDS = 0.01
threading.Thread(target=leave_orphan, daemon=True).start()
runpy.run_module("gateway", run_name="__main__")
"""
CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
workers: WORKERS
backends: {lab: {protocol: v2-rest, endpoints: ["127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""


def ended(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode:
        pytest.skip("PID namespaces are not allowed here")
    command = [*NAMESPACE, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, timeout=GENEROUS, check=False)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_orphans_do_not_stay_and_the_loop_knows_how_its_own_processes_ended(loop: str) -> None:
    done = ended(PROGRAM, loop)
    assert (done.returncode, done.stdout) == (0, "reaped\n"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("command", ["serve", "workers", "reference"])
def test_commands_that_serve_reap_orphans(tmp_path: Path, command: str) -> None:
    path = written(tmp_path, CONFIG.replace("WORKERS", "2" if command == "workers" else "1"))
    arguments: tuple[str, ...] = ("serve", "--config", path)
    if command == "reference":
        arguments = ("reference", "--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "double")
    done = ended(SERVING, *arguments)
    assert done.returncode == 0, done.stderr
    assert "reaped" in done.stdout
