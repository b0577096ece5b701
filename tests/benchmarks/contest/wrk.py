"""`wrk` as the source of a load that waits for each reply: it costs less than any generator in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.benchmarks.contest.generator import Load, Result

SCRIPT = """
local requests = {}
local next = 0
for _, name in ipairs({%s}) do
  local file = io.open(name, "rb")
  requests[#requests + 1] = file:read("*a")
  file:close()
end
if #requests == 1 then  -- without a function that is called for each request
  wrk.init = function() wrk.request = function() return requests[1] end end
else
  request = function()
    next = next %% #requests + 1
    return requests[next]
  end
end
done = function(summary, latency)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    + summary.errors.timeout
  io.write(string.format('\\n{"answered": %%d, "seconds": %%.6f, "bad": %%d, "latencies": {"p50": %%d, "p99": %%d}}\\n',
    summary.requests, summary.duration / 1e6, bad, latency:percentile(50), latency:percentile(99)))
end
"""


class WrkError(Exception):
    """Some requests failed, or wrk did."""


def program() -> str | None:
    return shutil.which("wrk")


def run(wrk: str, load: Load, folder: Path, threads: int = 1) -> Result:
    """Raises:
    WrkError: a request failed.
    """
    script = folder / "requests.lua"
    script.write_text(SCRIPT % ", ".join(f'"{name}"' for name in load.requests))
    seconds = max(1, round(load.seconds))
    where = [f"-t{threads}", f"-c{load.in_flight}", f"-d{seconds}s", "--timeout", "60s", "-s", str(script)]
    done = subprocess.run([wrk, *where, f"http://{load.address}/"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrkError(done.stderr + done.stdout)
    document = json.loads(done.stdout.strip().splitlines()[-1])
    if document.pop("bad"):
        raise WrkError(f"{load.address}: some requests failed:\n{done.stdout}")
    return Result(**document)
