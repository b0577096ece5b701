"""Every reader of the gateway: what reads the requests of clients and the replies of servers, for each wire form that
the registry finds and each kind of body that a form can have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import yaml

from gateway.assembly.forms import form
from gateway.core.datatypes import BYTES
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import HttpBinding, Protocol, StreamBinding
from gateway.core.requests import Request
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.bodies import MessageBody, NoBody, TextWord
from gateway.protocols.json.compiled import NamesAsKeys, compile_form
from gateway.protocols.json.form import parse_form
from tests.attacks.readers import json_bodies, other_bodies
from tests.attacks.readers.other_bodies import field
from tests.contract.flavors import Dialect, dialects
from tests.contract.installed import INSTALLED
from tests.contract.ready_forms import FORMS as READY_FORMS
from tests.contract.samples import Sample, _requests, sample
from tests.contract.test_form_bytes import FORMS as FORMS_OF_EACH_KIND
from tests.contract.wire import LITERAL, arrived, returned

Make = Callable[[int], bytes]

MEDIA = {
    "rows of objects": """
infer: {path: /p, request: [{x: $x, "l?": $l}, ...], response: {rows: [{x: $x, "l?": $l}, ...]}}
""",
    "rows of lists": """
infer: {path: /p, request: {instances: [[$x, $n], ...]}, response: {predictions: [[$x, $n], ...]}}
""",
    "csv": "infer: {path: /p, media_type: text/csv, request: $x, response_type: text/csv, response: $x}",
    "csv texts": """
infer: {path: /p, media_type: text/csv, request: [[$n], ...], response_type: text/csv, response: [[$m], ...]}
tensors: {n: "BYTES [-1]", m: "BYTES [-1]"}
""",
    "csv header": """
infer:
  path: /p
  media_type: text/csv; header=present
  request: [{x: $x, n: $n}, ...]
  response_type: text/csv; header=present
  response: [{x: $x, n: $n}, ...]
""",
    "json lines": """
infer:
  path: /p
  media_type: application/jsonlines
  request: [{x: $x, "l?": $l}, ...]
  response_type: application/jsonlines
  response: [$x, ...]
""",
    "npy": """
infer: {path: /p, media_type: application/x-npy, request: $x, response_type: application/x-npy, response: $x}
""",
    "text": "infer: {path: /p, media_type: text/plain, request: $x, response_type: text/plain, response: $x}",
    "number texts": "infer: {path: /p, request: {x: $x|numbers}, response: {x: $x|numbers}}",
    "commas": """
infer: {path: /p, media_type: text/plain, request: $x|commas, response_type: text/plain, response: $x|commas}
""",
    "web form": """
infer:
  path: /p
  media_type: application/x-www-form-urlencoded
  request: {x: $x|flat, n: $n|text}
  response: {y: $y, m: $m}
