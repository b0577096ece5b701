"""Messages of the tests: those recorded from the real converters, and flatbuffers assembled by hand."""

from pathlib import Path
from struct import pack
from typing import TypeAlias

from gateway.core.messages import Buffer, Message
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Request
from gateway.protocols.graphpipe import PROTOCOLS
from gateway.protocols.graphpipe.server import decode_request

RECORDED = Path(__file__).parents[2] / "wire" / "graphpipe"
GRAPHPIPE = PROTOCOLS[0]
LISTENER = ListenerSettings("http")
TARGET = Target("models", "127.0.0.1:9000")


def recorded(name: str) -> bytes:
    """A message of the real converters: `float32.request`."""
    return (RECORDED / name).read_bytes()


def call(body: Buffer, model: str = "m", method: str = "POST", query: str = "") -> Message:
    """`POST /graphpipe/{model}`."""
    path = f"/graphpipe/{model}"
    pattern = f"{method} /graphpipe/{{model}}"
    return Message(method, path, parts=(body,), query=query, pattern=pattern, captures={"model": model})


def asked(body: Buffer) -> Request:
    """What decode_request makes of a body."""
    return decode_request(call(body), LISTENER)


def reply(body: Buffer, status: int = 200) -> Message:
    """A reply without headers, as the upstream's Python examples send it."""
    return Message(parts=(body,), status=status)


class To(str):
    """The offset from here to a label."""


class Back(str):
    """A table's offset back to its vtable's label."""


Piece: TypeAlias = bytes | To | Back


def u16(*numbers: int) -> bytes:
    return pack(f"<{len(numbers)}H", *numbers)


def u32(*numbers: int) -> bytes:
    return pack(f"<{len(numbers)}I", *numbers)


def i64(*numbers: int) -> bytes:
    return pack(f"<{len(numbers)}q", *numbers)


def assemble(**labelled: list[Piece]) -> bytes:
    """The labelled pieces one after the other, as packed as they come; `root` is put in front."""
    pieces: dict[str, list[Piece]] = {"": [To("root")], **labelled}
    places: dict[str, int] = {}
    at = 0
    for label, items in pieces.items():
        places[label] = at
        at += sum(4 if isinstance(item, To | Back) else len(item) for item in items)
    out = b""
    for item in (item for items in pieces.values() for item in items):
        if isinstance(item, To):
            out += u32(places[item] - len(out))
        elif isinstance(item, Back):
            out += pack("<i", len(out) - places[item])
        else:
            out += item
    return out


# Vtables: their size, the table's, then where each field lies in it.
VTABLES: dict[str, list[Piece]] = {
    "v_request": [u16(8, 9, 8, 4)],
    "v_infer": [u16(12, 20, 4, 8, 12, 16)],
    "v_tensor": [u16(12, 17, 16, 4, 8, 12)],
}
REQUEST: dict[str, list[Piece]] = {
    "root": [Back("v_request"), To("infer"), b"\1"],
    "infer": [Back("v_infer"), To("config"), To("names"), To("tensors"), To("outputs")],
    "config": [u32(0)],
    "names": [u32(0)],
    "tensors": [u32(1), To("tensor")],
    "outputs": [u32(0)],
}
"""One tensor, everything else empty."""


def tensor_message(
    type_: int = 1,
    shape: bytes = u32(1) + i64(2),
    data: bytes = u32(2) + b"ab",
    strings: list[Piece] | None = None,
    **changed: list[Piece],
) -> bytes:
    """A request of one tensor, every part of which can be replaced."""
    parts: dict[str, list[Piece]] = {
        **VTABLES,
        **REQUEST,
        "tensor": [Back("v_tensor"), To("shape"), To("data"), To("strings"), bytes([type_])],
        "shape": [shape],
        "data": [data],
        "strings": strings or [u32(0)],
    }
    return assemble(**{**parts, **changed})
