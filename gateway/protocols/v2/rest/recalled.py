"""Bodies like one that came before: equal to it in all but the contents of tensors.

    {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1.5, 2.5]}]}

Clients and servers send the same names, datatypes and shapes again and again. The first such body is read and checked,
and its layout remembered: the text, without the numbers of its only tensor or the binary data behind it, and what it
says. Of the next body with the same text the contents alone are read.

An id before the only tensor, which differs in each request, is left out of the text like the numbers. Documents with an
id elsewhere have no layout. Neither have those with parameters whose effect is not the same every time, nor those with
BYTES or BOOL, whose contents must be looked at.
"""

from collections.abc import Callable
from math import isfinite
from typing import TypeAlias

import orjson

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.operations import INFER
from gateway.core.original import Original
from gateway.core.protocol import Limits
from gateway.core.types import (
    Buffer,
    Message,
    Parameters,
    ParameterValue,
    Request,
    RequestedOutput,
    Response,
    Shape,
    Tensor,
)
from gateway.json import Array
from gateway.protocols.v2.rest.binary import HEADER_LENGTH_FIELD
from gateway.protocols.v2.rest.json_bodies import JsonObject
from gateway.protocols.v2.rest.usual import NUMBERS, packed
from gateway.protocols.v2.rest.verbatim import BodyForm, request_says_no_more, response_says_no_more

_LARGEST = 8192
"""Bytes of a document up to which Python's numbers cost less than reading its text in bulk, as in `usual`."""
_LARGEST_BINARY = 2**17
"""Bytes of a body with binary data up to which copies of the contents cost less than views of them."""
_LONGEST = 1024
"""Bytes of a text that are remembered."""
_MOST = 4096
"""Texts of each kind that are remembered."""

_DATA = b'"data"'

MakeOrigin: TypeAlias = Callable[[Message], Message]


# --- the document alone ---


@frozen
class DocumentLayout:
    """What documents with the same text around their numbers say.

    - `letter`, `is_float`: how `packed` writes the numbers.
    - `parameters`: those of the tensor.
    - `model`, `version`: those that a response names, as they stand in the document; None where it has none.
    - `says_no_more`: the document says nothing else than its value, so it can go on as it came.
    """

    name: str
    datatype: Datatype
    shape: Shape
    count: int
    letter: str
    is_float: bool
    model: str | None
    version: str | None
    says_no_more: bool
    parameters: Parameters


_Layouts: TypeAlias = dict[tuple[bytes, ...], DocumentLayout]
"""By the text before and behind the numbers; where it has an id, by that before, between and behind both."""

_requests: _Layouts = {}
_responses: _Layouts = {}


def _recall(
    body: Buffer, layouts: _Layouts, limits: Limits
) -> tuple[DocumentLayout, str | None, tuple[Tensor, ...]] | None:
    """The layout of `body`, if it is known, its id, and its tensor."""
    if type(body) is not bytes or len(body) > _LARGEST:
        return None
    begin = body.find(b"[", body.find(_DATA))
    end = body.find(b"]", begin)
    layout, id = layouts.get((body[:begin], body[end:])), None
    if layout is None and (place := _id_before(body, begin)) is not None:
        opening, closing = place
        id = body[opening:closing].decode()
        layout = layouts.get((body[:opening], body[closing:begin], body[end:]))
    # Another listener or backend may have smaller limits than the one that a layout was remembered for. A number has a
    # byte at least, and eight of its raw form at most.
    if layout is None or len(body) > limits.json_values or 8 * len(body) > limits.message:
        return None
    try:
        data = packed(orjson.loads(body[begin : end + 1]), layout.count, layout.letter, layout.is_float)
    except orjson.JSONDecodeError:
        return None
    if data is None:
        return None
    return layout, id, (Tensor(layout.name, layout.datatype, layout.shape, data, "", layout.parameters),)


_ID = b'"id"'


def _id_before(body: bytes, end: int) -> tuple[int, int] | None:
    """Where the text of the first string behind a key `"id"` begins and ends; None without one before `end`, and for
    a text that may stand for another, or is none of JSON."""
    key = body.find(_ID, 0, end)
    if key < 0:
        return None
    opening = body.find(b'"', key + len(_ID), end) + 1
    closing = body.find(b'"', opening, end)
    text = body[opening:closing]
    if not opening or closing <= opening or b"\\" in text or not text.isascii() or not text.decode().isprintable():
        return None
    return opening, closing


