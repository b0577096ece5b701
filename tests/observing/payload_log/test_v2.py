"""Copies as messages of V2, as bytes."""

import numpy as np
import pytest

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import RequestedOutput
from gateway.core.tensors import Tensor, tensor
from gateway.observing.payload_log import v2
from gateway.observing.payload_log.copies import CopiedMessage, CopyBounds, copied
from gateway.protocols.v2.rest.server import decode_request

NUMBERS = tensor("x", np.array([[1.5, 2]], np.float32))
TEXTS = tensor("s", np.array(["a", "\u00fc"]))


def copy(*tensors: Tensor, max_bytes: int = 1000, hide: tuple[str, ...] = ()) -> CopiedMessage:
    return copied(tensors, {}, CopyBounds(max_bytes, hide))


@pytest.mark.parametrize(
    ("one", "written"),
    [
        (NUMBERS, b'"x","shape":[1,2],"datatype":"FP32","data":[1.5,2.0]'),
        (TEXTS, '"s","shape":[2],"datatype":"BYTES","data":["a","\u00fc"]'.encode()),
        (
            tensor("b", np.array([b"\xff\x00", b""], object)),
            b'"b","shape":[2],"datatype":"BYTES","parameters":{"content_type":"base64"},"data":["/wA=",""]',
        ),
        (
            tensor("n", np.array([np.nan, np.inf, -np.inf, 1])),
            b'"n","shape":[4],"datatype":"FP64","data":["NaN","Infinity","-Infinity",1.0]',
        ),
        (tensor("t", np.array([True, False])), b'"t","shape":[2],"datatype":"BOOL","data":[true,false]'),
        (
            tensor("u", np.array([2**64 - 1], np.uint64)),
            b'"u","shape":[1],"datatype":"UINT64","data":[18446744073709551615]',
        ),
        (tensor("h", np.array([0.5], np.float16)), b'"h","shape":[1],"datatype":"FP16","data":[0.5]'),
        (
            Tensor("bf", Datatype.BF16, (1,), cast(np.array([0.5]), Datatype.BF16, "bf").tobytes()),
            b'"bf","shape":[1],"datatype":"BF16","data":[0.5]',
        ),
        (Tensor("e", Datatype.FP32, (0, 3), b""), b'"e","shape":[0,3],"datatype":"FP32","data":[]'),
    ],
)  # fmt: skip
def test_every_kind_of_values_has_a_form_in_json(one: Tensor, written: bytes) -> None:
    assert v2.request_json("7", copy(one)) == b'{"id":"7","inputs":[{"name":' + written + b"}]}"


def test_numpy_reads_what_is_not_finite() -> None:
    assert np.isnan(np.array(["NaN", 1.0], np.float32)[0])
    assert np.array(["-Infinity", "1.0"]).astype(np.float64)[0] == -np.inf


def test_a_reply_in_json() -> None:
    message = v2.reply_json("7", "m", "2", copy(NUMBERS))
    assert message == (
        b'{"model_name":"m","model_version":"2","id":"7",'
        b'"outputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1.5,2.0]}]}'
    )


def test_what_is_left_out_says_so_and_has_no_data() -> None:
    message = v2.request_json("7", copy(NUMBERS, TEXTS, max_bytes=11, hide=("x",)))
    assert (
        message
        == (
            '{"id":"7","inputs":['
            '{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"log.left_out":"hidden (8 bytes)"}},'
            '{"name":"s","shape":[2],"datatype":"BYTES","data":["a","\u00fc"]}]}'
        ).encode()
    )


def test_binary_has_the_data_of_those_that_are_there_behind_the_json() -> None:
    length, message = v2.request_binary("7", copy(NUMBERS, TEXTS, max_bytes=8))
    assert message[:length] == (
        b'{"id":"7","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}},'
        b'{"name":"s","shape":[2],"datatype":"BYTES","parameters":{"log.left_out":"too large (11 bytes)"}}]}'
    )
    assert message[length:] == b"\x00\x00\xc0\x3f\x00\x00\x00\x40"


@pytest.mark.parametrize("is_binary", [False, True])
def test_a_server_of_v2_reads_it(is_binary: bool) -> None:
    inputs = (NUMBERS, TEXTS)
    message = copied(inputs, {"p": 1}, CopyBounds(1000), [RequestedOutput("y")])
    headers = Headers()
    if is_binary:
        length, body = v2.request_binary("7", message)
        headers = Headers([(b"inference-header-content-length", b"%d" % length)])
    else:
        body = v2.request_json("7", message)
    received = Message("POST", "/v2/models/m/infer", headers, (body,), pattern="POST /v2/models/{model}/infer",
                       captures={"model": "m"})  # fmt: skip
    read = decode_request(received, ListenerSettings("a"))
    assert [(each.name, each.shape, bytes(each.data)) for each in read.inputs] == [
        (each.name, each.shape, bytes(each.data)) for each in inputs
    ]
    assert (read.id, read.parameters, [each.name for each in read.outputs]) == ("7", {"p": 1}, ["y"])


def test_halves_of_surrogate_pairs_do_not_stop_the_log() -> None:
    message = copied([tensor("x\ud800", np.array([1]))], {"p\udfff": "\ud800"}, CopyBounds(100))
    assert b"x\\\\ud800" in v2.request_json("\ud800", message)


def test_an_error() -> None:
    assert v2.error_json("7", "no such input") == b'{"id":"7","error":"no such input"}'
