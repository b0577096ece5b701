"""The keys of `forms`: descriptions of JSON over HTTP, which become wire forms named `json:FORM`.

Templates are values of any kind here; the wire form reads them (`gateway/protocols/json`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, WithJsonSchema

from gateway.config.fields import VALUE, Flag, Keys, Name, NanKey, OneOrSeveral, refusal

PREFIX = "json:"
"""The beginning of the names of wire forms that are forms."""
JSON = "json"
"""The `protocol` of a backend that names its form by `form`."""

# The name is a part of the scheme of addresses: json:NAME://HOST:PORT.
_FORM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def _form_name(name: str) -> str:
    if not _FORM_NAME.fullmatch(name):
        raise refusal(f"expected a name of letters, digits, '-', '_' and '.', got {VALUE}")
    return name


FormName = Annotated[Name, AfterValidator(_form_name)]
_TEXT = {"type": "string", "minLength": 1}
_DECLARED = {
    "type": "object",
    "properties": {"datatype": _TEXT, "shape": {"type": "array", "items": {"type": "integer", "minimum": -1}}},
    "required": ["datatype", "shape"],
    "additionalProperties": False,
}
TensorForm = Annotated[JsonValue, WithJsonSchema({"anyOf": [_TEXT, _DECLARED]})]
Texts = Annotated[JsonValue, WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]})]


class ExchangeConfig(Keys):
    """One request with its reply."""

    path: Texts
    """The path of the request, which may hold `{model}`, `{version}` and `{id}`; or a list of paths: any of them is
    accepted, and the first that can be filled is written."""
    client_path: Texts | None = None
    """Further paths that are accepted, but that no server has: a request there goes on to `path`."""
    method: Texts = "POST"
    """The method of the request; or a list of methods: any of them is accepted, and the first is written."""
    headers: Mapping[Name, JsonValue] = {}
    """Headers of the request beyond those of every wire form, as templates."""
    query: Mapping[Name, JsonValue] = {}
    """Query parameters of the request, as templates."""
    request_type: Name = "application/json"
    """The media type of the request's body, which says how the document of the template is spelled."""
    request: JsonValue = None
    """The template of the request's body; without it the request has none."""
    response_type: Name = "application/json"
    """The media type of the reply's body."""
    response: JsonValue = None
    """The template of the reply's body; without it the reply has none."""
    stream: Literal["sse", "openai", "jsonl"] | None = None
    """The reply is a stream of messages, each as `response` says: server-sent events (`sse`), the same with the event
    `[DONE]` at the end (`openai`), or JSON lines (`jsonl`)."""
    ignore_unknown: Flag | None = None
    """As the form's `ignore_unknown`, which is the default, for this exchange."""


class ProbeConfig(Keys):
    """A GET request that says whether a server is ready or live."""

    path: Texts
    """The path of the request, or a list of paths, of which any is accepted, and the first is written."""
    status: Annotated[int, Field(ge=100, le=599)] = 200
    """The status of the reply if it is."""
    response: JsonValue = None
    """The template that the reply's body fits if it is; without it any body does."""
    ignore_unknown: Flag = True
    """Members beyond the template are ignored."""


class OneModelConfig(Keys):
    """A GET request of clients for one model of the list."""

    path: Texts
    """The path of the request, with `{model}`; or a list of paths."""
    response: JsonValue
    """The template of the reply, with `$model`."""


class ListingConfig(Keys):
    """A GET request for the names of a server's models."""

    path: Texts
    """The path of the request, or a list of paths, of which any is accepted, and the first is written."""
    response: JsonValue
    """The template of the reply, with `$model` in a row."""
    one: OneModelConfig | None = None
    """How clients ask for one model: the reply is that model if it is in the list, and else the error 404."""
    ignore_unknown: Flag = True
    """Members beyond the template are ignored."""


class FailureConfig(Keys):
    """Errors whose status is another one than HTTP's for their reason."""

    status: Annotated[int, Field(ge=100, le=599)]
    """The status of the reply."""
    reason: Name
    """The [reason](errors.md) of these errors. An error with this reason is written with the status."""
    error: JsonValue = None
    """The template of the body, which must fit; without it any body does, and is read and written as the form's
    `error`."""


class FormConfig(Keys):
    """JSON over HTTP, described once for both directions: `docs/forms.md` has the templates."""

    infer: Annotated[tuple[ExchangeConfig, ...], OneOrSeveral(ExchangeConfig)]
    """The request that runs a model, with its reply: one exchange, or a list of them, which are tried in order."""
    ready: ProbeConfig | None = None
    """How a server is asked whether it is ready."""
    live: ProbeConfig | None = None
    """How it is asked whether it is live; without it as whether it is ready."""
    models: ListingConfig | None = None
    """How it is asked for its models."""
    error: JsonValue = None
    """The template of the body of errors."""
    error_type: Name = "application/json"
    """The media type of the body of errors."""
    failures: tuple[FailureConfig, ...] = ()
    """Errors whose status is another one than HTTP's for their reason. The first that fits is read and written."""
    tensors: Mapping[Name, TensorForm] = {}
    """`{TENSOR: "DATATYPE SHAPE"}`: datatype and shape of each tensor in the templates, such as `"FP64 [-1, 4]"`; or as
    `{datatype, shape}`. Without the key tensors have neither datatypes nor names."""
    ignore_unknown: Flag = False
    """Members of requests and replies beyond the templates are ignored; without it they are refused by name."""
    nan: NanKey = None
    """The default of [`translate.nan`](configuration/routes.md#routes.translate.nan) for routes of the form: how the
    gateway writes NaN and infinities; with `null` it also reads null as NaN. Without this key JSON refuses them, and
    CSV has `NaN` and `Infinity`."""

    def document(self) -> dict[str, Any]:
        """The form as it is written, its exchanges and failures as lists, for the wire form to read."""
        written = self.model_dump(exclude_unset=True)
        return {**written, **{key: list(written[key]) for key in ("infer", "failures") if key in written}}


FormEntries = Mapping[FormName, FormConfig]
