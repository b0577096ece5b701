"""Converts canonical Requests to HTTP requests of a form, and responses to Answers (upstream side)."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.core import bytes_elements, json
from gateway.core.datatypes import BYTES
from gateway.core.errors import (
    REASON_HEADER,
    REASONS,
    DecodeError,
    GatewayError,
    Reason,
    not_found,
    readable,
    refusal,
    unsupported,
)
from gateway.core.frozen import replace, replace_struct
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import Headers, Message
from gateway.core.models import ModelEntry
from gateway.core.operations import INFER, STREAM, Operation
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.json.bodies import FormData, JsonBody, MessageBody, RawBytes
from gateway.protocols.json.choice import Choice
from gateway.protocols.json.compiled import (
    CompiledExchange,
    CompiledFailure,
    CompiledForm,
    CompiledProbe,
    FormMessage,
    filled_path,
    other_columns,
)
from gateway.protocols.json.form import ABSENT
from gateway.protocols.json.misfit import Fit, MisfitError, UnwrittenError, better, explained, without_frames
from gateway.protocols.json.templates import Node, RowList, Spelling, TensorPlace, Word, walk_all
from gateway.protocols.json.writing import NO_TEXTS, NO_WORDS, MessageContents

_MAX_TEXT = 8192
"""Maximum length of a backend's error message, in characters. Longer messages are truncated."""
_TRACEBACK = "Traceback (most recent call last):"
"""The line that Python writes before a traceback.

Some servers, such as SageMaker containers, send the error message and then the traceback."""
_NAMES_OF_ERRORS = ("error", "errors", "detail", "message")
"""The members in which servers commonly report an error."""
_MAX_QUOTED = 200
"""Maximum length of a member's JSON text in an error message, in characters."""
_NULL = msgspec.Raw(b"null")
_TEXTS = frozenset({Spelling.TEXT, Spelling.TEXTS, Spelling.BYTES})
_TEXTS_OF_FIELDS = _TEXTS - {Spelling.BYTES}
_HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})
_GET_HEADERS = Headers(((b"accept", b"application/json"),))


