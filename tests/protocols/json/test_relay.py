"""Inferences that pass unread between two sides of one form: through a whole gateway, and what each part decides."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import unread
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.requests import NOT_READ, Request
from tests.protocols.json.declared import declared, headers, message
from tests.protocols.json.forms.exchanges import Asked, Exchanges, Told
from tests.protocols.json.forms.test_exchanges import PROTOCOLS, each_reply, each_request
from tests.protocols.json.forms.test_exchanges import message as asked_message
from tests.wires import Wires, replying

PREDICT = "POST /predict"
JSON = "application/json"

# --- through a gateway ---


def wires(form: str, *reply: bytes, back: str = "", kind: str = JSON, more: str = "", status: int = 200) -> Wires:
    """A gateway with the ready form on both sides of its route, or with `back` on the side of the server, which always
    gives one reply."""
    fields = ((b"content-type", kind.encode()), (b"x-request-id", b"1")) if kind else ()
    return Wires(
        f"""
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: ["json:{form}"], model: m}}]
backends: {{lab: {{protocol: json, form: {back or form}, endpoints: ["lab:1"]}}}}
routes:
  - {{match: {{listener: in}}, backend: lab{more}}}
""",
        lab=replying(*reply, status=status, headers=fields),
    )


MULTIPART = (
    b'--b\r\nContent-Disposition: form-data; name="data"; filename="kitten.jpg"\r\n'
    b"Content-Type: image/jpeg\r\n\r\n\xff\xd8\xff\r\n--b--\r\n"
)
# form, path (behind a method other than POST), Content-Type, request, Content-Type of the reply, reply: as real servers
# answer
PASSES = {
    "ray: an object, by the name of its deployment": (
        "ray", "/m", JSON, b'{"features": [[1,2]]}', JSON, b'{"a":[2,4],"b":[7.0]}',
    ),
    "ray: a number": ("ray", "/double", JSON, b"2", JSON, b"4"),
    "ray: a text": ("ray", "/text", JSON, b'"you"', "text/plain; charset=utf-8", b"hello you"),
    "torchserve: an object": (
        "torchserve", "/predictions/double", JSON, b'{"data": [1,2]}', "", b"[\n  2.0,\n  4.0\n]",
    ),
    "torchserve: an envelope, a version": (
        "torchserve", "/predictions/double/1.0", JSON, b'{"instances": [[1]]}', "", b'{\n  "predictions": [2]\n}',
    ),
    "torchserve: bytes": (
        "torchserve", "/predictions/double", "application/octet-stream", b"hello", "", b'{\n  "bytes": 5\n}',
    ),
    "torchserve: bytes that are no text": (
        "torchserve", "/predictions/double", "image/jpeg", b"\xff\xd8\xff", "", b'{\n  "bytes": 3\n}',
    ),
    "torchserve: a web form": (
        "torchserve", "/predictions/double", "application/x-www-form-urlencoded", b"data=hello", "", b"[\n  2.0\n]",
    ),
    "torchserve: a file": (
        "torchserve", "/predictions/m", "multipart/form-data; boundary=b", MULTIPART, "", b'{\n  "tabby": 0.5\n}',
    ),
    "torchserve: no Content-Type": ("torchserve", "/predictions/double", "", b"[[1,2,3]]", "", b'{\n  "bytes": 9\n}'),
    "torchserve: bytes by PUT": ("torchserve", "PUT /predictions/m", "", b"\xff\xd8\xff", JSON, b"[ 2 ]"),
    "torchserve: a list by PUT": ("torchserve", "PUT /predictions/m/1.0", JSON, b"[ 1 ]", JSON, b"[ 2 ]"),
    "ray: a list by PUT": ("ray", "PUT /m", JSON, b"[ 1 ]", JSON, b"[ 2 ]"),
    "seldon: strData": ("seldon", "/predict", JSON, b'{"strData":"hello"}', JSON, b'{"meta":{},"strData":"HELLO"}\n'),
    "seldon: binData": (
        "seldon", "/predict", JSON, b'{"binData":"aGVsbG8="}', JSON, b'{"binData":"b2xsZWg=","meta":{}}\n',
    ),
    "seldon: a tensor, at another path": (
        "seldon", "/api/v0.1/predictions", JSON,
        b'{"data":{"names":["a","b","c"],"tensor":{"shape":[1,3],"values":[1,2,3]}}}', JSON,
        b'{"data":{"names":["t:0","t:1","t:2"],"tensor":{"shape":[1,3],"values":[2,4,6]}},"meta":{}}\n',
    ),
    "cog: a failure of the model": (
        "cog", "/predictions", JSON, b'{"input":{"x":[-1]}}', JSON,
        b'{"error":"Prediction failed: ValueError: boom","id":"pred_1","logs":"","metrics":{},"status":"failed"}',
    ),
    "vertex: a reply of any type": (
        "vertex", "/predict", JSON, b'{"instances":[[1,2,3]]}', "*/*", b'{"predictions": [[2, 4, 6]]}',
    ),
    "vertex: the path that a container has if nobody chose it": (
        "vertex", "/v1/endpoints/7/deployedModels/8%2F9:predict", JSON, b'{"instances":[1]}', JSON,
        b'{"predictions":[2]}',
    ),
    "sagemaker: CSV, which is answered by JSON": (
        "sagemaker", "/invocations", "text/csv", b"1,2,3", JSON, b"[2, 4, 6]",
    ),
    "embeddings": (
        "openai-embeddings", "/embeddings", JSON, b'{"model":"tiny","input":"hello","encoding_format":"base64"}', JSON,
        b'{"object":"list","data":[{"object":"embedding","embedding":"QDupvg==","index":0}],"model":"tiny","usage":{},'
        b'"id":"infinity-0a","created":1795877665}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("form", "asked", "kind", "body", "told_kind", "told"), PASSES.values(), ids=PASSES)
async def test_a_request_and_its_reply_pass_as_they_came(
    form: str, asked: str, kind: str, body: bytes, told_kind: str, told: bytes
) -> None:
    method, path = asked.split(" ") if " " in asked else ("POST", asked)
    gateway = wires(form, told, kind=told_kind)
    fields = headers(content_type=kind) if kind else headers()
    reply = await gateway.send(f"json:{form}", Message(method, path, fields, (body,)))
    [sent] = gateway.sent["lab"]
    assert (sent.method, sent.path, sent.headers.get("content-type"), sent.body) == (method, path, kind, body)
    assert (reply.status, reply.headers.get("content-type"), reply.body) == (200, told_kind, told)


@pytest.mark.parametrize(
    ("path", "goes_to"), [("/predict", "/predict"), ("/seldon/ns/m/api/v1.0/predictions", "/api/v1.0/predictions")]
)
async def test_a_request_in_a_query_passes_as_it_came(path: str, goes_to: str) -> None:
    told = b'{"meta":{},"strData":"HELLO"}\n'
    gateway = wires("seldon", told)
    query = "json=%7B%22strData%22%3A+%22hello%22%2C+%22meta%22%3A+%7B%7D%7D"
    reply = await gateway.send("json:seldon", Message("GET", path, query=query))
    [sent] = gateway.sent["lab"]
    assert (sent.method, sent.path, sent.query, bytes(sent.body)) == ("GET", goes_to, query, b"")
    assert sent.headers.get("content-type") == ""
    assert (reply.status, reply.body) == (200, told)
    refused = await gateway.send("json:seldon", Message("GET", path, query=query + "&json=1"))
    assert (refused.status, len(gateway.sent["lab"])) == (400, 1)


@pytest.mark.parametrize(
    ("form", "path", "goes_to"),
    [
        ("sagemaker", "/endpoints/m/invocations", "/invocations"),
        ("huggingface", "/models/m", "/"),
        ("huggingface", "/embed", "/embed"),
        ("seldon", "/seldon/space/m/api/v1.0/predictions", "/api/v1.0/predictions"),
        ("vertex", "/v1/projects/p/locations/l/endpoints/m:predict", "/predict"),
    ],
)
async def test_a_path_that_clients_alone_have_becomes_that_of_servers(form: str, path: str, goes_to: str) -> None:
    gateway = wires(form, b'{"predictions":[ 1 ]}')
    body = b'{"instances": [ [1] ]}'
    reply = await gateway.post(f"json:{form}", path, body)
    assert [(each.path, each.body) for each in gateway.sent["lab"]] == [(goes_to, body)]
    assert reply.body == b'{"predictions":[ 1 ]}'


async def test_a_route_that_checks_everything_reads_and_writes() -> None:
    gateway = wires("ray", b"[ 2 ]", more=", check: full")
    reply = await gateway.post("json:ray", "/m", b'{"features": [1]}')
    assert [(each.path, each.body) for each in gateway.sent["lab"]] == [("/m", b'{"features":[1]}')]
    assert reply.body == b"[2]"


# form, path, Content-Type, request: the bodies are written as the gateway writes them
READ = {
    "mlflow: a table": ("mlflow", "/invocations", JSON, b'{"dataframe_split":{"columns":["a","b"],"data":[[1,2.5]]}}'),
    "mlflow: rows": ("mlflow", "/invocations", JSON, b'{"dataframe_records":[{"a":1,"b":2.5},{"a":3,"b":4.5}]}'),
    "mlflow: inputs by name": ("mlflow", "/invocations", JSON, b'{"inputs":{"a":[1],"b":[2.5]}}'),
    "mlflow: instances": ("mlflow", "/invocations", JSON, b'{"instances":[[1,2]],"params":{"p":1}}'),
    "mlflow: CSV": ("mlflow", "/invocations", "text/csv; header=present", b"a,b\n1,2.5\n"),
    "ray: an object": ("ray", "/m", JSON, b'{"features":[[1,2]]}'),
    "ray: a list": ("ray", "/m", JSON, b"[[1,2]]"),
    "bentoml: a list": ("bentoml", "/m", JSON, b"[[1,2]]"),
    "torchserve: an object": ("torchserve", "/predictions/m", JSON, b'{"data":[1,2]}'),
    "torchserve: an envelope": ("torchserve", "/predictions/m", JSON, b'{"instances":[[1]]}'),
    "torchserve: texts": ("torchserve", "/predictions/m", JSON, b'["hello"]'),
    "torchserve: bytes": ("torchserve", "/predictions/m", "application/octet-stream", b"hello"),
    "seldon: strData": ("seldon", "/predict", JSON, b'{"strData":"hello"}'),
    "seldon: binData": ("seldon", "/predict", JSON, b'{"binData":"aGVsbG8="}'),
    "seldon: a tensor": ("seldon", "/predict", JSON, b'{"data":{"tensor":{"shape":[1,3],"values":[1,2,3]}}}'),
    "seldon: an array": ("seldon", "/predict", JSON, b'{"data":{"ndarray":[[1,2]]},"meta":{"puid":"7"}}'),
    "seldon: a web form": (
        "seldon", "/predict", "application/x-www-form-urlencoded",
        b"json=%7B%22data%22%3A%7B%22ndarray%22%3A%5B%5B1%2C2%5D%5D%7D%7D",
    ),
    "sagemaker: instances": ("sagemaker", "/invocations", JSON, b'{"instances":[[1,2]]}'),
    "sagemaker: features": ("sagemaker", "/invocations", JSON, b'{"instances":[{"features":[1,2]}]}'),
    "sagemaker: CSV": ("sagemaker", "/invocations", "text/csv", b"1,2\n3,4\n"),
    "sagemaker: lines": ("sagemaker", "/invocations", "application/jsonlines", b'{"features":[1,2]}\n'),
    "vertex: rows": ("vertex", "/predict", JSON, b'{"instances":[{"a":1,"b":2}]}'),
    "vertex: bytes": ("vertex", "/predict", JSON, b'{"instances":[{"b64":"aGVsbG8="}]}'),
    "embeddings: tokens": (
        "openai-embeddings", "/v1/embeddings", JSON, b'{"model":"m","input":[1,2,3],"encoding_format":"base64"}',
    ),
    "huggingface: a table": ("huggingface", "/embed", JSON, b'{"table":{"a":["1","2"],"b":["3","4"]}}'),
}  # fmt: skip


@pytest.mark.parametrize(("form", "path", "kind", "body"), READ.values(), ids=READ)
async def test_a_request_that_is_read_leaves_in_the_exchange_that_it_came_in(
    form: str, path: str, kind: str, body: bytes
) -> None:
    gateway = wires(form, b"[1]", more=", check: full")
    await gateway.send(f"json:{form}", Message("POST", path, headers(content_type=kind), (body,)))
    [sent] = gateway.sent["lab"]
    assert (sent.method, sent.path) == ("POST", path)
    assert sent.headers.get("content-type").partition(";")[0] == kind.partition(";")[0]
    assert loaded(b"".join(map(bytes, sent.parts))) == loaded(body)


def loaded(body: bytes) -> object:
    """The document in a JSON body, or the body with the lines of JSON."""
    try:
        return body.count(b"\n"), json.loads(body)
    except ValueError:
        return body.replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    ("translate", "sent_as"),
    [
        ("rename: {inputs: [{client: a, backend: c}]}", b'{"dataframe_split":{"columns":["c","b"],"data":[[1,2.5]]}}'),
        # a column of two elements is none of a table with one row
        (
            "constants: [{name: k, datatype: INT64, shape: [2], data: [7, 8]}]",
            b'{"inputs":{"a":[1],"b":[2.5],"k":[7,8]}}',
        ),
    ],
)
async def test_a_request_that_its_exchange_cannot_carry_leaves_in_another(translate: str, sent_as: bytes) -> None:
    gateway = wires("mlflow", b'{"predictions":[1]}', more=f", translate: {{{translate}}}")
    await gateway.post("json:mlflow", "/invocations", b'{"dataframe_split":{"columns":["a","b"],"data":[[1,2.5]]}}')
    assert [bytes(each.body) for each in gateway.sent["lab"]] == [sent_as]


async def test_an_error_of_a_server_goes_back_as_it_wrote_it() -> None:
    told = b'{\n  "code": 503,\n  "type": "InternalServerException",\n  "message": "Prediction failed"\n}\n'
    gateway = wires("torchserve", told, status=503)
    reply = await gateway.post("json:torchserve", "/predictions/m", b"[ 1 ]")
    assert (reply.status, reply.body) == (503, told)


async def test_a_client_gets_the_type_that_it_accepts_from_a_server_that_has_another() -> None:
    gateway = wires("sagemaker", b"[[2, 4], [6, 8]]")
    fields = headers(content_type=JSON, accept="text/csv")
    reply = await gateway.send("json:sagemaker", Message("POST", "/invocations", fields, (b"[[1, 2], [3, 4]]",)))
    [sent] = gateway.sent["lab"]
    assert (sent.headers.get("accept"), sent.body) == ("text/csv", b"[[1, 2], [3, 4]]")
    assert (reply.headers.get("content-type"), reply.body) == ("text/csv", b"2,4\r\n6,8\r\n")


async def test_a_page_of_the_web_is_no_reply() -> None:
    gateway = wires("vertex", b"<html>please log in</html>", kind="text/html")
    assert (await gateway.post("json:vertex", "/predict", b'{"instances": [1]}')).status == 502


@pytest.mark.parametrize(("front", "back"), [("vertex", "seldon"), ("seldon", "vertex")])
async def test_two_forms_are_translated(front: str, back: str) -> None:
    told = {"vertex": b'{"predictions": [ 2 ]}', "seldon": b'{"data":{"ndarray":[ 2 ]},"meta":{}}'}
    asked = {"vertex": b'{"instances":[ 1 ]}', "seldon": b'{"data":{"ndarray":[ 1 ]}}'}
    gateway = wires(front, told[back], back=back)
    await gateway.post(f"json:{front}", "/predict", asked[front])
    assert bytes(gateway.sent["lab"][0].body).replace(b" ", b"") == asked[back].replace(b" ", b"")


# --- what is passed on, and what is read ---


def head(protocol: Protocol, asked: Message, listener: str = "") -> Request | None:
    return unread(asked, protocol, ListenerSettings(model=listener))


def passed(protocol: Protocol, asked: Message) -> Message:
    """The message to a server of a request that passes unread."""
    found = head(protocol, asked)
    assert found is not None
    assert protocol.relay is not None
    written = protocol.relay.request(asked, found, Target())
    assert written is not None
    return written


def is_read(protocol: Protocol, asked: Message, listener: str = "") -> bool:
    return head(protocol, asked, listener) is None


@each_request
def test_the_head_names_what_reading_names(protocol: Protocol, form: Exchanges, found: Asked) -> None:
    asked = asked_message(found, form, protocol)
    named = head(protocol, asked, "of the listener")
    assert named is not None
    read = protocol.decode_request(asked, ListenerSettings(model="of the listener"))
    assert (named.operation, named.model, named.version) == (read.operation, read.model, read.version)
    assert passed(protocol, asked).parts == asked.parts


@each_reply
def test_the_recorded_replies_of_each_form_pass(protocol: Protocol, form: Exchanges, found: tuple[Asked, Told]) -> None:
    exchange, told = found
    assert answered(protocol, asked_message(exchange, form, protocol), told.body, told.type).parts == (told.body,)


def answered(protocol: Protocol, asked: Message, body: bytes, kind: str = JSON, status: int = 200) -> Message:
    """The reply to a client, as it came."""
    reply = told(protocol, asked, body, kind, status)
    assert reply is not None
    return reply


def told(protocol: Protocol, asked: Message, body: bytes, kind: str = JSON, status: int = 200) -> Message | None:
    found = head(protocol, asked)
    assert found is not None
    assert found.inputs is NOT_READ
    assert protocol.relay is not None
    fields = Headers([(b"content-type", kind.encode("latin-1"))] if kind else [])
    return protocol.relay.reply(Message(headers=fields, parts=(body,), status=status), found, Target())


NAMED = declared("""
infer:
  path: ["/models/{model}/{version}", "/models/{model}", /predict]
  request: {"settings?": {"model?": $model, "release?": $version}, mode: fast, x: $x}
  response: {y: $y}