def _remember(
    layouts: _Layouts, body: Buffer, entries: list[JsonObject], original: Original, says_no_more: bool
) -> None:  # fmt: skip
    if len(entries) != 1 or type(body) is not bytes or len(body) > _LARGEST or b"\\" in body:
        return
    data, (tensor,) = entries[0].get("data"), original.tensors
    known = NUMBERS.get(tensor.datatype.value)
    # Without escapes, and with one text `"data"` that a list follows, that list is the tensor's.
    key = body.find(_DATA)
    begin = body.find(b"[", key)
    end = body.find(b"]", begin)
    between = body[key + len(_DATA) : begin].split()
    if known is None or not _is_flat(data, known[2]) or body.count(_DATA) != 1 or between != [b":"]:
        return
    id, model, version = _texts(original)
    if id != original.id:  # one that is no string
        return
    around: tuple[bytes, ...] = body[:begin], body[end:]
    if id is not None:
        place = _id_before(body, begin)
        # With one text `"id"` that a string follows, that string is the document's id.
        if place is None or body.count(_ID) != 1 or body[slice(*place)].decode() != id:
            return
        if body[body.find(_ID) + len(_ID) : place[0]].split() not in ([b":", b'"'], [b':"']):
            return
        around = body[: place[0]], body[place[1] : begin], body[end:]
    if sum(map(len, around)) > _LONGEST:
        return
    if len(layouts) >= _MOST:
        del layouts[next(iter(layouts))]
    datatype, letter, is_float, _ = known
    layouts[around] = DocumentLayout(
        tensor.name, datatype, tensor.shape, tensor.elements, letter, is_float, model, version, says_no_more,
        tensor.parameters,
    )  # fmt: skip


def _is_flat(data: object, is_float: bool) -> bool:
    """Whether a tensor's data is a flat list of finite numbers of its datatype's kind. `usual` leaves no other list; in
    entries with parameters, which it does not read, it is an Array."""
    if type(data) is list:
        return True
    if not isinstance(data, Array) or len(data.shape) != 1 or isinstance(data.values, bytes) or not data.shape[0]:
        return False
    kind = data.values.dtype.kind
    return kind in "iu" or (kind == "f" and is_float and isfinite(data.values.min()) and isfinite(data.values.max()))


# --- the document with binary data behind it ---


@frozen
class BinaryLayout:
    """What bodies with the same document say.

    - `tensors`: name, datatype, shape, and where the contents begin and end behind the document.
    - `size`: the bytes of all contents.
    - `outputs`, `parameters`: those of the request or response.
    - `id`, `model`, `version`: as they stand in the document; None where it has none.
    - `says_no_more`: the document says nothing else than its value, so the body can go on as it came.
    - `origin`: makes the `origin` of a request from its message.
    """

    tensors: tuple[tuple[str, Datatype, Shape, int, int], ...]
    size: int
    outputs: tuple[RequestedOutput, ...]
    parameters: Parameters
    id: str | None
    model: str | None
    version: str | None
    says_no_more: bool
    origin: MakeOrigin

    def original(self, message: Message, tensors: tuple[Tensor, ...], header: bytes) -> Original | None:
        """That of what was read from `message`."""
        if not self.says_no_more:
            return None
        return Original(
            BodyForm.BINARY, message.parts, tensors, self.outputs, self.parameters, self.id, self.model, self.version,
            (None, header),
        )  # fmt: skip


_binary: dict[tuple[str, bytes], BinaryLayout] = {}
"""By the member that has the tensors, and the document."""


def _recall_binary(
    body: Buffer, length: bytes, role: str, limits: Limits
) -> tuple[BinaryLayout, tuple[Tensor, ...], bytes] | None:
    """The layout of `body`, which begins with a document of this length, if it is known; its tensors, and the
    document."""
    if type(body) is not bytes or len(body) > _LARGEST_BINARY or len(body) > limits.message:
        return None
    if len(length) > 4 or not length.isdigit():
        return None
    end = int(length)
    header = body[:end]
    layout = _binary.get((role, header))
    if layout is None or len(body) - end != layout.size or end > limits.json_values:
        return None
    tensors = [Tensor(name, each, shape, body[end + at : end + to]) for name, each, shape, at, to in layout.tensors]
    return layout, tuple(tensors), header


