"""Runs HyperQueue's Python client in a separate process. The engine starts the process with `python
hyperqueue_client.py [FOLDER]`.

The client needs a separate process because the gateway can kill a process in any state. The client's calls block
without a timeout, a call that hangs delays the exit of the process, and concurrent calls make the Rust code panic. The
process reads one JSON object per line from stdin, and responds to each object with one line on stdout: `{"ok": RESULT}`
or `{"error": TEXT}`.

- `{"ask": "submit", ...}` with `name`, `args`, `cwd`, `env`, `stderr`, `cpus`, `resources`, `nodes`, `min_time`
  (seconds or null), `priority`: returns the id of the job.
- `{"ask": "jobs", "ids": [...]}`: returns `[completed, finished, failed, error]` for each id that HyperQueue
  recognizes. The values are whether the job has ended, how many of its tasks succeeded and failed, and HyperQueue's
  message for the failures.

Each request uses a new connection, because the server might have restarted. Connecting takes a tenth of a millisecond.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hyperqueue import Client, Job
from hyperqueue.ffi.protocol import ResourceRequest

SECONDS = 60
"""Maximum duration of one call, in seconds. After this time, the process exits by itself, even if its gateway has
died."""


class _ReportedError(Exception):
    """An exception for leaving `wait_for_jobs`, which reports the progress before it waits."""


def submit(client: Any, asked: dict[str, Any]) -> str:
    minimum = None if asked["min_time"] is None else timedelta(seconds=asked["min_time"])
    request = ResourceRequest(
        n_nodes=asked["nodes"], cpus=asked["cpus"], resources=asked["resources"], min_time=minimum
    )
    job = Job(name=asked["name"], max_fails=0)
    job.program(
        asked["args"], env=asked["env"], cwd=asked["cwd"], stdout=None, stderr=asked["stderr"], resources=request,
        priority=asked["priority"],
    )  # fmt: skip
    return str(client.submit(job).id)


def jobs(client: Any, ids: Sequence[int]) -> dict[str, tuple[bool, int, int, str]]:
    told: dict[int, dict[str, Any]] = {}

    def tell(jobs: dict[int, dict[str, Any]]) -> None:
        told.update(jobs)
        raise _ReportedError

    with contextlib.suppress(_ReportedError):
        client.connection.wait_for_jobs(tuple(ids), tell)
    failed = [job for job, counts in told.items() if counts["failed"]]
    errors = client.connection.get_failed_tasks(failed) if failed else {}
    texts = {job: "; ".join(task.error for task in tasks.values()) for job, tasks in errors.items()}
    return {
        str(job): (counts["completed"], counts["finished"], counts["failed"], texts.get(job, ""))
        for job, counts in told.items()
    }


def serve(directory: str | None) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the library must not look like a response
    for line in sys.stdin:
        asked = json.loads(line)
        signal.alarm(SECONDS)
        try:
            client = Client(directory)
            result = jobs(client, asked["ids"]) if asked["ask"] == "jobs" else submit(client, asked)
            answer: dict[str, Any] = {"ok": result}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            answer = {"error": str(error).split("\n\nStack backtrace", maxsplit=1)[0]}
        signal.alarm(0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1] if len(sys.argv) > 1 else None)
