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
from functools import lru_cache
from math import isfinite
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TypeAlias

import orjson

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.layouts import LARGEST, LONGEST, LayoutStore
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
    inference,
)
from gateway.json import Array
from gateway.protocols.v2.rest.binary import HEADER_LENGTH_FIELD
from gateway.protocols.v2.rest.json_bodies import JsonObject
from gateway.protocols.v2.rest.usual import NUMBERS, packed, packed_in_bulk
from gateway.protocols.v2.rest.verbatim import BodyForm, Evidence, request_says_no_more, response_says_no_more

_LARGE = 2**14
"""Bytes of a body from which on its text is searched at both ends alone, where all of a layout is, and never copied."""
_BULK = 2**11
"""Bytes of a list of numbers from which on reading it in bulk costs less than Python's numbers."""

_DATA = b'"data"'
# Python 3.11 takes ten times as long to find a member in its class.
_JSON, _BINARY = BodyForm.JSON, BodyForm.BINARY

MakeOrigin: TypeAlias = Callable[[Message], Message]


# --- the document alone ---


@frozen
class DocumentLayout:
    """What documents with the same text around their numbers say.

    - `count`, `letter`, `is_float`: of the numbers, as `packed` takes them. `pack` writes that many.
    - `parameters`: those of the tensor.
    - `model`, `version`: those that a response names, as they stand in the document; None where it has none.
    - `evidence`: of a document that says nothing else than its value, so that it can go on as it came; else None.
    - `outputs`: those that a request asks for. `origin` makes the `origin` of a request from its message; None if that
      is the message itself.
    """

    name: str
    datatype: Datatype
    shape: Shape
    count: int
    letter: str
    is_float: bool
    pack: Callable[..., bytes]
    model: str | None
    version: str | None
    evidence: Evidence | None
    parameters: Parameters
    outputs: tuple[RequestedOutput, ...]
    origin: MakeOrigin | None


class _Layouts(LayoutStore[tuple[bytes, ...], DocumentLayout]):
    """By the text before and behind the numbers; where it has an id, by that before, between and behind both."""

    last: tuple[bytes, bytes, DocumentLayout] | None = None
    """The layout that was remembered or found last, if it is one without an id, behind its text up to the `[` of the
    numbers and its text from their `]`. The next body often has the same text, and comparing costs less than
    finding."""

    def remember(self, key: tuple[bytes, ...], layout: DocumentLayout) -> None:
        """As in LayoutStore."""
        super().remember(key, layout)
        self.last = (key[0] + b"[", key[1], layout) if len(key) == 2 else None


_requests = _Layouts()
_responses = _Layouts()


def _recall(
    body: Buffer, layouts: _Layouts, limits: Limits
) -> tuple[DocumentLayout, str | None, tuple[Tensor, ...]] | None:
    """The layout of `body`, if it is known, its id, and its tensor."""
    last = layouts.last
    if (
        last is not None
        and type(body) is bytes
        and len(body) < _BULK
        and body.startswith(last[0])
        and body.endswith(last[1])
    ):
        # If there is more than one list between the two ends, it is none of numbers, and `_packed` refuses it.
        before, behind, layout = last
        id, begin, end = None, len(before) - 1, len(body) - len(behind)
    elif (found := _found(body, layouts)) is not None:
        layout, id, begin, end = found
    else:
        return None
    # Another listener or backend may have smaller limits than the one that a layout was remembered for. A value outside
    # the list, which alone are counted, has a byte at least; a number has eight of its raw form at most.
    if begin + len(body) - end > limits.json_values or 8 * layout.count > limits.message:
        return None
    data: Buffer | None
    if end - begin < _BULK:
        data = _packed(bytes(body[begin : end + 1]), layout)
    else:
        data = packed_in_bulk(body, begin, end + 1, layout.count, layout.datatype)
    if data is None:
        return None
    return layout, id, (Tensor(layout.name, layout.datatype, layout.shape, data, "", layout.parameters),)


_Found: TypeAlias = tuple[DocumentLayout, str | None, int, int]
"""A known layout, the id, and where the list of numbers begins and ends."""


def _found(body: Buffer, layouts: _Layouts) -> _Found | None:
    """The layout of any body, found by the text at its ends."""
    size = len(body)
    if size <= _LARGE:
        head = tail = body if type(body) is bytes else bytes(body)
        before = 0
    else:
        before = size - LONGEST
        head, tail = bytes(body[:LONGEST]), bytes(body[before:])
    begin = head.find(b"[", head.find(_DATA))
    end = tail.find(b"]", 0 if before else begin)
    layout = layouts.get((head[:begin], tail[end:]))
    if layout is not None:
        layouts.last = head[: begin + 1], tail[end:], layout
        return layout, None, begin, before + end
    with_id = _id_before(head, begin)
    if with_id is None:
        return None
    id, opening, closing = with_id
    layout = layouts.get((head[:opening], head[closing:begin], tail[end:]))
    return None if layout is None else (layout, id, begin, before + end)