""")


@pytest.mark.parametrize(
    ("body", "model", "version"),
    [
        (b'{"mode": "fast", "x": [1]}', "", ""),
        (b'{"settings": {"model": "iris"}, "mode": "fast", "x": [1]}', "iris", ""),
        (b'{"x": [{"mod": 1}], "mode": "fast", "settings": {"release": "2", "model": "iris", "k": {}}}', "iris", "2"),
        (b'{"mode": "fast", "settings": {"model": null}, "x": "a\\u4e2d\\n"}', "", ""),
    ],
)
def test_names_and_constants_are_found_in_the_body(body: bytes, model: str, version: str) -> None:
    for asked in (message(PREDICT, body), replace(message(PREDICT), parts=(memoryview(body),))):
        found = head(NAMED, asked)
        assert found is not None
        assert (found.model, found.version) == (model, version)


MANY_WAYS = [
    b'{"settings": {"model": "iris"}, "settings": {"model": "rose"}, "mode": "fast", "x": [1]}',
    b'{"settings": {"model": "iris", "model": "rose"}, "mode": "fast", "x": [1]}',
    b'{"settings": {"model": "iris", "Model": "rose"}, "mode": "fast", "x": [1]}',
    b'{"settings": {"model": "iris"}, "Settings": {"model": "rose"}, "mode": "fast", "x": [1]}',
    '{"settings": {"model": "iris"}, "\u017fettings": {"model": "rose"}, "mode": "fast", "x": [1]}'.encode(),
    b'{"settings": {"model": "iris"}, "\\u017fettings": {}, "mode": "fast", "x": [1]}',
    b'{"settings": {"model": "iris", "mod\\u0065l": "rose"}, "mode": "fast", "x": [1]}',
    b'{"settings": {"mod\\u0065l": "rose"}, "mode": "fast", "x": [1]}',
    b'{"settings": {"model": "iris"}, "mode": "fast", "x": [1], "more": {"model": "rose"}}',
    b'{"settings": {"model": "iris"}, "mode": "fast", "x": [1], "user": "model"}',
    b'{"mode": "fast", "mode": "slow", "x": [1]}',
    b'{"mode": "slow", "x": [1]}',
    b'{"x": [1]}',
    b'{"settings": {"model": 1}, "mode": "fast", "x": [1]}',
    b'{"settings": {"model": "iris"}, "mode": "fast", "x": [1]} {}',
    b'{"settings": {"model": "iris"}, "mode": "fast", "x": [NaN]}',
    b'\xef\xbb\xbf{"settings": {"model": "iris"}, "mode": "fast", "x": [1]}',
    '{"mode": "fast"}'.encode("utf-16"),
    b"[" * 100_000,
    b"[]",
    b"",
]


@pytest.mark.parametrize("body", MANY_WAYS, ids=range(len(MANY_WAYS)))
def test_a_body_whose_names_could_be_understood_in_two_ways_is_read(body: bytes) -> None:
    assert is_read(NAMED, message(PREDICT, body))


def test_a_long_body_passes_unless_something_must_be_found_in_it() -> None:
    body = b'{"mode": "fast", "x": [%b1]}' % (b"1," * 2**17)
    assert is_read(NAMED, message(PREDICT, body))
    assert not is_read(NAMED, message(PREDICT, body[: 2**17] + b"1]}"))
    assert not is_read(declared("infer: {path: /predict, request: {x: $x}, response: $y}"), message(PREDICT, body))


def test_a_request_with_a_model_in_the_path_and_another_in_the_body_is_read() -> None:
    body = b'{"settings": {"model": "rose"}, "mode": "fast", "x": [1]}'
    assert is_read(NAMED, message("POST /models/{model}", body, captures={"model": "iris"}))


NAMES = st.sampled_from(["model", "Model", "mod\\u0065l", "settings", "release", "mode", "x", "y"])
VALUES = st.recursive(
    st.sampled_from(['"iris"', '"rose"', '"fast"', '"slow"', '"model"', "null", "1", "[1]", '"\\"model\\""']),
    lambda inner: st.lists(st.tuples(NAMES, inner), max_size=3).map(
        lambda pairs: "{" + ",".join(f'"{name}": {value}' for name, value in pairs) + "}"
    ),
    max_leaves=6,
)
BODIES = st.tuples(VALUES, st.sampled_from(['"fast"', '"slow"']), VALUES).map(
    lambda some: f'{{"settings": {some[0]}, "mode": {some[1]}, "x": [1], "more": {some[2]}}}'.encode()
)


@given(BODIES)
def test_a_body_that_passes_names_the_same_model_when_it_is_read(body: bytes) -> None:
    lenient = declared("""
