"""Declared forms in media types other than JSON: literal bytes, read and written again."""

from typing import Any

import numpy as np
import pytest
import yaml

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.form import FormError, parse_form
from gateway.protocols.json.protocol import protocol_of

PATH = "/invocations"


def protocol(text: str) -> Protocol:
    """The Protocol of the form in a YAML text."""
    document: Any = yaml.safe_load(text)
    return protocol_of("form", parse_form(document))


def post(body: bytes, content_type: str, accept: str = "") -> Message:
    """A client's request to PATH."""
    headers = [(b"content-type", content_type.encode())] + ([(b"accept", accept.encode())] if accept else [])
    return Message("POST", PATH, Headers(headers), (body,), pattern=f"POST {PATH}")


def read(form: Protocol, body: bytes, content_type: str, accept: str = "") -> Request:
    return form.decode_request(post(body, content_type, accept), ListenerSettings())


def shown(tensors: tuple[Tensor, ...]) -> list[tuple[str, str, list[int], list[Any]]]:
    return [(each.name, each.datatype.value, list(each.shape), each.array.reshape(-1).tolist()) for each in tensors]


CSV = f"""
infer: {{path: {PATH}, media_type: text/csv, request: $x, response_type: text/csv, response: $y}}
tensors: {{x: "FP32 [-1, 2]", y: "FP32 [-1, 1]"}}
"""


def test_csv_without_a_header() -> None:
    form = protocol(CSV)
    request = read(form, b'1,2.5\n"3",\n', "text/csv; charset=utf-8")
    assert request.inputs[0].array[0].tolist() == [1.0, 2.5]
    assert np.isnan(request.inputs[0].array[1, 1])
    assert form.encode_request(request, Target()).body == b"1.0,2.5\r\n3.0,NaN\r\n"
    with pytest.raises(GatewayError, match="element 3 is nan, which the route refuses"):
        form.encode_request(replace(request, translate=Translate(nan="error")), Target())
    message = form.encode_request(read(form, b"1,2.5\r\n", "text/csv"), Target())
    assert message.headers.raw == ((b"content-type", b"text/csv"), (b"accept", b"text/csv"))
    assert message.body == b"1.0,2.5\r\n"
    answer = Response((tensor("y", np.array([[0.5], [2]], np.float32)),))
    reply = form.encode_response(answer, request, Translate())
    assert (reply.headers.get("content-type"), reply.body) == ("text/csv", b"0.5\r\n2.0\r\n")
    found = form.decode_response(reply, request, Target())
    assert isinstance(found, Response)
    assert shown(found.outputs) == [("y", "FP32", [2, 1], [0.5, 2.0])]


@pytest.mark.parametrize("response", ["$y", "[$y, ...]"])
def test_a_column_of_csv_is_a_tensor_of_one_dimension(response: str) -> None:
    form = protocol(
        f"""
infer: {{path: {PATH}, media_type: text/csv, request: $x, response_type: text/csv, response: {response}}}
tensors: {{x: "FP64 [2]", y: "FP64 [-1]"}}
"""
    )
    request = read(form, b"1,2.5\n", "text/csv")
    assert shown(request.inputs) == [("x", "FP64", [2], [1.0, 2.5])]
    reply = form.encode_response(Response((tensor("y", np.array([0.5, 2])),)), request, Translate())
    assert reply.body == b"0.5\r\n2.0\r\n"
    answer = form.decode_response(reply, request, Target())
    assert isinstance(answer, Response)
    assert shown(answer.outputs) == [("y", "FP64", [2], [0.5, 2.0])]


NAMED = f"""
infer:
  path: {PATH}
  media_type: text/csv; header=present
  request: [{{sepal: $sepal, "colour?": $colour}}, ...]
  response: {{predictions: $y}}
tensors: {{sepal: "FP64 [-1]", colour: "BYTES [-1]", y: "INT64 [-1]"}}
"""


def test_csv_with_a_header() -> None:
    form = protocol(NAMED)
    request = read(form, b"colour,sepal\n007,1.5\nred,2\n", "text/csv")
    assert shown(request.inputs) == [
        ("sepal", "FP64", [2], [1.5, 2.0]),
        ("colour", "BYTES", [2], [b"007", b"red"]),
    ]
    message = form.encode_request(request, Target())
    assert message.headers.get("content-type") == "text/csv; header=present"
    assert message.body == b"sepal,colour\r\n1.5,007\r\n2.0,red\r\n"
    assert shown(read(form, b"sepal\n1\n", "text/csv").inputs) == [("sepal", "FP64", [1], [1.0])]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"sepal,colour\n1\n", "line 2 has 1 cell, but the first row 2 cells"),
        (b'sepal,colour\n1,"a', "line 2: the closing quote of a cell is missing"),
        (b"sepal\nred\n", "line 2, column 'sepal': 'red' is not a number"),
        (b"colour\nred\n", "sepal"),
        (b"sepal,more\n1,2\n", "more"),
        (b"1.5,red\n", "line 1 is the header, but no row follows it; add a row"),
        (b"1.5,red\n2,blue\n", "1.5"),
    ],
)
def test_csv_that_is_not_as_the_form_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(protocol(NAMED), body, "text/csv")


