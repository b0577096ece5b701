"""HyperQueue and SLURM for tests, each a whole cluster on this machine."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HYPERQUEUE = """
import os, signal, sys
from hyperqueue import LocalCluster
from hyperqueue.cluster import WorkerConfig
cluster = LocalCluster(sys.argv[2])
cores = int(sys.argv[1])
if cores:
    cluster.start_worker(WorkerConfig(cores=cores))
print("ready", flush=True)
sys.stdin.read()
cluster.stop()
os._exit(0)
"""


@contextmanager
def hyperqueue_cluster(cores: int) -> Iterator[Path]:
    """A HyperQueue server with one worker of so many cores (none for 0). Yields the server's folder.

    It is a process of its own: HyperQueue's threads do not end with the interpreter that they run in.
    """
    with hyperqueue_process(cores) as (_, directory):
        yield directory


@contextmanager
def hyperqueue_process(cores: int) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """The same with its process, which a test may end or stop."""
    folder = Path(tempfile.mkdtemp(prefix="hyperqueue-"))
    process = subprocess.Popen(
        [sys.executable, "-c", HYPERQUEUE, str(cores), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert "ready\n" in iter(process.stdout.readline, ""), "the HyperQueue server has not started"
        yield process, folder
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)
