"""Which messages are coded away from the loop: those whose content takes long, not all that are large."""

import json
import struct
import sys

import pytest

from gateway.assembly.registry import protocols
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.offload import LARGE, are_large, is_large
from gateway.core.operations import Operation
from gateway.core.protobuf.wire import varint
from gateway.core.protocol import StreamBinding, Target
from gateway.core.requests import DEFAULT_TRANSLATE, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from gateway.protocols.grps.brpc.frames import read_frame, write_frame
from gateway.protocols.grps.schema import RpcMeta
from gateway.protocols.v2.grpc import schema

RAW = bytes(4 * LARGE)
NUMBERS = Tensor("x", Datatype.UINT8, (1, len(RAW)), RAW)
FLOATS = Tensor("x", Datatype.FP32, (1, LARGE), RAW)
STRINGS = Tensor("x", Datatype.BYTES, (1, LARGE), struct.pack("<Ic", 1, b"x") * LARGE)


def received(message: Message, pattern: str = "") -> Message:
    return Message(headers=message.headers, parts=(b"".join(map(bytes, message.parts)),), pattern=pattern)


def asked(tensor: Tensor, protocol: str, outputs: tuple[RequestedOutput, ...] = ()) -> Message:
    request = Request(Operation.INFER, "m", inputs=(tensor,), outputs=outputs)
    return received(protocols()[protocol].encode_request(request, Target(flavor="triton")), "a pattern")


def packet(message: Message, protocol: str) -> Message:
    """The message as its transport delivers it: on byte streams in two parts."""
    binding, body = protocols()[protocol].binding, bytes(message.body)
    size = binding.framing.header_size if isinstance(binding, StreamBinding) else 0
    return replace(message, parts=(body[:size], body[size:])) if size else message


