"""grpcio's own clients, sync and aio, on messages compiled here from the text of the published schema -> gateway -> a
grpcio server that answers with literal bytes. The habits of real servers are in test_grps_peers.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from tests.interop.exchanges import Listen
from tests.limits import GENEROUS

SCHEMA = """
syntax = "proto3";
package grps.protos.v1;
message Status {
  int32 code = 1; string msg = 2; StatusFlag status = 3;
  enum StatusFlag { UNKNOWN = 0; SUCCESS = 1; FAILURE = 2; }
}
enum DataType {
  DT_INVALID = 0; DT_UINT8 = 1; DT_INT8 = 2; DT_INT16 = 3; DT_INT32 = 4; DT_INT64 = 5; DT_FLOAT16 = 6;
  DT_FLOAT32 = 7; DT_FLOAT64 = 8; DT_STRING = 9;
}
message GenericTensor {
  string name = 1; DataType dtype = 2; repeated uint32 shape = 3 [packed = true];
  repeated uint32 flat_uint8 = 4 [packed = true]; repeated int32 flat_int8 = 5 [packed = true];
  repeated int32 flat_int16 = 6 [packed = true]; repeated int32 flat_int32 = 7 [packed = true];
  repeated int64 flat_int64 = 8 [packed = true]; repeated float flat_float16 = 9 [packed = true];
  repeated float flat_float32 = 10 [packed = true]; repeated double flat_float64 = 11 [packed = true];
  repeated string flat_string = 12;
}
message GenericTensorData { repeated GenericTensor tensors = 1; }
message NDArrayData {}
message GenericMapData {
  map<string, string> s_s = 1; map<string, bytes> s_b = 2; map<string, int32> s_i32 = 3; map<string, int64> s_i64 = 4;
  map<string, float> s_f = 5; map<string, double> s_d = 6;
}
message GrpsMessage {
  Status status = 1; string model = 2;
  oneof data_oneof {
    bytes bin_data = 3; string str_data = 4; GenericTensorData gtensors = 5; NDArrayData ndarray = 6;
    GenericMapData gmap = 7;
  }
}
"""
SERVICE = "grps.protos.v1.GrpsService"

# a request to double three numbers, and a real server's reply
TWICE = bytes.fromhex("120b74776963652d312e302e302a180a160a017810071a0103520c0000803f0000004000004040")
DOUBLED = bytes.fromhex("0a0908c80112024f4b18012a180a160a017810071a0103520c00000040000080400000c040")
OK = bytes.fromhex("0a0908c80112024f4b1801")

CONFIG = """
listeners:
  - {{name: grpc, bind: "127.0.0.1:{front}", protocols: [grps-grpc, v2-grpc]}}
backends:
  grps: {{protocol: grps-grpc, endpoints: ["127.0.0.1:{back}"]}}
routes:
  - {{match: {{model: "*"}}, backend: grps}}
  - {{match: {{}}, backend: grps}}
"""


@pytest.fixture(scope="module")
def message(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class of GrpsMessage."""
    folder = tmp_path_factory.mktemp("schema")
    (folder / "published.proto").write_text(SCHEMA)
    target = folder / "descriptors"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={target}", "published.proto"]) == 0
    pool = DescriptorPool()
    [file] = FileDescriptorSet.FromString(target.read_bytes()).file
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("grps.protos.v1.GrpsMessage"))


@dataclass
class Server:
    """A server of bytes: what it received, and what it does next with a method."""

    received: list[tuple[str, bytes]] = field(default_factory=list)
    replies: dict[str, Callable[[bytes, Any], Any]] = field(default_factory=dict)

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]

        def answer(body: bytes, context: Any) -> Any:
            self.received.append((details.method, body))
            return self.replies[method](body, context)

        streams = method == "PredictStreaming"
        made = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        return made(answer)


@pytest.fixture(scope="module")
def running(listen: Listen) -> Iterator[tuple[str, Server]]:
    """The gateway's address, and the server behind it."""
    state = Server()
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, handlers=(state,), options=[("grpc.max_receive_message_length", -1)])
        back = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield listen(CONFIG, back=back)["front"], state
        server.stop(0).wait()


@pytest.fixture
def server(running: tuple[str, Server]) -> Server:
    state = running[1]
    state.received.clear()
    return state


