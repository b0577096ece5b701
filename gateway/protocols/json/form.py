"""Defines `Form`, the definition of a JSON protocol, and `parse_form`, which creates a Form from YAML data. The
templates in a Form are unparsed YAML data: `templates` parses them, and `protocol` compiles the complete form.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias, get_args

from gateway.core.errors import REASONS, DecodeError, Reason
from gateway.core.frozen import frozen
from gateway.core.models import TensorSpec
from gateway.core.requests import Nan
from gateway.core.spec_text import read_datatype, read_shape, read_spec

Template: TypeAlias = Any
"""A template as YAML data: mappings, lists, strings, numbers, booleans and None."""
Place: TypeAlias = tuple[str | int, ...]
"""A position in a form: the keys and indexes that lead to it."""

PREFIX = "json:"
"""The prefix in the names of protocols that are declared by forms."""
JSON_TYPE: Final = "application/json"
STREAMS = ("sse", "openai", "jsonl")
"""The formats of a streamed response: server-sent events, server-sent events with `[DONE]` at the end, or one line for
each message."""
BATCHES = ("each",)
"""The values of `batch`, for servers that do not accept complete batches. `each` means one call per row."""
MOST_EXCHANGES = 32
MOST_PATHS = 32
MOST_FAILURES = 32


class FormError(ValueError):
    """A form that cannot be used. `path` is the position in the form. The message gives the reason and a remedy."""

    def __init__(self, path: Place, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class _Absent:
    """The type of ABSENT."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""The value for a missing template. None has another meaning, because it is a template for JSON's null."""


