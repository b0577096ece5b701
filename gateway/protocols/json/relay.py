"""Relays inferences from clients to servers of the same form without decoding them (`core.protocol.Relay`).

A request keeps its method, path, body, Content-Type and Accept. The gateway writes the other headers and the query as
the form declares them. Headers that the form drops (`$_`) stay unchanged. If the request consists only of tensors in
the query, the query also stays unchanged. The gateway decodes a body if the form sets a value in the body, or if the
gateway cannot reliably find a name in the body.

In a relayed body, the gateway finds only the values that it must process: the model's name, its version, and constants,
which clients cannot change. It decodes the body with a type that contains only these members, and skips all others. If
a body contains a member's name in two spellings, the gateway must read the entire body, because the model server could
use the other spelling.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import UNSET

from gateway.core.errors import DecodeError
from gateway.core.frozen import field, frozen
from gateway.core.json import Json
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.messages import reply as reply_to_client
from gateway.core.offload import LARGE
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.core.tensors import Parameters, ParameterValue
from gateway.core.words import has_byte
from gateway.protocols.json.bodies import JsonBody, MessageBody
from gateway.protocols.json.choice import Choice, fits, is_range
from gateway.protocols.json.client import FormClient
from gateway.protocols.json.compiled import CompiledExchange, CompiledForm, FormMessage, filled, filled_path
from gateway.protocols.json.form import ABSENT, Place
from gateway.protocols.json.media import media_types
from gateway.protocols.json.media.media_types import MediaType
from gateway.protocols.json.templates import (
    MISSING,
    Anything,
    Constant,
    Member,
    Node,
    Object,
    Slot,
    Word,
    children,
    walk_all,
)
from gateway.protocols.json.types import BodyType, body_type
from gateway.protocols.json.writing import NO_WORDS

# --- The values in a body that the gateway must process ---

_ESCAPE = re.compile(rb"\\u(?:00[0-7]|017[fF]|212[aA])")
"""Escapes that can encode a letter of a member's name."""
_MOST_QUOTES = 32
"""Number of quotes to search for one at a time. For more quotes, a regular expression is faster."""
_OTHER_LETTERS = {"k": "\u212a", "s": "\u017f"}
"""The other letters that a case-insensitive comparison, as in Go's JSON, treats as equal to these letters."""


@frozen
class ActedUpon:
    """Finds words (see `templates.Word`) in bodies that match one of several templates.

    A body must match one of `types`. `names` is a pattern for every spelling of the members' names, or None if bodies
    contain no words."""

    types: tuple[BodyType, ...] = ()
    names: re.Pattern[bytes] | None = None
    words: frozenset[Word] = frozenset()
    """The words that a body can contain."""

    def find(self, body: Buffer) -> Mapping[Word, str] | None:
        """Return the words in a body.

        Return None if the gateway must read the entire body because the body does not match, is ambiguous, or is too
        long to search on the event loop."""
        if self.names is None:
            return {}
        if len(body) > LARGE:  # a thread decodes the body
            return None
        if has_byte(body, b"\\") and _ESCAPE.search(body) is not None:
            return None
        seen: set[int | None] = set()
        for name in _found(self.names, body):
            if name.lastindex in seen:
                return None
            seen.add(name.lastindex)
        for each in self.types:
            words = _words(each, body)
            if words is not None:
                return words
        return None


def _found(names: re.Pattern[bytes], body: Buffer) -> Iterator[re.Match[bytes]]:
    """Yield each match of a pattern that begins with a quote. Bodies of numbers contain few quotes, which `bytes.find`
    finds much faster than a regular expression."""
    at = 0
    for _ in range(_MOST_QUOTES if type(body) is bytes else 0):
        at = body.find(b'"', at)  # type: ignore[union-attr]
        if at < 0:
            return
        name = names.match(body, at)
        if name is not None:
            yield name
        at += 1
    yield from names.finditer(body, at)


def acted_upon(bodies: Sequence[MessageBody]) -> ActedUpon | None:
    """Return an ActedUpon that finds the words in bodies that match one of the templates of `bodies`.

    Return None if the gateway must read such bodies completely."""
    kept: list[Node | None] = []
    for body in bodies:
        for node in body.nodes:
            if not _is_kept_in_objects(node):
                return None
            found = _kept(node)
            if found is not None and (type(body) is not JsonBody or not isinstance(found, Object)):
                return None
            kept.append(found)
    # if the values differ, only the rest of the body shows which template is right
    places = [dict(_places(each)) if each is not None else {} for each in kept]
    if any(each != places[0] for each in places):
        return None
    nodes = [each for each in kept if each is not None]
    if not nodes:
        return ActedUpon()
    keys = {key for place in places[0] for key in place}
    if not all(key.isascii() and "/" not in key for key in map(str, keys)):
        return None
    types = {repr(each): body_type(each, ignore_unknown=True) for each in nodes}
    words = frozenset(word for word in places[0].values() if word is not None)
    return ActedUpon(tuple(types.values()), _pattern(sorted(map(str, keys))), words)


