"""The real KServe over V1, serving `servers/kserve_v1_server.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.client_scripts import run_client
from tests.interop.processes import HERE, Process, answers, free_port
from tests.limits import GENEROUS
from tests.peers.build import require


@dataclass
class KServe:
    """A server; `address` is `host:port`."""

    process: Process
    address: str

    def stop(self) -> int:
        return self.process.stop(seconds=10)


def start_kserve_v1(folder: Path, predictor: str = "") -> KServe:
    """One with models of its own, or the transformer `double` in front of the V1 server `predictor`."""
    port = free_port()
    command = [str(require("kserve") / "bin" / "python"), str(HERE / "servers" / "kserve_v1_server.py"), str(port)]
    process = Process([*command, predictor] if predictor else command, folder)
    process.wait_until(lambda: answers(f"http://127.0.0.1:{port}/v1/models/double"), GENEROUS)
    return KServe(process, f"127.0.0.1:{port}")


def asked(address: str, *steps: dict[str, Any]) -> list[Any]:
    """What `InferenceRESTClient` gets for each step."""
    results = run_client("kserve", "kserve_client", f"http://{address}", steps)
    assert isinstance(results, list)
    return results
