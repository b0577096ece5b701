"""Messages as no real peer lays them out: each is read, and what is written for it says the same and nothing else."""

from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from gateway.protocols.graphpipe import server
from tests.limits import examples
from tests.protocols.graphpipe.test_flatbuffer_writer import NAMES, TENSORS
from tests.protocols.graphpipe.test_flatbuffers import Writer, reply_of_the_package, request_of_the_package
from tests.protocols.graphpipe.wire import (
    GRAPHPIPE,
    REQUEST,
    TARGET,
    VTABLES,
    Back,
    Piece,
    To,
    asked,
    assemble,
    call,
    i64,
    recorded,
    reply,
    u16,
    u32,
)

ASKED = Request(Operation.INFER, origin=call(b""))


def answered(body: bytes, request: Request = ASKED) -> Response:
    found = GRAPHPIPE.decode_response(reply(body), request, TARGET)
    assert isinstance(found, Response)
    return found


def sent_on(request: Request) -> bytes:
    return bytes(GRAPHPIPE.encode_request(request, TARGET).body)


def sent_back(response: Response) -> bytes:
    return bytes(GRAPHPIPE.encode_response(response, ASKED, DEFAULT_TRANSLATE).body)


def said(read: Request | Response) -> object:
    tensors = read.inputs if isinstance(read, Request) else read.outputs
    told = [(each.name, each.datatype, each.shape, bytes(each.data), each.parameters) for each in tensors]
    return (told, read.parameters, *((read.outputs, read.model) if isinstance(read, Request) else ()))


X = Tensor("x", Datatype.FP32, (2,), pack("<2f", 1.5, -2))
Y = Tensor("y", Datatype.UINT8, (1, 3), b"abc")


SHAPE = u32(1) + i64(4)
TENSOR: list[Piece] = [Back("v_tensor"), To("shape"), To("data"), bytes([1, 0, 0, 0])]
ALIGNED: dict[str, list[Piece]] = {
    **dict(VTABLES),
    "v_request": [u16(8, 12, 8, 4)],
    "v_tensor": [u16(10, 16, 12, 4, 8), b"\0\0"],
    **REQUEST,
    "root": [Back("v_request"), To("infer"), b"\1\0\0\0"],
    "config": [u32(0), u32(0)],
    "tensor": TENSOR,
    "data": [u32(4) + b"abcd"],
    "padding": [b"\0\0\0\0"],
    "shape": [SHAPE],
}
"""A message of one tensor in which everything is where it has to be. The shape's count is at 4 modulo 8."""


def built(**changed: list[Piece]) -> bytes:
    """The message with some parts changed, left out if they are empty, or added before the data. Unless it is given,
    the padding is what the shape needs."""
    known = {name: piece for name, piece in changed.items() if name in ALIGNED}
    added = {name: piece for name, piece in changed.items() if name not in ALIGNED}
    parts = {**ALIGNED, **known}
    rest = {name: parts.pop(name) for name in ("data", "padding", "shape")}
    paddings: list[list[Piece]] = [changed["padding"]] if "padding" in changed else [[], [b"\0\0\0\0"]]
    for padding in paddings:
        rest["padding"] = padding
        body = assemble(**{name: piece for name, piece in {**parts, **added, **rest}.items() if piece})
        if body.rfind(SHAPE) % 8 == 4:
            break
    return body


ODD = {
    "a field that the schema lacks": built(
        v_tensor=[u16(14, 20, 12, 4, 8, 0, 16), b"\0\0"], tensor=[*TENSOR, u32(9)]
    ),
    "a field that the schema lacks, of the root": built(
        v_request=[u16(10, 16, 8, 4, 12), b"\0\0"], root=[Back("v_request"), To("infer"), b"\1\0\0\0", u32(7)],
    ),
    "a field of zeros that the schema lacks": built(
        v_tensor=[u16(14, 20, 12, 4, 8, 0, 16), b"\0\0"], tensor=[*TENSOR, u32(0)]
    ),
    "bytes behind": built() + b"ab\0\0",
    "many zeros behind": built() + bytes(64),
    "bytes that nothing leads to": built(padding=[b"\0ab\0"]),
    "bytes in a table that are no field": built(tensor=[*TENSOR[:-1], bytes([1, 0, 5, 0])]),
    "a part that nothing leads to": built(more=[u32(1), b"a\0\0\0"]),
    "a table in two places": built(
        tensors=[u32(2), To("tensor"), To("tensor")], more=[u32(0)]
    ),
    "two tensors that share their data": built(
        tensors=[u32(2), To("tensor"), To("other")],
        other=[Back("v_tensor"), To("shape_of_other"), To("data"), bytes([1, 0, 0, 0])],
        shape_of_other=[u32(1) + i64(4)],
    ),
    "two tensors that share a shape": built(
        tensors=[u32(2), To("tensor"), To("other")],
        other=[Back("v_tensor"), To("shape"), To("data_of_other"), bytes([1, 0, 0, 0])],
        data_of_other=[u32(4), b"abcd"],
    ),
    "two fields in one place": built(v_infer=[u16(12, 20, 4, 8, 12, 8)]),
    "data that is its shape": built(
        v_tensor=[u16(10, 16, 12, 4, 8), b"\0\0"], tensor=[Back("v_tensor"), To("shape"), To("shape"), b"\1\0\0\0"],
        shape=[u32(1) + i64(1)], data=[],
    ),
    "a table out of line": built(tensors=[u32(1), To("tensor"), b"\0"]),
    "a count out of line": built(
        before_data=[b"\0\0"], padding=[b"\0\0" if built() == built(padding=[]) else b"\0" * 6]
    ),
    "fields out of line": built(
        v_tensor=[u16(10, 16, 4, 5, 9), b"\0\0"], tensor=[Back("v_tensor"), b"\1", To("shape"), To("data"), b"\0\0\0"]
    ),
    "a shape out of line": built(padding=[b"\0\0\0\0"] if built() == built(padding=[]) else []),
    "a null offset": built(infer=[Back("v_infer"), u32(0), To("names"), To("tensors"), To("outputs")]),
    "names that are all empty": built(names=[u32(1), To("name")], name=[u32(0), u32(0)]),
    "outputs' names that are empty": built(outputs=[u32(1), To("name")], name=[u32(0), u32(0)]),
    "no config": built(v_infer=[u16(12, 20, 0, 8, 12, 16)], config=[], infer=[
        Back("v_infer"), u32(0), To("names"), To("tensors"), To("outputs")]),
    "no names of outputs": built(v_infer=[u16(10, 16, 4, 8, 12), b"\0\0"], outputs=[], infer=[
        Back("v_infer"), To("config"), To("names"), To("tensors")]),
    "a name without a NUL": built(config=[u32(0), b"\0\0\0\0"], names=[u32(1), To("name")], name=[u32(4), b"abcd"],
        more=[u32(7)]),
}  # fmt: skip


