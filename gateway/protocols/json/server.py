"""Converts HTTP requests of a form to canonical Requests, and Answers to responses (client side)."""

from collections.abc import Mapping

from gateway.core import bytes_elements, http_status, json
from gateway.core.datatypes import BYTES
from gateway.core.errors import DecodeError, GatewayError, error_fields, invalid_input, not_found
from gateway.core.frozen import replace
from gateway.core.messages import JSON_HEADERS, Headers, Message, reply
from gateway.core.models import ModelEntry
from gateway.core.operations import INFER, STREAM, Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Answer, Request, Response, Translate, UnequalRows
from gateway.core.tensors import Parameters, Tensor
from gateway.protocols.json.choice import Choice, is_range, is_web_form, unknown_type
from gateway.protocols.json.compiled import CompiledExchange, CompiledForm, CompiledProbe, FormMessage, other_columns
from gateway.protocols.json.form import JSON_TYPE
from gateway.protocols.json.media.media_types import MediaType
from gateway.protocols.json.media.streams import STREAM_KINDS
from gateway.protocols.json.misfit import explained, without_frames
from gateway.protocols.json.templates import Word
from gateway.protocols.json.tensor_reading import flaw_of_rows
from gateway.protocols.json.writing import NO_TEXTS, NO_WORDS, MessageContents

_ANY_LISTENER = ListenerSettings(limits=Limits(message=2**40, json_values=2**20))
"""The limits that apply while the gateway checks if a body requests a stream.

The listener's own limits are not available at that time, but the gateway has already checked the size of the body."""


class _Route:
    """The exchanges of one method and path."""

    def __init__(self, exchanges: tuple[CompiledExchange, ...], default_type: MediaType | None) -> None:
        self.by_request = Choice(exchanges, lambda each: each.request_type, default_type)
        self._by_response = Choice(exchanges, lambda each: each.response_type)
        types = {each.form.response_type for each in exchanges}
        self._has_types = len(types) > 1
        self._has_request_types = len({each.form.media_type for each in exchanges}) > 1
        streams = {bool(each.form.stream) for each in exchanges}
        self.streams, self.is_mixed = streams == {True}, len(streams) > 1
        self._only = exchanges[0] if len(exchanges) == 1 else None

    def read(self, message: Message, listener: ListenerSettings) -> Request:
        """Return the Request, read by the first exchange that matches the message. Raise the errors of
        `FormServer.decode_request`."""
        if self._only is not None:
            return self._read(self._only, message, listener)
        content_type = message.headers.get("content-type")
        exchanges = self.by_request.by_type(content_type)
        if is_web_form(content_type) and self._has_request_types:
            exchanges = tuple(each for each in exchanges if not is_range(each.request_type))
        if not exchanges:
            raise unknown_type(content_type, self.by_request.exchanges)
        errors: list[DecodeError] = []
        unequal: Request | None = None
        for each in exchanges:
            try:
                request = self._read(each, message, listener)
                if not isinstance(request.flaw, UnequalRows):
                    return request
                unequal = unequal or request  # another exchange might match the entire request
            except DecodeError as error:
                errors.append(without_frames(error))
        if unequal is not None:
            return unequal
        raise explained(errors, "exchanges")

    def _read(self, exchange: CompiledExchange, message: Message, listener: ListenerSettings) -> Request:
        found = exchange.request.read(message.body, message.headers, listener.limits)
        words, tensors, parameters, captures = found.words, found.tensors, found.parameters, message.captures
        in_query: tuple[Tensor, ...] = ()
        texts = found.texts
        if not exchange.head.is_empty:
            more_words, more_parameters = exchange.head.read(message)
            words, parameters = _words(more_words, words), _joined(more_parameters, parameters)
            if exchange.query is not None:
                asked = exchange.query.read(message.query, listener.limits)
                in_query, tensors = asked.tensors, (*asked.tensors, *tensors)
                words, parameters = _words(asked.words, words), _joined(asked.parameters, parameters)
                texts = {**texts, **asked.texts}
        replying = exchange
        if self._has_types:
            replying = self._by_response.replying(exchange, message.headers.get("accept"))
        origin = replying.origin
        if texts or found.alternative or replying is not exchange:
            origin = replace(origin, texts=texts, asked=exchange.request, alternative=found.alternative)
        model, version, id = captures.get("model", ""), captures.get("version", ""), captures.get("id")
        if words:
            model = _agreed("model", model, words.get(Word.MODEL, ""))
            version = _agreed("version", version, words.get(Word.VERSION, ""))
            id = words.get(Word.ID) if id is None else _agreed("id", id, words.get(Word.ID) or "")
        request = Request(
            INFER,
            model or listener.model,
            version,
            id,
            tensors,
            parameters=parameters,
            deadline=message.deadline,
            origin=origin,
        )
        if found.unequal is not None:
            request = replace(request, inputs=(), flaw=flaw_of_rows(found.unequal, found.tensors, in_query))
        return replace(request, operation=STREAM) if replying.form.stream else request


