"""The scripted server of a fleet behaves as Triton with explicit model control does, over both wires."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.fleet_servers import FleetTriton, write_triton_models
from tests.peers.fleet_client import CLIENTS, CallFailed, Client
from tests.peers.fleet_models import FleetModels
from tests.peers.fleet_server import serve

MODELS = ("a", "broken")
STEPS = (
    ("index",),
    ("server_ready",),
    ("ready", "a"),
    ("infer", "a", [1.5]),
    ("load", "a"),
    ("server_ready",),
    ("load", "none"),
    ("load", "broken"),
    ("infer", "broken", [1.5]),
    ("server_ready",),
    ("unload", "broken"),
    ("server_ready",),
    ("load", "a"),
    ("load", "a"),
    ("index", True),
    ("server_ready",),
    ("ready", "a"),
    ("infer", "a", [1.5, -2.0]),
    ("infer", "a", [1.5], "7"),
    ("infer", "a", [1.5], "1"),
    ("unload", "a"),
    ("infer", "a", [1.5]),
    ("ready", "a"),
    ("unload", "none"),
    ("unload", "broken"),
)


@pytest.fixture
def real_server(tmp_path: Path) -> Iterator[FleetTriton]:
    models = write_triton_models(tmp_path / "models", MODELS, {"broken": {"fails": "CUDA out of memory"}})
    server = FleetTriton(models, tmp_path / "triton")
    server.begin()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


def outcome(client: Client, step: str, *arguments: object) -> object:
    try:
        return getattr(client, step)(*arguments)
    except CallFailed as error:
        # Triton's text goes on with where its code raised the exception.
        return error.status, re.sub(r"(RuntimeError: )|;?(\\n|\n).*", "", error.text, flags=re.DOTALL)


@pytest.mark.parametrize("wire", CLIENTS)
def test_the_scripted_server_answers_as_triton_does(real_server: FleetTriton, wire: str) -> None:
    models = FleetModels(MODELS)
    models.failing["broken"] = "CUDA out of memory"
    with serve(models) as server:
        scripted, real = (CLIENTS[wire](getattr(each, wire)) for each in (server, real_server))
        found = [(step, outcome(scripted, *step), outcome(real, *step)) for step in STEPS]
        scripted.close()
        real.close()
    assert [each for each in found if each[1] != each[2]] == []