@frozen
class Exchange:
    """A request and its response.

    - `paths`: The paths, which can contain `{model}`, `{version}`, `{id}`, and other variables with ignored values.
    Clients can use any of the paths. Upstream, the gateway uses the first path whose variables all have values.
    - `methods`: Clients can use any of the methods. Upstream, the gateway uses the first.
    - `headers`, `query`: Templates by name. A name that ends in `?` is optional.
    - `request`, `response`: The templates of the bodies; ABSENT for a message without a body.
    - `stream`: One of STREAMS if the response is a stream of messages with the template `response`, or else empty.
    - `ignore_unknown`: True if members that are not in the templates are ignored, False if they are errors (here and in
      the other classes).
    - `client_paths`: Additional paths for clients, which the gateway never uses upstream.
    - `columns`: The request parameter that states the length of each output's last dimension; empty if unused.
    """

    paths: tuple[str, ...]
    methods: tuple[str, ...] = ("POST",)
    headers: Mapping[str, Template] = field(default_factory=dict)
    query: Mapping[str, Template] = field(default_factory=dict)
    media_type: str = JSON_TYPE
    request: Template = ABSENT
    response_type: str = JSON_TYPE
    response: Template = ABSENT
    stream: str = ""
    ignore_unknown: bool = False
    client_paths: tuple[str, ...] = ()
    columns: str = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The methods and paths that a listener accepts."""
        return tuple(f"{method} {path}" for method in self.methods for path in self.accepted_paths)

    @property
    def accepted_paths(self) -> tuple[str, ...]:
        """All paths that a listener accepts."""
        return (*self.paths, *self.client_paths)


@frozen
class Probe:
    """A GET request with the response status `status`.

    If `response` is a template, the body must match it."""

    paths: tuple[str, ...]
    status: int = 200
    response: Template = ABSENT
    ignore_unknown: bool = False


@frozen
class ModelListing:
    """A GET request for the model list, in which `$model` stands for a name.

    Clients can use any of `paths`; upstream, the gateway uses the first. `one_paths` contain `{model}`; a GET request
    at such a path returns `one`, which describes only that model."""

    paths: tuple[str, ...]
    response: Template
    ignore_unknown: bool = False
    one_paths: tuple[str, ...] = ()
    one: Template = ABSENT


@frozen
class FailureReply:
    """An error whose status is not the usual HTTP status of its `reason`.

    If `error` is a template, the failure applies only to errors with a matching body."""

    status: int
    reason: Reason
    error: Template = ABSENT


@frozen
class Form:
    """A protocol that is declared as data: the positions of tensors, names and errors in JSON over HTTP.

    - `tensors`: The datatype and shape of every tensor in the templates, or empty.
    - `nan`: The default for the routes' `translate.nan`; empty means `error`.
    - `batch`: One of BATCHES if servers do not accept complete batches, or else empty.
    - `default_type`: The media type of requests without a Content-Type. Empty means JSON, or bytes if the body is not
      JSON.
    """

    infer: tuple[Exchange, ...]
    ready: Probe | None = None
    live: Probe | None = None
    models: ModelListing | None = None
    error: Template = ABSENT
    error_type: str = JSON_TYPE
    failures: tuple[FailureReply, ...] = ()
    tensors: Mapping[str, TensorSpec] = field(default_factory=dict)
    ignore_unknown: bool = False
    nan: str = ""
    batch: str = ""
    default_type: str = ""


# --- reading a form ---

_FORM_KEYS = (
    "infer",
    "ready",
    "live",
    "models",
    "error",
    "error_type",
    "failures",
    "tensors",
    "ignore_unknown",
    "nan",
    "batch",
    "default_type",
)
_EXCHANGE_KEYS = (
    "path", "client_path", "method", "headers", "query", "media_type", "request", "response_type", "response",
    "stream", "ignore_unknown", "columns",
)  # fmt: skip
_PROBE_KEYS = ("path", "status", "response", "ignore_unknown")
_LISTING_KEYS = ("path", "response", "one", "ignore_unknown")
_ONE_MODEL_KEYS = ("path", "response")
_FAILURE_KEYS = ("status", "reason", "error")
_METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")


def parse_form(document: Mapping[str, Any]) -> Form:
    """Return the Form that `document` describes. `document` is plain data with the keys that `docs/forms.md` lists.

    The templates of the Form remain unparsed.

    Raises:
        FormError: a key is unknown or missing, or a value has the wrong type.
    """
    form = _mapping(document, (), _FORM_KEYS)
    if "infer" not in form:
        raise FormError((), "`infer` is missing: the exchange, or the list of exchanges, that runs the model")
    ignore = _flag(form, (), default=False)
    ready = _probe(form["ready"], ("ready",)) if "ready" in form else None
    return Form(
        infer=_exchanges(form["infer"], ignore),
        ready=ready,
        live=_probe(form["live"], ("live",)) if "live" in form else ready,
        models=_listing(form["models"], ("models",)) if "models" in form else None,
        error=form.get("error", ABSENT),
        error_type=_text(form, "error_type", (), JSON_TYPE),
        failures=_failures(form.get("failures", [])),
        tensors=dict(_tensors(form.get("tensors", {}))),
        ignore_unknown=ignore,
        nan=_nan(form),
        batch=_batch(form),
        default_type=_text(form, "default_type", (), ""),
    )


def _batch(form: Mapping[str, Any]) -> str:
    batch = form.get("batch", "")
    if batch and batch not in BATCHES:
        raise FormError(("batch",), f"{batch!r} is none of {', '.join(BATCHES)}")
    return str(batch)


def _nan(form: Mapping[str, Any]) -> str:
    if "nan" not in form:
        return ""
    nan = "null" if form["nan"] is None else form["nan"]  # YAML reads null as None
    if nan not in get_args(Nan):
        raise FormError(("nan",), f"{nan!r} is none of {', '.join(get_args(Nan))}")
    return str(nan)


def _exchanges(given: object, ignore: bool) -> tuple[Exchange, ...]:
    if not isinstance(given, list):
        return (_exchange(given, ("infer",), ignore),)
    if not 0 < len(given) <= MOST_EXCHANGES:
        raise FormError(("infer",), f"has {len(given)} exchanges, expected 1 to {MOST_EXCHANGES}")
    return tuple(_exchange(each, ("infer", at), ignore) for at, each in enumerate(given))


def _exchange(given: object, place: Place, ignore: bool) -> Exchange:
    exchange = _mapping(given, place, _EXCHANGE_KEYS)
    stream = _text(exchange, "stream", place, "")
    if stream and stream not in STREAMS:
        raise FormError((*place, "stream"), f"{stream!r} is no stream, expected one of {', '.join(STREAMS)}")
    return Exchange(
        paths=_paths(exchange, place),
        client_paths=_paths(exchange, place, "client_path") if "client_path" in exchange else (),
        methods=_methods(exchange, place),
        headers=_named_templates(exchange, "headers", place),
        query=_named_templates(exchange, "query", place),
        media_type=_text(exchange, "media_type", place, JSON_TYPE),
        request=exchange.get("request", ABSENT),
        response_type=_text(exchange, "response_type", place, JSON_TYPE),
        response=exchange.get("response", ABSENT),
        stream=stream,
        ignore_unknown=_flag(exchange, place, default=ignore),
        columns=_text(exchange, "columns", place, ""),
    )


def _methods(exchange: Mapping[str, Any], place: Place) -> tuple[str, ...]:
    given = exchange.get("method", "POST")
    methods = given if isinstance(given, list) and given else [given]
    for at, each in enumerate(methods):
        if not isinstance(each, str) or each.upper() not in _METHODS:
            within = (*place, "method", at) if methods is given else (*place, "method")
            raise FormError(within, f"{each!r} is no method, expected one of {', '.join(_METHODS)}")
    return tuple(dict.fromkeys(each.upper() for each in methods))


def _probe(given: object, place: Place) -> Probe:
    probe = _mapping(given, place, _PROBE_KEYS)
    status = _status(probe.get("status", 200), place)
    return Probe(_paths(probe, place), status, probe.get("response", ABSENT), _flag(probe, place, default=True))


def _listing(given: object, place: Place) -> ModelListing:
    listing = _mapping(given, place, _LISTING_KEYS)
    if "response" not in listing:
        raise FormError(
            place, "`response` is missing; write the place of the model names, such as `[{id: $model}, ...]`"
        )
    paths, ignore = _paths(listing, place), _flag(listing, place, default=True)
    if any("{" in each for each in paths):
        raise FormError((*place, "path"), "expected a path without variables; write the path of one model into `one`")
    if "one" not in listing:
        return ModelListing(paths, listing["response"], ignore)
    within = (*place, "one")
    one = _mapping(listing["one"], within, _ONE_MODEL_KEYS)
    if "response" not in one:
        raise FormError(within, "`response` is missing: the template of one model, such as `{id: $model}`")
    one_paths = _paths(one, within)
    if any(_CAPTURE.findall(each) != ["model"] for each in one_paths):
        raise FormError((*within, "path"), "expected a path with {model}, and no other variable")
    return ModelListing(paths, listing["response"], ignore, one_paths, one["response"])


def _failures(given: object) -> tuple[FailureReply, ...]:
    if not isinstance(given, list) or len(given) > MOST_FAILURES:
        raise FormError(("failures",), f"expected a list of at most {MOST_FAILURES} failures")
    return tuple(_failure(each, ("failures", at)) for at, each in enumerate(given))


def _failure(given: object, place: Place) -> FailureReply:
    failure = _mapping(given, place, _FAILURE_KEYS)
    reason = failure.get("reason")
    if reason not in REASONS:
        close = get_close_matches(str(reason), REASONS, 1)
        meant = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(REASONS)}"
        raise FormError((*place, "reason"), f"{reason!r} is no reason of an error; {meant}")
    return FailureReply(_status(failure.get("status"), place), REASONS[reason], failure.get("error", ABSENT))


def _status(given: object, place: Place) -> int:
    if type(given) is not int or not 100 <= given <= 599:
        raise FormError((*place, "status"), f"{given!r} is no HTTP status")
    return given


_CAPTURE = re.compile(r"\{([^{}]*)\}")
_SEGMENT = re.compile(r"(\{[^{}]*\})?[^{}]*")


def _paths(given: Mapping[str, Any], place: Place, key: str = "path") -> tuple[str, ...]:
    if key not in given:
        raise FormError(place, f"`{key}` is missing")
    paths = given[key]
    if isinstance(paths, str):
        return (_path(paths, (*place, key)),)
    if not isinstance(paths, list) or not 0 < len(paths) <= MOST_PATHS:
        raise FormError((*place, key), f"expected a path or a list of 1 to {MOST_PATHS} paths")
    return tuple(_path(each, (*place, key, at)) for at, each in enumerate(paths))


def _path(path: object, place: Place) -> str:
    """Return a path. Each segment is a literal or a variable, optionally followed by text."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise FormError(place, f"{path!r} is no path, expected one that begins with a slash")
    if not path.isascii() or any(each in path for each in "?#* \t\r\n"):
        raise FormError(place, f"{path!r} is no path: it has a query, a fragment, a blank, `*` or is not ASCII")
    captures = _CAPTURE.findall(path)
    for name in captures:
        if not name.isidentifier():
            raise FormError(place, f"{{{name}}} is no variable of a path, expected such as {{model}} or {{version}}")
        if captures.count(name) > 1:
            raise FormError(place, f"{path!r} has {{{name}}} twice, expected it once")
    if not all(map(_SEGMENT.fullmatch, path.split("/"))):
        raise FormError(place, f"{path!r}: a variable must begin its segment and have a closing brace")
    return path


