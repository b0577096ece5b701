"""Headers and query parameters for which a form declares templates. `compiled` creates a HeadFields; `server`, `client`
and `relay` read and write with it."""

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode

from gateway.core import json
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import frozen
from gateway.core.messages import Message
from gateway.core.tensors import Parameters, ParameterValue
from gateway.protocols.json.form import FormError, Place, Template
from gateway.protocols.json.misfit import MisfitError
from gateway.protocols.json.templates import (
    ANY,
    MISSING,
    Anything,
    Constant,
    Member,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    Role,
    Slot,
    TensorPlace,
    Word,
    parse_body,
    walk_all,
)

_MOST_FIELDS = 1000

_Words: TypeAlias = Mapping[Word, json.Json]


@frozen
class HeadField:
    """One header or query parameter."""

    name: str
    node: Node
    optional: bool


class HeadFields:
    """The headers and the query parameters of an exchange's requests."""

    def __init__(
        self, headers: Mapping[str, Template], query: Mapping[str, Template], place: Place, *, ignore_unknown: bool
    ) -> None:
        self._headers = _fields(_parsed(headers, Role.HEADER, (*place, "headers")), (*place, "headers"))
        parsed = _parsed(query, Role.QUERY, (*place, "query"))
        self.documents = tuple(
            Member(key.removesuffix("?"), node, key.endswith("?"))
            for key, node in parsed.items()
            if isinstance(node, _DOCUMENTS)
        )
        """The query parameters that are tensors or JSON objects, which `QueryDocuments` reads and writes."""
        others = {key: node for key, node in parsed.items() if not isinstance(node, _DOCUMENTS)}
        self._query = _fields(others, (*place, "query"))
        self._known = frozenset(each.name for each in self._query) | frozenset(each.key for each in self.documents)
        self._ignore_unknown = ignore_unknown
        self.is_empty = not headers and not query
        fields = [each.node for each in (*self._headers, *self._query)]
        nodes = list(walk_all([*fields, *(each.node for each in self.documents)]))
        self.parameters = frozenset(each.name for each in nodes if isinstance(each, ParameterPlace))
        """The parameters that have a placeholder in the headers or the query."""
        self.has_parameters = any(isinstance(each, ParametersPlace) for each in nodes)
        """True if `$params` stands for all other parameters."""
        self.words = frozenset(each.word for each in nodes if isinstance(each, Slot))
        """The words that have a placeholder."""

    def read(self, message: Message) -> tuple[dict[Word, json.Json], dict[str, ParameterValue]]:
        """Return the words and the parameters in a request's headers and query.

        Raises:
            MisfitError: a required header or query parameter is missing, or a constant has another value.
        """
        words: dict[Word, json.Json] = {}
        parameters: dict[str, ParameterValue] = {}
        headers = message.headers
        for each in self._headers:
            found = headers.all(each.name.lower())
            _read(each, "header", found, words, parameters)
        if self._known:
            self._read_query(message.query, words, parameters)
        return words, parameters

    def passed(self, message: Message) -> list[tuple[bytes, bytes]]:
        """Return the request headers that the form reads and drops, for a server of the same form."""
        names = [each.name for each in self._headers if each.optional and isinstance(each.node, Anything)]
        texts = {name: message.headers.all(name.lower()) for name in names}
        return [(name.encode(), _header_value(name, found[0])) for name, found in texts.items() if len(found) == 1]

    def _read_query(self, query: str, words: dict[Word, json.Json], parameters: dict[str, ParameterValue]) -> None:
        try:
            given = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise DecodeError(f"the query is malformed: {error}") from error
        for name, _ in given:
            if name not in self._known and not self._ignore_unknown:
                raise MisfitError(f"unknown query parameter {name!r}; remove it")
        for each in self.documents:
            _check_once("query parameter", each.key, sum(name == each.key for name, _ in given), each.optional)
        for one in self._query:
            _read(one, "query parameter", [text for name, text in given if name == one.name], words, parameters)

    def write(self, words: _Words, parameters: Parameters) -> tuple[list[tuple[bytes, bytes]], str]:
        """Return the headers and the query of a request, with these words and parameters.

        Raises:
            GatewayError: INVALID_ARGUMENT if a required value is missing, or a value is not valid in a header.
        """
        headers = []
        for each in self._headers:
            text = _written(each, "header", words, parameters)
            if text is not None:
                headers.append((each.name.encode(), _header_value(each.name, text)))
        pairs = [(each.name, _written(each, "query parameter", words, parameters)) for each in self._query]
        return headers, urlencode([(name, text) for name, text in pairs if text is not None])


