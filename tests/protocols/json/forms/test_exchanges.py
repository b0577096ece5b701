"""The exchanges of each ready form, read and written."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from gateway.core import http_status
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.patterns import Match, PathTable, rows
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.requests import Request, Response, Translate
from gateway.protocols.json.compiled import FormMessage
from gateway.protocols.json.form import parse_form
from gateway.protocols.json.protocol import protocol_of
from gateway.protocols.json.ready import document, names
from tests.protocols.json.forms.exchanges import FORMS, Asked, Exchanges, Failed, Told, as_tensor, plain, written

T = TypeVar("T")
LISTENER = ListenerSettings("test", model="of the listener")
TARGET = Target("lab", "lab:1")
LITERAL = Translate(nan="literal")
PROTOCOLS = {name: protocol_of(name, parse_form(document(name))) for name in names()}


def test_every_ready_form_has_exchanges() -> None:
    assert FORMS.keys() == PROTOCOLS.keys()


def each(table: Callable[[Exchanges], Iterator[tuple[str, T]]]) -> pytest.MarkDecorator:
    """Parametrise by the protocol of each form, its exchanges, and each entry of one of their tables."""
    return pytest.mark.parametrize(
        ("protocol", "form", "found"),
        [
            pytest.param(PROTOCOLS[name], form, found, id=f"{name}: {what}")
            for name, form in FORMS.items()
            for what, found in table(form)
        ],
    )


each_request = each(lambda form: iter(form.asked.items()))
each_reply = each(
    lambda form: (
        (f"{what}, {at}", (asked, told))
        for what, asked in form.asked.items()
        for at, told in enumerate((asked.told, *asked.also))
    )
)
each_error = each(lambda form: iter(form.failed.items()))


def message(asked: Asked, form: Exchanges, protocol: Protocol) -> Message:
    """A request as decode_request gets it."""
    pairs = ([("content-type", asked.type)] if asked.type else []) + list(asked.headers)
    path = asked.path or form.path
    match = PathTable(rows([(protocol, "")], "", ())).match(asked.method, path)
    assert isinstance(match, Match), match
    headers = Headers([(name.encode(), text.encode()) for name, text in pairs])
    return Message(
        asked.method, path, headers, (asked.body,), 0, asked.query, pattern=match.pattern, captures=match.captures
    )


def reply(body: bytes, kind: str = "application/json", status: int = 200) -> Message:
    return Message(headers=Headers([(b"content-type", kind.encode())] if kind else []), parts=(body,), status=status)


@each_request
def test_a_client_s_request_is_read(protocol: Protocol, form: Exchanges, found: Asked) -> None:
    request = decoded(message(found, form, protocol), protocol, LISTENER)
    assert tuple(map(plain, request.inputs)) == found.inputs
    assert (request.model, request.version) == (found.model or form.model or LISTENER.model, found.version)
    assert request.id == (found.id or None)
    assert request.parameters == found.parameters


@each_request
def test_a_request_is_written_as_the_server_takes_it(protocol: Protocol, form: Exchanges, found: Asked) -> None:
    """Of a client of another form: one of the same form would get its own exchange."""
    request = decoded(message(found, form, protocol), protocol, LISTENER)
    assert isinstance(request.origin, FormMessage)
    request = replace(request, origin=replace(request.origin, asked=None, alternative=0))
    sent = protocol.encode_request(request, TARGET)
    assert b"".join(sent.parts) == written(found)
    assert (sent.method, sent.path) == ("POST", found.to or form.path)
    assert sent.headers.get("content-type") == (
        found.writes_type or ("application/json" if found.writes else found.type)
    )


@each_reply
def test_a_server_s_reply_is_read(protocol: Protocol, form: Exchanges, found: tuple[Asked, Told]) -> None:
    asked, told = found
    if not told.read:
        return
    request = decoded(message(asked, form, protocol), protocol, LISTENER)
    answer = protocol.decode_response(reply(told.body, told.type), request, TARGET)
    assert isinstance(answer, Response)
    assert repr(tuple(map(plain, answer.outputs))) == repr(told.outputs)  # NaN is equal to nothing
    assert answer.parameters == told.parameters


@each_reply
def test_a_reply_is_written_as_the_client_takes_it(
    protocol: Protocol, form: Exchanges, found: tuple[Asked, Told]
) -> None:
    asked, told = found
    request = decoded(message(asked, form, protocol), protocol, LISTENER)
    answer = Response(tuple(map(as_tensor, told.outputs)), parameters=told.parameters)
    sent = protocol.encode_response(answer, request, LITERAL)
    assert (sent.status, b"".join(sent.parts)) == (200, written(told))


@each_error
def test_a_server_s_error_is_read(protocol: Protocol, form: Exchanges, found: Failed) -> None:
    request = Request(Operation.INFER, "m")
    with pytest.raises(GatewayError) as caught:
        protocol.decode_response(reply(found.body, found.type, found.status), request, TARGET)
    assert caught.value.message == found.message
    assert caught.value.reason is meaning(found)


def meaning(failed: Failed) -> Reason:
    return failed.reason or REASONS_BY_NUMBER.get(failed.status, Reason.MODEL_ERROR)


@each_error
def test_an_error_is_written_as_the_server_tells_it(protocol: Protocol, form: Exchanges, found: Failed) -> None:
    error = refusal(meaning(found), found.message)
    asked = next(iter(form.asked.values()))
    sent = protocol.encode_error(error, None, message(asked, form, protocol))
    assert b"".join(sent.parts) == written(found)
    assert sent.status in ((found.status,) if found.reason else (found.status, http_status.number(error)))


@each(lambda form: ((body.decode().strip() or "empty", body) for body in form.ready))
def test_a_server_that_answers_its_probe_is_ready(protocol: Protocol, form: Exchanges, found: bytes) -> None:
    request = Request(Operation.READY)
    asked = protocol.encode_request(request, TARGET)
    assert (asked.method, asked.path) == ("GET", form.probe)
    assert protocol.decode_response(reply(found), request, TARGET) is True


@each(lambda form: ((body.decode().strip(), body) for body in form.resting))
def test_a_server_that_says_otherwise_is_not(protocol: Protocol, form: Exchanges, found: bytes) -> None:
    assert protocol.decode_response(reply(found), Request(Operation.READY), TARGET) is False


LISTS = {
    "torchserve": (
        b'{\n  "models": [\n    {\n      "modelName": "m",\n      "modelUrl": "m.mar"\n    }\n  ]\n}\n',
        ["m"],
    ),
    "ray-applications": (b'{"/double":"double","/text":"text","/":"root"}', ["double", "text"]),
    "infinity": (
        b'{"data":[{"id":"tiny","stats":{"queue_fraction":0.0,"queue_absolute":0,"results_pending":0,"batch_size":32},'
        b'"object":"model","owned_by":"infinity","created":1795877665,"backend":"torch","capabilities":["embed"]}],'
        b'"object":"list"}',
        ["tiny"],
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_the_models_of_a_server_are_read_and_listed_as_it_does(name: str) -> None:
    protocol, (body, names) = PROTOCOLS[name], LISTS[name]
    request = Request(Operation.MODELS)
    found = protocol.decode_response(reply(body), request, TARGET)
    assert isinstance(found, tuple)
    assert [each.name for each in found] == names
    asked = replace(request, origin=protocol.encode_request(request, TARGET))
    told = protocol.encode_response(found, asked, LITERAL)
    assert protocol.decode_response(reply(bytes(told.body)), request, TARGET) == found


@pytest.mark.parametrize("name", FORMS)
def test_a_listener_answers_the_probe(name: str) -> None:
    protocol, form = PROTOCOLS[name], FORMS[name]
    match = PathTable(rows([(protocol, "")], "", ())).match("GET", form.probe)
    assert isinstance(match, Match), match
    request = decoded(Message("GET", form.probe, pattern=match.pattern, captures=match.captures), protocol, LISTENER)
    for ready, status in ((True, 200), (False, 503)):
        sent = protocol.encode_response(ready, request, LITERAL)
        assert sent.status == status or not form.resting
        assert protocol.decode_response(reply(b"".join(sent.parts), status=sent.status), request, TARGET) is ready
