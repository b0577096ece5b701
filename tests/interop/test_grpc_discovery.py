"""A client that knows no schema finds out what the gateway serves: by gRPC's own clients of reflection and health."""

from __future__ import annotations

from typing import Any

from gateway.assembly.server_info import INFO
from tests.interop.client_scripts import run_client
from tests.interop.exchanges import Listen

CONFIG = """
listeners:
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-grpc]}}
backends:
  science: {{protocol: umbridge, endpoints: ["http://127.0.0.1:9"]}}
routes:
  - {{match: {{model: "*"}}, backend: science}}
ready: none  # nobody listens there
"""

SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
]


def test_services_methods_and_messages_are_discovered_and_callable(listen: Listen) -> None:
    found: Any = run_client("grpc", "grpc_client", listen(CONFIG)["grpc"])
    assert found["services"] == SERVICES
    assert set(found["methods"]["inference.GRPCInferenceService"]) >= {"ModelInfer", "ModelStreamInfer", "ServerLive"}
    assert found["methods"]["grpc.reflection.v1.ServerReflection"] == ["ServerReflectionInfo"]
    assert set(found["fields"]["inference.ModelInferRequest"]) >= {"model_name", "inputs", "raw_input_contents"}
    # asked with messages that were built from what was found
    assert found["metadata"] == [INFO.name, INFO.version]
    assert found["health"] == {**dict.fromkeys(["", *SERVICES], "SERVING"), "no.Such": "NOT_FOUND"}