def _named_templates(given: Mapping[str, Any], key: str, place: Place) -> Mapping[str, Template]:
    templates = given.get(key, {})
    if not isinstance(templates, dict) or not all(isinstance(name, str) and name for name in templates):
        raise FormError((*place, key), "expected a mapping of names to templates")
    return templates


def _tensors(given: object) -> Iterator[tuple[str, TensorSpec]]:
    if not isinstance(given, dict):
        raise FormError(("tensors",), "expected a mapping of names to datatypes and shapes, `x: FP64 [-1, 4]`")
    for name, spec in given.items():
        place = ("tensors", str(name))
        if not isinstance(name, str) or not name:
            raise FormError(place, "expected a text as the name of a tensor")
        yield name, _spec(name, spec, place)


def _spec(name: str, given: object, place: Place) -> TensorSpec:
    """Return the TensorSpec that is written as `FP64 [-1, 4]`, or, as in a route's signature, `{datatype: FP64, shape:
    [-1, 4]}`."""
    try:
        if isinstance(given, Mapping):
            spec = _mapping(given, place, ("datatype", "shape"))
            if set(spec) == {"datatype", "shape"}:
                return TensorSpec(name, read_datatype(spec["datatype"], foreign=True), read_shape(spec["shape"]))
        return read_spec(name, given, foreign=True)
    except DecodeError as error:
        raise FormError(place, str(error)) from error


def _mapping(given: object, place: Place, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise FormError(place, f"expected a mapping with some of the keys {', '.join(keys)}")
    for key in given:
        if key not in keys:
            close = get_close_matches(str(key), keys, 1)
            meant = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(keys)}"
            raise FormError((*place, str(key)), f"{key!r} is no key here; {meant}")
    return given


def _text(given: Mapping[str, Any], key: str, place: Place, default: str) -> str:
    text = given.get(key, default)
    if not isinstance(text, str) or ("\r" in text or "\n" in text):
        raise FormError((*place, key), f"expected a text, not {text!r}")
    return text


def _flag(given: Mapping[str, Any], place: Place, *, default: bool) -> bool:
    flag = given.get("ignore_unknown", default)
    if not isinstance(flag, bool):
        raise FormError((*place, "ignore_unknown"), f"expected true or false, not {flag!r}")
    return flag
