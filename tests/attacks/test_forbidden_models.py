"""Ways to name a model that a client must not use: in paths, queries, headers and bodies, of every wire form, where
messages pass unread and where they are translated. No server gets a message that names the model, however it reads it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from posixpath import normpath
from unicodedata import normalize
from urllib.parse import unquote

import pytest

from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.principal import Grant, Principal
from gateway.protocols.grps.schema import GRPC_SERVICE
from gateway.protocols.tensorflow_serving.schema import GET_MODEL_METADATA, PREDICT
from tests.attacks.readers.other_bodies import fields_of
from tests.protocols.v2.grpc.by_hand import field, tensor
from tests.protocols.v2.grpc.wire import INFER
from tests.wires import NoPathError, Wires, replying

ALLOWED = Principal("alice", [Grant(frozenset({"infer", "metadata", "control"}), ("allowed*",))])
"""A client that may use the models `allowed*`. The only other model is `secret`."""

CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: ["{front}"], model: allowed, allow_control: true}}]
backends: {{lab: {{protocol: {back}, endpoints: ["lab:1"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab, {signature}}}]
"""
BACKENDS = {
    "v2-rest": "v2-rest, flavor: binary",
    "v2-grpc": "v2-grpc, flavor: triton",
    "v1-rest": "v1-rest, flavor: tensorflow",
    "grps-rest": "grps-rest",
    "grps-grpc": "grps-grpc",
    "tfs-grpc": "tfs-grpc",
    "umbridge": "umbridge",
    "json:openai-embeddings": "json, form: openai-embeddings",
    "json:torchserve": "json, form: torchserve",
    "json:sagemaker": "json, form: sagemaker",
}

V2 = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}'
V2_TENSOR = tensor("x", "FP32", 1, contents=field(6, b"\0\0\x80\x3f"))
V1 = b'{"instances": [1.0]}'
GRPS = '"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [1]}]}'
TFS = field(2, field(1, "x") + field(2, b"\x08\x01\x12\x04\x12\x02\x08\x01\x2a\x04\0\0\x80\x3f"))
PREDICT_GRPS = f"/{GRPC_SERVICE}/Predict"


def http(path: str, body: bytes | str = b"", method: str = "POST", **headers: str) -> Message:
    path, _, query = path.partition("?")
    fields = {"content_type": "application/json", **headers}
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in fields.items()]
    return Message(method, path, Headers(raw), (body.encode() if isinstance(body, str) else body,), query=query)


def document(*members: str) -> str:
    """A JSON object of these members."""
    return "{" + ", ".join(members) + "}"


def grpc(path: str, *parts: bytes) -> Message:
    return Message(path=path, parts=(b"".join(parts),))


def spec(*names: str | bytes) -> bytes:
    """A ModelSpec."""
    return field(1, b"".join(field(1, name) for name in names))


GOOD: Mapping[str, Message] = {
    "v2-rest": http("/v2/models/allowed/infer", V2),
    "v2-grpc": grpc(INFER, field(1, "allowed"), V2_TENSOR),
    "v1-rest": http("/v1/models/allowed:predict", V1),
    "grps-rest": http("/grps/v1/infer/predict", document('"model": "allowed"', GRPS)),
    "grps-grpc": grpc(PREDICT_GRPS, field(2, "allowed"), field(4, "text")),
    "tfs-grpc": grpc(PREDICT, spec("allowed"), TFS),
    "umbridge": http("/Evaluate", '{"name": "allowed", "input": [[1]], "config": {}}'),
    "json:openai-embeddings": http("/v1/embeddings", '{"model": "allowed", "input": "a"}'),
    "json:torchserve": http("/predictions/allowed", b"[1]"),
    "json:sagemaker": http("/endpoints/allowed/invocations", b"[1]"),
}
"""A message of each wire form that names the model that the client may use."""