def _parsed(templates: Mapping[str, Template], role: Role, place: Place) -> dict[str, Node]:
    found = {}
    for key, template in templates.items():
        found[key] = node = parse_body(template, role, (*place, key))[0]
        has_alternatives = isinstance(template, dict) and ANY in template
        if has_alternatives or not isinstance(node, _NODES[role]):
            tensor = ", a tensor such as $x|scalar, an object such as {x: $x}" if role is Role.QUERY else ""
            raise FormError((*place, key), f"expected a constant, a word such as $id, $param.NAME{tensor}, or $_")
    return found


_DOCUMENTS = TensorPlace | Object
_NODES = {
    Role.HEADER: Constant | Anything | Slot | ParameterPlace,
    Role.QUERY: Constant | Anything | Slot | ParameterPlace | _DOCUMENTS,
}


def _fields(nodes: Mapping[str, Node], place: Place) -> tuple[HeadField, ...]:
    found = []
    for key, node in nodes.items():
        optional = key.endswith("?")
        if isinstance(node, Anything) and node.written is MISSING and not optional:
            raise FormError(
                (*place, key), f"the value to write is missing; use `$_=VALUE`, or write the name as `{key}?`"
            )
        found.append(HeadField(key.removesuffix("?"), node, optional))
    return tuple(found)


def _read(
    field: HeadField, what: str, found: list[str], words: dict[Word, json.Json], parameters: dict[str, ParameterValue]
) -> None:
    _check_once(what, field.name, len(found), field.optional)
    if not found:
        return
    text = found[0]
    match field.node:
        case Constant(value):
            if text != _text(value):
                raise MisfitError(f"the {what} {field.name!r} is {text!r}, expected {_text(value)!r}")
        case Slot(word):
            _check_same(word.value, words.get(word, text), text)
            words[word] = text
        case ParameterPlace(name):
            _check_same(f"parameter {name!r}", parameters.get(name, text), text)
            parameters[name] = text


def _check_once(what: str, name: str, count: int, optional: bool) -> None:
    if not count and not optional:
        raise MisfitError(f"the {what} {name!r} is missing")
    if count > 1:
        raise MisfitError(f"the {what} {name!r} occurs {count} times, expected once")


def _check_same(what: str, one: object, other: str) -> None:
    """Raise DecodeError if two headers or query parameters give different values for the same placeholder. A proxy
    might check the first value, and the server use the second."""
    if one != other:
        raise DecodeError(f"{what} is {one!r} and {other!r} in the head of the request; send it once")


def _written(field: HeadField, what: str, words: _Words, parameters: Parameters) -> str | None:
    value: json.Json = None
    match field.node:
        case Constant(constant):
            value = None if field.optional else constant
        case Anything(written):
            value = None if written is MISSING or field.optional else written
        case Slot(word):
            value = words.get(word)
        case ParameterPlace(name):
            value = parameters.get(name)
    if value is not None:
        return _text(value)
    if not field.optional:
        raise invalid_input(f"the form requires the {what} {field.name!r}, but the message has nothing for it")
    return None


def _text(value: json.Json) -> str:
    return value if isinstance(value, str) else json.write(value).decode()


def _header_value(name: str, text: str) -> bytes:
    if not text.isprintable() or text != text.strip():
        raise invalid_input(f"the header {name!r} cannot hold {text[:100]!r}")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise invalid_input(f"the header {name!r} cannot hold {text[:100]!r}") from error