infer:
  path: /predict
  request: {"settings?": {"model?": $model, "release?": $version}, mode: fast, x: $x}
  response: {y: $y}
  ignore_unknown: true
""")
    asked = message(PREDICT, body)
    found = head(lenient, asked)
    if found is not None:
        try:
            read = lenient.decode_request(asked, ListenerSettings())
        except (DecodeError, GatewayError):
            return
        assert (found.model, found.version) == (read.model, read.version)


def test_the_model_of_the_listener_is_written_where_the_client_named_none() -> None:
    """Another server would run its own default, and the gateway have checked the listener's."""
    body = b'{"mode": "fast", "x": [1]}'
    assert is_read(NAMED, message(PREDICT, body), "iris")
    asked = message("POST /default", b'{"x": [1]}')
    by_path = declared("infer: {path: [/default, '/models/{model}'], request: {x: $x}, response: {y: $y}}")
    assert not is_read(by_path, asked, "iris")  # nor would it be written if it were read
    by_path = declared("infer: {path: ['/models/{model}', /default], request: {x: $x}, response: {y: $y}}")
    assert is_read(by_path, asked, "iris")


SECRETS = """
infer:
  path: /predict
  headers: {x-key: $_=secret, x-kind: fixed, "x-model?": $model, "x-id?": $id}
  query: {token: $_=hidden, "top?": $param.top}
  request: {x: $x}
  response: {y: $y}
"""