def _in_path(prefix: str, suffix: str, body: bytes) -> Iterator[tuple[str, Message]]:
    """Names in the segment of a path between `prefix` and `suffix`."""
    for name in (
        "secret", "SECRET", "%73ecret", "s%65cret", "%73%65%63%72%65%74", "%2573ecret", "secret%00", "secret%20",
        "secret%0a", "%C5%BFecret", "%EF%BD%93ecret", "secret;allowed", "%2e%2fsecret", ".%2Fsecret", "/secret",
        "./secret", "allowed/../secret", "allowed%2F..%2Fsecret", "allowed%2f..%2fsecret", "allowed%5C..%5Csecret",
        "allowed%252F..%252Fsecret", "..%2Fmodels%2Fsecret", "%2e%2e/models/secret", "allowed%3F/../secret",
        "allowed%23/../secret", "allowed%00/../secret", "secret/versions/1", "allowed/versions/..%2F..%2Fsecret",
        "allowed/versions/1%2F..%2F..%2F..%2Fsecret", "allowed/versions/%2e%2e/%2e%2e/secret", "secret.gradient",
    ):  # fmt: skip
        yield f"{prefix}{name}{suffix}", http(f"{prefix}{name}{suffix}", body)
        yield f"GET {prefix}{name}", http(f"{prefix}{name}", method="GET")
    for path in (f"/{prefix}secret{suffix}", f"{prefix}secret{suffix}/", f"/.{prefix}secret{suffix}"):
        yield path, http(path, body)
    for way in ("model=secret", "name=secret", "model_name=secret&model=allowed"):
        yield f"{prefix}secret{suffix}?{way}", http(f"{prefix}secret{suffix}?{way}", body)
    for header in ("x-model", "model", "seldon-model", "model-name"):
        yield f"{prefix}secret{suffix}, {header}", http(f"{prefix}secret{suffix}", body, **{header: "allowed"})


TWICE = (
    '"KEY": "secret"',
    '"KEY": "secret", "KEY": "allowed"',
    '"KEY": "allowed", "KEY": "secret"',
    '"KEY": "allowed", "\\u00KEX": "secret"',
    '"\\u00KEX": "secret", "KEY": "allowed"',
    '"\\u00KEX": "secret"',
    '"KEY": "\\u0073ecret"',
    '"KEY": "SECRET"',
    '"KEY": "secret\\u0000"',
    '"KEY": ["secret"]',
    '"KEY": {"name": "secret"}',
    '"KEY": "allowed", "CAP": "secret"',
    '"CAP": "secret", "KEY": "allowed"',
    '"KEY": null, "KEY": "secret"',
    '"KEY": "secret.gradient"',
    '"KEY": "secret-1.0.0"',
)
"""Members of a body that name a model. KEX is the code of the first letter of the key and its rest, CAP the key with a
capital letter."""


def _in_body(path: str, key: str, rest: str, *, is_exact: bool = False) -> Iterator[tuple[str, Message]]:
    """Names in a member of a body. `is_exact`: servers read the member by its exact name alone."""
    escaped = f"{ord(key[0]):x}{key[1:]}"
    for way in TWICE:
        if is_exact and "CAP" in way:
            continue
        written = way.replace("KEX", escaped).replace("KEY", key).replace("CAP", key.capitalize())
        yield written, http(path, document(written, rest))
        yield f"{written} last", http(path, document(rest, written))


