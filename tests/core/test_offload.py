"""Which messages are coded away from the loop: those whose content takes long, not all that are large."""

import json
import struct
import sys

import pytest

from gateway.assembly.registry import protocols
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.offload import LARGE, are_large, is_large
from gateway.core.operations import Operation
from gateway.core.protobuf.wire import varint
from gateway.core.protocol import StreamBinding, Target
from gateway.core.requests import DEFAULT_TRANSLATE, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from gateway.protocols.grps.brpc.frames import read_frame, write_frame
from gateway.protocols.grps.schema import RpcMeta
from gateway.protocols.v2 import V2_GRPC, V2_REST
from gateway.protocols.v2.grpc import schema

RAW = bytes(4 * LARGE)
NUMBERS = Tensor("x", Datatype.UINT8, (1, len(RAW)), RAW)
FLOATS = Tensor("x", Datatype.FP32, (1, LARGE), RAW)
STRINGS = Tensor("x", Datatype.BYTES, (1, LARGE), struct.pack("<Ic", 1, b"x") * LARGE)


def received(message: Message, pattern: str = "") -> Message:
    return Message(headers=message.headers, parts=(b"".join(map(bytes, message.parts)),), pattern=pattern)


def asked(tensor: Tensor, protocol: str) -> Message:
    request = Request(Operation.INFER, "m", inputs=(tensor,))
    return received(protocols()[protocol].encode_request(request, Target(flavor="triton")), "a pattern")


def packet(message: Message, protocol: str) -> Message:
    """The message as its transport delivers it: on byte streams in two parts."""
    binding, body = protocols()[protocol].binding, bytes(message.body)
    size = binding.framing.header_size if isinstance(binding, StreamBinding) else 0
    return replace(message, parts=(body[:size], body[size:])) if size else message


@pytest.mark.parametrize("protocol", ["v2-grpc", "v2-rest", "tfs-grpc"])
def test_raw_tensors_are_decoded_on_the_loop(protocol: str) -> None:
    assert not is_large(asked(NUMBERS, protocol), protocols()[protocol])


@pytest.mark.parametrize("protocol", ["graphpipe", "grps-grpc", "grps-brpc", "tfs-grpc"])
def test_floats_are_decoded_on_the_loop(protocol: str) -> None:
    assert not is_large(packet(asked(FLOATS, protocol), protocol), protocols()[protocol])


def test_a_npy_file_is_read_on_the_loop_and_json_in_a_thread() -> None:
    assert not is_large(packet(asked(replace(NUMBERS, content_type="npy"), "mip"), "mip"), protocols()["mip"])
    assert is_large(packet(asked(replace(NUMBERS, content_type="json"), "mip"), "mip"), protocols()["mip"])


@pytest.mark.parametrize("protocol", ["graphpipe", "grps-grpc", "grps-brpc", "mip", "tfs-grpc"])
def test_strings_are_read_in_a_thread(protocol: str) -> None:
    assert is_large(packet(asked(STRINGS, protocol), protocol), protocols()[protocol])


def test_replies_with_floats_are_decoded_on_the_loop_and_with_strings_in_a_thread() -> None:
    request = Request(Operation.INFER, "m", origin=Message(parts=(b"",)))
    for tensor, large in ((FLOATS, False), (STRINGS, True)):
        for protocol in (protocols()[name] for name in ("graphpipe", "grps-grpc", "tfs-grpc")):
            reply = protocol.encode_response(Response((tensor,), "m"), request, DEFAULT_TRANSLATE)
            assert is_large(replace(received(reply), status=reply.status), protocol) is large


def test_many_names_over_graphpipe_are_read_in_a_thread() -> None:
    outputs = tuple(RequestedOutput(f"{at:0300}") for at in range(LARGE // 256))
    request = Request(Operation.INFER, "m", inputs=(Tensor("x", Datatype.FP32, (1,), bytes(4)),), outputs=outputs)
    message = received(protocols()["graphpipe"].encode_request(request, Target()))
    assert is_large(message, protocols()["graphpipe"])


@pytest.mark.parametrize("meta", [{"content_type": 1}, {"compress_type": 2}, {"checksum_type": 1}])
def test_frames_of_brpc_that_are_not_plain_protobuf_are_read_in_a_thread(meta: dict[str, int]) -> None:
    frame = read_frame(packet(asked(FLOATS, "grps-brpc"), "grps-brpc"))
    written = write_frame(RpcMeta(**meta).SerializeToString(), (frame.payload,))
    assert is_large(packet(received(written), "grps-brpc"), protocols()["grps-brpc"])


@pytest.mark.parametrize("protocol", ["grps-grpc", "umbridge"])
def test_what_is_read_number_by_number_is_read_in_a_thread(protocol: str) -> None:
    assert is_large(asked(NUMBERS, protocol), protocols()[protocol])


def test_raw_tensors_of_a_reply_over_grpc() -> None:
    reply = schema.ModelInferResponse(raw_output_contents=[RAW]).SerializeToString()
    assert not is_large(Message(parts=(reply,)), V2_GRPC)


def test_contents_with_types_are_read_in_a_thread() -> None:
    request = schema.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype="BYTES").contents.bytes_contents.extend([b"x"] * LARGE)
    assert is_large(Message(parts=(request.SerializeToString(),), pattern="a pattern"), V2_GRPC)


def test_a_request_cannot_pass_for_raw_by_the_number_that_raw_outputs_have() -> None:
    request = schema.ModelInferResponse(raw_output_contents=[RAW]).SerializeToString()
    assert is_large(Message(parts=(request,), pattern="a pattern"), V2_GRPC)


def test_many_small_fields_count_as_much() -> None:
    request = schema.ModelInferRequest(raw_input_contents=[b""] * LARGE).SerializeToString()
    assert is_large(Message(parts=(request,), pattern="a pattern"), V2_GRPC)


@pytest.mark.parametrize("length", ["", str(2 * LARGE), "-1", "many"])
def test_json_is_read_in_a_thread(length: str) -> None:
    body = json.dumps({"inputs": ["x" * 2 * LARGE]}).encode()
    headers = Headers([(b"inference-header-content-length", length.encode())] if length else [])
    assert is_large(Message(headers=headers, parts=(body,), pattern="a pattern"), V2_REST)


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


@pytest.mark.parametrize("method", ["Classify", "Regress", "MultiInference"])
def test_examples_are_read_in_a_thread(method: str) -> None:
    message = Message(pattern=f"/tensorflow.serving.PredictionService/{method}", parts=(RAW,))
    assert is_large(message, protocols()["tfs-grpc"])


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
