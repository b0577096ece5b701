"""Real UM-Bridge servers that announce themselves by files, as the jobs of an HPC system do, and end."""

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.exchanges import listening
from tests.interop.processes import Server, eventually, start_umbridge
from tests.interop.real_clients import umbridge

CONFIG = """
listeners: [{{name: http, bind: "127.0.0.1:{http}", protocols: [umbridge]}}]
backends: {{cluster: {{protocol: umbridge, discovery: {{files: "{folder}/url-*.txt", interval: 0.1}}}}}}
routes: [{{match: {{model: "*"}}, backend: cluster}}]
"""
EVALUATE = {"op": "evaluate", "model": "double", "input": [[1.0, 2.0, 3.0]]}
DOUBLED = [[2.0, 4.0, 6.0]]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Server]]:
    started = [start_umbridge(tmp_path / f"job-{number}") for number in range(2)]
    yield started
    for job in started:
        job.stop()


def announce(job: Server, folder: Path, number: int) -> Path:
    """What the end of a job's script does."""
    file = folder / f"url-{number}.txt"
    subprocess.run(["sh", "-c", f'echo "{job.url}" > "{file}"'], check=True)
    return file


def test_jobs_come_and_end_while_clients_evaluate(tmp_path: Path, jobs: list[Server]) -> None:
    folder = tmp_path / "urls"
    folder.mkdir()
    files = [announce(job, folder, number) for number, job in enumerate(jobs)]
    with listening(CONFIG, tmp_path / "gateway", folder=folder) as addresses:
        gateway, url = addresses.gateway, f"http://{addresses['http']}"
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(umbridge, url, {"op": "parallel", "clients": [[EVALUATE] * 800] * 4})
            assert umbridge(url, EVALUATE) == [DOUBLED]  # by then the other clients have begun as well
            files[0].unlink()
            assert eventually(lambda: f"endpoint {jobs[0].url} is closed" in gateway.output(), 60)
            jobs[0].process.signal(signal.SIGKILL)
            jobs.append(start_umbridge(tmp_path / "job-2"))
            announce(jobs[2], folder, 2)
            assert eventually(lambda: f"added {jobs[2].url}; it has 2 now" in gateway.output(), 60)
            assert not load.done(), "the load was over before the jobs had changed"
            [results] = load.result()
        assert [answer for each in results for answer in each] == [DOUBLED] * 3200
        # A node that crashes leaves its file behind.
        jobs[1].process.signal(signal.SIGKILL)
        jobs[1].process.wait(60)
        assert umbridge(url, *[EVALUATE] * 20) == [DOUBLED] * 20
        files[1].unlink()
        assert eventually(lambda: f"endpoint {jobs[1].url} is closed" in gateway.output(), 60)
        assert umbridge(url, EVALUATE) == [DOUBLED]