REQUEST = "a pattern"
OUTPUTS = tuple(RequestedOutput(f"{at:0300}") for at in range(LARGE // 256))
CONTENTS = schema.ModelInferRequest(model_name="m")
CONTENTS.inputs.add(name="x", datatype="BYTES").contents.bytes_contents.extend([b"x"] * LARGE)
MANY_FIELDS = schema.ModelInferRequest(raw_input_contents=[b""] * LARGE).SerializeToString()
RAW_OUTPUTS = schema.ModelInferResponse(raw_output_contents=[RAW]).SerializeToString()
FEW = Tensor("x", Datatype.FP32, (1,), bytes(4))


def of_brpc(**meta: int) -> Message:
    """A frame that is not plain protobuf."""
    frame = read_frame(packet(asked(FLOATS, "grps-brpc"), "grps-brpc"))
    return received(write_frame(RpcMeta(**meta).SerializeToString(), (frame.payload,)))


def json_with_length(length: str) -> Message:
    headers = Headers([(b"inference-header-content-length", length.encode())] if length else [])
    return Message(headers=headers, parts=(json.dumps({"inputs": ["x" * 2 * LARGE]}).encode(),), pattern=REQUEST)


def metadata_of_graphpipe() -> Message:
    request = Request(Operation.METADATA, origin=Message(parts=(b"",)))
    signature = Signature((TensorSpec("x" * 2 * LARGE, Datatype.FP32, (1,)),), ())
    reply = protocols()["graphpipe"].encode_response(signature, request, DEFAULT_TRANSLATE)
    return replace(received(reply), status=reply.status)


UNKNOWN = b"\x78\1\x7a" + varint(len(RAW)) + RAW
ON_THE_LOOP = {
    **{f"raw tensors, {each}": (asked(NUMBERS, each), each) for each in ("v2-grpc", "v2-rest", "tfs-grpc")},
    **{f"floats, {each}": (asked(FLOATS, each), each) for each in ("graphpipe", "grps-grpc", "grps-brpc", "tfs-grpc")},
    # the decoder stops at the same place
    **{
        f"no message, {each}": (Message(parts=(b"\x0f" + RAW,), pattern=REQUEST), each)
        for each in ("v2-grpc", "grps-grpc", "tfs-grpc")
    },
    "a npy file": (asked(replace(NUMBERS, content_type="npy"), "mip"), "mip"),
    "raw tensors of a reply": (Message(parts=(RAW_OUTPUTS,)), "v2-grpc"),
}
IN_A_THREAD = {
    **{
        f"strings, {each}": (asked(STRINGS, each), each)
        for each in ("graphpipe", "grps-grpc", "grps-brpc", "mip", "tfs-grpc")
    },
    **{f"numbers one by one, {each}": (asked(NUMBERS, each), each) for each in ("grps-grpc", "umbridge")},
    "JSON of MIP": (asked(replace(NUMBERS, content_type="json"), "mip"), "mip"),
    "many names of outputs": (asked(FEW, "graphpipe", OUTPUTS), "graphpipe"),
    "a frame of JSON": (of_brpc(content_type=1), "grps-brpc"),
    "a frame that is compressed": (of_brpc(compress_type=2), "grps-brpc"),
    "a frame with a checksum": (of_brpc(checksum_type=1), "grps-brpc"),
    "typed contents": (Message(parts=(CONTENTS.SerializeToString(),), pattern=REQUEST), "v2-grpc"),
    "a request with the number that raw outputs have": (Message(parts=(RAW_OUTPUTS,), pattern=REQUEST), "v2-grpc"),
    "many small fields": (Message(parts=(MANY_FIELDS,), pattern=REQUEST), "v2-grpc"),
    **{
        f"JSON, length {each!r}": (json_with_length(each), "v2-rest")
        for each in ("", str(2 * LARGE), str(2**20 + 1), "-1", "many")
    },
    "no message of GraphPipe": (Message(parts=(b"\xff" * 2 * LARGE,), pattern=REQUEST), "graphpipe"),
    "metadata of GraphPipe": (metadata_of_graphpipe(), "graphpipe"),
    "a frame of which the transport kept less": (
        Message(parts=(b"PRPC" + (2 * len(RAW)).to_bytes(4, "big") + bytes(4) + RAW,)),
        "grps-brpc",
    ),
    "a frame whose meta is no message": (received(write_frame(b"\xff", (RAW,))), "grps-brpc"),
    "an unknown field beside tensors": (
        Message(parts=(b"\x2a" + varint(len(UNKNOWN)) + UNKNOWN,), pattern=REQUEST),
        "grps-grpc",
    ),
    "a packet of MIP without an inference": (
        Message(parts=(b"\0\1\0\0" + len(RAW).to_bytes(4, "big") + RAW,)),
        "mip",
    ),
    **{
        each: (Message(pattern=f"/tensorflow.serving.PredictionService/{each}", parts=(RAW,)), "tfs-grpc")
        for each in ("Classify", "Regress", "MultiInference")
    },
}


@pytest.mark.parametrize(("message", "protocol"), ON_THE_LOOP.values(), ids=ON_THE_LOOP)
def test_what_is_decoded_on_the_loop(message: Message, protocol: str) -> None:
    assert not is_large(packet(message, protocol), protocols()[protocol])


@pytest.mark.parametrize(("message", "protocol"), IN_A_THREAD.values(), ids=IN_A_THREAD)
def test_what_is_decoded_in_a_thread(message: Message, protocol: str) -> None:
    assert is_large(packet(message, protocol), protocols()[protocol])


def test_replies_with_floats_are_decoded_on_the_loop_and_with_strings_in_a_thread() -> None:
    request = Request(Operation.INFER, "m", origin=Message(parts=(b"",)))
    for tensor, large in ((FLOATS, False), (STRINGS, True)):
        for protocol in (protocols()[name] for name in ("graphpipe", "grps-grpc", "tfs-grpc")):
            reply = protocol.encode_response(Response((tensor,), "m"), request, DEFAULT_TRANSLATE)
            assert is_large(replace(received(reply), status=reply.status), protocol) is large


@pytest.mark.parametrize(
    ("datatype", "size", "large"),
    [
        (Datatype.UINT8, 4 * LARGE, False),
        (Datatype.UINT8, 4 * LARGE + 1, True),
        (Datatype.BYTES, LARGE, False),
        (Datatype.BYTES, LARGE + 1, True),
    ],
)
def test_strings_are_written_in_a_thread_sooner_than_numbers(datatype: Datatype, size: int, large: bool) -> None:
    tensor = Tensor("x", datatype, (size,), bytes(size))
    assert are_large((tensor,)) is large


@pytest.mark.parametrize(
    "within", [b"", b"\x12", b"\x12\x12", b"\x12\x12\x12"], ids=["message", "entry", "tensor", "shape"]
)
def test_what_is_parsed_is_not_counted_to_the_end(within: bytes) -> None:
    """It is counted on the loop: ten million empty fields took seven seconds."""
    body = b"\x1a\x00" * 2**20
    for key in within:
        body = bytes([key]) + varint(len(body)) + body
    message = Message(pattern="/tensorflow.serving.PredictionService/Predict", parts=(body,))
    protocol = protocols()["tfs-grpc"]
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        assert is_large(message, protocol)
    finally:
        sys.setprofile(None)
    assert calls < 20_000
