"""Texts of clients and servers that look like parts of a message: in every place of a form they stay texts."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from email import message_from_bytes
from email.message import Message as Mail
from urllib.parse import parse_qsl, unquote

import pytest

from gateway.core.messages import Headers, Message
from tests.wires import Wires, replying

TEXTS = {
    "a place": "$x",
    "a place for the model": "$model",
    "a place with a spelling": "$y|text",
    "an escaped place": "$$x",
    "the end of a text": '"',
    "the end of an object": '"}',
    "another member": '", "model": "secret", "x": "',
    "another member of the template": '"}, "m": "secret", "t": {"t": "',
    "an escape": "\\",
    "an escaped quote": '\\", "m": "secret',
    "braces": "{}[]{{model}}{model}",
    "a line": "a\nb",
    "lines of HTTP": "a\r\nx-injected: 1\r\n\r\nGET / HTTP/1.1\r\n",
    "a NUL": "a\0b",
    "a lone surrogate's escape": "\\ud800",
    "a mark of the NaN reader": "NaN",
    "a number": "1e999",
    "a constant": "null",
    "more parameters": "a&m=secret&q=b;m=secret#f",
    "a path": "../secret?x=1#y",
    "percents": "%22%0d%0a%2e%2e%2f",
    "cells": 'a,b;"c"',
    "a formula": "=1+1",
    "a boundary": '--b\r\nContent-Disposition: form-data; name="m"\r\n\r\nsecret\r\n--b--\r\n',
    "a file's name": '"; filename="/etc/passwd',
    "an end of a stream": "data: [DONE]\n\n",
    "HTML": "<script>1</script>",
    "YAML": "!!python/object:os.system {a: &b *b}",
    "directions": "\u202ecba",
}
"""Texts that mean something to a template, a media type or a reader."""

CONFIG = """
forms:
  f:
    infer: {{{exchange}}}
    error: {{error: $message}}
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, "json:f"], model: m}}]
backends: {{lab: {{protocol: json, form: f, endpoints: ["lab:1"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab, check: full}}]
"""
JSON = ((b"content-type", b"application/json"),)
REPLY = b'{"y": ["a"]}'


def gateway(exchange: str, reply: bytes = REPLY) -> Wires:
    return Wires(CONFIG.format(exchange=exchange), lab=replying(reply, headers=JSON))


async def asked(wires: Wires, text: str, *, model: str = "m", **more: object) -> tuple[Message, list[Message]]:
    """The reply to a V2 client whose only element is `text`, and what the server was sent."""
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1], "data": [text]}
    body = json.dumps({"inputs": [tensor], **more}).encode()
    reply = await wires.send("v2-rest", Message("POST", f"/v2/models/{model}/infer", Headers(JSON), (body,)))
    return reply, wires.sent["lab"]


def body_of(message: Message) -> bytes:
    return b"".join(map(bytes, message.parts))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_in_json_they_are_texts(text: str) -> None:
    template = "path: /p, request: {t: {t: $x|text}, l: $param.l, m: $model, i: $id}, response: {y: $y}"
    reply, [sent] = await asked(gateway(template), text, parameters={"l": text}, id=text)
    assert reply.status == 200, body_of(reply)
    pairs = json.loads(body_of(sent), object_pairs_hook=lambda found: found)
    assert pairs == [("t", [("t", text)]), ("l", text), ("m", "m"), ("i", text)]
    assert json.loads(body_of(reply))["id"] == text


def _csv(sent: Message, text: str) -> bool:
    return list(csv.reader(io.StringIO(body_of(sent).decode(), newline=""))) == [[text]]


def _csv_with_header(sent: Message, text: str) -> bool:
    return list(csv.reader(io.StringIO(body_of(sent).decode(), newline=""))) == [["t"], [text]]


def _web_form(sent: Message, text: str) -> bool:
    return parse_qsl(body_of(sent).decode(), keep_blank_values=True) == [("t", text)]


def _parts(sent: Message) -> list[Mail]:
    head = f"Content-Type: {sent.headers.get('content-type')}\r\n\r\n".encode()
    found = message_from_bytes(head + body_of(sent)).get_payload()
    assert isinstance(found, list)
    return [each for each in found if isinstance(each, Mail)]


def _multipart(sent: Message, text: str) -> bool:
    [part] = _parts(sent)
    name = part.get_param("name", header="content-disposition")
    return (name, part.get_payload(decode=True)) == ("t", text.encode())


MEDIA: Mapping[str, tuple[str, Callable[[Message, str], bool]]] = {
    "JSON lines": (
        "media_type: application/jsonlines, request: [{t: $x}, ...]",
        lambda sent, text: [json.loads(line) for line in body_of(sent).split(b"\n") if line] == [{"t": text}],
    ),
    "CSV": ("media_type: text/csv, request: [[$x], ...]", _csv),
    "CSV with a header": ("media_type: text/csv; header=present, request: [{t: $x}, ...]", _csv_with_header),
    "a web form": ("media_type: application/x-www-form-urlencoded, request: {t: $x|text}", _web_form),
    "form data": ("media_type: multipart/form-data, request: {t: $x|text}", _multipart),
    "a file": ("media_type: multipart/form-data, request: {t: $x}", _multipart),
    "a text": ("media_type: text/plain, request: $x", lambda sent, text: body_of(sent) == text.encode()),
    "bytes": ('media_type: "*/*", request: $x', lambda sent, text: body_of(sent) == text.encode()),
    "a query": (
        "method: GET, query: {t: $x|text}",
        lambda sent, text: parse_qsl(sent.query, keep_blank_values=True) == [("t", text)],
    ),
}


@pytest.mark.parametrize("media", MEDIA)
async def test_in_other_media_they_are_texts_too(media: str) -> None:
    template, is_text = MEDIA[media]
    wires = gateway(f"path: /p, {template}, response: {{y: $y}}")
    for text in TEXTS.values():
        wires.sent["lab"].clear()
        reply, [message] = await asked(wires, text)
        assert reply.status == 200, body_of(reply)
        assert is_text(message, text), (text, message.query, body_of(message))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_in_a_head_they_are_texts_or_refused(text: str) -> None:
    template = "path: '/p/{id}', headers: {x-id: $id}, query: {q: $id}, request: {x: $x}, response: {y: $y}"
    reply, sent = await asked(gateway(template), "a", id=text)
    if reply.status != 200:
        assert (reply.status, sent) == (400, [])
        assert any(ord(each) < 32 or ord(each) > 126 for each in text) or ".." in text
        return
    [message] = sent
    assert message.headers.get("x-id") == text
    assert {name for name, _ in message.headers.raw} == {b"accept", b"content-type", b"gateway-hops", b"x-id"}
    assert parse_qsl(message.query, keep_blank_values=True) == [("q", text)]
    assert (message.path.count("/"), unquote(message.path)) == (2, f"/p/{text}")
    assert all(32 < byte < 127 for byte in message.path.encode())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_of_a_server_they_are_texts(text: str) -> None:
    """Outputs and errors of a server in the JSON of a client of the form, and of V2."""
    template = "path: /p, request: {x: $x|text}, response: {y: $y|text, 'i?': $id, m: $model}"
    told = json.dumps({"y": text, "m": "m"}).encode()
    wires = gateway(template, told)
    reply, _ = await asked(wires, "a")
    assert json.loads(body_of(reply))["outputs"][0]["data"] == [text]
    reply = await wires.post("json:f", "/p", b'{"x": "a"}')
    assert json.loads(body_of(reply), object_pairs_hook=lambda found: found) == [("y", text), ("m", "m")]
    failing = Wires(CONFIG.format(exchange=template), lab=replying(json.dumps({"error": text}).encode(), status=400))
    reply = await failing.post("json:f", "/p", b'{"x": "a"}')
    [(member, found)] = json.loads(body_of(reply), object_pairs_hook=lambda found: found)
    assert (reply.status, member) == (400, "error")
    assert not text.isprintable() or text in found


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_where_messages_pass_unread_they_pass_as_they_came(text: str) -> None:
    template = "path: '/p/{id}', request: {x: $x|text, 'm?': $model}, response: {y: $y}"
    wires = Wires(CONFIG.format(exchange=template).replace(", check: full", ""), lab=replying(REPLY, headers=JSON))
    body = json.dumps({"x": text, "m": "m"}).encode()
    await wires.send("json:f", Message("POST", "/p/a%2Fb%3Fc", Headers(JSON), (body,)))
    [sent] = wires.sent["lab"]
    assert (sent.path, sent.query, json.loads(body_of(sent))) == ("/p/a%2Fb%3Fc", "", {"x": text, "m": "m"})