def is_acted_upon(node: Node) -> bool:
    """Return True if the node is a name, a constant, or something that the form writes."""
    match node:
        case Slot(word):
            return word is Word.MODEL or word is Word.VERSION
        case Anything(written):
            return written is not MISSING
    return isinstance(node, Constant)


def _is_kept_in_objects(node: Node) -> bool:
    """Return True if all values that the gateway acts upon are in objects and not in lists, and the gateway leaves
    these values unchanged."""
    if isinstance(node, Object):
        return all(_is_kept_in_objects(each.node) for each in node.members if not _is_dropped(each))
    if isinstance(node, Anything):
        return node.written is MISSING
    return not any(_has_any(each) for each in children(node))


def _has_any(node: Node) -> bool:
    return is_acted_upon(node) or any(map(_has_any, children(node)))


def _is_dropped(member: Member) -> bool:
    """Return True if the gateway never writes the member, whatever the client sends."""
    return member.optional and isinstance(member.node, Anything)


def _kept(node: Node) -> Node | None:
    """Return the parts of `node` that the gateway acts upon, or None if it acts upon no part."""
    if not isinstance(node, Object):
        return node if is_acted_upon(node) else None
    members = [(each, _kept(each.node)) for each in node.members if not _is_dropped(each)]
    kept = tuple(Member(each.key, inner, each.optional) for each, inner in members if inner is not None)
    return Object(kept) if kept else None


def _places(node: Node, at: Place = ()) -> Iterator[tuple[Place, Word | None]]:
    """Yield the path of each value that the gateway acts upon, with its word."""
    if isinstance(node, Object):
        for each in node.members:
            yield from _places(each.node, (*at, each.key))
    else:
        yield at, node.word if isinstance(node, Slot) else None


def _pattern(keys: Sequence[str]) -> re.Pattern[bytes]:
    """Return a pattern that matches any of `keys` as a JSON string in any letter case. The pattern begins with a quote,
    because a search for a quote is fast."""
    found = "|".join(f"({''.join(map(_letter, key))})" for key in keys)
    return re.compile(f'"(?:{found})"'.encode())


def _letter(letter: str) -> str:
    ways = {letter.lower(), letter.upper(), *_OTHER_LETTERS.get(letter.lower(), "")}
    return f"(?:{'|'.join(map(re.escape, sorted(ways)))})"


def _words(kind: BodyType, body: Buffer) -> Mapping[Word, str] | None:
    """Return the words in a body, or None if the body does not match."""
    assert kind.decode is not None
    try:
        value = kind.decode(body)  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    words: dict[Word, str] = {}
    for leaf in kind.leaves:
        given: Any = leaf.get(value)
        if given is UNSET or given is None:
            continue
        if isinstance(leaf.node, Slot):
            if words.setdefault(leaf.node.word, given) != given:
                return None
        elif isinstance(leaf.node, Constant) and given != leaf.node.value:
            return None
    return words


# --- Relaying ---

_SUCCESSES = frozenset({200, 201, 202})
_LONGEST_REMEMBERED = 256
"""Maximum length of a header whose derived values are cached, in characters. The limit exists because peers choose the
headers."""


class _Way:
    """Describes how the gateway relays requests to one path with one Content-Type.

    - `exchanges`: The exchanges that a request can belong to. All of them have the same headers and query.
    - `content_type`: The Content-Type header, if requests have a body.
    - `path`: The path with its variables; empty if the gateway never uses it upstream.
    - `acted_upon`: Finds words in a body.
    - `replies`: Selects the exchange of a response, from all exchanges at this path.
    """

    def __init__(
        self,
        exchanges: tuple[CompiledExchange, ...],
        content_type: tuple[tuple[bytes, bytes], ...],
        path: str,
        acted_upon: ActedUpon,
        replies: Choice,
    ) -> None:
        self.exchanges = exchanges
        self.first = exchanges[0]
        self.content_type = content_type
        self.path = path
        self.acted_upon = acted_upon
        self._replies = replies
        self._remembered = lru_cache(64)(self._passes)
        in_path = "{model}" not in path and any(map(_has_first_model, exchanges))
        self.writes_model = in_path or Word.MODEL in acted_upon.words
        """True if decoding would add the listener's model to the path or body of a request without a model name."""

    def passes(self, content_type: str, accept: str) -> bool:
        """Return True if a response with this Content-Type can go unchanged to a client that accepts `accept`."""
        is_long = len(content_type) + len(accept) > _LONGEST_REMEMBERED
        return (self._passes if is_long else self._remembered)(content_type, accept)

    def _passes(self, content_type: str, accept: str) -> bool:
        known = [each.response_type for each in self._replies.exchanges]
        given = media_types.parse(content_type)
        if given is None or not _is_plain(content_type):
            return not content_type and all(each == known[0] for each in known)
        if any(fits(given, self._replies.replying(each, accept).response_type) for each in self.exchanges):
            return True
        is_accepted = not accept or media_types.preferred(accept, [given]) is not None
        return is_accepted and any(fits(given, each) for each in known)


