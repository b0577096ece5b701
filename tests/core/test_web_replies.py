"""Error pages and redirects: what is shown of them, and what a client is told behind each wire form over HTTP."""

import json

import pytest

from gateway.core.messages import Headers, Message
from gateway.core.web_replies import page_text, web_error
from tests.wires import Wires, replying

FLASK = b"""<!doctype html>
<html lang=en>
<title>500 Internal Server Error</title>
<h1>Internal Server Error</h1>
<p>The server encountered an internal error at /srv/app/secret.py.</p>
"""
NGINX = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body>"
)
HTML = (b"content-type", b"text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (FLASK, "'500 Internal Server Error'"),
        (NGINX, "'502 Bad Gateway'"),
        (b"<html><body><h1>Not\n <b>here</b> &amp; there\x07</h1>" + b"x" * 100_000, "'Not here & there'"),
        (b"<html><title>" + b"y" * 1000 + b"</title>", "'" + "y" * 200 + "'"),
        (b"<html><body>nothing in a heading, but /a/path", ""),
        (b"<title>" + b" " * 20_000 + b"late</title>", ""),
        (b"<html>" + b"<title>" * 2000, ""),
        (b"<html><title><h1>no end of a title</h1>", "'no end of a title'"),
        (b"<html><title>" + b"<" * 15_000 + b"</title>", "'" + "<" * 200 + "'"),
    ],
)
def test_of_a_page_its_title_is_shown(body: bytes, shown: str) -> None:
    expected = f"a web page (text/html), {shown}" if shown else "a web page (text/html)"
    assert page_text(Message(status=500, parts=(body,))) == expected


@pytest.mark.parametrize(
    ("body", "kind", "is_page"),
    [
        (FLASK, b"text/html", True),
        (b"\n <!DOCTYPE HTML><p>", b"", True),
        (b"<p>no head", b"text/html", True),
        (b"<p>no head", b"text/plain", False),
        (b'{"error": "no"}', b"text/html", False),  # Flask calls every text so
        (b"x must be positive", b"text/html", False),
        (b"", b"text/html", False),
    ],
)
def test_a_text_is_a_page_only_if_it_is_html(body: bytes, kind: bytes, is_page: bool) -> None:
    reply = Message(status=500, headers=Headers([(b"content-type", kind)]), parts=(body,))
    assert bool(web_error(reply, "/predict")) is is_page


WRITE_THE_PATH = "write the path /predict/ where the configuration has /predict, in the form or the address"


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("/predict/", f"/predict/', which is not followed; {WRITE_THE_PATH}"),
        ("http://lab:1/predict/", f"http://lab:1/predict/', which is not followed; {WRITE_THE_PATH}"),
        (
            "https://user:secret@lab.example.com/predict",
            "https://lab.example.com/predict', which is not followed; write the address https://lab.example.com"
            " in the backend's endpoints",
        ),
        ("/predict", "/predict', which is not followed"),
        ("http://[", "http://['"),
        ("/\r\nx\x07", "/ x', which is not followed; write the path / x where the configuration has"),
    ],
)
def test_a_redirect_tells_where_to_and_what_to_write(location: str, told: str) -> None:
    reply = Message(status=307, headers=Headers([(b"location", location.encode())]))
    assert web_error(reply, "/predict").startswith(f"status 307, expected 200; it redirects to '{told}")
    assert "secret" not in web_error(reply, "/predict")


def test_a_redirect_to_nowhere_is_told_by_its_status() -> None:
    assert web_error(Message(status=307, headers=Headers([(b"location", b"")])), "/predict").startswith("status 307, ")


BACKENDS = {
    "v2-rest": "protocol: v2-rest, flavor: plain",
    "v1-rest": "protocol: v1-rest, flavor: kserve",
    "umbridge": "protocol: umbridge",
    "graphpipe": "protocol: graphpipe",
    "grps-rest": "protocol: grps-rest",
    "json": "protocol: json, form: price",
}
CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
forms:
  price:
    infer: {{path: /predict, request: {{x: $x}}, response: {{y: $y}}}}
    tensors: {{x: "FP64 [-1]", y: "FP64 [-1]"}}
backends: {{price: {{{backend}, endpoints: ["lab:1"]}}}}
routes:
  - match: {{model: m}}
    backend: price
    signature:
      inputs: [{{name: x, datatype: FP64, shape: [{batch}1]}}]
      outputs: [{{name: y, datatype: FP64, shape: [{batch}1]}}]
"""
INFER = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}'


async def told(backend: str, reply: tuple[int, bytes, tuple[bytes, bytes]]) -> str:
    """The text of the error that a client gets if the backend replies so."""
    status, body, header = reply
    text = CONFIG.format(backend=BACKENDS[backend], batch="-1, " if backend == "umbridge" else "")
    wires = Wires(text, lab=replying(body, status=status, headers=[header]))
    answer = await wires.post("v2-rest", "/v2/models/m/infer", INFER)
    return str(json.loads(bytes(answer.body))["error"])


REPLIES = {
    "a page": ((500, FLASK, HTML), "status 500 with a web page (text/html), '50", ""),
    "a page of another status": ((404, FLASK, HTML), "status 404 with a web page (text/html), '50", ""),
    "a page of a proxy": ((502, NGINX, HTML), "status 502 with a web page (text/html), '50", ""),
    "no text": ((500, b"", (b"x", b"y")), "", "status 500"),
    "a redirect": (
        (307, b"", (b"location", b"/elsewhere/")),
        "status 307, expected 200; it redirects to '/elsewhere/'",
        "write the path /elsewhere/",
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reply", REPLIES)
async def test_an_error_names_the_backend_and_is_shortened(backend: str, reply: str) -> None:
    given, begin, within = REPLIES[reply]
    text = await told(backend, given)
    assert text.startswith(f"backend 'price' at lab:1: {begin}"), text
    assert within in text
    assert "<" not in text
    assert "secret" not in text


@pytest.mark.parametrize("backend", ["v2-rest", "v1-rest", "umbridge", "json"])
async def test_the_servers_own_texts_stay_as_they_are(backend: str) -> None:
    header = (b"content-type", b"application/json")
    text = await told(backend, (400, b'{"error": "x must be positive"}', header))
    assert text == ('{"error": "x must be positive"}' if backend == "json" else "x must be positive")