def test_headers_and_the_query_are_written_as_the_form_has_them() -> None:
    secret = declared(SECRETS)
    asked = message(
        PREDICT, b'{"x": [1], "more": 1}', query="token=a&top=5", content_type=JSON, x_key="mine", x_kind="fixed",
        x_model="iris", x_other="b", cookie="c",
    )  # fmt: skip
    written = passed(secret, asked)
    assert list(written.headers) == [
        ("content-type", JSON), ("x-key", "secret"), ("x-kind", "fixed"), ("x-model", "iris"),
    ]  # fmt: skip
    assert (written.query, written.body) == ("token=hidden&top=5", b'{"x": [1], "more": 1}')
    found = head(secret, asked)
    assert found is not None
    assert found.model == "iris"


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("token=a", {"x_kind": "fixed"}),
        ("token=a", {"x_key": "a", "x_kind": "other"}),
        ("", {"x_key": "a", "x_kind": "fixed"}),
        ("token=a&more=1", {"x_key": "a", "x_kind": "fixed"}),
    ],
)
def test_a_request_whose_headers_or_query_are_not_as_the_form_has_them_is_read(
    query: str, fields: dict[str, str]
) -> None:
    asked = replace(message(PREDICT, b'{"x": [1]}', query=query), headers=headers(**fields))
    assert is_read(declared(SECRETS), asked)
    with pytest.raises(DecodeError):
        declared(SECRETS).decode_request(asked, ListenerSettings())


