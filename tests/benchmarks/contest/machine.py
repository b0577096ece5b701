"""Where and with what a run was made."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.contest import wrk
from tests.peers.build import PEERS, ROOT, TABLE, is_built
from tests.peers.system import PATH

LIBRARIES = ("uvloop", "httptools", "orjson", "pysimdjson", "numpy", "protobuf")


def machine() -> dict[str, str]:
    """The processor, the system, and the versions of everything that takes part."""
    found = {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "commit": _output("git", "rev-parse", "--short", "HEAD") or "unknown",
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        "load averages before": " ".join(f"{each:.2f}" for each in os.getloadavg()),
    }
    nginx = shutil.which("nginx", path=PATH)
    found["nginx"] = _output(nginx, "-v").partition("/")[2] if nginx else "missing"
    program = wrk.program()
    found["wrk"] = _output(program, "-v").partition(" [")[0] if program else "missing"
    for name in ("envoy", "mlserver", "kserve", "triton", "adapters"):
        peer = next(each for each in TABLE if each.name == name)
        found[name] = ", ".join(peer.requirements) if is_built(peer) else f"missing in {PEERS.name}"
    return found


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _output(*command: str) -> str:
    """What it prints, wherever it prints it."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip()