LINES = f"""
infer:
  path: {PATH}
  media_type: application/jsonlines
  request: [{{features: $x, "id?": $_}}, ...]
  response_type: application/jsonlines
  response: [{{score: $y}}, ...]
"""


def test_json_lines() -> None:
    form = protocol(LINES)
    request = read(form, b'{"features":[1,2.5]}\n{"features":[3,4],"id":7}', "application/jsonlines")
    assert shown(request.inputs) == [("", "FP64", [2, 2], [1.0, 2.5, 3.0, 4.0])]
    assert form.encode_request(request, Target()).body == b'{"features":[1.0,2.5]}\n{"features":[3.0,4.0]}\n'
    reply = Message(status=200, parts=(b'{"score":0.5}\n{"score":1}\n',))
    answer = form.decode_response(reply, request, Target())
    assert isinstance(answer, Response)
    assert form.encode_response(answer, request, Translate()).body == b'{"score":0.5}\n{"score":1.0}\n'
    with pytest.raises(DecodeError, match="line 1 is not one JSON document"):
        read(form, b'{"features":[1]},{"features":[2]}\n', "application/jsonlines")


NPY = f"infer: {{path: {PATH}, media_type: application/x-npy, request: $x, response: $y}}"
FILE = (
    b"\x93NUMPY\1\0v\0"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }".ljust(117)
    + b"\n\0\0\x80\x3f\0\0\x20\x40"
)


def test_npy_files() -> None:
    form = protocol(NPY)
    request = read(form, FILE, "application/x-npy")
    assert shown(request.inputs) == [("", "FP32", [2], [1.0, 2.5])]
    assert form.encode_request(request, Target()).body == FILE
    with pytest.raises(DecodeError, match="is not that of an array of numbers"):
        read(form, FILE.replace(b"<f4", b"|O8"), "application/x-npy")
    with pytest.raises(GatewayError, match="is BYTES"):
        form.encode_request(Request(INFER, inputs=(tensor("x", np.array([b"a"])),)), Target())


def test_raw_bytes_and_texts() -> None:
    form = protocol(
        f"infer: {{path: {PATH}, media_type: image/*, request: $x, response_type: text/plain, response: $y}}"
    )
    request = read(form, b"\x89PNG\0", "image/png")
    assert shown(request.inputs) == [("", "BYTES", [1], [b"\x89PNG\0"])]
    message = form.encode_request(request, Target())
    assert (message.headers.get("content-type"), message.body) == ("application/octet-stream", b"\x89PNG\0")
    answer = form.decode_response(Message(status=200, parts=("ä\n".encode(),)), request, Target())
    assert isinstance(answer, Response)
    assert shown(answer.outputs) == [("", "BYTES", [1], ["ä\n".encode()])]
    assert form.encode_response(answer, request, Translate()).body == "ä\n".encode()
    with pytest.raises(DecodeError, match="not UTF-8"):
        form.decode_response(Message(status=200, parts=(b"\xff",)), request, Target())


FORM_DATA = f"""
infer:
  path: {PATH}
  media_type: multipart/form-data
  request: {{image: $image, "boxes?": $boxes, "prompt?": $prompt|text, kind: photo, "top_k?": $param.top_k}}
  response: {{y: $y}}
tensors: {{image: "BYTES [1]", boxes: "INT64 [-1, 4]", prompt: "BYTES [1]", y: "FP64 [-1]"}}
"""

PARTS = (
    b'--B\r\nContent-Disposition: form-data; name="kind"\r\n\r\nphoto\r\n'
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
    b'--B\r\nContent-Disposition: form-data; name="top_k"\r\n\r\n5\r\n'
    b"--B--\r\n"
)


def test_form_data() -> None:
    form = protocol(FORM_DATA)
    request = read(form, PARTS, "multipart/form-data; boundary=B")
    assert shown(request.inputs) == [
        ("image", "BYTES", [1], [b"\x89PNG\r\n"]),
        ("boxes", "INT64", [1, 4], [0, 0, 10, 10]),
        ("prompt", "BYTES", [1], [b'a "cat"']),
    ]
    assert request.parameters == {"top_k": "5"}
    message = form.encode_request(request, Target())
    kind, _, boundary = message.headers.get("content-type").partition("; boundary=")
    assert kind == "multipart/form-data"
    assert message.body == WRITTEN.replace(b"--B", b"--" + boundary.encode())
    assert message.headers.get("accept") == "application/json"
    again = read(form, bytes(message.body), message.headers.get("content-type"))
    assert shown(again.inputs) == shown(request.inputs)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (PARTS.replace(b"photo", b"film"), "kind"),
        (PARTS.replace(b'name="image"', b'name="imago"'), "ima"),
        (PARTS.replace(b"[[0, 0, 10, 10]]", b"0, 0"), "part 'boxes' is not one JSON document"),
        (PARTS.replace(b"[[0, 0, 10, 10]]", b"[[0, 0, 10]]"), "boxes"),
        (PARTS.replace(b'a "cat"', b"\xff"), "part 'prompt' is not UTF-8"),
        (
            PARTS.replace(b'name="prompt"', b'name="image"'),
            "two parts of the form data have the name 'image'; rename one",
        ),
        (PARTS[:-6], "does not begin or end with a boundary"),
        (b"", "does not begin with its boundary"),
    ],
)
def test_form_data_that_is_not_as_the_form_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(protocol(FORM_DATA), body, "multipart/form-data; boundary=B")