class _UnreadMessage(FormMessage, frozen=True):
    """The origin of a request that the gateway relays without decoding: its `_Way`, and the values in its headers and
    query."""

    way: _Way | None = None
    words: Mapping[Word, Json] = NO_WORDS
    parameters: Parameters = field(default_factory=dict)


class _Path:
    """The `_Way` objects of the requests at one method and path."""

    def __init__(self, pattern: str, exchanges: tuple[CompiledExchange, ...], default_type: MediaType | None) -> None:
        self._path = pattern.partition(" ")[2]
        self._is_mixed = len({bool(each.form.stream) for each in exchanges}) > 1
        self._requests = Choice(exchanges, lambda each: each.request_type, default_type)
        self._replies = Choice(exchanges, lambda each: each.response_type)
        self._remembered = lru_cache(64)(self._way)

    def way(self, content_type: str) -> _Way | None:
        """Return the `_Way` of a request with this Content-Type, or None if the gateway must decode the request.

        Raises:
            DecodeError: the body is text in a charset other than UTF-8.
        """
        return (self._way if len(content_type) > _LONGEST_REMEMBERED else self._remembered)(content_type)

    def _way(self, content_type: str) -> _Way | None:
        if self._is_mixed:  # only the body shows if the client receives a stream
            return None
        found = self._requests.by_type(content_type)
        # the gateway decodes tensors in the query
        if any(each.query is not None and not _is_in_query(each) for each in found):
            return None
        if not found or not all(_have_one_head(found[0], each) for each in found):
            return None
        of_clients = self._path in found[0].form.client_paths
        if any((self._path in each.form.client_paths) is not of_clients for each in found):
            return None
        if of_clients and any(each.form.paths != found[0].form.paths for each in found):
            return None
        told = _content_type(content_type, found)
        held = acted_upon([each.request for each in found])
        if told is None or held is None:
            return None
        return _Way(found, told, "" if of_clients else self._path, held, self._replies)


def _have_one_head(one: CompiledExchange, other: CompiledExchange) -> bool:
    """Return True if two exchanges declare the same headers and query, which therefore do not depend on the body."""
    if Word.ID in other.head.words & other.request.words:  # the header's id can come from the body
        return False
    in_query = one.query is not None and other.query is not None
    same = one.form.query.keys() == other.form.query.keys() if in_query else one.form.query == other.form.query
    return same and one.form.headers == other.form.headers


def _is_in_query(exchange: CompiledExchange) -> bool:
    """Return True if requests consist only of tensors in the query, and the gateway acts upon no value in the query."""
    if exchange.query is None or exchange.form.request is not ABSENT:
        return False
    of_tensors = len(exchange.head.documents) == len(exchange.form.query)
    return of_tensors and not any(map(is_acted_upon, walk_all(exchange.query.nodes)))


def _has_first_model(exchange: CompiledExchange) -> bool:
    """Return True if the first path for a model without a version contains its name."""
    paths = [each for each in exchange.form.paths if "{" not in each.replace("{model}", "")]
    return bool(paths) and "{model}" in paths[0]


def _content_type(given: str, exchanges: Sequence[CompiledExchange]) -> tuple[tuple[bytes, bytes], ...] | None:
    """Return the Content-Type to send with a request. The result is the request's own type if `exchanges` declare it,
    or else the type that `exchanges` declare, if any. Return None if the gateway must decode the body."""
    parsed, first = media_types.parse(given), exchanges[0].request_type
    if all(map(_is_in_query, exchanges)):
        return ()
    if any(each.form.request is ABSENT for each in exchanges):
        return None
    if parsed is not None and all(fits(parsed, each.request_type) for each in exchanges):
        return ((b"content-type", given.encode()),) if _is_plain(given) else None
    if not given and is_range(first):
        return ()
    if all(each.request_type == first for each in exchanges):
        return None if first.type == "multipart" else tuple(exchanges[0].request_headers.raw[:1])
    return None if given else ()


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


