"""A client of the scaler as KEDA is one: grpcio, with messages compiled from the contract as KEDA publishes it, whose
facts are written down here once more. Nothing of the gateway's own schema is used."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from tests.limits import GENEROUS

CONTRACT = """
syntax = "proto3";
package externalscaler;
message ScaledObjectRef { string name = 1; string namespace = 2; map<string, string> scalerMetadata = 3; }
message IsActiveResponse { bool result = 1; }
message MetricSpec { string metricName = 1; int64 targetSize = 2; double targetSizeFloat = 3; }
message GetMetricSpecResponse { repeated MetricSpec metricSpecs = 1; }
message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }
message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }
message GetMetricsResponse { repeated MetricValue metricValues = 1; }
"""


def _pool() -> DescriptorPool:
    with TemporaryDirectory() as folder:
        Path(folder, "contract.proto").write_text(CONTRACT)
        options = [f"--proto_path={folder}", f"--descriptor_set_out={folder}/set", "contract.proto"]
        assert protoc.main(["protoc", *options]) == 0
        pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(Path(folder, "set").read_bytes()).file:
            pool.Add(file)
        return pool


_POOL = _pool()


def _message(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"externalscaler.{name}"))


Ref, Active, Specs, Asked, Values = map(
    _message,
    ("ScaledObjectRef", "IsActiveResponse", "GetMetricSpecResponse", "GetMetricsRequest", "GetMetricsResponse"),
)

SERVICE = "/externalscaler.ExternalScaler"


def ref(**metadata: str) -> Any:
    """A ScaledObject with this metadata, and KEDA's own keys beside it."""
    return Ref(name="lab", namespace="models", scalerMetadata={"scalerAddress": "gateway:9000", **metadata})


class Keda:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def _unary(self, method: str, kind: Any) -> Any:
        path, read = f"{SERVICE}/{method}", kind.FromString
        return self._channel.unary_unary(path, lambda message: message.SerializeToString(), read)

    async def is_active(self, **metadata: str) -> bool:
        return bool((await self._unary("IsActive", Active)(ref(**metadata), timeout=GENEROUS)).result)

    async def spec(self, **metadata: str) -> list[tuple[str, int, float]]:
        response = await self._unary("GetMetricSpec", Specs)(ref(**metadata), timeout=GENEROUS)
        return [(each.metricName, each.targetSize, each.targetSizeFloat) for each in response.metricSpecs]

    async def value(self, metric: str = "calls", /, **metadata: str) -> float:
        request = Asked(scaledObjectRef=ref(**metadata), metricName=metric)
        (value,) = (await self._unary("GetMetrics", Values)(request, timeout=GENEROUS)).metricValues
        assert (value.metricName, value.metricValue) == (metric, value.metricValueFloat)
        return float(value.metricValueFloat)

    def watch(self, **metadata: str) -> Any:
        """The stream of StreamIsActive."""
        path = f"{SERVICE}/StreamIsActive"
        return self._channel.unary_stream(path, lambda message: message.SerializeToString(), Active.FromString)(
            ref(**metadata), timeout=GENEROUS
        )


@asynccontextmanager
async def keda(address: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Keda]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = (
        grpc.aio.insecure_channel(address, options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options)
    )
    async with channel:
        yield Keda(channel)


@contextmanager
def refused(status: grpc.StatusCode, *texts: str) -> Iterator[None]:
    """The call within fails with this status, and its text has all `texts`."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    told = caught.value.details() or ""
    assert (caught.value.code(), [text for text in texts if text not in told]) == (status, []), told