@pytest.mark.parametrize("body", ODD.values(), ids=list(ODD))
def test_an_odd_message_is_read_and_written_as_any_other(body: bytes) -> None:
    request = asked(body)
    written = sent_on(request)
    assert written != body
    assert said(asked(written)) == said(request)


def test_what_another_gateway_sends_is_written_as_it_came() -> None:
    request = Request(Operation.INFER, "m", inputs=(X, Y), outputs=(RequestedOutput("z"),), parameters={"config": "c"})
    assert sent_on(asked(sent_on(request))) == sent_on(request)
    told = sent_back(Response((X, Y)))
    assert sent_back(answered(told)) == told


def test_a_reply_with_other_outputs_than_requested_is_refused() -> None:
    """Go's `Serve` ignores the names of outputs, and gives all."""
    body = reply_of_the_package((X,))
    request = replace(ASKED, outputs=(RequestedOutput("y"), RequestedOutput("z")))
    answered(body)
    with pytest.raises(DecodeError, match="1 outputs for the 2 that were requested"):
        answered(body, request)


def test_errors_are_no_outputs() -> None:
    answered(reply_of_the_package((X,)))
    writer = Writer()
    text = writer.table(2, {1: writer.string(b"no")}, {})
    with pytest.raises(GatewayError, match="no"):
        answered(writer.finish(writer.table(2, {1: writer.links([text])}, {})))


def test_messages_with_long_names_and_many_tensors_are_written_alike() -> None:
    for names in (["x" * 1000], [f"input {at}" for at in range(30)]):
        body = sent_on(Request(Operation.INFER, "m", inputs=tuple(replace(X, name=name) for name in names)))
        assert [each.name for each in asked(body).inputs] == names
        assert sent_on(asked(body)) == body


def test_a_message_in_several_buffers_is_read_as_one() -> None:
    body = recorded("float32.request")
    message = replace(call(b""), parts=(body[:50], body[50:]))
    request = server.decode_request(message, ListenerSettings("http"))
    assert said(request) == said(asked(body))


def test_a_root_beyond_the_message_is_refused() -> None:
    body = built()
    (root,) = unpack_from("<I", body)
    for offset in (root + 1, len(body) - 2, len(body), 2**31, 2**32 - 1):
        with pytest.raises(DecodeError):
            asked(u32(offset) + body[4:])


# --- any change ---

KNOWN = {
    "request of the client": recorded("float32.request"),
    "request with names": request_of_the_package((X, Y), ["z"], "settings"),
    "request of a gateway": sent_on(Request(Operation.INFER, "m", inputs=(X, Y))),
    "built": built(),
}
REPLIES = {"reply of a server": recorded("int16.reply"), "reply of a gateway": sent_back(Response((X, Y)))}


def check(body: bytes, *, is_reply: bool = False) -> None:
    """`body` is refused, or what is written for it says what was read."""
    read: Callable[[bytes], Any] = answered if is_reply else asked
    write: Callable[[Any], bytes] = sent_back if is_reply else sent_on
    try:
        found = read(body)
    except (DecodeError, GatewayError):
        return
    if isinstance(found, Request) and found.operation is Operation.METADATA:
        return
    assert said(read(write(found))) == said(found)


@pytest.mark.parametrize("what", [*KNOWN, *REPLIES])
def test_a_change_of_any_byte_is_refused_or_read_as_it_stands(what: str) -> None:
    body = {**KNOWN, **REPLIES}[what]
    for at in range(len(body)):
        for flip in (1, 4, 128, 255):
            check(body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :], is_reply=what in REPLIES)


@settings(deadline=None, max_examples=examples(300))
@given(st.sampled_from(sorted(KNOWN)), st.data())
def test_so_are_several_changes(what: str, data: st.DataObject) -> None:
    body = KNOWN[what]
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        if data.draw(st.booleans()):
            changed[at] = data.draw(st.integers(0, 255))
        else:  # an offset, a count or a size
            start = at // 4 * 4
            changed[start : start + 4] = u32(data.draw(st.integers(0, len(body))))
    for following in (bytes(changed), body + bytes(changed[:3]), bytes(changed)[:-1]):
        check(following)


@settings(deadline=None)
@given(TENSORS, NAMES, st.text(max_size=20))
def test_what_the_package_writes_is_written_so_that_it_says_the_same(
    inputs: tuple[Tensor, ...], outputs: list[str], config: str
) -> None:
    request = asked(request_of_the_package(inputs, outputs, config))
    assert said(asked(sent_on(request))) == said(request)