@pytest.fixture
def channel(running: tuple[str, Server]) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running[0], options=[("grpc.max_receive_message_length", 2**26)]) as made:
        yield made


def predict(channel: Any, method: str = "Predict") -> Any:
    return channel.unary_unary(f"/{SERVICE}/{method}")


def test_the_bytes_of_real_peers_pass_as_they_are(channel: grpc.Channel, server: Server) -> None:
    server.replies["Predict"] = lambda body, context: DOUBLED
    reply, call = predict(channel).with_call(TWICE, timeout=GENEROUS)
    assert reply == DOUBLED
    assert server.received == [(f"/{SERVICE}/Predict", TWICE)]
    assert "gateway-reason" not in dict(call.trailing_metadata())


VALUES: dict[str, tuple[str, list[Any]]] = {
    "DT_UINT8": ("flat_uint8", [0, 255]),
    "DT_INT8": ("flat_int8", [-128, 127]),
    "DT_INT16": ("flat_int16", [-(2**15), 1]),
    "DT_INT32": ("flat_int32", [-(2**31), 2**31 - 1]),
    "DT_INT64": ("flat_int64", [-(2**63), 2**53 + 1]),
    "DT_FLOAT16": ("flat_float16", [0.5, -65504]),
    "DT_FLOAT32": ("flat_float32", [0.1, float("inf")]),
    "DT_FLOAT64": ("flat_float64", [0.1, 1e300]),
    "DT_STRING": ("flat_string", ["", "é\0"]),
}


def every_datatype(message: Any) -> Any:
    entries = [{"name": dtype, "dtype": dtype, "shape": [2, 1], flat: data} for dtype, (flat, data) in VALUES.items()]
    return message(model="m", gtensors={"tensors": entries})


def kinds(message: Any) -> dict[str, Any]:
    return {
        "gtensors": every_datatype(message),
        "str_data": message(model="m", str_data="é"),
        "bin_data": message(model="m", bin_data=b"\xff\0"),
        "gmap": message(
            model="m", gmap={"s_s": {"a": "b"}, "s_b": {"c": b"\xff"}, "s_i64": {"d": -5}, "s_f": {"e": 0.5}}
        ),
    }


@pytest.mark.parametrize("kind", ["gtensors", "str_data", "bin_data", "gmap"])
@pytest.mark.parametrize("library", ["sync", "aio"])
async def test_every_form_there_and_back(
    running: tuple[str, Server], server: Server, message: Any, kind: str, library: str
) -> None:
    sent = kinds(message)[kind]
    server.replies["Predict"] = lambda body, context: OK + body
    if library == "sync":
        with grpc.insecure_channel(running[0]) as channel:
            reply = predict(channel)(sent.SerializeToString(), timeout=GENEROUS)
    else:
        async with grpc.aio.insecure_channel(running[0]) as channel:
            reply = await predict(channel)(sent.SerializeToString(), timeout=GENEROUS)
    found = message.FromString(reply)
    assert message.FromString(server.received[0][1]) == sent
    assert (found.status.code, found.status.msg, found.status.status) == (200, "OK", 1)
    found.ClearField("status")
    assert found == sent


def test_large_tensors(channel: grpc.Channel, server: Server, message: Any) -> None:
    tensor = {"name": "x", "dtype": 4, "shape": [10**6], "flat_int32": range(-10, 10**6 - 10)}
    sent = message(model="m", gtensors={"tensors": [tensor]})
    server.replies["Predict"] = lambda body, context: OK + body
    reply = message.FromString(predict(channel)(sent.SerializeToString(), timeout=GENEROUS))
    assert reply.gtensors == sent.gtensors


def numbered(message: Any, number: int) -> bytes:
    entry = {"name": "i", "dtype": 4, "shape": [1], "flat_int32": [number]}
    octets: bytes = message(gtensors={"tensors": [entry]}).SerializeToString()
    return OK + octets


@pytest.mark.parametrize("library", ["sync", "aio"])
async def test_a_stream_of_one_request_and_many_replies(
    running: tuple[str, Server], server: Server, message: Any, library: str
) -> None:
    server.replies["PredictStreaming"] = lambda body, context: (numbered(message, each) for each in range(300))
    method = f"/{SERVICE}/PredictStreaming"
    if library == "sync":
        with grpc.insecure_channel(running[0]) as channel:
            replies = list(channel.unary_stream(method)(TWICE, timeout=GENEROUS))
    else:
        async with grpc.aio.insecure_channel(running[0]) as channel:
            replies = [each async for each in channel.unary_stream(method)(TWICE, timeout=GENEROUS)]
    assert replies == [numbered(message, each) for each in range(300)]
    assert server.received == [(method, TWICE)]