class FormRelay:
    """Relays the inferences of one form."""

    def __init__(self, form: CompiledForm, client: FormClient) -> None:
        self._client = client
        self._paths = {pattern: _Path(pattern, some, form.default_type) for pattern, some in form.by_pattern().items()}
        self.relay = Relay(self._head, self._request, self._reply)

    def _head(self, message: Message, listener: ListenerSettings) -> Head | None:
        """Return a Head from the message's path, headers and query, and the words in its body. Return None if the
        gateway must decode the body.

        Raises:
            DecodeError: the body is text in a charset other than UTF-8.
        """
        path = self._paths.get(message.pattern)
        if path is None:
            return None
        way = path.way(message.headers.get("content-type"))
        if way is not None and bool(len(message.body)) is (way.first.query is not None):
            return None
        found = None if way is None else way.acted_upon.find(message.body)
        if way is None or found is None:
            return None
        exchange, words, parameters = way.first, dict[Word, Json](), dict[str, ParameterValue]()
        if not exchange.head.is_empty:
            try:
                words, parameters = exchange.head.read(message)
            except DecodeError:
                return None  # the decoder reports the error
        names = message.captures
        model: str | None = names.get("model", "")
        version: str | None = names.get("version", "")
        if words or found:
            model = _agreed(model, words.get(Word.MODEL), found.get(Word.MODEL))
            version = _agreed(version, words.get(Word.VERSION), found.get(Word.VERSION))
        if model is None or version is None or (not model and listener.model and way.writes_model):
            return None
        headers = exchange.origin.response_headers
        origin = _UnreadMessage(response_headers=headers, way=way, words=words, parameters=parameters)
        operation = STREAM if exchange.form.stream else INFER
        return Head(operation, model or listener.model, version, None, None, origin)

    def _request(self, message: Message, request: Request, target: Target) -> Message | None:
        """Return the message for a server that uses the form.

        Raises:
            GatewayError: INVALID_ARGUMENT if a name cannot be a path segment, or a value is not valid in a header.
        """
        origin = request.origin
        assert isinstance(origin, _UnreadMessage)
        assert origin.way is not None
        exchange, query = origin.way.first, ""
        fields = [*origin.way.content_type, *_accept(exchange, message)]
        if not exchange.head.is_empty:
            words = {**origin.words, Word.MODEL: request.model or None, Word.VERSION: request.version or None}
            more, query = exchange.head.write(words, origin.parameters)
            fields += (*more, *exchange.head.passed(message))
            if exchange.query is not None:
                query = urlencode(parse_qsl(message.query, keep_blank_values=True))
        path = _written_path(origin.way, message.captures, request)
        return Message(message.method, path, Headers(fields), message.parts, query=query, deadline=request.deadline)

    def _reply(self, reply: Message, request: Request, target: Target) -> Message | None:
        """Return the response for the client if the form declares its media type and the client accepts it.

        Return None if the gateway must decode the response.

        Raises:
            DecodeError, GatewayError: the errors of `FormClient.decode_response`.
        """
        if reply.status not in _SUCCESSES:
            self._client.decode_response(reply, request, target)
            return None
        origin, unread = request.origin, request.unread
        assert isinstance(origin, _UnreadMessage)
        assert origin.way is not None
        assert unread is not None
        if request.operation is STREAM:
            return reply_to_client(origin.response_headers, reply.parts, 200)
        content_type = reply.headers.get("content-type")
        if not origin.way.passes(content_type, unread.message.headers.get("accept")):
            return None
        fields = ((b"content-type", content_type.encode()),) if content_type else ()
        return reply_to_client(Headers(fields), reply.parts, reply.status)


def _agreed(*names: Json) -> str | None:
    """Return the name that all nonempty `names` share, or None if they differ. Return an empty name if all are
    empty."""
    found = {str(each) for each in names if each}
    return None if len(found) > 1 else found.pop() if found else ""


def _accept(exchange: CompiledExchange, message: Message) -> Sequence[tuple[bytes, bytes]]:
    """Return a request's Accept header: the client's header, or the media type for a stream."""
    if exchange.form.stream:
        return exchange.request_headers.raw[-1:]
    accept = message.headers.get("accept")
    return ((b"accept", accept.encode()),) if accept and _is_plain(accept) else ()


def _written_path(way: _Way, captures: Mapping[str, str], request: Request) -> str:
    if not way.path:
        return filled_path(way.first.form.paths, request.model, request.version)
    if "{" not in way.path:
        return way.path
    named = {**captures, "model": request.model, "version": request.version}
    return filled(way.path, tuple((name, named[name]) for name in captures))
