"""Defines a compiled form: its exchanges, probes and model list, with the code that reads and writes their bodies.
`protocol` compiles the form; the codecs in `client`, `server` and `relay` use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gateway.core import bytes_elements, json
from gateway.core.datatypes import BYTES
from gateway.core.errors import GatewayError, invalid_input
from gateway.core.frozen import frozen, replace
from gateway.core.messages import NO_HEADERS, Buffer, Headers, Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.path_segments import path_segment
from gateway.core.protocol import Limits
from gateway.core.tensors import Parameters, Shape, Tensor
from gateway.protocols.json.bodies import MessageBody, make_body
from gateway.protocols.json.form import (
    ABSENT,
    JSON_TYPE,
    Exchange,
    FailureReply,
    Form,
    FormError,
    ModelListing,
    Place,
    Probe,
)
from gateway.protocols.json.heads import HeadFields, QueryDocuments
from gateway.protocols.json.media import media_types
from gateway.protocols.json.media.media_types import MediaType
from gateway.protocols.json.media.streams import STREAM_KINDS
from gateway.protocols.json.one_row import specs_of_row
from gateway.protocols.json.places import BodyContents
from gateway.protocols.json.templates import Node, Role, TensorPlace, Word, walk_all
from gateway.protocols.json.writing import NO_TEXTS, MessageContents

_ID = "{id}"


class FormMessage(Message, frozen=True):
    """The origin of a request or a response that arrived in a JSON form.

    `texts` are the parameters whose values are the JSON texts of lists or objects. `response` and `response_headers`
    describe the response to a request."""

    texts: Mapping[str, str] = NO_TEXTS
    response: MessageBody | None = None
    response_headers: Headers = NO_HEADERS
    columns: str = ""
    """The value of `Exchange.columns`."""
    asked: MessageBody | None = None
    """The body of the exchange that read the request. A server of the same form receives the request in this exchange,
    with the method and the path of `pattern`, and in the template's alternative with the index `alternative`."""
    alternative: int = 0


def other_columns(name: str, parameters: Parameters, outputs: Sequence[Tensor]) -> str:
    """Return an error message if the number of columns of an output differs from the parameter `name`.

    Otherwise, return an empty string."""
    asked = parameters.get(name)
    if type(asked) is not int:  # the parameter is missing, or has a value that only the server understands
        return ""
    for at, each in enumerate(outputs):
        if each.shape[-1:] != (asked,):
            return f"output {each.name or f'output{at}'!r} has the shape {list(each.shape)}, expected {asked} columns"
    return ""


@frozen
class CompiledExchange:
    """A compiled exchange, with the code that reads and writes its bodies.

    - `request_type`, `response_type`: The media types that the form declares.
    - `origin`: The origin of requests that this exchange has read.
    - `query`: The tensors and JSON objects in the request's query, or None.
    """

    form: Exchange
    head: HeadFields
    query: QueryDocuments | None
    request: MessageBody
    response: MessageBody
    request_type: MediaType
    response_type: MediaType
    request_headers: Headers
    origin: FormMessage
    shapes: Mapping[str, Shape]
    """The batch shapes that the form declares, by tensor name; empty if bodies contain single rows."""

    def asked_at(self, pattern: str) -> "CompiledExchange":
        """Return the exchange for requests with one method and path. The origin of these requests contains
        `pattern`."""
        return replace(self, origin=replace(self.origin, pattern=pattern))

    @property
    def input_nodes(self) -> tuple[Node, ...]:
        """The templates that contain the tensors of requests."""
        return self.request.nodes if self.query is None else (*self.query.nodes, *self.request.nodes)


@frozen
class CompiledProbe:
    """A compiled probe, with the reader and writer of its responses."""

    form: Probe
    response: MessageBody


@frozen
class CompiledFailure:
    """A compiled failure, with the reader and writer of its bodies."""

    form: FailureReply
    error: MessageBody