def test_a_stream_that_breaks_off_ends_with_a_failure(channel: grpc.Channel, server: Server, message: Any) -> None:
    def broken(body: bytes, context: Any) -> Iterator[bytes]:
        yield numbered(message, 0)
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    server.replies["PredictStreaming"] = broken
    first, last = list(channel.unary_stream(f"/{SERVICE}/PredictStreaming")(TWICE, timeout=GENEROUS))
    assert first == numbered(message, 0)
    status = message.FromString(last).status
    assert (status.code, status.status, status.msg) == (503, 2, "gone")


@pytest.mark.parametrize(
    ("method", "body", "code", "told", "reason"),
    [
        ("Predict", b"\xff\xff", 400, "no whole number", "invalid-input"),
        ("Predict", b"\x4a\0", 400, "holds no data", "invalid-input"),
        ("Predict", b"2\0", 400, "JSON only", "invalid-input"),
        ("PredictStreaming", b"\xff\xff", 400, "no whole number", "invalid-input"),
        ("Online", b"", 403, "allow_offline", "permission-denied"),
        ("Offline", b"", 403, "allow_offline", "permission-denied"),
    ],
)
def test_errors_are_messages_of_calls_that_succeed(
    channel: grpc.Channel, server: Server, message: Any, method: str, body: bytes, code: int, told: str, reason: str
) -> None:
    if method == "PredictStreaming":
        call = channel.unary_stream(f"/{SERVICE}/{method}")(body, timeout=GENEROUS)
        [reply] = list(call)
    else:
        reply, call = predict(channel, method).with_call(body, timeout=GENEROUS)
    status = message.FromString(reply).status
    assert (status.code, status.status) == (code, 2)
    assert told in status.msg
    assert dict(call.trailing_metadata())["gateway-reason"] == reason
    assert server.received == []


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", 429),
        (grpc.StatusCode.INTERNAL, "Exception deserializing request!", 500),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", 501),
    ],
)
def test_calls_that_fail_behind_are_messages_in_front(
    channel: grpc.Channel, server: Server, message: Any, code: grpc.StatusCode, text: str, expected: int
) -> None:
    server.replies["Predict"] = lambda body, context: context.abort(code, text)
    status = message.FromString(predict(channel)(TWICE, timeout=GENEROUS)).status
    assert (status.code, status.status) == (expected, 2)
    assert status.msg == text


def test_a_reply_that_is_none_is_the_backends_fault(channel: grpc.Channel, server: Server, message: Any) -> None:
    server.replies["Predict"] = lambda body, context: b"\xff"
    status = message.FromString(predict(channel)(TWICE, timeout=GENEROUS)).status
    assert (status.code, status.status) == (502, 2)
    assert status.msg.startswith("backend 'grps' at ")


@pytest.mark.parametrize("method", ["/grps.protos.GrpsService/Predict", "/grps.protos.v1.GrpsBrpcService/Predict"])
def test_other_names_of_the_service_are_unimplemented(channel: grpc.Channel, method: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(method)(TWICE, timeout=GENEROUS)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health_and_metadata(channel: grpc.Channel, server: Server, message: Any) -> None:
    yaml = "name: twice\nversion: 1.0.0\ninferer_type: torch\n"
    server.replies["ModelMetadata"] = lambda body, context: OK + message(str_data=yaml).SerializeToString()
    server.replies["CheckReadiness"] = lambda body, context: OK
    assert predict(channel, "CheckLiveness")(b"", timeout=GENEROUS) == OK
    assert predict(channel, "CheckReadiness")(b"", timeout=GENEROUS) == OK
    told = message.FromString(predict(channel, "ModelMetadata")(b"\x22\x05twice", timeout=GENEROUS))
    assert told.status.status == 1
    assert "name: twice" in told.str_data
    listed = message.FromString(predict(channel, "ServerMetadata")(b"", timeout=GENEROUS))
    assert listed.str_data.startswith("models:")
