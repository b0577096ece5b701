"""The payload log, read with the CloudEvents SDK as a drift detector reads it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.client import AsyncClient
from tests.interop.client_scripts import run_client
from tests.interop.processes import free_port
from tests.observing.payload_log.receiving import receiving
from tests.running_gateway import running_gateway

CONFIG = """
listeners:
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: umbridge, bind: "127.0.0.1:0", protocols: [umbridge]}
log: {payloads: {to: "PLACE", sample: 1, SETTINGS}}
reference: [{protocol: v2-grpc, bind: "127.0.0.1:BACKEND", models: [posterior]}]
backends: {b: {protocol: v2-grpc, endpoints: ["127.0.0.1:BACKEND"]}}
routes: [{match: {model: posterior}, backend: b}]
"""
HALF = 60
"""Calls of one kind."""


async def log_calls(place: str, settings: str, rows: np.ndarray[Any, Any]) -> None:
    """Call the model with each row: over gRPC with the first half of them, and as an UM-Bridge client with the rest."""
    text = CONFIG.replace("PLACE", place).replace("SETTINGS", settings).replace("BACKEND", str(free_port()))
    async with running_gateway(text, drain=5) as gateway:
        addresses = {name: each.address.rpartition("//")[2] for name, each in gateway.state.listeners.items()}
        async with (
            AsyncClient(f"v2-grpc://{addresses['grpc']}") as grpc,
            AsyncClient(f"umbridge://{addresses['umbridge']}") as umbridge,
        ):
            half = len(rows) // 2
            for row in rows[:half]:
                await grpc.infer("posterior", theta=row[None])
            for row in rows[half:]:
                await umbridge.infer("posterior", row)


def drifting() -> np.ndarray[Any, Any]:
    """Rows of two features, of which the first one is another one in the second half."""
    rows = np.random.default_rng(1).normal(size=(2 * HALF, 2))
    rows[HALF:, 0] += 3
    return rows


def read(events: list[dict[str, Any]], reference: int = 0) -> dict[str, Any]:
    found: Any = run_client("cloudevents", "drift_detector", events, {"reference": reference})
    return dict(found)


async def test_a_detector_finds_the_drift_between_clients_of_two_protocols(tmp_path: Path) -> None:
    rows = drifting()
    await log_calls(str(tmp_path / "log"), "max_bytes: 1KiB", rows)
    found = read([{"line": line} for line in (tmp_path / "log").read_text().splitlines()], HALF)
    assert np.allclose(np.array(list(found["columns"].values())).T, rows.astype(np.float32))
    assert found["drift"]["feature0"] < 1e-6
    assert found["drift"]["feature1"] > 0.01


@pytest.mark.parametrize("tensors", ["json", "binary"])
@pytest.mark.parametrize("events", ["binary", "structured"])
async def test_the_sdk_reads_every_content_mode(events: str, tensors: str) -> None:
    async with receiving() as receiver:
        await log_calls(receiver.url, f"events: {events}, tensors: {tensors}, namespace: lab", drifting()[:2])
    sent = [{"headers": each.headers, "body": base64.b64encode(each.body).decode()} for each in receiver.requests]
    found = read(sent)["events"]
    assert sorted(each["attributes"]["type"].rpartition(".")[2] for each in found) == [
        "request", "request", "response", "response",
    ]  # fmt: skip
    for each in found:
        assert each["attributes"]["inferenceservicename"] == "posterior"
        assert each["attributes"]["namespace"] == "lab"
        [(name, values)] = each["tensors"].items()
        assert name in ("theta", "logdensity")
        assert np.array(values).shape == ((1, 2) if name == "theta" else (1, 1))


async def test_a_detector_notices_what_is_left_out(tmp_path: Path) -> None:
    await log_calls(str(tmp_path / "log"), "hide: [logdensity]", drifting()[:2])
    events = read([{"line": line} for line in (tmp_path / "log").read_text().splitlines()])["events"]
    replies = [each for each in events if each["attributes"]["type"].endswith("response")]
    shown = [(each["tensors"], each["attributes"]["complete"]) for each in replies]
    assert shown == [({"logdensity": None}, "False")] * 2