@pytest.mark.parametrize(
    "request_template",
    [
        "{x: $x, key: $_=secret}",
        "{x: $x, in: {key: $_=secret}}",
        "{x: $x, list: [fixed]}",
        "{x: $x, flag: true, list: [[$model]]}",
        "[{x: $x, kind: fixed}, ...]",
        "{x: $x, a/b: fixed}",
        "{$any: [{x: $x, kind: fixed}, {x: $x}]}",
        "{$any: [{x: $x, model: $model}, {x: $x, name: $model}]}",
    ],
)
def test_a_form_whose_bodies_are_given_constants_or_names_that_cannot_be_found_is_read(request_template: str) -> None:
    protocol = declared(f"infer: {{path: /predict, request: {request_template}, response: {{y: $y}}}}")
    for body in (
        b'{"x": [1], "key": 1, "kind": "other", "model": "m", "list": ["fixed"], "a/b": "fixed"}',
        b'[{"x": 1, "kind": "a"}]',
    ):
        assert is_read(protocol, message(PREDICT, body, content_type=JSON))


@pytest.mark.parametrize(
    "exchanges",
    [
        ("path: /p, headers: {x-key: $_=secret}, request: {x: $x}", "path: /p, request: {z: $x}"),
        ('path: /p, query: {"top?": $param.top}, request: {x: $x}', "path: /p, request: {z: $x}"),
        ("path: /a, client_path: /p, request: {x: $x}", "path: /p, request: {z: $x}"),
        ("path: /p, request: {x: $x}", "path: /a, client_path: /p, request: {z: $x}"),
        ("path: /a, client_path: /p, request: {x: $x}", "path: /b, client_path: /p, request: {z: $x}"),
        ('path: /p, headers: {"x-id?": $id}, request: {z: $x, "id?": $id}',),
    ],
)
def test_a_request_is_read_where_its_body_decides_on_its_path_or_its_headers(exchanges: tuple[str, ...]) -> None:
    protocol = declared("infer:\n" + "".join(f"- {{{each}, response: {{y: $y}}}}\n" for each in exchanges))
    assert is_read(protocol, message("POST /p", b'{"z": [1]}', content_type=JSON, x_key="mine"))


