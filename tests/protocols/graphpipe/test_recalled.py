"""Messages like one that came before: what they say, and which messages go on as they came."""

from collections.abc import Iterator
from struct import pack, unpack_from
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core import layouts
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.layouts import AlikeLayoutStore, LayoutStore
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.types import DEFAULT_TRANSLATE, Request, RequestedOutput, Response, Tensor
from gateway.protocols.graphpipe import client, recalled, server
from gateway.protocols.graphpipe.recalled import recall
from gateway.protocols.graphpipe.verbatim import BufferForm, contents_if_proven
from tests.protocols.graphpipe.test_flatbuffers import Writer, reply_of_the_package, request_of_the_package
from tests.protocols.graphpipe.test_round_trip import NAMES, NUMBERS, SHAPES, TENSORS
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
KINDS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]
RECORDED = [*KINDS, "scalar", "empty"]


def forget() -> None:
    for each in (recalled._layouts, recalled._cuts, recalled._configs, recalled._attempts):
        each.clear()


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


def answered(body: bytes, request: Request = ASKED) -> Response:
    found = GRAPHPIPE.decode_response(reply(body), request, TARGET)
    assert isinstance(found, Response)
    return found


def sent_on(request: Request) -> bytes:
    return bytes(GRAPHPIPE.encode_request(request, TARGET).body)


def sent_back(response: Response) -> bytes:
    return bytes(GRAPHPIPE.encode_response(response, ASKED, DEFAULT_TRANSLATE).body)


def other_numbers(body: bytes, form: BufferForm) -> bytes:
    """`body` with other contents."""
    changed = bytearray(body)
    for begin, end in contents_if_proven(body, form) or ():
        changed[begin:end] = bytes((each + 7) % 256 for each in body[begin:end])
    return bytes(changed)


# --- what real peers and the gateway send ---


@pytest.mark.parametrize("name", RECORDED)
def test_what_the_real_client_sends_goes_on_as_it_came(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = recorded(f"{name}.request")
    assert sent_on(asked(body)) == body
    following = other_numbers(body, BufferForm.REQUEST)
    fresh = replace(asked(following))
    monkeypatch.setattr(server, "_infer_request", pytest.fail)
    request = asked(following)
    assert request == fresh
    assert GRAPHPIPE.encode_request(request, TARGET).parts[0] is following


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_real_server_replies_goes_back_as_it_came(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = recorded(f"{name}.reply")
    assert sent_back(answered(body)) == body
    following = other_numbers(body, BufferForm.RESPONSE)
    monkeypatch.setattr(client, "_outputs", pytest.fail)
    response = answered(following)
    places = contents_if_proven(body, BufferForm.RESPONSE)
    assert places is not None
    [(begin, end)] = places
    assert bytes(response.outputs[0].data) == following[begin:end]
    assert GRAPHPIPE.encode_response(response, ASKED, DEFAULT_TRANSLATE).parts[0] is following


@pytest.mark.parametrize("name", ["unicode", "bytes", "several", "none"])
def test_messages_with_strings_or_without_tensors_are_written_anew(name: str) -> None:
    for _ in range(2):
        request, response = asked(recorded(f"{name}.request")), answered(recorded(f"{name}.reply"))
        assert (request.original, response.original) == (None, None)
    assert not recalled._layouts


X = Tensor("x", Datatype.FP32, (2,), pack("<2f", 1.5, -2))
Y = Tensor("y", Datatype.UINT8, (1, 3), b"abc")


def test_what_another_gateway_sends_goes_on_as_it_came() -> None:
    request = Request(Operation.INFER, "m", inputs=(X, Y), outputs=(RequestedOutput("z"),))
    body = sent_on(request)
    received = asked(body)
    assert (received.inputs, received.outputs) == ((X, Y), request.outputs)
    assert received.original is not None
    assert sent_on(received) == body
    told = sent_back(Response((X, Y)))
    assert sent_back(answered(told)) == told
    assert answered(told).original is not None


def test_large_tensors_are_views_of_the_message() -> None:
    for _ in range(2):
        body = request_of_the_package((replace(X, shape=(1000,), data=bytes(4000)),), [], "")
        [tensor] = asked(body).inputs
        assert isinstance(tensor.data, memoryview)
        assert tensor.data.obj is body


# --- what is written anew ---


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": (replace(X, name="other"), Y)},
        {"inputs": (replace(X, shape=(1, 2)), Y)},
        {"inputs": (replace(X, data=bytes(8)), Y)},
        {"inputs": (replace(X, datatype=Datatype.INT32), Y)},
        {"inputs": (Y, X)},
        {"inputs": (X,)},
        {"inputs": ()},
        {"outputs": ()},
        {"outputs": (RequestedOutput("other"),)},
        {"parameters": {"config": "other"}},
        {"parameters": {}},
    ],
    ids=str,
)
def test_a_changed_request_is_written_anew(change: dict[str, object]) -> None:
    body = request_of_the_package((X, Y), ["z"], "settings")
    asked(body)
    request = asked(body)
    assert sent_on(request) == body
    changed = replace(request, **change)  # type: ignore[arg-type]
    assert changed.original is not None
    assert sent_on(changed) == sent_on(replace(changed, original=None)) != body