def _over_grpc(path: str, number: int, rest: bytes, *others: int) -> Iterator[tuple[str, Message]]:
    """Names in the field `number` of a message."""
    name, good = field(number, "secret"), field(number, "allowed")
    for way, parts in {
        "alone": (name, rest),
        "first": (name, good, rest),
        "last": (good, name, rest),
        "after the tensors": (good, rest, name),
        "before the tensors": (name, rest, good),
        "three times": (good, name, good, rest, name),
        "capitals": (field(number, "SECRET"), rest),
        "a long length": (good, bytes([number << 3 | 2, 0x86, 0x80, 0]) + b"secret", rest),
        "a long tag": (good, bytes([number << 3 | 2 | 0x80, 0]) + b"\x06secret", rest),
        "a NUL": (field(number, "secret\0"), rest),
        "a version": (field(number, "secret-1.0.0"), rest),
        "dots": (field(number, "allowed/../secret"), rest),
        "dots of Windows": (field(number, "allowed\\..\\secret"), rest),
    }.items():
        yield way, grpc(path, *parts)
    for other in others:
        yield f"field {other} too", grpc(path, name, field(other, "allowed"), rest)


FORBIDDEN: Mapping[str, Mapping[str, Message]] = {
    "v2-rest": {
        **dict(_in_path("/v2/models/", "/infer", V2)),
        "generate": http("/v2/models/secret/generate", b'{"x": 1}'),
        "load": http("/v2/repository/models/secret/load", b"{}"),
        "load, encoded": http("/v2/repository/models/s%65cret/load", b"{}"),
        "unload": http("/v2/repository/models/secret/unload", b"{}"),
        "a member": http("/v2/models/secret/infer", V2.replace(b"{", b'{"model_name": "allowed", ', 1)),
    },
    "v2-grpc": {
        **dict(_over_grpc(INFER, 1, V2_TENSOR, 2, 3)),
        "load": grpc("/inference.GRPCInferenceService/RepositoryModelLoad", field(2, "secret")),
        "load, twice": grpc(
            "/inference.GRPCInferenceService/RepositoryModelLoad", field(2, "allowed"), field(2, "secret")
        ),
        "metadata": grpc("/inference.GRPCInferenceService/ModelMetadata", field(1, "allowed"), field(1, "secret")),
    },
    "v1-rest": {
        **dict(_in_path("/v1/models/", ":predict", V1)),
        "a colon": http("/v1/models/secret%3Apredict", V1),
        "two colons": http("/v1/models/secret:predict:predict", V1),
        "classify": http("/v1/models/secret:classify", b'{"examples": [{"x": 1}]}'),
    },
    "grps-rest": {
        **dict(_in_body("/grps/v1/infer/predict", "model", GRPS, is_exact=True)),
        "the query": http("/grps/v1/infer/predict?model=secret", document(GRPS)),
        "the query and the body": http("/grps/v1/infer/predict?model=secret", document('"model": "allowed"', GRPS)),
        "the body and the query": http("/grps/v1/infer/predict?model=allowed", document('"model": "secret"', GRPS)),
        "the query, twice": http("/grps/v1/infer/predict?model=allowed&model=secret", document(GRPS)),
        "the query, encoded": http("/grps/v1/infer/predict?mod%65l=s%65cret", document(GRPS)),
    },
    "grps-grpc": dict(_over_grpc(PREDICT_GRPS, 2, field(4, "text"))),
    "tfs-grpc": {
        "alone": grpc(PREDICT, spec("secret"), TFS),
        "twice in one": grpc(PREDICT, spec("allowed", "secret"), TFS),
        "twice in one, first": grpc(PREDICT, spec("secret", "allowed"), TFS),
        "two specs": grpc(PREDICT, spec("allowed"), spec("secret"), TFS),
        "two specs, first": grpc(PREDICT, spec("secret"), spec("allowed"), TFS),
        "around the tensors": grpc(PREDICT, spec("allowed"), TFS, spec("secret")),
        "an empty spec": grpc(PREDICT, spec("secret"), TFS, spec()),
        "a long length": grpc(PREDICT, spec("allowed"), b"\x0a\x88\x80\0" + field(1, "secret"), TFS),
        "a long tag": grpc(PREDICT, spec("allowed"), b"\x8a\0\x08" + field(1, "secret"), TFS),
        "metadata": grpc(GET_MODEL_METADATA, spec("allowed"), spec("secret"), field(2, "signature_def")),
    },
    "umbridge": dict(_in_body("/Evaluate", "name", '"input": [[1]], "config": {}')),
    "json:openai-embeddings": dict(_in_body("/v1/embeddings", "model", '"input": "a"')),
    "json:torchserve": dict(_in_path("/predictions/", "", b"[1]")),
    "json:sagemaker": dict(_in_path("/endpoints/", "/invocations", b"[1]")),
}


