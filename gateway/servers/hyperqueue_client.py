"""HyperQueue's Python client in a separate process, which the engine starts with `python hyperqueue_client.py
[FOLDER]`.

The client needs a separate process because a process can be killed in any state. The client's calls block without a
timeout, a call that hangs delays the end of the process, and concurrent calls make the Rust code panic. The process
reads one JSON object per line from stdin, and responds to each with one line on stdout: `{"ok": RESULT}` or `{"error":
TEXT}`.

- `{"ask": "submit", ...}` with `name`, `args`, `cwd`, `env`, `stderr`, `cpus`, `resources`, `nodes`, `min_time`
  (seconds or null), `priority`: the id of the job.
- `{"ask": "jobs", "ids": [...]}`: `[completed, finished, failed, error]` for each id that HyperQueue knows: whether the
  job has ended, how many of its tasks succeeded and failed, and HyperQueue's message for the failures.
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
"""Maximum duration of one call, in seconds. After this time, the process ends by itself, even if its gateway is
dead."""


class _ReportedError(Exception):
    """Raised to leave `wait_for_jobs`, which reports the progress before it waits."""


class _Connection:
    """A connection to one server. A failed connection is not reused, because the server might have restarted."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._client: Any = None

    def submit(self, asked: dict[str, Any]) -> str:
        self._jobs([1])  # tests the connection, because a submission whose response is lost cannot be repeated
        minimum = None if asked["min_time"] is None else timedelta(seconds=asked["min_time"])
        request = ResourceRequest(
            n_nodes=asked["nodes"], cpus=asked["cpus"], resources=asked["resources"], min_time=minimum
        )
        job = Job(name=asked["name"], max_fails=0)
        job.program(
            asked["args"],
            env=asked["env"],
            cwd=asked["cwd"],
            stdout=None,
            stderr=asked["stderr"],
            resources=request,
            priority=asked["priority"],
        )
        return str(self._client.submit(job).id)

    def jobs(self, ids: Sequence[int]) -> dict[str, tuple[bool, int, int, str]]:
        told = self._jobs(ids)
        failed = [job for job, counts in told.items() if counts["failed"]]
        errors = self._client.connection.get_failed_tasks(failed) if failed else {}
        return {
            str(job): (
                counts["completed"],
                counts["finished"],
                counts["failed"],
                "; ".join(task.error for task in errors.get(job, {}).values()),
            )
            for job, counts in told.items()
        }

    def close(self) -> None:
        self._client = None

    def _jobs(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        told: dict[int, dict[str, Any]] = {}

        def tell(jobs: dict[int, dict[str, Any]]) -> None:
            told.update(jobs)
            raise _ReportedError

        old = self._client is not None
        if self._client is None:
            self._client = Client(self._directory)
        try:
            with contextlib.suppress(_ReportedError):
                self._client.connection.wait_for_jobs(tuple(ids), tell)
        except Exception:
            self._client = None
            if not old:
                raise
            return self._jobs(ids)
        return told


def serve(directory: str | None) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the library must not look like a response
    connection = _Connection(directory)
    for line in sys.stdin:
        asked = json.loads(line)
        signal.alarm(SECONDS)
        try:
            result = connection.jobs(asked["ids"]) if asked["ask"] == "jobs" else connection.submit(asked)
            answer: dict[str, Any] = {"ok": result}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            connection.close()
            answer = {"error": str(error).split("\n\nStack backtrace", maxsplit=1)[0]}
        signal.alarm(0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1] if len(sys.argv) > 1 else None)