@frozen
class CompiledForm:
    """A form with the code that reads and writes all its bodies.

    - `name`: The name of the form.
    - `signature`: The declared tensors; None if the form declares no tensors.
    - `specs`: The same tensors with their shapes in bodies. With `batch: each`, the shape is the shape of one row.
    """

    name: str
    form: Form
    exchanges: tuple[CompiledExchange, ...]
    ready: CompiledProbe | None
    live: CompiledProbe | None
    models: MessageBody
    one_model: MessageBody
    error: MessageBody
    failures: tuple[CompiledFailure, ...]
    signature: Signature | None
    specs: Mapping[str, TensorSpec]
    default_type: MediaType | None
    """The type of requests without a Content-Type, if the form sets it."""

    def by_pattern(self) -> Mapping[str, tuple[CompiledExchange, ...]]:
        """Return a map from each method and path that a listener accepts to its exchanges."""
        found: dict[str, tuple[CompiledExchange, ...]] = {}
        for each in self.exchanges:
            for pattern in each.form.patterns:
                found[pattern] = (*found.get(pattern, ()), each)
        return found


def compile_form(name: str, form: Form) -> CompiledForm:
    """Compile the templates of a form.

    Raises:
        FormError: a template cannot be used. The error contains the template's position in the form.
    """
    specs = specs_of_row(form.tensors) if form.batch else form.tensors
    exchanges = [
        _exchange(form, each, specs, ("infer", at) if len(form.infer) > 1 else ("infer",))
        for at, each in enumerate(form.infer)
    ]
    models = form.models
    one_model, place = models.one if models else ABSENT, ("models", "one", "response")
    return CompiledForm(
        name,
        form,
        tuple(exchanges),
        ready=_probe(form.ready, "ready"),
        live=_probe(form.live, "live"),
        models=_listing_body(models),
        one_model=make_body(one_model, JSON_TYPE, Role.MODEL, place, {}, ignore_unknown=True),
        error=make_body(form.error, form.error_type, Role.ERROR, ("error",), {}, ignore_unknown=True),
        failures=tuple(_failure(form, each, ("failures", at)) for at, each in enumerate(form.failures)),
        signature=_signature(form.tensors, exchanges) if form.tensors else None,
        specs=specs,
        default_type=_media_type(form.default_type, ("default_type",)) if form.default_type else None,
    )


def _exchange(form: Form, exchange: Exchange, specs: Mapping[str, TensorSpec], place: Place) -> CompiledExchange:
    request_type = _media_type(exchange.media_type, (*place, "media_type"))
    response_type = _media_type(exchange.response_type, (*place, "response_type"))
    ignore = exchange.ignore_unknown
    sent, accepted = exchange.media_type, exchange.response_type
    told = STREAM_KINDS[exchange.stream].media_type if exchange.stream else accepted
    headers = [(b"accept", told.encode())]
    if exchange.request is not ABSENT:
        headers.insert(0, (b"content-type", _written(sent)))
    response = make_body(
        exchange.response, accepted, Role.RESPONSE, (*place, "response"), specs, ignore_unknown=ignore, nan=form.nan
    )
    told_headers = Headers(((b"content-type", _written(told)),))
    head = HeadFields(exchange.headers, exchange.query, place, ignore_unknown=ignore)
    request = make_body(
        exchange.request, sent, Role.REQUEST, (*place, "request"), specs, ignore_unknown=ignore, nan=form.nan
    )
    return CompiledExchange(
        exchange,
        head,
        query=QueryDocuments(head.documents, request.nodes, specs, ignore_unknown=ignore) if head.documents else None,
        request=request,
        response=response,
        request_type=request_type,
        response_type=response_type,
        request_headers=Headers(tuple(headers)),
        origin=FormMessage(response=response, response_headers=told_headers, columns=exchange.columns, asked=request),
        shapes={} if form.batch else {name: spec.shape for name, spec in specs.items()},
    )


def _media_type(text: str, place: Place) -> MediaType:
    found = media_types.declared(text)
    if found is None or (found.type == "*" and found.subtype != "*"):
        raise FormError(place, f"{text!r} is no media type, expected such as application/json")
    return found


def _written(media_type: str) -> bytes:
    """Return the media type to write for a declared type. For a range of types, the body is bytes."""
    return b"application/octet-stream" if "*" in media_type else media_type.encode()


def _probe(probe: Probe | None, key: str) -> CompiledProbe | None:
    if probe is None:
        return None
    place, ignore = (key, "response"), probe.ignore_unknown
    return CompiledProbe(probe, make_body(probe.response, JSON_TYPE, Role.PROBE, place, {}, ignore_unknown=ignore))


def _failure(form: Form, failure: FailureReply, place: Place) -> CompiledFailure:
    template, within = (form.error, ("error",)) if failure.error is ABSENT else (failure.error, (*place, "error"))
    return CompiledFailure(failure, make_body(template, form.error_type, Role.ERROR, within, {}, ignore_unknown=True))