def _words(some: Mapping[Word, json.Json], others: Mapping[Word, json.Json]) -> Mapping[Word, json.Json]:
    for word, text in some.items():
        _agreed(word.value, text, others.get(word, ""))
    return {**some, **others}


def _joined(some: Parameters, others: Parameters) -> Parameters:
    for name in some:
        if name in others:
            raise DecodeError(f"parameter {name!r} is in the request's head and in its body; send it once")
    return {**some, **others}


def _agreed(what: str, one: str, other: str) -> str:
    if one and other and one != other:
        raise DecodeError(f"the {what} is {one!r} in one part of the request and {other!r} in another; send it once")
    return one or other


class FormServer:
    """The client side of a form."""

    def __init__(self, form: CompiledForm) -> None:
        self._form = form
        self._routes = {
            pattern: _Route(tuple(each.asked_at(pattern) for each in some), form.default_type)
            for pattern, some in form.by_pattern().items()
        }
        self._operations: dict[str, Operation] = {}
        for probe, operation in ((form.ready, Operation.READY), (form.live, Operation.LIVE)):
            for path in probe.form.paths if probe else ():
                asked = Operation.MODEL_READY if "{model}" in path else operation
                self._operations.setdefault(f"GET {path}", asked)
        models = form.form.models
        for path in (*models.paths, *models.one_paths) if models else ():
            self._operations.setdefault(f"GET {path}", Operation.MODELS)
        self.patterns = tuple(dict.fromkeys((*self._routes, *self._operations)))
        # all streams of a form use the same framing
        self._stream_end = next((STREAM_KINDS[each.form.stream].end for each in form.exchanges if each.form.stream), ())
        self.has_mixed_streams = any(route.is_mixed for route in self._routes.values())

    def decode_request(self, message: Message, listener: ListenerSettings) -> Request:
        """Return the canonical Request of a client's message.

        Raises:
            DecodeError: the message does not match the form.
            GatewayError: RESOURCE_EXHAUSTED if the message exceeds a limit.
        """
        route = self._routes.get(message.pattern)
        if route is not None:
            try:
                return route.read(message, listener)
            except DecodeError as error:
                return _read_missing(route, message, listener, error)
        captures = message.captures
        operation = self._operations[message.pattern]
        if operation is Operation.MODELS:  # `encode_response` looks up a single model in the list
            return Request(operation, origin=message)
        return Request(operation, captures.get("model", ""), captures.get("version", ""), origin=message)

    def wants_stream(self, message: Message) -> bool:
        """Return True if all exchanges at the message's path respond with a stream."""
        route = self._routes.get(message.pattern)
        return route is not None and route.streams

    def body_wants_stream(self, message: Message) -> bool:
        """Return True if the exchange that reads the message responds with a stream, but some other exchanges at its
        path do not."""
        route = self._routes.get(message.pattern)
        if route is None or not route.is_mixed:
            return False
        try:
            return _read_for_anyone(route, message).operation is STREAM
        except (DecodeError, GatewayError):
            return False  # `decode_request` reports the error

    def encode_response(self, answer: Answer, request: Request, translate: Translate) -> Message:
        """Return the response to a request that `decode_request` read, or one response of a stream.

        Raises:
            GatewayError: INVALID_ARGUMENT if an output has no placeholder in the form (the message says which);
                NOT_FOUND if a model is not in the list.
        """
        if isinstance(answer, Response):
            return _reply(answer, request, translate)
        if isinstance(answer, tuple):
            assert request.origin is not None
            name = request.origin.captures.get("model")
            return self._list(answer) if name is None else self._one(name, answer)
        probe = self._form.live if request.operation is Operation.LIVE else self._form.ready
        assert probe is not None
        return _state(probe, good=answer is True)

    def encode_error(self, error: GatewayError, request: Request | None, message: Message) -> Message:
        """Return the response that reports `error`. The response uses the form's error template, or is `{"error":
        text}` if the form has none."""
        text = error.message.encode("utf-8", "replace").decode()
        failure = next((each for each in self._form.failures if each.form.reason is error.reason), None)
        status = failure.form.status if failure else http_status.number(error)
        words: dict[Word, json.Json] = {
            Word.MESSAGE: text,
            Word.CODE: status,
            Word.GRPC_CODE: error.status.name,
            Word.ID: request.id if request else None,
            Word.MODEL: (request.model if request else "") or None,
        }
        form = self._form.form
        media_type = form.error_type
        try:
            parts = (failure.error if failure else self._form.error).write(MessageContents(words=words))
        except GatewayError:
            parts = ()
        if not parts:
            parts, media_type = (json.write({"error": text}),), JSON_TYPE
        headers = Headers(((b"content-type", media_type.encode()), *error_fields(error)))
        return Message(headers=headers, parts=parts, status=status)

    def encode_end(self, request: Request) -> Message | None:
        """Return the message that ends a stream.

        If the form has no end mark, the message is empty. The message is still needed, because even a stream without
        responses must send a status and headers."""
        origin = request.origin
        assert isinstance(origin, FormMessage)
        return reply(origin.response_headers, self._stream_end, 200)

    def _list(self, models: tuple[ModelEntry, ...]) -> Message:
        """Return the model list. If the template has no placeholder for versions, the list contains each name once."""
        pairs = [(each.name, each.version) for each in models]
        names = [*dict.fromkeys(name for name, _ in pairs)]
        if any(version for _, version in pairs):
            try:
                columns = {"model": [name for name, _ in pairs], "version": [version for _, version in pairs]}
                return reply(JSON_HEADERS, self._form.models.write(MessageContents(tensors=_texts(columns))), 200)
            except GatewayError:
                pass  # the template has no versions
        return reply(JSON_HEADERS, self._form.models.write(MessageContents(tensors=_texts({"model": names}))), 200)

    def _one(self, name: str, models: tuple[ModelEntry, ...]) -> Message:
        if all(each.name != name for each in models):
            raise not_found(f"the list does not have model {name!r}")
        return reply(JSON_HEADERS, self._form.one_model.write(MessageContents(words={Word.MODEL: name})), 200)


