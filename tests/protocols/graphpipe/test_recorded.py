"""What graphpipe 1.0.4 and the Go client really send, read and written: tests/wire/graphpipe/record.py recorded it."""

from typing import Any

import numpy as np
import pytest

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked, recorded, reply

METADATA = bytes.fromhex("0c00000008000c000b000400080000000c000000000000020400040004000000")
PYTHON = bytes.fromhex(
    "100000000000000008000c000b0004000800000014000000000000010c001400100008000c0004000c000000100000001000000010000000"
    "600000000000000000000000010000001000000000000a0010000b000c0004000a0000000c0000000000000a20000000180000000000803f"
    "0000803f0000803f0000803f0000803f0000803f02000000020000000000000003000000000000000000000000000000"
)
GO = bytes.fromhex(
    "0c00000008000c000b0004000800000014000000000000010c0014000400100008000c000c00000010000000140000006800000068000000"
    "000000000000000001000000100000000c0010000b000c00000004000c0000001c0000000000000c04000000010000000300000000000000"
    "000000000300000018000000100000000400000003000000630064000000000002000000616200000000000000000000"
)


def test_the_python_clients_request_for_metadata() -> None:
    request = asked(METADATA)
    assert (request.operation, request.model, request.inputs) == (Operation.METADATA, "m", ())


def test_the_python_clients_inference_without_names() -> None:
    request = asked(PYTHON)
    assert (request.operation, request.model, request.outputs, request.parameters) == (Operation.INFER, "m", (), {})
    assert request.inputs == (Tensor("", Datatype.FP32, (2, 3), np.ones(6, "<f4").tobytes()),)


def test_the_go_clients_strings_have_no_nul_behind_them() -> None:
    (text,) = asked(GO).inputs
    assert (text.name, text.datatype, text.shape) == ("", Datatype.BYTES, (3,))
    assert text.array.tolist() == [b"ab", b"", b"c\0d"]


SIX = [[0, 1, 2], [3, 100, 127]]
NUMBERS = ("UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64", "FP16", "FP32", "FP64")
ARRAYS: dict[str, tuple[Datatype, Any]] = {
    **{each.dtype.name: (each, np.array(SIX, each.dtype)) for each in map(DATATYPES.__getitem__, NUMBERS)},
    "scalar": (Datatype.FP64, np.array(1.5)),
    "empty": (Datatype.INT32, np.zeros((0, 3), np.int32)),
    "unicode": (Datatype.BYTES, np.array(["é".encode(), b"", b"abcd"], object)),
    "bytes": (Datatype.BYTES, np.array([[b"\xff", b"a\0b"]], object)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_every_type_is_read_in_both_directions(name: str) -> None:
    datatype, array = ARRAYS[name]
    response = GRAPHPIPE.decode_response(reply(recorded(f"{name}.reply")), Request(Operation.INFER), TARGET)
    assert isinstance(response, Response)
    for read in (*asked(recorded(f"{name}.request")).inputs, *response.outputs):
        assert (read.name, read.datatype, read.shape) == ("", datatype, array.shape)
        assert read.array.tolist() == array.tolist()
        assert bytes(read.data) == bytes(tensor("", array, datatype).data)


def test_names_config_and_several_tensors() -> None:
    request = asked(recorded("several.request"))
    assert [(each.name, each.datatype, each.shape) for each in request.inputs] == [
        ("x", Datatype.FP32, (2, 3)),
        ("größe", Datatype.BYTES, (3,)),
    ]
    assert request.outputs == (RequestedOutput("y"), RequestedOutput("z"))
    assert request.parameters == {"config": '{"level": 2}'}


def test_no_tensors_at_all() -> None:
    request = asked(recorded("none.request"))
    assert (request.inputs, request.outputs) == ((), (RequestedOutput("y"),))
    response = GRAPHPIPE.decode_response(reply(recorded("none.reply")), Request(Operation.INFER), TARGET)
    assert isinstance(response, Response)
    assert response.outputs == ()


def test_metadata_which_the_package_writes_in_reverse_order() -> None:
    signature = GRAPHPIPE.decode_response(reply(recorded("metadata.reply")), Request(Operation.METADATA), TARGET)
    assert signature == Signature(
        (TensorSpec("b", Datatype.BYTES, (), description="text"), TensorSpec("a", Datatype.FP32, (-1, 3))),
        (TensorSpec("c", Datatype.INT64, (2,)),),
        name="model",
        platform="a server",
        description="what it is for",
        server_version="1.2",
    )