class FormClient:
    """The upstream side of a form."""

    def __init__(self, form: CompiledForm) -> None:
        self._form = form
        streams = [each for each in form.exchanges if each.form.stream]
        others = [each for each in form.exchanges if not each.form.stream]
        self._infer = Choice(others, lambda each: each.response_type)
        self._stream = Choice(streams, lambda each: each.response_type)
        self._asked = {choice: _asked_for(choice.exchanges) for choice in (self._infer, self._stream)}
        self._of_bytes = {choice: _for_bytes(asked) for choice, asked in self._asked.items()}
        self._own = {choice: _by_body(choice.exchanges, asked) for choice, asked in self._asked.items()}
        self._has_versions = any(_has_version(each) for each in form.exchanges)

    def encode_request(self, request: Request, target: Target) -> Message:
        """Return the HTTP request for `request`, written by the first exchange that can represent it. If the client
        uses the same form, the exchange that read the client's request comes first.

        Raises:
            GatewayError: UNIMPLEMENTED if the form does not declare the operation; INVALID_ARGUMENT if the form has no
                placeholder for a part of the request; NOT_FOUND if the form has no placeholder for the version.
        """
        operation = request.operation
        if operation is INFER or operation is STREAM:
            return self._inference(self._infer if operation is INFER else self._stream, request)
        if operation in _HEALTH:
            probe = self._probe(operation)
            return self._ask_anything(request) if probe is None else self._ask(probe, request)
        models = self._form.form.models
        if operation is Operation.MODELS and models is not None:
            return Message("GET", models.paths[0], _GET_HEADERS)
        raise unsupported(f"the form {self._form.name!r} does not support {operation.value}")

    def _ask(self, probe: CompiledProbe, request: Request) -> Message:
        try:
            return Message("GET", filled_path(probe.form.paths, request.model, request.version))
        except GatewayError as error:
            raise unsupported(
                f"the form {self._form.name!r} checks only the health of single models: {error}"
            ) from error

    def _ask_anything(self, request: Request) -> Message:
        """Return a GET request that runs no model.

        The request uses the path of the first exchange if this exchange has another method."""
        first = self._form.exchanges[0].form
        try:
            path = "/" if "GET" in first.methods else filled_path(first.paths, request.model, request.version)
        except GatewayError:  # the request lacks a name for a variable in the path
            path = "/"
        return Message("GET", path)

    def _probe(self, operation: Operation) -> CompiledProbe | None:
        return self._form.live if operation is Operation.LIVE else self._form.ready

    def _inference(self, choice: Choice, request: Request) -> Message:
        if not choice.exchanges:
            operation = request.operation.value
            raise unsupported(f"the form {self._form.name!r} does not support {operation}; add `{operation}` to it")
        if request.version and not self._has_versions:
            raise not_found(
                f"the form {self._form.name!r} has no versions, got {request.version!r}; "
                'set rewrite.version on the route to "" to drop it'
            )
        best: UnwrittenError | None = None
        origin = request.origin
        own = self._own[choice].get(origin.asked) if isinstance(origin, FormMessage) else None
        others = self._of_bytes[choice] if _are_bytes(request.inputs) else self._asked[choice]
        for each in others if own is None else (own, *[other for other in others if other is not own]):
            try:
                return _written(each, request, is_own=each is own)
            except GatewayError as error:
                best = better(best, error, Fit.PLACES)
        assert best is not None
        raise best

    def decode_response(self, reply: Message, request: Request, target: Target) -> Answer:
        """Return the backend's Answer to `request`, or one Answer of a stream.

        Raises:
            DecodeError: the response does not match the form.
            GatewayError: the error that the response reports.
        """
        operation, limits = request.operation, target.limits
        if operation in _HEALTH:
            probe = self._probe(operation)
            # if the path exists only for POST, Flask responds with 405, and Express with 404
            return reply.status < 500 if probe is None else _is_good(probe, reply, limits)
        if reply.status >= 400:
            raise self._error(reply, limits)
        if not 200 <= reply.status < 300:
            raise DecodeError(f"status {reply.status}, expected 200")
        if operation is Operation.MODELS:
            return self._models(reply, limits)
        errors: list[DecodeError] = []
        for each in self._readers(operation, reply.headers):
            try:
                return _response(each, reply, request, limits)
            except DecodeError as error:
                errors.append(without_frames(error))
        text = _error_text(self._form.error, reply, limits)
        if text:
            failure = self._failure(reply, limits)
            raise refusal(failure.form.reason if failure else Reason.MODEL_ERROR, text)
        misfit = explained(errors, "exchanges")
        if isinstance(misfit, MisfitError) and (hint := _undeclared_error(reply)):
            misfit = MisfitError(hint, misfit.place)
        return self._response_with_missing(reply, request, limits, misfit)

    def _response_with_missing(self, reply: Message, request: Request, limits: Limits, error: DecodeError) -> Response:
        """If the route or the form maps null to NaN, read a message that caused `error` again, with NaN for each null.
        Raise `error`, or a clearer error, if the second attempt fails too."""

        def read(text: bytes) -> Response:
            found = error
            for each in self._readers(request.operation, reply.headers):
                try:
                    return _response(each, replace(reply, parts=(text,)), request, limits)
                except DecodeError as other:
                    found = json.missing.clearer_error(found, other)
            raise found

        nan = "null" if self._form.form.nan == "null" else request.translate.nan
        return json.missing.read_reply(error, reply.body, read, nan, members=True)

    def _readers(self, operation: Operation, headers: Headers) -> Sequence[CompiledExchange]:
        """Return the exchanges that can read a response. All exchanges can read a stream, because its messages have no
        media type."""
        choice = self._infer if operation is INFER else self._stream
        if len(choice.exchanges) == 1 or operation is STREAM:
            return choice.exchanges
        return choice.by_type(headers.get("content-type")) or choice.exchanges

    def _models(self, reply: Message, limits: Limits) -> tuple[ModelEntry, ...]:
        found = self._form.models.read(reply.body, reply.headers, limits)
        columns = {
            each.name: [element.decode() for element in bytes_elements.unpack(each.data)] for each in found.tensors
        }
        names = columns.get("model", [])
        versions = columns.get("version", [""] * len(names))
        return tuple(ModelEntry(name, version) for name, version in zip(names, versions, strict=True))

    def _error(self, reply: Message, limits: Limits) -> GatewayError:
        """Return the error in a 4xx or 5xx response. The error message comes from the form's error template, or is the
        body itself."""
        failure = self._failure(reply, limits)
        text = _error_text(failure.error if failure else self._form.error, reply, limits)
        if not text:
            text = readable(bytes(memoryview(reply.body)[:_MAX_TEXT]).decode("utf-8", "replace")).strip()
            text = text.partition(_TRACEBACK)[0].strip() or text
        usual = failure.form.reason if failure else REASONS_BY_NUMBER.get(reply.status, Reason.MODEL_ERROR)
        reason = REASONS.get(reply.headers.get(REASON_HEADER)) or usual
        return refusal(reason, text or f"status {reply.status} without a body")

    def _failure(self, reply: Message, limits: Limits) -> CompiledFailure | None:
        """Return the form's first failure that matches an error response, or None."""
        for each in self._form.failures:
            is_any = each.form.error is ABSENT
            if each.form.status == reply.status and (is_any or _error_text(each.error, reply, limits)):
                return each
        return None