def _read_for_anyone(route: _Route, message: Message) -> Request:
    """Return the request in a message, decoded as in `decode_request`, before the listener's limits are available."""
    try:
        return route.read(message, _ANY_LISTENER)
    except DecodeError as error:
        return _read_missing(route, message, _ANY_LISTENER, error)


def _read_missing(route: _Route, message: Message, listener: ListenerSettings, error: DecodeError) -> Request:
    """Read a message that caused `error` again, with NaN for each null, and mark the request with a flaw.

    Raise `error` if the second attempt fails too."""

    def read(text: bytes) -> Request:
        return route.read(replace(message, parts=(text,)), listener)

    request = json.missing.reread(error, message.body, read, members=True)
    if request.flaw:
        raise error
    return replace(request, flaw=json.missing.flaw(error))


def _texts(columns: Mapping[str, list[str]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, BYTES, (len(texts),), bytes_elements.pack([text.encode() for text in texts]))
        for name, texts in columns.items()
    )


def _reply(answer: Response, request: Request, translate: Translate) -> Message:
    asked, origin = request.origin, answer.origin
    assert isinstance(asked, FormMessage)
    body = asked.response
    assert body is not None
    if asked.columns and (text := other_columns(asked.columns, request.parameters, answer.outputs)):
        raise invalid_input(f"{text}, because the request has {asked.columns!r}; this model has its own number of them")
    words: Mapping[Word, json.Json] = NO_WORDS
    if body.words:
        words = {
            Word.ID: answer.id if request.id is None else request.id,
            Word.MODEL: request.model or answer.model or None,
            Word.VERSION: request.version or answer.version or None,
        }
    texts = origin.texts if isinstance(origin, FormMessage) else NO_TEXTS
    said = MessageContents(translate.nan or "", translate, answer.outputs, words, answer.parameters, texts)
    parts = body.write(said)
    return reply(body.headers(asked.response_headers, parts), parts, 200)


def _state(probe: CompiledProbe, *, good: bool) -> Message:
    if not good:
        return Message(headers=JSON_HEADERS, parts=(b'{"error":"not ready"}',), status=503)
    parts = probe.response.write(MessageContents())
    return Message(headers=JSON_HEADERS if parts else Headers(), parts=parts, status=probe.form.status)
