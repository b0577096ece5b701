"""Implements the gateway's side of a watcher (`gateway.servers.watcher`): writes a job's data for the watcher, and
reads the watcher's reports."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.servers.engine import Job, JobReport, JobState
from gateway.servers.watcher import ExitReason

GRACE = 5.0
"""The time for a job's processes to exit before the watcher kills them, in seconds."""
OUTPUT_BYTES = 2**20
"""The size at which a job's output file is full and starts again from the beginning, in bytes."""


def write_job(folder: Path, job: Job, lease: str, **more: Any) -> None:
    """Write the watcher's input to `folder`, which must exist. `more` overrides the defaults."""
    told = {
        "command": job.program,
        "output": str(job.output),
        "output_bytes": OUTPUT_BYTES,
        "memory": None,
        "seconds": job.resources.seconds,
        "grace": GRACE,
        "stdin": False,
        **more,
    }
    (folder / "job.json").write_text(json.dumps(told), "utf-8")
    (folder / "lease").write_text(lease, "utf-8")


def read_json(path: Path) -> Any:
    """Return the file's JSON, or None if the file does not exist or is not JSON."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def how_it_ended(state: Mapping[str, Any]) -> JobReport:
    """Return the report on an ended job from its watcher's `state.json`."""
    host, why, code, number = state["host"], state["why"], state["exit_code"], state["signal"]
    if why == ExitReason.CANCELLED:
        return JobReport(JobState.CANCELLED, host=host)
    if why == ExitReason.ABANDONED:
        return JobReport(JobState.CANCELLED, why, host)
    if why == ExitReason.TIME:
        return JobReport(JobState.TIMED_OUT, why, host)
    if why != ExitReason.ITSELF:
        return JobReport(JobState.FAILED, why, host)
    if number is not None:
        return JobReport(JobState.FAILED, f"signal {number} ({signal.strsignal(number)})", host)
    return JobReport(JobState.FAILED, f"exit code {code}", host) if code else JobReport(JobState.ENDED, host=host)