def _error_text(error: MessageBody, reply: Message, limits: Limits) -> str:
    """Return the error message in a body that matches the template `error`, or an empty text for every other
    response."""
    try:
        found = error.read(reply.body, reply.headers, limits)
    except (DecodeError, GatewayError):
        return ""
    given = found.words.get(Word.MESSAGE, "")
    return (given if isinstance(given, str) else json.write(given).decode())[:_MAX_TEXT]


def _undeclared_error(reply: Message) -> str:
    """Return the text of an error if a response with a successful status looks like a server's error. The response
    matches no response template and no error template of the form. Return an empty text for every other response."""
    if len(reply.body) > _MAX_TEXT:
        return ""
    try:
        members = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    name = next((each for each in _NAMES_OF_ERRORS if members.get(each, _NULL) != _NULL), None)
    if name is None:
        return ""
    said = readable(bytes(members[name]).decode("utf-8", "replace").partition(_TRACEBACK)[0][:_MAX_QUOTED])
    return (
        f"the reply has status {reply.status} and the member `{name}`, {said}; if it is an error, add"
        f' `error: {{{name}: $message}}` to the form, otherwise `"{name}?": $_` to its response'
    )


def _are_bytes(inputs: tuple[Tensor, ...]) -> bool:
    return len(inputs) == 1 and inputs[0].datatype is BYTES and inputs[0].elements == 1


def _asked_for(exchanges: Sequence[CompiledExchange]) -> Sequence[CompiledExchange]:
    """Return the exchanges that write requests.

    If several exchanges have the same request, return the one whose response type equals the request type. For example,
    a `.npy` file can represent values that JSON cannot."""
    replied_alike = [_request(each) for each in exchanges if _replies_alike(each)]
    return [each for each in exchanges if _replies_alike(each) or _request(each) not in replied_alike]


def _request(exchange: CompiledExchange) -> object:
    form = exchange.form
    return form.methods, form.paths, form.query, form.headers, form.media_type, form.request


def _replies_alike(exchange: CompiledExchange) -> bool:
    return exchange.form.response_type == exchange.form.media_type


def _for_bytes(exchanges: Sequence[CompiledExchange]) -> Sequence[CompiledExchange]:
    """Return the exchanges in the order in which the gateway tries them for one BYTES element.

    Exchanges with raw bytes as the body come first, whether the element is text or not, unless another exchange has a
    placeholder for text. A file in form data is not a placeholder for text."""
    of_bytes = [each for each in exchanges if type(each.request) is RawBytes]
    others = [each for each in exchanges if type(each.request) is not RawBytes]
    have_texts = any(
        isinstance(node, TensorPlace)
        and node.spelling in (_TEXTS_OF_FIELDS if isinstance(each.request, FormData) else _TEXTS)
        for each in others
        for node in walk_all(each.request.nodes)
    )
    return exchanges if have_texts else (*of_bytes, *others)


def _has_version(exchange: CompiledExchange) -> bool:
    in_path = any("{version}" in path for path in exchange.form.paths)
    return in_path or Word.VERSION in exchange.request.words or Word.VERSION in exchange.head.words


