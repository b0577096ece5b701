"""Write OpenTelemetry's protobuf messages of spans (opentelemetry/proto/trace/v1/trace.proto and its imports) field by
field.

OpenTelemetry's own package creates an object for each attribute, so a traced request would take four times as long.
Most attributes are the same in many spans, so their bytes are cached.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import pack
from typing import TypeAlias

from gateway.core.protobuf.wire import key, varint

INTERNAL, SERVER, CLIENT = 1, 2, 3
"""The values of `Span.SpanKind`."""

Value: TypeAlias = str | bool | int | float
Attributes: TypeAlias = Mapping[str, Value]

_MOST_KEPT = 1024
"""Maximum number of attributes whose bytes are cached."""
_LONGEST_KEPT = 256
"""Maximum length of a cached string, in characters."""
_INT64 = 2**64 - 1

# Field numbers, as keys. Numbers of fixed width are of wire type 1 (I64) or 5 (I32), others 0 (VARINT) or 2 (LENGTH).
_RESOURCE_SPANS = _RESOURCE = _SCOPE = key(1)
_SCOPE_SPANS = _SPANS = key(2)
_RESOURCE_ATTRIBUTES = _NAME_OF_SCOPE = key(1)
_VERSION_OF_SCOPE = key(2)
_TRACE_ID, _SPAN_ID, _PARENT, _NAME = key(1) + varint(16), key(2) + varint(8), key(4) + varint(8), key(5)
_KIND, _START, _END = varint(6 << 3), varint(7 << 3 | 1), varint(8 << 3 | 1)
_ATTRIBUTES, _STATUS, _FLAGS = key(9), key(15), varint(16 << 3 | 5)
_KEY, _VALUE = key(1), key(2)
_STRING, _BOOL, _INT, _DOUBLE = key(1), varint(2 << 3), varint(3 << 3), varint(4 << 3 | 1)
_STATUS_TEXT, _STATUS_ERROR = key(2), varint(3 << 3) + varint(2)

_KNOWS_WHETHER_REMOTE, _IS_REMOTE = 0x100, 0x200
"""Values of `SpanFlags`: it is known whether the parent span is in another process, and the parent span is in another
process."""


def span(
    trace: int,
    id: int,
    parent: int,
    name: str,
    kind: int,
    began: float,
    ended: float,
    attributes: Attributes,
    *,
    is_parent_remote: bool = False,
    error: str | None = None,
) -> bytes:
    """Return the message `Span`.

    - `parent`: the id of a span, or 0.
    - `began`, `ended`: seconds since 1970.
    - `error`: the message of the span's error, or None.
    """
    flags = _KNOWS_WHETHER_REMOTE | (_IS_REMOTE if is_parent_remote else 0)
    pieces = [_TRACE_ID, trace.to_bytes(16), _SPAN_ID, id.to_bytes(8)]
    if parent:
        pieces += (_PARENT, parent.to_bytes(8))
    text = _encoded(name)
    pieces += (_NAME, varint(len(text)), text, _KIND, varint(kind))
    pieces += (_START, pack("<Q", round(began * 1e9)), _END, pack("<Q", round(ended * 1e9)))
    pieces += [attribute(each, value) for each, value in attributes.items()]
    if error is not None:
        text = _encoded(error)
        pieces.append(_sized(_STATUS, (_sized(_STATUS_TEXT, text) if text else b"") + _STATUS_ERROR))
    pieces += (_FLAGS, pack("<I", flags))
    return b"".join(pieces)


def request(resource: Attributes, scope: str, version: str, spans: Iterable[bytes]) -> bytes:
    """Return the message `ExportTraceServiceRequest`: the spans of one resource and one instrumentation scope."""
    described = b"".join(_sized(_RESOURCE_ATTRIBUTES, _key_value(name, each)) for name, each in resource.items())
    named = _sized(_NAME_OF_SCOPE, _encoded(scope)) + _sized(_VERSION_OF_SCOPE, _encoded(version))
    of_scope = b"".join((_sized(_SCOPE, named), *(_sized(_SPANS, each) for each in spans)))
    return _sized(_RESOURCE_SPANS, _sized(_RESOURCE, described) + _sized(_SCOPE_SPANS, of_scope))


def attribute(name: str, value: Value) -> bytes:
    """Return the field `attributes` of a span with one attribute."""
    if isinstance(value, str) and len(value) > _LONGEST_KEPT:
        return _sized(_ATTRIBUTES, _key_value(name, value))
    return _kept(name, value)


@lru_cache(_MOST_KEPT, typed=True)  # distinguishes True from 1
def _kept(name: str, value: Value) -> bytes:
    return _sized(_ATTRIBUTES, _key_value(name, value))


def _key_value(name: str, value: Value) -> bytes:
    if isinstance(value, str):
        any_value = _sized(_STRING, _encoded(value))
    elif isinstance(value, bool):
        any_value = _BOOL + varint(value)
    elif isinstance(value, int):
        any_value = _INT + varint(value & _INT64)
    else:
        any_value = _DOUBLE + pack("<d", value)
    return _sized(_KEY, name.encode()) + _sized(_VALUE, any_value)


def _sized(field: bytes, content: bytes) -> bytes:
    return b"%b%b%b" % (field, varint(len(content)), content)


def _encoded(text: str) -> bytes:
    # an unpaired surrogate cannot be encoded
    return text.encode("utf-8", "replace")