TRANSLATED = ("v2-grpc", "v2-rest")
TEXTS = ("grps-grpc", "json:openai-embeddings")
"""The wire forms whose messages here have texts, and not numbers."""


def gateway(front: str, back: str) -> Wires:
    """A gateway in front of a server of the same wire form, where messages pass unread, or of another."""
    datatype = "BYTES" if front in TEXTS else "FP32"
    tensor = f"datatype: {datatype}, shape: [1]"
    signature = f"signature: {{inputs: [{{name: x, {tensor}}}], outputs: [{{name: y, {tensor}}}]}}"
    text = CONFIG.format(front=front, back=BACKENDS[back], signature="" if front == back else signature)
    return Wires(text, lab=replying(b"{}", status=200))


def is_refused(front: str, reply: Message) -> bool:
    if front == "grps-grpc":
        return b"\x18\x02" in bytes(reply.body)  # FAILURE in the message's own status
    return reply.status != 0 if front.endswith("grpc") else reply.status >= 400


def names_secret(message: Message) -> bool:
    """Whether a server could take a message for one to `secret`."""
    body = b"".join(map(bytes, message.parts))
    if not message.method:  # over gRPC
        return any(map(_is_secret, _segments(_named_in_protobuf(message.path, body))))
    # a proxy may decode a path, and resolve its dots, before a server reads it
    segments = [*_segments(message.path), *_segments(unquote(message.path, errors="replace"))]
    texts = [unquote(message.query, errors="replace"), body.decode("latin-1")]
    with suppress(ValueError):  # without the escapes of JSON
        texts.append(json.dumps(json.loads(body, object_pairs_hook=lambda pairs: pairs), ensure_ascii=False))
    return any(map(_is_secret, segments)) or any("secret" in _plain(each) for each in texts)


def _named_in_protobuf(method: str, body: bytes) -> str:
    """The last name in a message, which is the one that protobuf's readers take."""
    number = 2 if method.startswith(f"/{GRPC_SERVICE}") or "Repository" in method else 1
    if method.startswith("/tensorflow"):  # protobuf joins several specs
        body, number = b"".join(_contents(body, 1)), 1
    return (_contents(body, number) or [b""])[-1].decode()


def _contents(body: bytes, number: int) -> list[bytes]:
    fields = fields_of(body)
    assert fields is not None, body
    return [content for found, _, content in fields if found == number]


def _segments(path: str) -> list[str]:
    """The segments of a path whose dots are resolved."""
    return normpath(path.replace("\\", "/")).split("/")


def _is_secret(name: str) -> bool:
    return _plain(name).startswith("secret")


def _plain(text: str) -> str:
    return normalize("NFKC", text).casefold()


@pytest.mark.parametrize(("front", "back"), [(each, back) for each in FORBIDDEN for back in (each, *TRANSLATED)])
async def test_a_model_that_is_allowed_reaches_the_server_and_one_that_is_forbidden_does_not(
    front: str, back: str
) -> None:
    wires = gateway(front, back)
    lab = wires.sent["lab"]
    await wires.send(front, replace(GOOD[front], principal=ALLOWED))
    assert lab
    assert not any(map(names_secret, lab))
    for way, message in FORBIDDEN[front].items():
        lab.clear()
        try:
            reply = await wires.send(front, replace(message, principal=ALLOWED))
        except NoPathError:
            continue
        assert not any(map(names_secret, lab)), (way, lab)
        if not lab:  # an error of the gateway, and not the answer of another model
            assert is_refused(front, reply), (way, reply)
