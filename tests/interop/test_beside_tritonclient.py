"""The gateway with `tritonclient[grpc]` in its own environment, whose protobuf is older, and whose generated modules
claim `inference.*` in the pool of descriptors that a process has by default."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop import processes
from tests.interop.client_scripts import run_client
from tests.interop.processes import free_port
from tests.interop.real_clients import doubles, infer, packed, raw_of, tritonclient_grpc
from tests.peers.build import ROOT, python_of, require

CONFIG = """
listeners: [{{name: grpc, bind: "127.0.0.1:{front}", protocols: [v2-grpc]}}]
reference: [{{protocol: v2-grpc, bind: "127.0.0.1:{back}", models: [double]}}]
backends: {{double: {{protocol: v2-grpc, endpoints: ["127.0.0.1:{back}"]}}}}
routes: [{{match: {{model: "*"}}, backend: double}}]
"""


def test_the_environment_is_sound() -> None:
    command = [sys.executable, "-m", "pip", "--python", str(require("beside")), "check"]
    done = subprocess.run(command, capture_output=True, text=True, env=processes.clean_environment())

    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")


def test_the_gateway_serves_from_it(tmp_path: Path) -> None:
    require("beside")
    front, back = free_port(), free_port()
    with processes.start_gateway(CONFIG.format(front=front, back=back), tmp_path, python_of("beside")):
        (result,) = tritonclient_grpc(f"127.0.0.1:{front}", "sync", infer("double", doubles("x", [1, 2], 0.5, -1)))

    assert raw_of(result) == packed("d", 1, -2)


@pytest.mark.parametrize("order", [["tritonclient.grpc", "gateway.protocols.v2"], ["gateway.protocols.v2"]], ids=str)
def test_both_in_one_process(order: list[str]) -> None:
    """Whichever is imported first."""
    told = run_client("beside", "beside_client", order, PYTHONPATH=str(ROOT))

    assert told == {"request": ["double", "id-1", [1, 2]], "response": ["double", "id-1", [0.5, -1.5]]}
