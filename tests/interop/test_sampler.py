"""Eight chains of tinyDA on an empty cluster, with the files that docs/hpc.md tells a scientist to take."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from gateway.servers.engines.hyperqueue import PythonClient
from tests.documents.pages import ROOT
from tests.interop.processes import clean_environment, eventually, free_port, start_gateway
from tests.peers.build import require
from tests.servers.clusters import hyperqueue_cluster, slurm_cluster, slurm_is_missing
from tests.servers.jobs import processes_with

EXAMPLES = ROOT / "config/examples"
MOST, IDLE, DRAWS = 4, 2, 30
CORES = 8
"""More than MOST: the gateway bounds the servers, and not the cluster."""

COMPUTING = "        time.sleep(SECONDS)"
# A machine may be so slow that one server could answer all calls before a second one is ready.
UNTIL_TWO_ARE_CALLED = """
        import pathlib
        here = pathlib.Path(__file__).parent
        (here / f"called-{os.getpid()}").touch()
        while len(list(here.glob("called-*"))) < 2:
            time.sleep(SECONDS)
"""

# The same program with the model's function in place of the model behind an address, and both compared.
DIRECT = f"""
import numpy, model, sample
def direct():
    return lambda parameters: numpy.array(model.decay(*parameters.tolist()))
direct, chains = sample.chains(direct, {DRAWS}), numpy.load("chains.npy")
print(chains.shape, chains.dtype, chains.tobytes() == direct.tobytes(), len({{each.tobytes() for each in chains}}))
"""


def alive_on_hyperqueue(directory: Path) -> int:
    """The jobs of a cluster that are not over, as HyperQueue itself counts them; their ids are 1, 2, 3, ..."""

    async def ask() -> int:
        client = PythonClient(directory)
        try:
            known = await client.jobs([str(each) for each in range(1, 33)])
        finally:
            await client.close()
        return sum(not (each.completed or each.failed) for each in known.values())

    return asyncio.run(ask())


def alive_on_slurm() -> int:
    """The jobs that wait or run, as SLURM counts them."""
    listed = subprocess.run(["squeue", "--noheader", "--format=%i"], capture_output=True, text=True, check=True)
    return len(listed.stdout.split())


@contextmanager
def hyperqueue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    with hyperqueue_cluster(CORES) as directory:
        monkeypatch.setenv("HQ_SERVER_DIR", str(directory))
        yield lambda: alive_on_hyperqueue(directory)


@contextmanager
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    if reason := slurm_is_missing():
        pytest.skip(reason)
    with slurm_cluster(CORES) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield alive_on_slurm


@contextmanager
def watched(alive: Callable[[], int]) -> Iterator[list[int]]:
    """The numbers of jobs that were alive at the engine, one for each look."""
    seen, done = list[int](), threading.Event()

    def look() -> None:
        while not done.wait(0.5):
            seen.append(alive())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        done.set()
        looking.join()


def run(folder: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [str(require("sampler") / "bin/python"), *words],
        cwd=folder,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("engine", [hyperqueue, slurm], ids=lambda each: each.__name__)
def test_chains_on_an_empty_cluster_are_those_of_direct_evaluation(
    engine: Callable[[pytest.MonkeyPatch], AbstractContextManager[Callable[[], int]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab, programs = tmp_path / "lab", tmp_path / "bin"
    shutil.copytree(EXAMPLES / "hpc", lab)
    model = (lab / "model.py").read_text()
    assert model.count(COMPUTING) == 1
    (lab / "model.py").write_text(model.replace(COMPUTING, f"{COMPUTING}\n{UNTIL_TWO_ARE_CALLED}"))
    programs.mkdir()
    (programs / "hostname").write_text("#!/bin/sh\necho 127.0.0.1\n")
    (programs / "hostname").chmod(0o755)
    home = os.environ["HOME"]
    monkeypatch.setenv("PATH", f"{programs}:{require('umbridge') / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    addresses = {"127.0.0.1:4242": f"127.0.0.1:{free_port()}", "127.0.0.1:9090": f"127.0.0.1:{free_port()}"}
    science = addresses["127.0.0.1:4242"]
    text = re.sub(r"127\.0\.0\.1:\d+", lambda at: addresses[at[0]], (EXAMPLES / f"{engine.__name__}.yaml").read_text())
    text = re.sub(r"idle: \d+", f"idle: {IDLE}", text)
    assert f"max: {MOST} " in text
    with engine(monkeypatch) as alive:
        gateway = start_gateway(text, tmp_path / "gateway", Path(sys.executable))
        try:
            assert alive() == 0
            with watched(alive) as seen:
                printed = run(lab, "sample.py", f"http://{science}", str(DRAWS), HOME=home)
                assert printed.splitlines()[-1].startswith(f"(8, {DRAWS + 1}, 2) mean ")
            assert len(list(lab.glob("called-*"))) > 1  # on a slow machine, not all jobs start in time
            assert max(seen) <= MOST
            assert eventually(lambda: alive() == 0, 30), gateway.output()
            mark = f"UMBRIDGE_LOADBALANCER_COMM_FILEDIR={tmp_path}"
            assert eventually(lambda: not processes_with(mark), 30), processes_with(mark)
        finally:
            gateway.stop()
    assert run(lab, "-c", DIRECT, HOME=home).splitlines()[-1] == f"(8, {DRAWS + 1}, 2) float64 True 8"