@pytest.mark.parametrize("request_", ["$x", "[$x]", '{"$*": $*}', "{$any: [{a: $x}, {b: $x}]}"])
def test_form_data_is_an_object_of_parts(request_: str) -> None:
    with pytest.raises(FormError, match="form data is one object of named parts"):
        protocol(f"infer: {{path: {PATH}, media_type: multipart/form-data, request: {request_}, response: $y}}")


SEVERAL = f"""
infer:
  - {{path: {PATH}, request: {{instances: $x}}, response: {{predictions: $y}}}}
  - {{path: {PATH}, media_type: text/csv, request: $x, response_type: text/csv, response: $y}}
  - {{path: {PATH}, media_type: application/x-npy, request: $x, response_type: application/x-npy, response: $y}}
"""


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "reply"),
    [
        (b'{"instances":[1.0,2.5]}', "application/json", "", b'{"predictions":[1.0,2.5]}'),
        (b"1.0\n2.5\n", "text/csv", "", b"1.0\r\n2.5\r\n"),
        (b"1.0\n2.5\n", "text/csv", "application/json", b'{"predictions":[1.0,2.5]}'),
        (b"1.0\n2.5\n", "text/csv", "text/html, application/*;q=0.5", b'{"predictions":[1.0,2.5]}'),
        (FILE, "application/x-npy", "text/csv", b"1.0\r\n2.5\r\n"),
        (b'{"instances":[1.0,2.5]}', "application/json", "text/html", b'{"predictions":[1.0,2.5]}'),
    ],
)
def test_the_media_types_of_requests_and_replies(body: bytes, content_type: str, accept: str, reply: bytes) -> None:
    form = protocol(SEVERAL)
    request = read(form, body, content_type, accept)
    answer = Response((tensor("y", np.array([1, 2.5], np.float32)),))
    assert form.encode_response(answer, request, Translate()).body == reply


@pytest.mark.parametrize(
    ("stream", "content_type", "written", "end"),
    [
        ("sse", "text/event-stream", b'data: {"token":[1]}\n\n', b""),
        ("openai", "text/event-stream", b'data: {"token":[1]}\n\n', b"data: [DONE]\n\n"),
        ("jsonl", "application/jsonlines", b'{"token":[1]}\n', b""),
    ],
)
def test_replies_may_be_streams(stream: str, content_type: str, written: bytes, end: bytes) -> None:
    form = protocol(f"infer: {{path: {PATH}, request: {{prompt: $x}}, response: {{token: $y}}, stream: {stream}}}")
    framing = form.http.stream_framing
    assert framing is not None
    request = read(form, b'{"prompt":[1]}', "application/json")
    assert request.operation is STREAM
    reply = form.encode_response(Response((tensor("y", np.array([1])),)), request, Translate())
    assert reply.headers.get("content-type") == content_type
    assert b"".join(framing.wrap(reply.parts)) == written
    assert form.encode_end is not None
    ended = form.encode_end(request)
    assert ended is not None
    assert b"".join(framing.wrap(ended.parts)) == end
    message = form.encode_request(request, Target())
    assert message.headers.get("accept") == content_type
    cutter = framing.cutter(1000)
    [event] = [*cutter.feed(written + end), *cutter.end()]
    answer = form.decode_response(Message(status=200, parts=(event,)), request, Target())
    assert isinstance(answer, Response)
    assert shown(answer.outputs) == [("", "INT64", [1], [1])]


def test_streams_of_another_kind_are_refused() -> None:
    with pytest.raises(FormError, match="'websocket' is no stream, expected one of sse, openai, jsonl"):
        protocol(f"infer: {{path: {PATH}, request: $x, response: $y, stream: websocket}}")


def test_bf16_goes_into_npy_files_as_fp32() -> None:
    bf16 = Tensor("x", Datatype.BF16, (1,), b"\x80\x3f")
    body = bytes(protocol(NPY).encode_request(Request(INFER, inputs=(bf16,)), Target()).body)
    assert shown(read(protocol(NPY), body, "application/x-npy").inputs) == [("", "FP32", [1], [1.0])]
