"""A server with the services of the real package `tensorflow-serving-api`, `servers/tensorflow_server.py`, and its
client."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from tests.interop.client_scripts import run_steps
from tests.interop.processes import Server, free_port, start_script
from tests.limits import GENEROUS


class TensorFlowServing(Server):
    def requests(self) -> list[str]:
        """The methods that were called, in order."""
        return [line.split()[0] for line in self.process.stdout().splitlines()]


def start_tensorflow_serving(folder: Path) -> TensorFlowServing:
    port = free_port()
    process = start_script("tensorflow", "tensorflow_server", folder, port)
    process.wait_until(lambda: _accepts(port), GENEROUS)
    return TensorFlowServing(process, f"127.0.0.1:{port}")


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


def asked(address: str, *steps: dict[str, Any]) -> list[Any]:
    """The results of the stubs of `tensorflow-serving-api` for each step (`clients/tensorflow_client.py`)."""
    return run_steps("tensorflow", "tensorflow_client", address, steps)


def array(dtype: str, shape: list[int], *values: object, **more: object) -> dict[str, Any]:
    """An array of a step."""
    return {"dtype": dtype, "shape": shape, "values": [*values], **more}
