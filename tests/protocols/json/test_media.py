"""Declared forms in media types other than JSON: literal bytes, read and written again."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.messages import Message
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.form import FormError
from tests.protocols.json.declared import declared, read, response, written
from tests.protocols.json.test_bodies import shown

PREDICT = "POST /predict"


def test_csv_without_a_header() -> None:
    form = declared("""
infer: {path: /predict, media_type: text/csv, request: $x, response_type: text/csv, response: $y}
tensors: {x: "FP32 [-1, 2]", y: "FP32 [-1, 1]"}
""")
    request = read(form, PREDICT, b'1,2.5\n"3",\n', content_type="text/csv; charset=utf-8")
    message = written(form, request)
    assert message.headers.raw == ((b"content-type", b"text/csv"), (b"accept", b"text/csv"))
    assert message.body == b"1.0,2.5\r\n3.0,NaN\r\n"
    assert shown(response(form, request, b"0.5\r\n2.0\r\n").outputs) == [("y", "FP32", [2, 1], [[0.5], [2.0]])]


def test_csv_with_a_header() -> None:
    form = declared("""
infer:
  path: /predict
  media_type: text/csv; header=present
  request: [{sepal: $sepal, "colour?": $colour}, ...]
  response: {predictions: $y}
tensors: {sepal: "FP64 [-1]", colour: "BYTES [-1]", y: "INT64 [-1]"}
""")
    request = read(form, PREDICT, b"colour,sepal\n007,1.5\nred,2\n", content_type="text/csv")
    assert shown(request.inputs) == [("sepal", "FP64", [2], [1.5, 2.0]), ("colour", "BYTES", [2], [b"007", b"red"])]
    message = written(form, request)
    assert message.headers.get("content-type") == "text/csv; header=present"
    assert message.body == b"sepal,colour\r\n1.5,007\r\n2.0,red\r\n"
    assert shown(read(form, PREDICT, b"sepal\n1\n").inputs) == [("sepal", "FP64", [1], [1.0])]


PARTS = (
    b'--B\r\nContent-Disposition: form-data; name="kind"\r\n\r\nphoto\r\n'
    b'--B\r\nContent-Disposition: form-data; name="id"\r\n\r\n7\r\n'
    b'--B\r\nContent-Disposition: form-data; name="top_k"\r\n\r\n5\r\n'
    b'--B\r\nContent-Disposition: form-data; name="boxes"\r\n\r\n[[0, 0, 10, 10]]\r\n'
    b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na "cat"\r\n'
    b'--B\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    b"\x89PNG\r\n\r\n"
    b"--B--\r\n"
)

WRITTEN = (
    b'--B\r\nContent-Disposition: form-data; name="image"; filename="image"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n\x89PNG\r\n\r\n"
    b'--B\r\nContent-Disposition: form-data; name="boxes"\r\nContent-Type: application/json\r\n\r\n[[0,0,10,10]]\r\n'
    b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na "cat"\r\n'
    b'--B\r\nContent-Disposition: form-data; name="kind"\r\n\r\nphoto\r\n'
    b'--B\r\nContent-Disposition: form-data; name="id"\r\n\r\n7\r\n'
    b'--B\r\nContent-Disposition: form-data; name="top_k"\r\n\r\n5\r\n'
    b"--B--\r\n"
)


def test_form_data() -> None:
    form = declared("""
infer:
  path: /predict
  media_type: multipart/form-data
  request:
    {image: $image, "boxes?": $boxes, "prompt?": $prompt|text, kind: photo, "id?": $id, "top_k?": $param.top_k}
  response: {y: $y}
tensors: {image: "BYTES [1]", boxes: "INT64 [-1, 4]", prompt: "BYTES [1]", y: "FP64 [-1]"}
""")
    request = read(form, PREDICT, PARTS, content_type="multipart/form-data; boundary=B")
    assert shown(request.inputs) == [
        ("image", "BYTES", [1], [b"\x89PNG\r\n"]),
        ("boxes", "INT64", [1, 4], [[0, 0, 10, 10]]),
        ("prompt", "BYTES", [1], [b'a "cat"']),
    ]
    assert (request.id, request.parameters) == ("7", {"top_k": "5"})
    message = written(form, request)
    content_type = message.headers.get("content-type")
    kind, _, boundary = content_type.partition("; boundary=")
    assert (kind, message.headers.get("accept")) == ("multipart/form-data", "application/json")
    assert message.body == WRITTEN.replace(b"--B", b"--" + boundary.encode())
    assert read(form, PREDICT, bytes(message.body), content_type=content_type).inputs == request.inputs


@pytest.mark.parametrize("request_", ["$x", "[$x]", '{"$*": $*}', "{$any: [{a: $x}, {b: $x}]}"])
def test_form_data_is_an_object_of_parts(request_: str) -> None:
    with pytest.raises(FormError, match="form data is one object of named parts"):
        declared(f"infer: {{path: /predict, media_type: multipart/form-data, request: {request_}, response: $y}}")


@pytest.mark.parametrize(
    ("stream", "content_type", "message", "end"),
    [
        ("sse", "text/event-stream", b'data: {"token":[1]}\n\n', b""),
        ("openai", "text/event-stream", b'data: {"token":[1]}\n\n', b"data: [DONE]\n\n"),
        ("jsonl", "application/jsonlines", b'{"token":[1]}\n', b""),
    ],
)
def test_replies_may_be_streams(stream: str, content_type: str, message: bytes, end: bytes) -> None:
    form = declared(f"infer: {{path: /predict, request: {{prompt: $x}}, response: {{token: $y}}, stream: {stream}}}")
    framing = form.http.stream_framing
    assert framing is not None
    request = read(form, PREDICT, b'{"prompt":[1]}')
    assert request.operation is STREAM
    reply = form.encode_response(Response((tensor("y", np.array([1])),)), request, Translate())
    assert reply.headers.get("content-type") == content_type
    assert b"".join(framing.wrap(reply.parts)) == message
    assert form.encode_end is not None
    ended = form.encode_end(request)
    assert ended is not None
    assert (ended.status, b"".join(framing.wrap(ended.parts))) == (200, end)
    assert written(form, request).headers.get("accept") == content_type
    cutter = framing.cutter(1000)
    [event] = [*cutter.feed(message + end), *cutter.end()]
    answer = form.decode_response(Message(status=200, parts=(event,)), request, Target())
    assert isinstance(answer, Response)
    assert shown(answer.outputs) == [("", "INT64", [1], [1])]


def test_bf16_goes_into_npy_files_as_fp32() -> None:
    form = declared("infer: {path: /predict, media_type: application/x-npy, request: $x, response: $y}")
    bf16 = Tensor("x", Datatype.BF16, (1,), b"\x80\x3f")
    body = bytes(written(form, Request(INFER, inputs=(bf16,))).body)
    assert shown(read(form, PREDICT, body, content_type="application/x-npy").inputs) == [("", "FP32", [1], [1.0])]