def _remember_binary(role: str, header: Buffer, original: Original, says_no_more: bool, origin: MakeOrigin) -> None:
    places, size = [], 0
    for each in original.tensors:
        if each.parameters or not each.data or each.datatype.value not in NUMBERS:
            return
        places.append((each.name, each.datatype, each.shape, size, size + len(each.data)))
        size += len(each.data)
    if original.id or len(header) > _LONGEST:
        return
    if len(_binary) >= _MOST:
        del _binary[next(iter(_binary))]
    _binary[role, bytes(header)] = BinaryLayout(
        tuple(places), size, original.outputs, original.parameters, *_texts(original), says_no_more, origin
    )


def _texts(original: Original) -> tuple[str | None, str | None, str | None]:
    """The id, and the model and version that a body names; what is no string counts as none."""
    texts = (each if isinstance(each, str) else None for each in (original.id, original.model, original.version))
    id, model, version = texts
    return id, model, version


# --- requests and responses ---


def request_like_before(message: Message, limits: Limits) -> Request | None:
    """The inference request in `message`, if its body is of a known layout."""
    length, captures = message.headers.first.get(HEADER_LENGTH_FIELD), message.captures
    if length is not None:
        like = _recall_binary(message.body, length, "inputs", limits)
        if like is None:
            return None
        binary, inputs, header = like
        return Request(
            INFER, captures["model"], captures.get("version", ""), binary.id, inputs, binary.outputs, binary.parameters,
            "", None, binary.origin(message), original=binary.original(message, inputs, header),
        )  # fmt: skip
    found = _recall(message.body, _requests, limits)
    if found is None:
        return None
    layout, id, inputs = found
    parts, parameters = message.parts, dict[str, ParameterValue]()
    original = None
    if layout.says_no_more:
        original = Original(BodyForm.JSON, parts, inputs, (), parameters, id, None, None, (None, parts[0]))
    return Request(
        INFER, captures["model"], captures.get("version", ""), id, inputs, (), parameters, "", None, message,
        original=original,
    )  # fmt: skip


def response_like_before(reply: Message, limits: Limits) -> Response | None:
    """The inference response in `reply`, if its body is of a known layout."""
    length, parts = reply.headers.first.get(HEADER_LENGTH_FIELD), reply.parts
    if length is not None:
        like = _recall_binary(reply.body, length, "outputs", limits)
        if like is None:
            return None
        binary, outputs, header = like
        original = binary.original(reply, outputs, header)
        return Response(
            outputs, binary.model or "", binary.version or "", binary.id, binary.parameters, reply, original=original
        )
    found = _recall(reply.body, _responses, limits)
    if found is None:
        return None
    layout, id, outputs = found
    model, version, parameters = layout.model, layout.version, dict[str, ParameterValue]()
    original = None
    if layout.says_no_more:
        original = Original(BodyForm.JSON, parts, outputs, (), parameters, id, model, version, (None, parts[0]))
    return Response(outputs, model or "", version or "", id, parameters, reply, original=original)


_OF_REQUEST = frozenset({"id", "inputs"})
_OF_RESPONSE = frozenset({"id", "model_name", "model_version", "parameters", "outputs"})


def remember_request(document: JsonObject, header: Buffer, request: Request, origin: MakeOrigin) -> None:
    """Remember the layout of a body that begins with `header`, where `document` stands, from which `request` was read.
    `origin` makes its `origin` from the message."""
    original = request.original
    if original is None:
        return
    if original.form is BodyForm.BINARY:
        given = document.get("parameters") or {}
        if given.keys() - {"binary_data_output"} == request.parameters.keys():
            _remember_binary("inputs", header, original, request_says_no_more(original), origin)
    elif document.keys() <= _OF_REQUEST and len(document["inputs"][0]) == 4:
        _remember(_requests, header, document["inputs"], original, request_says_no_more(original))


def remember_response(document: JsonObject, header: Buffer, response: Response) -> None:
    """As `remember_request`."""
    original = response.original
    if original is None:
        return
    if original.form is BodyForm.BINARY:
        _remember_binary("outputs", header, original, response_says_no_more(original), _itself)
    # MLServer writes no parameters as an empty object.
    elif document.keys() <= _OF_RESPONSE and not document.get("parameters"):
        _remember(_responses, header, document["outputs"], original, response_says_no_more(original))


def _itself(message: Message) -> Message:
    return message