def test_a_request_with_tensors_in_its_query_or_without_a_body_is_read() -> None:
    query = declared("""
infer: {path: /p, query: {q: $q}, request: {x: $x}, response: {y: $y}}
tensors: {q: "FP64 []", x: "FP64 [1]", y: "FP64 [1]"}
""")
    assert is_read(query, message("POST /p", b'{"x": [1]}', query="q=1.5", content_type=JSON))
    assert is_read(declared("infer: {path: /p, response: {y: $y}}"), message("POST /p"))


def test_a_model_that_is_named_twice_is_compared() -> None:
    twice = declared("infer: {path: /predict, request: {x: $x, model: $model, in: {name: $model}}, response: $y}")
    for name, passes in ((b"iris", True), (b"rose", False)):
        body = b'{"x": [1], "model": "iris", "in": {"name": "%b"}}' % name
        assert is_read(twice, message(PREDICT, body)) is not passes


def test_constants_that_are_no_texts_are_compared() -> None:
    protocol = declared("infer: {path: /predict, request: {x: $x, 'a?': true, 'b?': 1.5, 'c?': null}, response: $y}")
    assert not is_read(protocol, message(PREDICT, b'{"x": 1, "a": true, "b": 1.5, "c": null}'))
    for body in (b'{"x": 1, "a": false}', b'{"x": 1, "b": 2.5}', b'{"x": 1, "c": 0}', b'{"x": 1, "a": 1}'):
        assert is_read(protocol, message(PREDICT, body))