def _by_body(
    exchanges: Sequence[CompiledExchange], asked: Sequence[CompiledExchange]
) -> Mapping[MessageBody | None, CompiledExchange]:
    """Return a map from the request body of each exchange to the exchange in `asked` that has the same requests."""
    return {each.request: next(other for other in asked if _request(other) == _request(each)) for each in exchanges}


def _written(exchange: CompiledExchange, request: Request, *, is_own: bool = False) -> Message:
    """Return `request` as an HTTP request of `exchange`. `is_own` is True if this exchange read the client's
    request."""
    form, head, body, origin = exchange.form, exchange.head, exchange.request, request.origin
    method, paths, alternative = form.methods[0], form.paths, 0
    if is_own and isinstance(origin, FormMessage):
        asked_by, _, asked_at = origin.pattern.partition(" ")
        method = asked_by if asked_by in form.methods else method
        paths = (asked_at, *paths) if asked_at in paths else paths
        alternative = origin.alternative
    path = filled_path(paths, request.model, request.version, request.id)
    words: Mapping[Word, json.Json] = NO_WORDS
    if body.words or head.words:
        words = {Word.ID: request.id, Word.MODEL: request.model or None, Word.VERSION: request.version or None}
    texts = origin.texts if isinstance(origin, FormMessage) else NO_TEXTS
    translate, inputs, asked = request.translate, request.inputs, ""
    said = MessageContents(
        translate.nan or "", translate, inputs, words, request.parameters, texts, head.parameters, alternative
    )
    if exchange.query is not None:
        asked, others = exchange.query.write(said)
        elsewhere = frozenset(said.parameters) if head.has_parameters else said.elsewhere
        said = replace_struct(said, tensors=others, elsewhere=elsewhere)
    parts = body.write(said)
    all_headers = body.headers(exchange.request_headers, parts)
    if head.is_empty:
        return Message(method, path, all_headers, parts, deadline=request.deadline)
    headers, query = head.write(words, request.parameters)
    query = f"{query}&{asked}" if query and asked else query or asked
    all_headers = Headers((*all_headers.raw, *headers))
    return Message(method, path, all_headers, parts, query=query, deadline=request.deadline)


def _response(exchange: CompiledExchange, reply: Message, request: Request, limits: Limits) -> Response:
    found = exchange.response.read(reply.body, reply.headers, limits)
    tensors = found.tensors
    if tensors and tensors[0].shape[:1] == (1,) and request.unread is None and request.inputs:
        _check_rows(exchange, request.inputs, tensors)
    name = exchange.form.columns
    if name and request.unread is None and (text := other_columns(name, request.parameters, tensors)):
        raise DecodeError(f"{text}, because the request has {name!r}")
    words, model, version, id = found.words, "", "", None
    if words:
        model, version, id = words.get(Word.MODEL, ""), words.get(Word.VERSION, ""), words.get(Word.ID)
        if id is not None and request.id and id != request.id:
            raise DecodeError(f"the reply has the id {id!r}, expected {request.id!r}")
    origin = FormMessage(texts=found.texts) if found.texts else None
    return Response(tensors, model, version, id, found.parameters, origin)


def _check_rows(exchange: CompiledExchange, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Raise DecodeError if the response to a list of several rows has only one row, which suggests that the server
    takes single rows. The check applies only to outputs whose declared first dimension can have any size. If the form
    has no list of rows, the bridge makes this check with the model's signature."""
    rows, declared = inputs[0].shape[0] if inputs[0].shape else 1, exchange.shapes
    if rows == 1 or any(each.shape[:1] != (rows,) for each in inputs):
        return
    if not (isinstance(exchange.request, JsonBody) and any(map(_is_row_list, walk_all(exchange.request.nodes)))):
        return
    for each in outputs:
        if each.shape[:1] == (1,) and declared.get(each.name, ())[:1] == (-1,):
            raise DecodeError(f"output {each.name!r} has 1 row, but the request had {rows}")


def _is_row_list(node: Node) -> bool:
    return isinstance(node, RowList)


def _is_good(probe: CompiledProbe, reply: Message, limits: Limits) -> bool:
    if reply.status != probe.form.status:
        return False
    if not probe.response.nodes:
        return True
    try:
        probe.response.read(reply.body, reply.headers, limits)
    except (DecodeError, GatewayError):
        return False
    return True
