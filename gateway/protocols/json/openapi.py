"""Describes the paths of a form for OpenAPI documents, with schemas of the templates, and with the tensors' datatypes
and shapes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.core.json.openapi import (
    STRING,
    Content,
    DescribedModel,
    DescribeOperation,
    HttpOperation,
    Media,
    Parameter,
    Schema,
    dimensions,
    element,
    example_elements,
    example_nested,
    example_shape,
    flat,
    has_example,
    list_of,
    nested,
    object_of,
    tuple_of,
)
from gateway.core.models import TensorSpec
from gateway.protocols.json.compiled import CompiledExchange, CompiledForm, CompiledProbe
from gateway.protocols.json.form import ABSENT, JSON_TYPE
from gateway.protocols.json.media.streams import STREAM_KINDS
from gateway.protocols.json.templates import (
    MISSING,
    Anything,
    Constant,
    Every,
    EverySpelling,
    FixedList,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    RowList,
    Slot,
    Spelling,
    TensorPlace,
    Word,
    walk,
)

_BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
_ARRAY: Schema = {"type": "array"}
_NUMBERS = frozenset({Word.INDEX, Word.CODE})


def describer(form: CompiledForm) -> DescribeOperation:
    """Return the function that describes the paths of `form`."""

    def describe(pattern: str, model: DescribedModel | None, flavor: str) -> HttpOperation | None:
        path = pattern.partition(" ")[2]
        found = [each for each in form.exchanges if pattern in each.form.patterns]
        if found:
            return _inference(form, found)
        for probe, what in ((form.ready, "ready"), (form.live, "live")):
            if probe is not None and path in probe.form.paths:
                return _probe(form, probe, what)
        if form.form.models is not None and path in form.form.models.paths:
            reply = _content(form, JSON_TYPE, form.models.nodes)
            return HttpOperation("The model names", {200: ("", reply)}, _error(form))
        if form.form.models is not None and path in form.form.models.one_paths:
            reply = _content(form, JSON_TYPE, form.one_model.nodes)
            return HttpOperation("One model of the list", {200: ("", reply)}, _error(form))
        return None

    return describe


def _inference(form: CompiledForm, exchanges: list[CompiledExchange]) -> HttpOperation:
    requests = [(each.form.media_type, each.request.nodes) for each in exchanges if each.form.request is not ABSENT]
    replies = [(_reply_type(each), each.response.nodes) for each in exchanges]
    return HttpOperation(
        "Run the model",
        {200: ("", _joined(form, replies))},
        _error(form),
        body=_joined(form, requests),
        parameters=tuple({(each.place, each.name): each for each in _parameters(form, exchanges)}.values()),
    )


def _reply_type(exchange: CompiledExchange) -> str:
    stream = exchange.form.stream
    return STREAM_KINDS[stream].media_type if stream else exchange.form.response_type


def _parameters(form: CompiledForm, exchanges: Iterable[CompiledExchange]) -> Iterator[Parameter]:
    schemas = _Schemas(form)
    for each in exchanges:
        tensors = {member.key: schemas.of(member.node) for member in each.head.documents}
        for place, templates in (("header", each.form.headers), ("query", each.form.query)):
            for key, template in templates.items():
                name = key.removesuffix("?")
                is_constant = isinstance(template, str) and not template.startswith("$")
                schema = {"const": template} if is_constant else STRING
                schema = tensors.get(name, schema) if place == "query" else schema
                yield Parameter(place, name, "May be missing." if key.endswith("?") else "Must be there.", schema)


def _probe(form: CompiledForm, probe: CompiledProbe, what: str) -> HttpOperation:
    reply = _content(form, JSON_TYPE, probe.response.nodes) if probe.form.response is not ABSENT else {}
    return HttpOperation(f"Check that the server is {what}", {probe.form.status: ("It is.", reply)}, _error(form))


def _error(form: CompiledForm) -> Content:
    if form.form.error is ABSENT:
        return {JSON_TYPE: Media(object_of({"error": STRING}, ["error"]))}
    return _content(form, form.form.error_type, form.error.nodes)


def _joined(form: CompiledForm, bodies: Iterable[tuple[str, tuple[Node, ...]]]) -> Content:
    """Return the descriptions of bodies by media type. Several bodies of the same type are alternatives."""
    nodes: dict[str, tuple[Node, ...]] = {}
    for media_type, more in bodies:
        nodes[media_type] = (
            *nodes.get(media_type, ()),
            *(each for each in more if each not in nodes.get(media_type, ())),
        )
    return {
        name: media for media_type, each in nodes.items() for name, media in _content(form, media_type, each).items()
    }


def _content(form: CompiledForm, media_type: str, nodes: tuple[Node, ...]) -> Content:
    """Return the description of bodies in one media type. Only JSON has a schema."""
    if media_type != JSON_TYPE or not nodes:
        return {media_type: Media()}
    schemas = _Schemas(form)
    options = [schemas.of(each) for each in nodes]
    return {media_type: Media(options[0] if len(options) == 1 else {"anyOf": options}, _example(form, nodes[0]))}


class _Schemas:
    """Schemas of the templates of one form."""

    def __init__(self, form: CompiledForm) -> None:
        self._specs = form.specs
        self._is_open = form.form.ignore_unknown

    def of(self, node: Node, rows: int = 0) -> Schema:
        """Return the schema of the values at a node that is nested in `rows` row lists."""
        match node:
            case Constant(value):
                return {"const": value}
            case Slot(word):
                return {"type": "integer"} if word in _NUMBERS else STRING
            case ParametersPlace():
                return {"type": "object"}
            case TensorPlace():
                return self._tensor(node, rows)
            case Every(spelling):
                return list_of(STRING if spelling is EverySpelling.NAMES else _ARRAY)
            case Object():
                return self._object(node, rows)
            case RowList(row):
                return list_of(self.of(row, rows + 1))
            case FixedList(nodes):
                return tuple_of([self.of(each, rows) for each in nodes])
        return {}

    def _object(self, node: Object, rows: int) -> Schema:
        required = [each.key for each in node.members if not each.optional]
        properties = {each.key: self.of(each.node, rows) for each in node.members}
        more = {} if node.every or self._is_open else {"additionalProperties": False}
        return object_of(properties, required, **more)

    def _tensor(self, place: TensorPlace, rows: int) -> Schema:
        if place.spelling in (Spelling.BYTES, Spelling.BASE64, Spelling.NPY):
            return _BASE64
        if place.spelling in (Spelling.TEXT, Spelling.COMMAS):
            return STRING
        spec = self._specs.get(place.name)
        item = {} if spec is None else element(spec.datatype)
        match place.spelling:
            case Spelling.SHAPE:
                return list_of({"type": "integer"}) if spec is None else dimensions(spec.shape)
            case Spelling.SCALAR:
                return item
            case Spelling.FLAT:
                return list_of(item) if spec is None else flat(item, spec.shape)
            case Spelling.ITEMS | Spelling.TEXTS:
                return {"anyOf": [item, list_of(item)]}
            case Spelling.ROW:
                return list_of(item)
        item = STRING if place.spelling is Spelling.NUMBERS else item
        return {} if spec is None else nested(item, spec.shape[rows:])


def _example(form: CompiledForm, node: Node) -> Any:
    """Return a valid body without optional parts. Return None if the form does not declare all tensors of the body, or
    if the example would be too large."""
    tensors = [each for each in walk(node) if isinstance(each, TensorPlace)]
    specs = [form.specs[each.name] for each in tensors if each.name in form.specs]
    spelled = all(each.spelling in _SHOWN for each in tensors)
    if len(specs) < len(tensors) or not tensors or not spelled or not has_example(specs):
        return None
    return _shown(node, form.specs, 0)


_SHOWN = frozenset({Spelling.NESTED, Spelling.FLAT, Spelling.SHAPE, Spelling.ITEMS, Spelling.SCALAR, Spelling.TEXT})


def _shown(node: Node, specs: Mapping[str, TensorSpec], rows: int) -> Any:
    match node:
        case Constant(value):
            return value
        case Anything(written):
            return None if written is MISSING else written
        case Slot(word):
            return 0 if word in _NUMBERS else "text"
        case ParametersPlace():
            return {}
        case ParameterPlace():
            return 1
        case Object(members):
            return {each.key: _shown(each.node, specs, rows) for each in members if not each.optional}
        case RowList(row):
            return [_shown(row, specs, rows + 1)]
        case FixedList(nodes):
            return [_shown(each, specs, rows) for each in nodes]
        case TensorPlace(name, spelling):
            return _shown_tensor(specs[name], spelling, rows)
    return None


def _shown_tensor(spec: TensorSpec, spelling: Spelling, rows: int) -> Any:
    match spelling:
        case Spelling.SHAPE:
            return list(example_shape(spec.shape))
        case Spelling.FLAT | Spelling.ITEMS:
            return example_elements(spec)
        case Spelling.SCALAR | Spelling.TEXT:
            return example_elements(spec)[0]
    return example_nested(TensorSpec(spec.name, spec.datatype, spec.shape[rows:]))
