"""Calls as CloudEvents, with their requests and responses as messages of V2, as bytes."""

import json

import numpy as np
import pytest

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import RequestedOutput
from gateway.core.tensors import Tensor, tensor
from gateway.observing.payload_log import events
from gateway.observing.payload_log.copies import CopiedMessage, CopyBounds, copied
from gateway.observing.payload_log.events import (
    JSON,
    OCTETS,
    Event,
    EventForm,
    batch,
    event,
    headers,
    moment,
    structured,
)
from gateway.protocols.v2.rest.server import decode_request
from tests.observing.payload_log.logged import FACTS, FAILED, FORM, REPLY, REQUEST

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
    assert events.request_json("7", copy(one)) == b'{"id":"7","inputs":[{"name":' + written + b"}]}"


def test_numpy_reads_what_is_not_finite() -> None:
    assert np.isnan(np.array(["NaN", 1.0], np.float32)[0])
    assert np.array(["-Infinity", "1.0"]).astype(np.float64)[0] == -np.inf


def test_a_reply_in_json() -> None:
    message = events.reply_json("7", "m", "2", copy(NUMBERS))
    assert message == (
        b'{"model_name":"m","model_version":"2","id":"7",'
        b'"outputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1.5,2.0]}]}'
    )


def test_what_is_left_out_says_so_and_has_no_data() -> None:
    message = events.request_json("7", copy(NUMBERS, TEXTS, max_bytes=11, hide=("x",)))
    assert message.decode() == (
        '{"id":"7","inputs":['
        '{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"log.left_out":"hidden (8 bytes)"}},'
        '{"name":"s","shape":[2],"datatype":"BYTES","data":["a","\u00fc"]}]}'
    )


def test_parameters_that_are_left_out_and_what_is_not_counted_are_told() -> None:
    message = replace(copied((), {"key": "secret", "n": 3}, CopyBounds(1000, ("key",))), uncounted=7)
    assert events.request_json("7", message) == (
        b'{"id":"7","parameters":{"n":3,"log.left_out":"key: hidden","log.not_shown":7},"inputs":[]}'
    )


def test_binary_has_the_data_of_those_that_are_there_behind_the_json() -> None:
    length, message = events.request_binary("7", copy(NUMBERS, TEXTS, max_bytes=8))
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
        length, body = events.request_binary("7", message)
        headers = Headers([(b"inference-header-content-length", b"%d" % length)])
    else:
        body = events.request_json("7", message)
    received = Message("POST", "/v2/models/m/infer", headers, (body,), pattern="POST /v2/models/{model}/infer",
                       captures={"model": "m"})  # fmt: skip
    read = decode_request(received, ListenerSettings("a"))
    assert [(each.name, each.shape, bytes(each.data)) for each in read.inputs] == [
        (each.name, each.shape, bytes(each.data)) for each in inputs
    ]
    assert (read.id, read.parameters, [each.name for each in read.outputs]) == ("7", {"p": 1}, ["y"])


def test_halves_of_surrogate_pairs_do_not_stop_the_log() -> None:
    message = copied([tensor("x\ud800", np.array([1]))], {"p\udfff": "\ud800"}, CopyBounds(100))
    assert b"x\\\\ud800" in events.request_json("\ud800", message)


def test_an_error() -> None:
    assert events.error_json("7", "no such input") == b'{"id":"7","error":"no such input"}'


EVENT = Event({"id": "1", "type": "t", "complete": True, "headerlength": 3}, JSON, b'{"a":1}')
TEXT = (
    b'{"specversion":"1.0","id":"1","type":"t","complete":true,"headerlength":3,'
    b'"datacontenttype":"application/json","data":{"a":1}}'
)


def test_structured() -> None:
    assert structured(EVENT) == TEXT


def test_structured_with_bytes() -> None:
    text = structured(Event({"id": "1"}, OCTETS, b"\xff"))
    assert text == (b'{"specversion":"1.0","id":"1","datacontenttype":"application/octet-stream","data_base64":"/w=="}')


def test_batch() -> None:
    assert batch([EVENT, EVENT]) == b"[" + TEXT + b"," + TEXT + b"]"


def test_binary() -> None:
    assert headers(EVENT) == [
        (b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-type", b"t"), (b"ce-complete", b"true"),
        (b"ce-headerlength", b"3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "written"),
    [
        # CloudEvents' HTTP Protocol Binding, section 3.1.3.2: "Euro \u20ac \U0001f600" is its example
        ("Euro \u20ac \U0001f600", b"Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ('a"b%c', b"a%22b%25c"),
        ("a\r\nx: y", b"a%0D%0Ax:%20y"),
        ("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", b"!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("\u00fc<>", b"%C3%BC<>"),
        ("\ud800", b"\\ud800"),
    ],
)
def test_values_of_attributes_are_escaped_in_headers(value: str, written: bytes) -> None:
    assert headers(Event({"a": value}, JSON, b""))[1] == (b"ce-a", written)


def test_time_is_in_utc() -> None:
    assert moment(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"


COMMON = {
    "id": "id1", "source": "here", "inferenceservicename": "m", "component": "predictor", "endpoint": "b",
    "metadata": "{}", "operation": "infer", "route": "route-0", "protocol": "v2-rest",
}  # fmt: skip


def test_a_request_and_its_reply_have_one_id_and_kserve_s_types() -> None:
    request, reply = event(REQUEST, FORM), event(REPLY, FORM)
    assert request.attributes == {
        **COMMON, "type": "org.kubeflow.serving.inference.request", "time": "2023-11-14T22:13:20.000000Z",
        "complete": True,
    }  # fmt: skip
    assert reply.attributes == {
        **COMMON, "type": "org.kubeflow.serving.inference.response", "time": "2023-11-14T22:13:21.000000Z",
        "status": "OK", "complete": True,
    }  # fmt: skip


def test_an_error_stands_in_place_of_the_reply() -> None:
    found = event(FAILED, FORM)
    assert {key: found.attributes[key] for key in ("type", "status", "reason")} == {
        "type": "org.kubeflow.serving.inference.response", "status": "NOT_FOUND", "reason": "model-not-found",
    }  # fmt: skip
    assert json.loads(found.data) == {"id": "id1", "error": "no model 'm'"}


def test_replies_of_a_stream_are_numbered() -> None:
    assert event(replace(REPLY, number=3), FORM).attributes["sequence"] == "3"


def test_a_namespace_is_told_where_there_is_one() -> None:
    assert event(REQUEST, EventForm("here", "lab")).attributes["namespace"] == "lab"


@pytest.mark.parametrize(("given", "written"), [("", "id1"), ("client's", "client's")])
def test_the_message_has_the_client_s_id_else_that_of_the_request(given: str, written: str) -> None:
    request = replace(REQUEST, call=replace(FACTS, message_id=given))
    assert json.loads(event(request, FORM).data)["id"] == written
    assert event(request, FORM).attributes["id"] == "id1"


def test_binary_says_where_the_data_begins() -> None:
    found = event(REPLY, EventForm("here", is_binary=True))
    length = found.attributes["headerlength"]
    assert isinstance(length, int)
    assert json.loads(found.data[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert found.data[length:] == bytes.fromhex("000000000000f03f")
    assert event(FAILED, EventForm("here", is_binary=True)).content == "application/json"