TYPES = declared("""
infer:
- {path: /predict, request: {x: $x}, response: {y: $y}}
- {path: /predict, request: {z: $x}, response: {z: $y}}
- {path: /predict, media_type: text/csv, request: $x, response_type: text/csv, response: $y}
- {path: /predict, media_type: "image/*", request: $x, response_type: text/plain, response: $y}
""")
ONE = declared("infer: {path: /predict, request: {x: $x}, response: {y: $y}}")
ASKED = message(PREDICT, b'{"x":[1]}')
PARTS = declared("infer: {path: /predict, media_type: multipart/form-data, request: {x: $x}, response: {y: $y}}")
FIXED_PARTS = declared(
    "infer: {path: /predict, media_type: multipart/form-data, request: {x: $x, kind: fixed}, response: {y: $y}}"
)


@pytest.mark.parametrize(
    ("protocol", "content_type", "goes_as"),
    [
        (TYPES, "application/json; charset=UTF-8", "application/json; charset=UTF-8"),
        (TYPES, "application/vnd.api+json", "application/vnd.api+json"),
        (TYPES, "text/csv", "text/csv"),
        (TYPES, "image/png", "image/png"),
        (TYPES, "", JSON),
        (ONE, "", JSON),
        (ONE, "application/x-www-form-urlencoded", JSON),
        (PARTS, "multipart/form-data; boundary=b", "multipart/form-data; boundary=b"),
    ],
)
def test_a_content_type_of_the_form_goes_on_as_it_came(protocol: Protocol, content_type: str, goes_as: str) -> None:
    written = passed(protocol, message(PREDICT, b"{", content_type=content_type))
    assert (written.headers.get("content-type"), written.body) == (goes_as, b"{")


@pytest.mark.parametrize(
    ("protocol", "content_type"),
    [
        (TYPES, "application/xml"),
        (TYPES, "text/csv; header=present"),
        (TYPES, 'image/png; name="\u00e9"'),
        (PARTS, ""),
        (PARTS, JSON),
        (FIXED_PARTS, "multipart/form-data; boundary=b"),
        (PROTOCOLS["torchserve"], "nonsense"),
    ],
)
def test_a_request_of_another_type_is_read(protocol: Protocol, content_type: str) -> None:
    pattern = next(iter(protocol.patterns))
    fields = Headers([(b"content-type", content_type.encode("latin-1"))])
    asked = message(pattern, b"{}", captures={"model": "m", "version": "1"})
    assert is_read(protocol, replace(asked, headers=fields))


@pytest.mark.parametrize(
    ("accept", "content_type", "passes"),
    [
        ("", JSON, True),
        ("", "text/csv", True),
        ("", "text/plain; charset=utf-8", True),
        ("", "", False),
        ("", "text/html", False),
        ("*/*", "text/csv", True),
        ("application/json", "text/csv", False),
        ("text/csv", JSON, False),
        ("text/csv", "text/csv", True),
        ("application/xml", JSON, True),
        ("", "nonsense", False),
        ("", 'text/csv; name="\u00e9"', False),
    ],
)
def test_a_reply_passes_if_the_form_has_its_type_and_the_client_accepts_it(
    accept: str, content_type: str, passes: bool
) -> None:
    asked = message(PREDICT, b"{}", content_type=JSON, accept=accept)
    assert (told(TYPES, asked, b"?", content_type) is not None) is passes


@pytest.mark.parametrize(("status", "passes"), [(200, True), (201, True), (202, True), (204, False)])
def test_a_reply_passes_with_its_status_if_it_may_have_a_body(status: int, passes: bool) -> None:
    found = told(ONE, ASKED, b'{"y":[1]}', status=status)
    assert (found.status if found else 0) == (status if passes else 0)