def test_a_parameter_that_graphpipe_lacks_is_refused_in_a_known_request_too() -> None:
    request = asked(request_of_the_package((X,), [], ""))
    for changed in (
        replace(request, inputs=(replace(request.inputs[0], parameters={"p": 1}),)),
        replace(request, parameters={"p": 1}),
    ):
        with pytest.raises(GatewayError, match="'p'"):
            sent_on(changed)


@pytest.mark.parametrize(
    "outputs", [(replace(X, shape=(1, 2)),), (replace(X, data=bytes(8)),), (X, Y), ()], ids=["shape", "data", "2", "0"]
)
def test_a_changed_reply_is_written_anew(outputs: tuple[Tensor, ...]) -> None:
    body = reply_of_the_package((X,))
    response = answered(body)
    named = replace(response, outputs=(replace(response.outputs[0], name="y"),))
    assert sent_back(named) == body
    changed = replace(response, outputs=outputs)
    assert sent_back(changed) == sent_back(replace(changed, original=None)) != body


def test_a_reply_with_other_outputs_than_requested_is_refused_if_it_is_known() -> None:
    body = reply_of_the_package((X,))
    request = replace(ASKED, outputs=(RequestedOutput("y"), RequestedOutput("z")))
    answered(body)
    with pytest.raises(DecodeError, match="1 outputs for the 2"):
        answered(body, request)


def test_errors_are_no_outputs_of_a_known_reply() -> None:
    answered(reply_of_the_package((X,)))
    writer = Writer()
    text = writer.table(2, {1: writer.string(b"no")}, {})
    with pytest.raises(GatewayError, match="no"):
        answered(writer.finish(writer.table(2, {1: writer.links([text])}, {})))


# --- config ---


def test_a_config_is_remembered_when_it_comes_again() -> None:
    bodies = [request_of_the_package((X,), [], f"session {at}") for at in range(5)]
    for body in bodies:
        assert asked(body).original is None
    assert not recalled._layouts
    assert asked(bodies[0]).original is not None
    request = asked(bodies[0])
    assert (request.parameters, sent_on(request)) == ({"config": "session 0"}, bodies[0])
    assert asked(bodies[1]).parameters == {"config": "session 1"}


def test_smaller_limits_hold_for_a_known_config() -> None:
    body = request_of_the_package((X,), [], "settings")
    for _ in range(3):
        request = asked(body)
    assert request.original is not None
    small = Limits(config=7)
    with pytest.raises(GatewayError, match="config of 8 bytes"):
        server.decode_request(call(body), ListenerSettings("small", limits=small))
    with pytest.raises(GatewayError, match="config of 8 bytes"):
        GRAPHPIPE.encode_request(request, replace(TARGET, limits=small))


# --- what is not proven ---

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


def test_the_message_itself_is_proven() -> None:
    body = built()
    assert contents_if_proven(body, BufferForm.REQUEST) == [(body.index(b"abcd"), body.index(b"abcd") + 4)]
    assert sent_on(asked(body)) == body


