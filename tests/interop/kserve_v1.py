"""The real KServe over V1, serving `servers/kserve_v1_server.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.interop.client_scripts import run_steps
from tests.interop.processes import Server, answers, free_port, start_script
from tests.limits import GENEROUS


def start_kserve_v1(folder: Path, *predictor: str) -> Server:
    """One with models of its own, or the transformer `double` in front of the V1 server `predictor`."""
    port = free_port()
    server = Server(start_script("kserve", "kserve_v1_server", folder, port, *predictor), f"http://127.0.0.1:{port}")
    server.process.wait_until(lambda: answers(f"{server.url}/v1/models/double"), GENEROUS)
    return server


def asked(address: str, *steps: dict[str, Any]) -> list[Any]:
    """What `InferenceRESTClient` gets for each step."""
    return run_steps("kserve", "kserve_client", f"http://{address}", steps)