@pytest.mark.parametrize(("status", "error"), [(302, DecodeError), (404, GatewayError), (500, GatewayError)])
def test_an_error_is_raised(status: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        told(ONE, ASKED, b'{"y":[1]}', status=status)


async def test_a_client_of_cog_is_answered_at_once_if_it_prefers_so() -> None:
    told = b'{"id":"pred_18ec3d7047c7907e","status":"starting"}'
    gateway = wires("cog", told, status=202)
    body = b'{"input":{"x":[1]},"webhook":"http://127.0.0.1:1/"}'
    fields = headers(content_type=JSON, prefer="respond-async", x_other="a")
    reply = await gateway.send("json:cog", Message("PUT", "/predictions/a%2Fb", fields, (body,)))
    [sent] = gateway.sent["lab"]
    assert (sent.method, sent.path, sent.body) == ("PUT", "/predictions/a%2Fb", body)
    assert (sent.headers.get("prefer"), sent.headers.get("x-other")) == ("respond-async", "")
    assert (reply.status, reply.body) == (202, told)


COG_TO_V2 = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: ["json:cog"], model: m}]
backends: {lab: {protocol: v2-rest, endpoints: ["lab:1"], flavor: plain}}
routes:
  - match: {listener: in}
    backend: lab
    signature: {inputs: [{name: x, datatype: INT64, shape: [1]}], outputs: [{name: y, datatype: INT64, shape: [1]}]}
"""
V2_REPLY = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT64","shape":[1],"data":[2]}]}'


async def test_a_client_of_cog_gets_the_result_from_servers_that_answer_only_then() -> None:
    """RFC 7240, section 2: a server may ignore a preference, and says by `Preference-Applied` which ones it kept."""
    gateway = Wires(COG_TO_V2, lab=replying(V2_REPLY, headers=((b"content-type", JSON.encode()),)))
    fields = headers(content_type=JSON, prefer="respond-async")
    reply = await gateway.send("json:cog", Message("POST", "/predictions", fields, (b'{"input":{"x":[1]}}',)))
    assert (reply.status, json.loads(bytes(reply.body))["output"]) == (200, [2])
    assert reply.headers.get("preference-applied") == ""
    assert gateway.sent["lab"][0].headers.get("prefer") == ""
    body = b'{"input":{"x":[1]},"webhook":"http://127.0.0.1:1/"}'
    reply = await gateway.send("json:cog", Message("POST", "/predictions", fields, (body,)))
    assert (reply.status, len(gateway.sent["lab"])) == (400, 1), "nobody would call the webhook"
    assert "`webhook`" in json.loads(bytes(reply.body))["error"]


def test_probes_and_lists_are_read() -> None:
    for name, path in (("torchserve", "/models"), ("seldon", "/health/ping")):
        assert is_read(PROTOCOLS[name], message(f"GET {path}"))


# --- streams ---

STREAMING = """
forms:
  tokens:
    infer: {path: "/{model}/stream", request: {x: $x}, response: {y: $y}, stream: openai}
    error: {error: $message}
listeners: [{name: in, bind: "127.0.0.1:0", protocols: ["json:tokens"], model: m}]
backends: {lab: {protocol: json, form: tokens, endpoints: ["lab:1"]}}
routes: [{match: {model: m}, backend: lab}]
"""


async def test_a_stream_passes_through_a_gateway() -> None:
    told = (b'{"y": [ 1 ]}', b'{\n"y":\n[ 2 ]}', b'{"y": [ 3 ], "usage": {}}', b'{"z": 1}')
    gateway = Wires(STREAMING, lab=replying(*told, headers=((b"content-type", b"text/event-stream"),)))
    asked = Message("POST", "/m/stream", headers(content_type=JSON), (b'{"x": [ 1 ], "more": 1}',))
    replies = await gateway.stream("json:tokens", asked)
    assert [(each.status, each.body) for each in replies] == [(200, body) for body in (*told, b"[DONE]")]
    assert {each.headers.get("content-type") for each in replies} == {"text/event-stream"}
    [sent] = gateway.sent["lab"]
    assert (sent.path, sent.body, sent.headers.get("accept")) == ("/m/stream", asked.body, "text/event-stream")


async def test_an_error_instead_of_a_stream_is_told() -> None:
    gateway = Wires(STREAMING, lab=replying(b'{"error": "no"}', status=400, headers=((b"content-type", b"text/html"),)))
    asked = Message("POST", "/m/stream", headers(content_type=JSON), (b'{"x": [1]}',))
    assert [each.body for each in await gateway.stream("json:tokens", asked)] == [b'{"error":"no"}']


def test_a_request_whose_body_says_whether_it_asks_for_a_stream_is_read() -> None:
    form = declared("""
infer:
- {path: /both, request: {x: $x, stream: true}, response: {y: $y}, stream: openai}
- {path: /both, request: {x: $x, "stream?": false}, response: {y: $y}}
""")
    for flag in (b"true", b"false"):
        assert is_read(form, message("POST /both", b'{"x": [1], "stream": %b}' % flag))
