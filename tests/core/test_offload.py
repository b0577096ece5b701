"""Which messages are coded away from the loop: those whose content takes long, not all that are large."""

import json

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.offload import LARGE, are_large, is_large
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Headers, Message, Request, Tensor
from gateway.protocols.v2 import V2_GRPC, V2_REST
from gateway.protocols.v2.grpc import schema
from gateway.registry import protocols

RAW = bytes(4 * LARGE)
NUMBERS = Tensor("x", Datatype.UINT8, (1, len(RAW)), RAW)


def received(message: Message, pattern: str = "") -> Message:
    return Message(headers=message.headers, parts=(b"".join(map(bytes, message.parts)),), pattern=pattern)


def asked(tensor: Tensor, protocol: str) -> Message:
    request = Request(Operation.INFER, "m", inputs=(tensor,))
    return received(protocols()[protocol].encode_request(request, Target(flavor="triton")), "a pattern")


@pytest.mark.parametrize("protocol", ["v2-grpc", "v2-rest"])
def test_raw_tensors_are_left_as_they_are_on_the_loop(protocol: str) -> None:
    assert not is_large(asked(NUMBERS, protocol), protocols()[protocol])


@pytest.mark.parametrize("protocol", ["graphpipe", "umbridge"])
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
