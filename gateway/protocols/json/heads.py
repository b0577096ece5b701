"""Reads and writes the headers and query parameters for which a form declares templates. `compiled` creates a
HeadFields for words and parameters, and a QueryDocuments for tensors and JSON objects in the query: `GET
/predict?length=5.1`, `GET /predict?json={"data": ..}`. `server`, `client` and `relay` use both classes.

A query is a web form (`media.web_forms`). Values with a placeholder in the query are sent in the query; all other
values are sent in the body.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote_plus, urlencode

from gateway.core import json
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import frozen, replace_struct
from gateway.core.messages import NO_HEADERS, Message
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.core.tensors import Parameters, ParameterValue, Tensor
from gateway.protocols.json.arrangement import Arrangement
from gateway.protocols.json.bodies import FormData
from gateway.protocols.json.form import FormError, Place, Template
from gateway.protocols.json.media import web_forms
from gateway.protocols.json.misfit import MisfitError
from gateway.protocols.json.places import BodyContents
from gateway.protocols.json.templates import (
    ANY,
    MISSING,
    Anything,
    Constant,
    Every,
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
    walk,
    walk_all,
)
from gateway.protocols.json.writing import MessageContents

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
            MisfitError: a required header or query parameter is missing, or does not equal its constant.
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
        """Return the request headers that the form reads and drops, to forward them to a server of the same form."""
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
        """Return the headers and the query of a request with these words and parameters.

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
        raise MisfitError(f"the {what} {name!r} is missing; add it to the request")
    if count > 1:
        raise MisfitError(f"the {what} {name!r} occurs {count} times, expected once")


def _check_same(what: str, one: object, other: str) -> None:
    """Raise DecodeError if two headers or query parameters contain different values for the same placeholder.
    Otherwise, a proxy might check the first value while the server uses the second."""
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
        text = f"the form requires the {what} {field.name!r}, but the message has nothing for it"
        raise invalid_input(f"{text}; write `{field.name}?` in the form to make it optional")
    return None


def _text(value: json.Json) -> str:
    return value if isinstance(value, str) else json.write(value).decode()


def _header_value(name: str, text: str) -> bytes:
    if not text.isprintable() or text != text.strip():
        raise invalid_input(f"the header {name!r} cannot hold {text[:100]!r}; use printable text without outer blanks")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise invalid_input(f"the header {name!r} cannot hold {text[:100]!r}; use Latin-1 characters") from error


# --- Tensors and JSON objects in the query ---


class QueryDocuments:
    """Reads and writes the query parameters of an exchange that are tensors or JSON objects.

    `members` are the templates of these query parameters, and `bodies` are the templates of the request body. `specs`
    are the tensors that the form declares."""

    def __init__(
        self,
        members: tuple[Member, ...],
        bodies: Sequence[Node],
        specs: Mapping[str, TensorSpec],
        *,
        ignore_unknown: bool,
    ) -> None:
        node = Object(members)
        self.nodes: tuple[Node, ...] = (node,)
        self._keys = frozenset(each.key for each in members)
        self._fields = FormData(node, specs, "input", web_forms, ignore_unknown=ignore_unknown)
        # One Arrangement covers the query and the bodies, so a tensor can have its placeholder in either. With several
        # bodies, the tensors are optional, because one body can lack tensors of another body.
        inner = [Member(str(at), each, len(bodies) > 1) for at, each in enumerate(bodies)]
        self._arrangement = Arrangement(Object((Member("", node), *inner)), "input", declared=bool(specs))
        self._names = None if not have_tensors(bodies) else frozenset(Arrangement(node, "input", declared=True).places)
        """The names of the tensors in the query; None if the bodies contain no tensors and all tensors are in the
        query."""
        self._in_query = _own_parameters((node,))
        """The parameters that have their own placeholder in the query."""
        self._only_in_bodies = _own_parameters(bodies) - self._in_query
        self._has_parameters = any(isinstance(each, ParametersPlace) for each in walk(node))

    def read(self, query: str, limits: Limits) -> BodyContents:
        """Return the tensors and the other contents of these query parameters.

        The query can also contain other parameters, even several with the same name.

        Raises:
            DecodeError: a query parameter is missing, or does not match its template.
            GatewayError: RESOURCE_EXHAUSTED if a limit is exceeded.
        """
        try:
            own = "&".join(each for each in query.split("&") if unquote_plus(each.partition("=")[0]) in self._keys)
            found = self._fields.read(own.encode("utf-8", "replace"), NO_HEADERS, limits)
            if found.unequal is not None:
                raise DecodeError(found.unequal.error)
            return found
        except MisfitError as error:
            raise MisfitError(f"the query: {error}", error.place) from error
        except DecodeError as error:
            raise DecodeError(f"the query: {error}") from error

    def write(self, said: MessageContents) -> tuple[str, tuple[Tensor, ...]]:
        """Return the query with all values that have a placeholder in the query, and the tensors of the body.

        Raises:
            GatewayError: INVALID_ARGUMENT if a tensor has no placeholder, or a placeholder has no tensor. The message
                says which.
        """
        placed = {
            name: tensor if tensor.name == name else replace_struct(tensor, name=name)
            for name, tensor in self._arrangement.arrange(said.tensors).items()
        }
        names = placed.keys() if self._names is None else self._names
        own = tuple(tensor for name, tensor in placed.items() if name in names)
        # `$params` in the query omits parameters that have a placeholder elsewhere. Without `$params`, the query
        # rejects no parameter, because the body checks the parameters.
        outside_query = (said.elsewhere - self._in_query) | self._only_in_bodies
        elsewhere = outside_query if self._has_parameters else frozenset(said.parameters)
        parts = self._fields.write(replace_struct(said, tensors=own, elsewhere=elsewhere))
        others = tuple(tensor for name, tensor in placed.items() if name not in names)
        return b"".join(map(bytes, parts)).decode(), others


def _own_parameters(nodes: Sequence[Node]) -> frozenset[str]:
    return frozenset(each.name for each in walk_all(nodes) if isinstance(each, ParameterPlace))


def have_tensors(nodes: Sequence[Node]) -> bool:
    """Return True if one of the templates contains a placeholder for a tensor."""
    return any(
        isinstance(each, TensorPlace | Every) or (isinstance(each, Object) and each.every) for each in walk_all(nodes)
    )
