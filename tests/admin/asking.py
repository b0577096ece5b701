"""Clients of a gateway that runs in the test's process, and the file with its API keys."""

from collections.abc import Mapping
from pathlib import Path

import httpx

from gateway.auth.keys import KeyEntry, write_keys
from gateway.runtime.app import Gateway

BODY = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [31.4159, 2, 3]}]}
"""The inputs of the model `double`."""


def admin_client(gateway: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{gateway.ports.all['admin'].address}")


def model_client(gateway: Gateway, listener: str = "http") -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{gateway.state.listeners[listener].address}")


async def infer(
    gateway: Gateway, model: str, times: int = 1, listener: str = "http", headers: Mapping[str, str] | None = None
) -> None:
    """Send requests for a model, whatever becomes of them."""
    async with model_client(gateway, listener) as client:
        for _ in range(times):
            await client.post(f"/v2/models/{model}/infer", json=BODY, headers=headers)


def key_file(folder: Path, *entries: KeyEntry) -> Path:
    file = folder / "keys.yaml"
    file.write_text(write_keys(entries))
    return file
