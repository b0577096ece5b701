"""The two Protocol values of V2."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.protocol import GrpcBinding, Protocol
from gateway.protocols.v2 import V2_GRPC, V2_REST

SERVICE = "/inference.GRPCInferenceService/"
METHODS = (
    "ServerLive ServerReady ModelReady ServerMetadata ModelMetadata ModelInfer ModelStreamInfer ModelConfig "
    "RepositoryIndex RepositoryModelLoad RepositoryModelUnload ModelStatistics TraceSetting LogSettings"
)
KINDS, VERBS = ("System", "Cuda", "Tpu"), ("Status", "Register", "Unregister")
SHARED_MEMORY = {f"{kind}SharedMemory{verb}" for kind in KINDS for verb in VERBS}
"""Served only to refuse them by name."""


@pytest.mark.parametrize("protocol", [V2_REST, V2_GRPC], ids=lambda protocol: protocol.name)
def test_traits(protocol: Protocol) -> None:
    traits = protocol.traits
    assert traits.wire.datatypes == frozenset(Datatype)
    assert traits.wire.nan == "error"
    assert traits.models.versions is not None
    assert traits.models.versions("v10")
    assert not traits.models.versions("")


def test_methods_of_grpc() -> None:
    assert set(V2_GRPC.patterns) == {SERVICE + name for name in {*METHODS.split(), *SHARED_MEMORY}}
    assert isinstance(V2_GRPC.binding, GrpcBinding)
    assert V2_GRPC.binding.streams == {SERVICE + "ModelStreamInfer"}


def test_example_of_grpc() -> None:
    assert V2_GRPC.example is not None
    assert V2_GRPC.example("h:1", "m", "3") == (
        """grpcurl -plaintext -d '{"name": "m", "version": "3"}' h:1 inference.GRPCInferenceService/ModelMetadata"""
    )