def _packed(text: bytes, layout: DocumentLayout) -> bytes | None:
    """The JSON list `text` of a tensor's numbers in raw form, as `packed` writes them, and None where that does.

    What `packed` finds out of the numbers one by one is mostly seen at once in their text. A number has one point at
    most: with as many points as numbers all are floats, and none is an integer of more than 64 bits. Without a letter e
    there is no `true` or `false`, which would count as numbers. `pack` refuses everything else.
    """
    try:
        data = orjson.loads(text)
        if (text.count(b".") == layout.count) if layout.is_float else (b"e" not in text):
            return layout.pack(*data)
    except (orjson.JSONDecodeError, StructError, OverflowError):
        return None
    return packed(data, layout.count, layout.letter, layout.is_float)


_ID = b'"id"'


def _id_before(body: bytes, end: int) -> tuple[str, int, int] | None:
    """The text of the first string behind a key `"id"`, and where it begins and ends; None without one before `end`,
    and for a text that may stand for another, or is none of JSON."""
    key = body.find(_ID, 0, end)
    if key < 0:
        return None
    opening = body.find(b'"', key + len(_ID), end) + 1
    closing = body.find(b'"', opening, end)
    text = body[opening:closing]
    if not opening or closing <= opening or b"\\" in text or not text.isascii():
        return None
    id = text.decode()
    return (id, opening, closing) if id.isprintable() else None


def _remember(
    layouts: _Layouts, body: bytes, entries: list[JsonObject], original: Original, says_no_more: bool,
    origin: MakeOrigin | None,
) -> None:  # fmt: skip
    if len(entries) != 1:
        return
    data, (tensor,) = entries[0].get("data"), original.tensors
    known = NUMBERS.get(tensor.datatype.value)
    if known is None:
        return
    # Without escapes, and with one text `"data"` that a list follows, that list is the tensor's.
    key = body.find(_DATA)
    begin = body.find(b"[", key)
    end = body.find(b"]", begin)
    if begin < 0 or end < 0 or begin + len(body) - end > LONGEST or body.find(b'"', begin, end) >= 0:
        return
    before, behind = body[:begin], body[end:]
    if b"\\" in before or b"\\" in behind:
        return
    between = body[key + len(_DATA) : begin].split()
    if not _is_flat(data, known[2]) or (before + behind).count(_DATA) != 1 or between != [b":"]:
        return
    id, model, version = _texts(original)
    if id != original.id:  # one that is no string
        return
    around: tuple[bytes, ...] = before, behind
    if id is not None:
        found = _id_before(body, begin)
        # With one text `"id"` that a string follows, that string is the document's id.
        if found is None or (before + behind).count(_ID) != 1 or found[0] != id:
            return
        _, opening, closing = found
        if body[body.find(_ID) + len(_ID) : opening].split() not in ([b":", b'"'], [b':"']):
            return
        around = body[:opening], body[closing:begin], behind
    datatype, letter, is_float, _ = known
    count = tensor.elements
    layout = DocumentLayout(
        tensor.name, datatype, tensor.shape, count, letter, is_float, Struct(f"<{count}{letter}").pack, model, version,
        _NO_DOCUMENT if says_no_more else None, tensor.parameters, original.outputs, origin,
    )  # fmt: skip
    layouts.remember(around, layout)