NOT_PROVEN = {
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


@pytest.mark.parametrize("what", NOT_PROVEN)
def test_what_is_not_proven_is_written_anew(what: str) -> None:
    body = NOT_PROVEN[what]
    assert contents_if_proven(body, BufferForm.REQUEST) is None
    for _ in range(2):
        try:
            request = asked(body)
        except (DecodeError, GatewayError):
            continue
        assert request.original is None
        assert sent_on(request) != body
    assert not recalled._layouts


def test_a_proof_that_always_fails_is_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = mock.Mock(wraps=contents_if_proven)
    monkeypatch.setattr(recalled, "contents_if_proven", proofs)
    for _ in range(100):
        assert asked(NOT_PROVEN["many zeros behind"]).original is None
    assert proofs.call_count == 8
    body = request_of_the_package((X,), [], "")
    assert asked(body).original is not None
    assert asked(body).original is not None
    assert proofs.call_count == 9


def test_all_that_is_not_proven_but_for_what_is_no_message_is_read() -> None:
    refused = []
    for what, body in NOT_PROVEN.items():
        try:
            asked(body)
        except (DecodeError, GatewayError):
            refused.append(what)
    assert refused == []


# --- any message, any change ---


def said(read: Request | Response) -> object:
    tensors = read.inputs if isinstance(read, Request) else read.outputs
    told = [
        (each.name, each.datatype, each.shape, bytes(each.data), type(each.data), each.parameters) for each in tensors
    ]
    return (told, read.parameters, *((read.outputs, read.model) if isinstance(read, Request) else ()))


def read_as(form: BufferForm, body: bytes) -> Request | Response:
    return asked(body) if form is BufferForm.REQUEST else answered(body)


def written(value: Request | Response) -> bytes:
    return sent_on(value) if isinstance(value, Request) else sent_back(value)


class Failed(str):
    """An error."""


def outcome(body: bytes, form: BufferForm) -> object:
    """What is read, or the error."""
    try:
        return said(read_as(form, body))
    except (DecodeError, GatewayError) as error:
        return Failed(f"{type(error).__name__}: {error}")


def anew(body: bytes, form: BufferForm) -> object:
    """The same without knowing any layout, and without changing which are known."""
    with (
        mock.patch.object(recalled, "_layouts", LayoutStore()),
        mock.patch.object(recalled, "_cuts", AlikeLayoutStore()),
        mock.patch.object(recalled, "_configs", LayoutStore()),
    ):
        return outcome(body, form)


@st.composite
def pairs(draw: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Tensors of numbers, and others that differ in their contents."""
    named = draw(st.booleans())
    first: list[Tensor] = []
    second: list[Tensor] = []
    for at in range(draw(st.integers(1, 4))):
        datatype, shape = draw(st.sampled_from(NUMBERS)), draw(SHAPES)
        size = datatype.size
        for dimension in shape:
            size *= dimension
        name = draw(st.text(max_size=5)) + str(at) if named else ""
        for each in (first, second):
            each.append(Tensor(name, datatype, shape, draw(st.binary(min_size=size, max_size=size))))
    return tuple(first), tuple(second)


@settings(deadline=None)
@given(pairs(), NAMES, st.text(max_size=20), st.booleans())
def test_a_known_request_says_what_reading_it_says(
    tensors: tuple[tuple[Tensor, ...], tuple[Tensor, ...]], outputs: list[str], config: str, by_package: bool
) -> None:
    forget()
    wanted = tuple(map(RequestedOutput, outputs))
    parameters = {"config": config} if config else {}

    def body(inputs: tuple[Tensor, ...]) -> bytes:
        if by_package:
            return request_of_the_package(inputs, outputs, config)
        return sent_on(Request(Operation.INFER, "m", inputs=inputs, outputs=wanted, parameters=parameters))

    first, second = map(body, tensors)
    asked(first)
    asked(first)
    assert recall(second, BufferForm.REQUEST) is not None
    request = asked(second)
    assert said(request) == anew(second, BufferForm.REQUEST)
    assert sent_on(request) == second


@settings(deadline=None)
@given(pairs(), st.booleans())
def test_a_known_reply_says_what_reading_it_says(
    tensors: tuple[tuple[Tensor, ...], tuple[Tensor, ...]], by_package: bool
) -> None:
    forget()
    first, second = (reply_of_the_package(each) if by_package else sent_back(Response(each)) for each in tensors)
    answered(first)
    assert recall(second, BufferForm.RESPONSE) is not None
    response = answered(second)
    assert said(response) == anew(second, BufferForm.RESPONSE)
    assert sent_back(response) == second


KNOWN = {
    "request of the client": (recorded("float32.request"), BufferForm.REQUEST),
    "reply of a server": (recorded("int16.reply"), BufferForm.RESPONSE),
    "request with names": (request_of_the_package((X, Y), ["z"], "settings"), BufferForm.REQUEST),
    "request of a gateway": (sent_on(Request(Operation.INFER, "m", inputs=(X, Y))), BufferForm.REQUEST),
    "reply of a gateway": (sent_back(Response((X, Y))), BufferForm.RESPONSE),
    "built": (built(), BufferForm.REQUEST),
}


@pytest.mark.parametrize("what", KNOWN)
def test_a_change_of_any_byte_is_noticed(what: str) -> None:
    """What is read, or the error, is that of reading the message anew, and what is sent on says the same."""
    body, form = KNOWN[what]
    for _ in range(3):
        known = outcome(body, form)
    assert recall(body, form) is not None
    inside = {at for begin, end in contents_if_proven(body, form) or () for at in range(begin, end)}
    for at in range(len(body)):
        for flip in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]
            assert (recall(changed, form) is not None) == (at in inside)
            found = outcome(changed, form)
            assert found == anew(changed, form)
            assert outcome(body, form) == known
            read = None if isinstance(found, Failed) else read_as(form, changed)
            if read is not None and read.original is not None:
                assert written(read) == changed
                assert outcome(written(replace(read, original=None)), form) == found


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(KNOWN)), st.data())
def test_several_changes_are_noticed(what: str, data: st.DataObject) -> None:
    forget()
    body, form = KNOWN[what]
    for _ in range(3):
        known = outcome(body, form)
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        if data.draw(st.booleans()):
            changed[at] = data.draw(st.integers(0, 255))
        else:  # an offset, a count or a size
            start = at // 4 * 4
            changed[start : start + 4] = u32(data.draw(st.integers(0, len(body))))
    for following in (bytes(changed), body + bytes(changed[:3]), bytes(changed)[:-1], bytes(changed)):
        assert outcome(following, form) == anew(following, form)
    assert outcome(body, form) == known


@settings(deadline=None)
@given(TENSORS, NAMES)
def test_whatever_goes_on_as_it_came_says_what_would_be_written(inputs: tuple[Tensor, ...], outputs: list[str]) -> None:
    forget()
    request = asked(request_of_the_package(inputs, outputs, ""))
    written = sent_on(replace(request, original=None))
    forget()
    assert said(asked(sent_on(request))) == said(asked(written))


@pytest.mark.parametrize(("known", "other"), [([64], [128]), ([64, 128], [128, 64])])
def test_the_structure_of_one_message_around_places_of_another_is_malformed(known: list[int], other: list[int]) -> None:
    body, body_of_other = (
        request_of_the_package(
            tuple(Tensor(f"x{at}", Datatype.UINT8, (size,), bytes(size)) for at, size in enumerate(sizes)), [], ""
        )
        for sizes in (known, other)
    )
    asked(body)
    asked(body_of_other)
    mixed, end = b"", 0
    places, places_of_other = (contents_if_proven(each, BufferForm.REQUEST) for each in (body, body_of_other))
    for (begin, stop), (at, to) in zip(sorted(places or ()), sorted(places_of_other or ()), strict=True):
        mixed, end = mixed + body[end:begin] + b"\7" * (to - at), stop
    mixed += body[end:]
    assert len(mixed) == len(body_of_other)
    with pytest.raises(DecodeError, match="the flatbuffer"):
        asked(mixed)


# --- bounds ---


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 20)
    for at in range(100):
        asked(request_of_the_package((replace(X, name=f"input {at:4}"),), [], ""))
        asked(request_of_the_package((replace(X, shape=(at,), data=bytes(4 * at)),), [], ""))
        asked(request_of_the_package((X,), [], f"config {at}"))
    assert len(recalled._layouts) == len(recalled._configs) == 20
    assert sum(map(len, recalled._cuts.values())) <= 20
    assert all(len(each) <= layouts.ALIKE for each in recalled._cuts.values())
    assert asked(request_of_the_package((replace(X, name="input   99"),), [], "")).original is not None


def test_models_with_names_of_one_length_are_all_remembered() -> None:
    bodies = [request_of_the_package((replace(X, name=f"x{at}"),), [], "") for at in range(10, 40)]
    for body in bodies:
        asked(body)
    assert all(recall(body, BufferForm.REQUEST) for body in bodies)
    assert [len(each) for each in recalled._cuts.values()] == [1]


def test_long_structures_are_not_remembered() -> None:
    asked(request_of_the_package((replace(X, name="x" * layouts.LONGEST),), [], ""))
    asked(request_of_the_package(tuple(replace(X, name=f"x{at}") for at in range(30)), [], ""))
    asked(request_of_the_package((X,), [], "c" * layouts.LONGEST * 2))
    assert not recalled._layouts
    assert not recalled._configs


def test_a_message_in_several_buffers_is_read_as_one() -> None:
    body = recorded("float32.request")
    asked(body)
    message = replace(call(b""), parts=(body[:50], body[50:]))
    request = server.decode_request(message, ListenerSettings("http"))
    assert said(request) == said(asked(body))
    assert GRAPHPIPE.encode_request(request, TARGET).parts is message.parts


def test_offsets_beyond_the_message_are_refused_as_ever() -> None:
    body = built()
    asked(body)
    (root,) = unpack_from("<I", body)
    for offset in (root + 1, len(body) - 2, len(body), 2**31, 2**32 - 1):
        changed = u32(offset) + body[4:]
        assert outcome(changed, BufferForm.REQUEST) == anew(changed, BufferForm.REQUEST)
