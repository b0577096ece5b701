"""Messages as the gRPC transport hands them to the codec, and recorded conversations."""

import json
import struct
from pathlib import Path
from typing import Any

from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_GRPC
from gateway.protocols.v2.grpc import schema
from tests.protocols.v2.grpc.by_hand import field, tensor

LISTENER = ListenerSettings("grpc")
TARGET = Target("models", "127.0.0.1:8001")
TRITON = Target("models", "127.0.0.1:8001", flavor="triton")
MLSERVER = Target("models", "127.0.0.1:8001", flavor="mlserver")
KSERVE = Target("models", "127.0.0.1:8001", flavor="kserve")
TARGETS = {"triton": TRITON, "mlserver": MLSERVER, "kserve": KSERVE}
AS_IS = Translate()

SERVICE = "/inference.GRPCInferenceService/"
INFER = SERVICE + "ModelInfer"
STREAM = SERVICE + "ModelStreamInfer"
RECORDED = {
    server: json.loads((Path(__file__).parents[3] / "wire" / "v2-grpc" / f"{server}.json").read_text())
    for server in TARGETS
}


def message(body: bytes, method: str = INFER, **changes: Any) -> Message:
    built = Message(path=method, pattern=method, parts=(body,), headers=Headers(((b"x-tenant", b"t"),)))
    return replace(built, **changes)


def infer(body: bytes, method: str = INFER, **changes: Any) -> Request:
    return decoded(message(body, method, **changes), V2_GRPC, LISTENER)


def one_input(datatype: str, *dimensions: int, contents: bytes = b"", raw: bytes | None = None) -> Request:
    behind = b"" if raw is None else field(7, raw)
    return infer(tensor("x", datatype, *dimensions, contents=contents) + behind)


def reply(body: bytes, status: int = 0, reason: str = "") -> Message:
    trailers = Headers(((b"gateway-reason", reason.encode()),)) if reason else Headers()
    return Message(parts=(body,) if body else (), status=status, headers=trailers)


def decode(body: bytes, request: Request, target: Target = TARGET) -> Response:
    response = V2_GRPC.decode_response(reply(body), request, target)
    assert isinstance(response, Response)
    return response


def exchanged(server: str, name: str) -> tuple[str, list[bytes], list[Message]]:
    """The method, the requests, and the replies as the transport hands them over; the last one may be an error."""
    conversation = RECORDED[server][name]
    replies = [reply(bytes.fromhex(each)) for each in conversation["replies"]]
    if conversation["status"]:
        replies.append(reply(conversation["text"].encode(), conversation["status"]))
    return conversation["method"], [bytes.fromhex(each) for each in conversation["requests"]], replies


def values(tensor: Tensor) -> object:
    return tensor.array.tolist()


RAW = struct.pack("<2f", 1.5, -2)


def request_body(raw: bytes = RAW, model: str = "model", datatype: str = "FP32", **more: object) -> bytes:
    """A ModelInferRequest of one input, as protobuf's own library writes it."""
    written = schema.ModelInferRequest(model_name=model, **more)
    written.inputs.add(name="x", datatype=datatype, shape=[2])
    written.raw_input_contents.append(raw)
    body: bytes = written.SerializeToString()
    return body


def reply_body(raw: bytes = RAW, model: str = "model", **more: object) -> bytes:
    """The same of a ModelInferResponse."""
    written = schema.ModelInferResponse(model_name=model, **more)
    written.outputs.add(name="y", datatype="FP32", shape=[2])
    written.raw_output_contents.append(raw)
    body: bytes = written.SerializeToString()
    return body