_NO_DOCUMENT: Evidence = None, b""


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

    - `tensors`: name, datatype, shape, where the contents begin and end in the body, and parameters.
    - `size`: the bytes of the body.
    - `outputs`, `parameters`: those of the request or response.
    - `id`, `model`, `version`: as they stand in the document; None where it has none.
    - `evidence`: of bodies that say nothing else than their value, so that they can go on as they came; else None.
    - `origin`: as in DocumentLayout.
    """

    tensors: tuple[tuple[str, Datatype, Shape, int, int, Parameters], ...]
    size: int
    outputs: tuple[RequestedOutput, ...]
    parameters: Parameters
    id: str | None
    model: str | None
    version: str | None
    evidence: Evidence | None
    origin: MakeOrigin | None

    def original(self, message: Message, tensors: tuple[Tensor, ...]) -> Original | None:
        """That of what was read from `message`."""
        if (evidence := self.evidence) is None:
            return None
        return Original(
            _BINARY, message.parts, tensors, self.outputs, self.parameters, self.id, self.model, self.version,
            evidence,
        )  # fmt: skip


_BinaryLayouts: TypeAlias = LayoutStore[bytes, BinaryLayout]
"""By the document."""

_binary_requests: _BinaryLayouts = LayoutStore()
_binary_responses: _BinaryLayouts = LayoutStore()


def _recall_binary(
    message: Message, length: bytes, layouts: _BinaryLayouts, limits: Limits
) -> tuple[BinaryLayout, tuple[Tensor, ...]] | None:
    """The layout of the message's body, which begins with a document of this length, if it is known, and its
    tensors."""
    parts = message.parts
    body = parts[0] if len(parts) == 1 else message.body
    if type(body) is not bytes:
        return None
    end = _length(length)
    layout = layouts.get(body[:end])
    if layout is None or len(body) != layout.size or layout.size > limits.message or end > limits.json_values:
        return None
    tensors = []
    for name, datatype, shape, at, to, parameters in layout.tensors:
        tensors.append(Tensor(name, datatype, shape, body[at:to], "", parameters))
    return layout, tuple(tensors)


@lru_cache(LONGEST)
def _length(text: bytes) -> int:
    """The number that `text` says, if it may be the length of a document that is remembered; else 0, which is that of
    none."""
    return int(text) if len(text) <= 4 and text.isdigit() else 0


def _remember_binary(
    layouts: _BinaryLayouts, document: bytes, original: Original, says_no_more: bool, origin: MakeOrigin | None
) -> None:  # fmt: skip
    if original.id or len(document) > LONGEST:
        return
    places, at = [], len(document)
    for each in original.tensors:
        if each.parameters or not each.data or each.datatype.value not in NUMBERS:
            return
        places.append((each.name, each.datatype, each.shape, at, at + len(each.data), each.parameters))
        at += len(each.data)
    if at > LARGEST or at != sum(map(len, original.parts)):  # or a tensor is not behind the document, but in it
        return
    layout = BinaryLayout(
        tuple(places), at, original.outputs, original.parameters, *_texts(original),
        (None, document) if says_no_more else None, origin,
    )  # fmt: skip
    layouts.remember(document, layout)


def _texts(original: Original) -> tuple[str | None, str | None, str | None]:
    """The id, and the model and version that a body names; what is no string counts as none."""
    texts = (each if isinstance(each, str) else None for each in (original.id, original.model, original.version))
    id, model, version = texts
    return id, model, version


# --- requests and responses ---


def request_like_before(message: Message, limits: Limits) -> Request | None:
    """The inference request in `message`, if its body is of a known layout."""
    length, parts, captures = message.headers.first.get(HEADER_LENGTH_FIELD), message.parts, message.captures
    if length is not None:
        like = _recall_binary(message, length, _binary_requests, limits)
        if like is None:
            return None
        binary, inputs = like
        return inference(
            captures["model"], captures.get("version", ""), binary.id, inputs, binary.outputs, binary.parameters,
            None, message if binary.origin is None else binary.origin(message), binary.original(message, inputs),
        )  # fmt: skip
    found = _recall(parts[0] if len(parts) == 1 else message.body, _requests, limits)
    if found is None:
        return None
    layout, id, inputs = found
    outputs, parameters, original = layout.outputs, dict[str, ParameterValue](), None
    if (evidence := layout.evidence) is not None:
        original = Original(_JSON, parts, inputs, outputs, parameters, id, None, None, evidence)
    origin = message if layout.origin is None else layout.origin(message)
    return inference(
        captures["model"], captures.get("version", ""), id, inputs, outputs, parameters, None, origin, original
    )


def response_like_before(reply: Message, limits: Limits) -> Response | None:
    """The inference response in `reply`, if its body is of a known layout."""
    length, parts = reply.headers.first.get(HEADER_LENGTH_FIELD), reply.parts
    if length is not None:
        like = _recall_binary(reply, length, _binary_responses, limits)
        if like is None:
            return None
        binary, outputs = like
        original = binary.original(reply, outputs)
        return Response(
            outputs, binary.model or "", binary.version or "", binary.id, binary.parameters, reply, False, original
        )
    found = _recall(parts[0] if len(parts) == 1 else reply.body, _responses, limits)
    if found is None:
        return None
    layout, id, outputs = found
    model, version = layout.model, layout.version
    parameters: Parameters = {}
    original = None
    if (evidence := layout.evidence) is not None:
        original = Original(_JSON, parts, outputs, (), parameters, id, model, version, evidence)
    return Response(outputs, model or "", version or "", id, parameters, reply, False, original)


_OF_REQUEST = frozenset({"id", "inputs", "outputs"})
_OF_RESPONSE = frozenset({"id", "model_name", "model_version", "parameters", "outputs"})


def remember_request(document: JsonObject, header: bytes, request: Request, origin: MakeOrigin | None) -> None:
    """Remember the layout of a body that begins with `header`, where `document` stands, from which `request` was read.
    `origin`: as in the layouts."""
    original = request.original
    if original is None:
        return
    says_no_more = request_says_no_more(original)
    if original.form is BodyForm.BINARY:
        given = document.get("parameters") or {}
        if given.keys() - {"binary_data_output"} == request.parameters.keys():
            _remember_binary(_binary_requests, header, original, says_no_more, origin)
    elif document.keys() <= _OF_REQUEST and len(document["inputs"][0]) == 4:
        _remember(_requests, header, document["inputs"], original, says_no_more, origin)


def remember_response(document: JsonObject, header: bytes, response: Response) -> None:
    """As `remember_request`."""
    original = response.original
    if original is None:
        return
    says_no_more = response_says_no_more(original)
    if original.form is BodyForm.BINARY:
        _remember_binary(_binary_responses, header, original, says_no_more, None)
    # MLServer writes no parameters as an empty object.
    elif document.keys() <= _OF_RESPONSE and not document.get("parameters"):
        _remember(_responses, header, document["outputs"], original, says_no_more, None)