def _signature(specs: Mapping[str, TensorSpec], exchanges: Sequence[CompiledExchange]) -> Signature:
    """Return the declared tensors as a Signature. Tensors in requests are inputs, and tensors in responses are
    outputs."""
    inputs = tensor_names(node for each in exchanges for node in each.input_nodes)
    outputs = tensor_names(node for each in exchanges for node in each.response.nodes)
    return Signature(
        tuple(spec for name, spec in specs.items() if name in inputs),
        tuple(spec for name, spec in specs.items() if name in outputs),
    )


def tensor_names(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the tensors in templates."""
    return {each.name for each in walk_all(nodes) if isinstance(each, TensorPlace)}


@lru_cache(4096)
def filled(path: str, values: tuple[tuple[str, str], ...]) -> str:
    """Return `path` with its variables replaced by their percent-encoded values.

    Raises:
        GatewayError: INVALID_ARGUMENT if a value cannot be a path segment.
    """
    for name, value in values:
        path = path.replace(f"{{{name}}}", path_segment(value, name, "JSON"))
    return path


def filled_path(paths: tuple[str, ...], model: str, version: str, id: str | None = None) -> str:
    """Return the first of `paths` whose variables all have values, with its variables replaced by their percent-encoded
    values.

    If `version` is not empty, paths that contain a version come first.

    Raises:
        GatewayError: INVALID_ARGUMENT if no path can be filled, or a name cannot be a path segment.
    """
    path = _filled(paths, model, version, bool(id))
    if isinstance(path, GatewayError):
        raise invalid_input(path.message)
    return path.replace(_ID, path_segment(id, "id", "JSON")) if id and _ID in path else path


@lru_cache(4096)
def _filled(paths: tuple[str, ...], model: str, version: str, has_id: bool) -> "str | GatewayError":
    """Return the path with all variables except the id replaced by their values."""
    known = {"model": model, "version": version}
    ordered = sorted(paths, key=lambda path: "{version}" not in path) if version else paths
    for path in ordered:
        for name, value in known.items():
            if value:
                try:
                    path = path.replace(f"{{{name}}}", path_segment(value, name, "JSON"))
                except GatewayError as error:
                    return error
        if "{" not in (path.replace(_ID, "") if has_id else path):
            return path
    return invalid_input(f"no path of the form can be filled with model {model!r} and version {version!r}: {paths[0]}")


# --- Bodies that list models ---

_LISTED = {name: TensorSpec(name, BYTES, (-1,)) for name in ("model", "version")}
"""The model list as two tensors, one of names and one of versions. The gateway reads and writes the list like these
tensors."""
_LIST_PLACE = ("models", "response")


def _listing_body(models: ModelListing | None) -> MessageBody:
    """Return the bodies of a form's model list. Raise FormError if a template cannot be used."""
    if models is None:
        return make_body(ABSENT, JSON_TYPE, Role.LISTING, _LIST_PLACE, _LISTED, ignore_unknown=False)
    template = models.response
    keys = [each for each in template if _is_name(each)] if isinstance(template, dict) else []
    if not keys:
        return make_body(template, JSON_TYPE, Role.LISTING, _LIST_PLACE, _LISTED, ignore_unknown=models.ignore_unknown)
    if template != {keys[0]: Word.MODEL.value}:
        raise FormError((*_LIST_PLACE, keys[0]), f"where names are keys, write only them: `{{{keys[0]}: $model}}`")
    return NamesAsKeys(keys[0].removesuffix(Word.MODEL.value))


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.endswith(Word.MODEL.value) and not key.startswith("$$")


class NamesAsKeys(MessageBody):
    """Bodies that are an object whose keys consist of `prefix` and a model name.

    Reading ignores the values, and the keys without the prefix. Writing uses the model's name as each value."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        found = json.read(body, {}, values=limits.json_values, literals=False)
        names = [each.removeprefix(self._prefix) for each in found if each.startswith(self._prefix)]
        return BodyContents((_names([name for name in names if name]),))

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        named = {each.name: each for each in said.tensors}
        names = [each.decode() for each in bytes_elements.unpack(named["model"].data)]
        return (json.write({f"{self._prefix}{name}": name for name in names}),)


def _names(names: list[str]) -> Tensor:
    return Tensor("model", BYTES, (len(names),), bytes_elements.pack([each.encode() for each in names]))