""",
    "image": "infer: {path: /p, media_type: image/jpeg, request: $x, response_type: image/jpeg, response: $x}",
}
"""Forms of each kind of body beside those of FORMS_OF_EACH_KIND."""


@frozen
class Reader:
    """What reads messages of one kind: requests of clients, or replies of servers. `request` is what a reply answers;
    `message` is one that is right."""

    name: str
    protocol: Protocol
    dialect: Dialect
    request: Request
    message: Message
    is_reply: bool
    bodies: Mapping[str, Make]
    """Functions that make a body of so many bytes, by what it is."""

    def with_body(self, body: bytes) -> Message:
        """The message with another body."""
        parts: tuple[bytes, ...] = (body,)
        if isinstance(self.protocol.binding, StreamBinding):
            size = self.protocol.binding.framing.header_size
            parts = (body[:size], body[size:])
        headers = [(name, text) for name, text in self.message.headers.raw if name not in _OF_A_BODY]
        return replace(self.message, parts=parts, headers=Headers(headers), deadline=None)


_SPEC = field(1, b"m")
_EXAMPLES = field(1, field(1, field(1, field(1, field(1, b"x") + field(2, field(2, b""))))))
"""The Input of Classify, Regress and MultiInference: an example with a feature `x`, an empty list of floats."""
OTHERS: Mapping[str, Mapping[str, bytes]] = {
    "tfs-grpc": {
        "/tensorflow.serving.PredictionService/Classify": field(1, _SPEC) + field(2, _EXAMPLES),
        "/tensorflow.serving.PredictionService/Regress": field(1, _SPEC) + field(2, _EXAMPLES),
        "/tensorflow.serving.PredictionService/MultiInference": (
            field(1, field(1, _SPEC) + field(2, b"tensorflow/serving/classify")) + field(2, _EXAMPLES)
        ),
    },
    "v2-rest": {
        "POST /v2/models/{model}/generate": b'{"text_input":"a","parameters":{"b":1}}',
        "POST /v2/models/{model}/generate_stream": b'{"text_input":"a"}',
    },
}
"""Messages that only clients of other programs send, by the path of each wire form."""

_OF_A_BODY = frozenset({b"inference-header-content-length", b"content-length"})


class NoBodiesError(LookupError):
    """A reader has messages for which this package makes no bodies."""


def spoken() -> dict[str, Dialect]:
    """Every wire form: those of the registry in each of their dialects, the ready forms, and one of each kind."""
    found = {each.name: each for protocol in INSTALLED.values() for each in dialects(protocol)}
    found |= READY_FORMS
    for name, text in (FORMS_OF_EACH_KIND | MEDIA).items():
        found[f"form: {name}"] = Dialect(name, form(name.replace(" ", "-"), yaml.safe_load(text)))
    return found


@cache
def readers() -> Mapping[str, Reader]:
    """All of them, by name: those of a wire form that get the same bytes, once."""
    found: dict[str, Reader] = {}
    same: set[object] = set()
    for each in _all():
        kind = (each.protocol.name, each.is_reply)
        asked = each.message.pattern or (each.request.operation, each.request.part)
        whole = b"".join(map(bytes, each.message.parts)) if each.is_reply else asked
        if same.isdisjoint({(*kind, asked), (*kind, whole)}):
            found[each.name] = each
        same |= {(*kind, asked), (*kind, whole)}
    return found


@cache
def _all() -> tuple[Reader, ...]:
    return tuple(each for name, dialect in spoken().items() for each in _of(name, dialect))


def forgotten_paths() -> set[str]:
    """The wire forms and paths to which clients send bodies of which this module has none."""
    given = {f"{each.protocol.name} {_alike(each.message.pattern)}" for each in _all() if not each.is_reply}
    paths = {f"{name} {_alike(path)}" for name, protocol in INSTALLED.items() for path in protocol.patterns}
    return {each for each in paths - given if " GET " not in each and not _BARE.search(each)}


def _alike(pattern: str) -> str:
    """Paths that differ in a version alone have one reader."""
    return re.sub(r"/(versions|labels)/\{version\}", "", pattern)


_BARE = re.compile(
    r"[Ss]hared[Mm]emory|ShMem|/Server(Live|Ready|Metadata)|/health/|metadata/server|Check(Live|Readi)ness|/O(n|ff)line"
    r"|ReloadConfig|RepositoryIndex|trace/setting|infer_stream|PredictStreaming|ModelStreamInfer"
)
"""Paths whose messages say nothing, that the gateway refuses unread, or whose messages are those of another path."""


def _of(name: str, dialect: Dialect) -> Iterator[Reader]:
    protocol = dialect.protocol
    for each in _samples(dialect):
        if each.request.operation is Operation.STREAM and not isinstance(protocol.binding, HttpBinding):
            continue  # the messages of streams are those of calls
        what = " ".join(filter(None, (each.request.operation.value, each.request.part)))
        for is_reply, message in ((False, each.question), (True, each.answer)):
            whole = b"".join(map(bytes, message.parts))
            if not whole:
                continue
            label = f"{name}, {'reply to ' * is_reply}{what}"
            made = dict(_bodies(dialect, each, message, is_reply))
            yield Reader(label, protocol, dialect, each.request, message, is_reply, made)
    for pattern, body in OTHERS.get(protocol.name, {}).items():
        method, _, path = pattern.partition(" ") if pattern[0] != "/" else ("", "", pattern)
        path = path.replace("{model}", "m").replace("{region}", "r")
        captures = {"model": "m", "region": "r"}
        message = Message(method, path, parts=(body,), pattern=pattern, captures=captures)
        request = Request(Operation.INFER, "m")
        made = dict(_bodies_of(protocol, message))
        yield Reader(f"{name}, {path.rpartition('/')[2]}", protocol, dialect, request, message, False, made)


def _samples(dialect: Dialect) -> Iterator[Sample]:
    """A sample of each question; of inferences with the first tensors that the wire form carries."""
    for request in _requests(dialect):
        if request.operation not in (Operation.INFER, Operation.STREAM):
            yield from _sampled(dialect, request, ())
            continue
        for rows, names, outputs in _TENSORS:
            inputs = tuple(_TENSOR[name](name, rows) for name in names) or request.inputs
            found = tuple(_TENSOR[name](name, rows) for name in outputs)
            sampled = [*_sampled(dialect, replace(request, inputs=inputs), found)]
            yield from sampled
            if sampled:
                break


def _sampled(dialect: Dialect, request: Request, outputs: tuple[Tensor, ...]) -> Iterator[Sample]:
    with suppress(GatewayError, AssertionError):  # it has no such question, or no path for it
        yield sample(dialect, request, outputs)


_TENSORS = [
    (rows, names, outputs)
    for names, outputs in (
        ("", ""), ("xn", "ym"), ("xn", "xn"), ("xl", "xl"), ("x", "x"), ("n", "m"), ("n", "n"), ("XN", "YM"),
    )
    for rows in (2, 1)
]  # fmt: skip
"""Numbers of rows, and names of inputs and outputs; without names those of `small_tensors`."""
_TENSOR: Mapping[str, Callable[[str, int], Tensor]] = {
    **dict.fromkeys("xy", lambda name, rows: tensor(name, np.arange(rows) + 0.5)),
    **dict.fromkeys("nml", lambda name, rows: tensor(name, np.array(["a"] * rows, object))),
    **dict.fromkeys("XY", lambda name, rows: tensor(name.lower(), np.ones((rows, 2), np.float32))),
    **dict.fromkeys("NM", lambda name, rows: tensor(name.lower(), np.array(["a"] * rows, object))),
}


def _bodies(dialect: Dialect, each: Sample, message: Message, is_reply: bool) -> Iterator[tuple[str, Make]]:
    if each.request.operation in (Operation.INFER, Operation.STREAM):
        yield from _own(dialect, each, is_reply)
    yield from _bodies_of(dialect.protocol, message)


def _bodies_of(protocol: Protocol, message: Message) -> Iterator[tuple[str, Make]]:
    parts = tuple(map(bytes, message.parts))
    whole = b"".join(parts)
    content_type = message.headers.get("content-type")
    essence = content_type.partition(";")[0].strip()
    if protocol.transport == "grpc":
        yield from other_bodies.protobuf(whole)
    elif protocol.transport == "tcp" and parts[0][:4] == b"PRPC":
        yield from other_bodies.brpc(*parts)
    elif protocol.transport == "tcp" and parts[0][:1] == b"\0":
        yield from other_bodies.mip(*parts)
    elif essence == "text/csv":
        head = whole.partition(b"\n")[0]
        has_header = "header=present" in content_type
        yield from other_bodies.csv(head.count(b",") + 1, (head + b"\n") * has_header)
    elif essence == "application/jsonlines":
        yield from other_bodies.lines()
    elif essence == "multipart/form-data":
        boundary = content_type.partition("boundary=")[2].strip('"')
        names = re.findall(r'name="?(\w+)', whole.decode("latin-1"))
        yield from other_bodies.form_data(boundary.encode(), tuple(dict.fromkeys(names)))
    elif essence == "application/x-www-form-urlencoded":
        yield from other_bodies.web_form(tuple(re.findall(r"(?:^|&)(\w+)=", whole.decode())))
    elif essence == "application/x-npy":
        yield from other_bodies.npy()
    elif essence in ("text/plain", "image/jpeg"):
        yield from other_bodies.octets()
    elif protocol.name == "graphpipe" and not whole.startswith(b"{"):
        yield from other_bodies.flatbuffers(whole)
    else:
        text = whole[: int(message.headers.get("inference-header-content-length") or len(whole))]
        try:
            json.loads(text)
        except ValueError as error:
            raise NoBodiesError(
                f"{protocol.name} has bodies ({content_type!r}, {whole[:20]!r}); tests.attacks.readers has none"
            ) from error
        yield from json_bodies.bodies(text)


def _own(dialect: Dialect, each: Sample, is_reply: bool) -> Iterator[tuple[str, Make]]:
    """Those that the wire form writes itself for many small elements."""
    for what, elements in _ELEMENTS.items():
        make = partial(_written, dialect, each, elements, is_reply)
        try:
            small = make(1000)
        except (GatewayError, ValueError, AssertionError):
            continue
        if small:
            yield f"its own {what}", make


_ELEMENTS: Mapping[str, Callable[[int], Tensor]] = {
    "octets": lambda count: tensor("x", np.zeros((1, count), np.uint8)),
    "digits": lambda count: tensor("x", np.zeros((1, count), np.float64)),
    "integers": lambda count: tensor("x", np.zeros((1, count), np.int64)),
    "empty texts": lambda count: Tensor("x", BYTES, (1, count), bytes(4 * count)),
    "rows": lambda count: tensor("x", np.zeros((count, 1), np.float64)),
}


def _written(dialect: Dialect, each: Sample, elements: Callable[[int], Tensor], is_reply: bool, size: int) -> bytes:
    def of(count: int) -> bytes:
        tensors = (elements(count),)
        request = replace(each.request, inputs=tensors, translate=LITERAL)
        protocol = dialect.protocol
        question = protocol.encode_request(request, dialect.target)
        if not is_reply:
            return _whole(arrived(question, protocol))
        found = sample(dialect, request, tensors)
        return _whole(returned(found.answer, protocol))

    few = of(1000)
    each_takes = max(1.0, (len(few) - len(of(100))) / 900)
    count = max(1, int(size / each_takes))
    return (count > _MANY and _repeated(few, of(1001), of(1004), count)) or of(count)


_MANY = 2000
"""Elements from which on a body is made from small ones, if that gives the same: it takes a thousandth of the time."""


def _repeated(few: bytes, one_more: bytes, four_more: bytes, count: int) -> bytes:
    """The body with `count` elements, from those with 1000, 1001 and 1004; empty if each element is not the same text,
    or something says how many there are."""
    at = next((at for at, (one, other) in enumerate(zip(few, one_more, strict=False)) if one != other), len(few))
    head, rest, text = few[:at], few[at:], one_more[at : at + len(one_more) - len(few)]
    if head + text + rest != one_more or head + 4 * text + rest != four_more:
        return b""
    return head + (count - 1000) * text + rest


def _whole(message: Message) -> bytes:
    head = message.headers.get("inference-header-content-length")
    if head:
        raise ValueError("binary")
    return b"".join(map(bytes, message.parts))


def kinds_of_bodies() -> set[type[MessageBody]]:
    """The classes of bodies that the package has, without bodies of one word, and without lists of models, which have a
    limit of their own (`Limits.of_lists`)."""

    def below(kind: Any) -> Iterator[Any]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    return {each for each in below(MessageBody) if not each.__abstractmethods__} - {NoBody, TextWord, NamesAsKeys}


def kinds_with_bodies() -> set[type[MessageBody]]:
    """Those that a form here has."""
    forms = [
        compile_form("f", parse_form(yaml.safe_load(text)))
        for name, text in (FORMS_OF_EACH_KIND | MEDIA).items()
        if f"form: {name}, infer" in readers()
    ]
    exchanges = [each for form in forms for each in form.exchanges]
    return {type(body) for each in exchanges for body in (each.request, each.response)}
