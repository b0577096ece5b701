"""The keys of `forms`: descriptions of JSON APIs over HTTP, which become protocols named `json:FORM`.

This module accepts any value as a template; `gateway.protocols.json` parses the templates.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, WithJsonSchema

from gateway.config.fields import VALUE, Flag, Keys, Name, NanKey, OneOrSeveral, refusal

JSON = "json"
"""The `protocol` of a backend whose form is in the key `form`."""

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
    """One request with its response."""

    path: Texts
    """Path of the request, or a list of paths. A path can contain `{model}`, `{version}` and `{id}`. The gateway
    accepts client requests at all of these paths. It sends its own requests to the first path whose placeholders all
    have values."""
    client_path: Texts | None = None
    """Additional paths for client requests. The gateway sends these requests to the server's `path`."""
    method: Texts = "POST"
    """Method of the request, or a list of methods. The gateway accepts all of these methods from clients, and uses the
    first one in requests to servers."""
    headers: Mapping[Name, JsonValue] = {}
    """Additional request headers, as templates."""
    query: Mapping[Name, JsonValue] = {}
    """Query parameters of the request, as templates that can contain tensors."""
    media_type: Name = "application/json"
    """Media type of the request body, which determines how the gateway serializes the body."""
    request: JsonValue = None
    """Template of the request body. Default: no body."""
    response_type: Name = "application/json"
    """Media type of the response body."""
    response: JsonValue = None
    """Template of the response body. Default: no body."""
    stream: Literal["sse", "openai", "jsonl"] | None = None
    """Format of streamed responses, whose messages match `response`: server-sent events (`sse`), server-sent events
    with `[DONE]` at the end (`openai`), or JSON lines (`jsonl`). Default: the response is not a stream."""
    ignore_unknown: Flag | None = None
    """`ignore_unknown` for this exchange. Default: the form's `ignore_unknown`."""
    columns: Name | None = None
    """Request parameter that sets the length of the last dimension of each output, such as `dimensions` in OpenAI's
    embeddings API. The gateway rejects a response with a different length."""


class ProbeConfig(Keys):
    """GET request that checks whether a server is ready or live."""

    path: Texts
    """Path of the request, or a list of paths. The gateway accepts client requests at all of these paths, and sends its
    own requests to the first path."""
    status: Annotated[int, Field(ge=100, le=599)] = 200
    """Response status of a ready or live server."""
    response: JsonValue = None
    """Template that the body must match if the server is ready or live. Default: any body matches."""
    ignore_unknown: Flag = True
    """Ignore members of the response that are not in the template."""


class OneModelConfig(Keys):
    """GET request from clients for one model in the list."""

    path: Texts
    """Path of the request, or a list of paths. Each path contains `{model}`."""
    response: JsonValue
    """Template of the response, with `$model`."""


class ListingConfig(Keys):
    """GET request from clients for the list of model names."""

    path: Texts
    """Path of the request, or a list of paths. The gateway accepts client requests at all of these paths, and sends its
    own requests to the first path."""
    response: JsonValue
    """Template of the response, with `$model` as a list item or inside one."""
    one: OneModelConfig | None = None
    """Client request for one model. If the model is not in the list, the response is a 404 error."""
    ignore_unknown: Flag = True
    """Ignore members of the response that are not in the template."""


class FailureConfig(Keys):
    """Errors whose HTTP status differs from the usual status of their reason."""

    status: Annotated[int, Field(ge=100, le=599)]
    """Status of the response."""
    reason: Name
    """[Reason](errors.md) of these errors. The gateway also uses `status` for its own errors with this reason."""
    error: JsonValue = None
    """Template that the body must match. Default: any body matches, and the gateway reads and writes the body with the
    form's `error`."""


class FormConfig(Keys):
    """Description of a JSON API over HTTP, for clients and servers. `docs/forms.md` describes the templates."""

    infer: Annotated[tuple[ExchangeConfig, ...], OneOrSeveral(ExchangeConfig)]
    """Inference request with its response: one exchange, or a list of exchanges that the gateway tries in order."""
    ready: ProbeConfig | None = None
    """Request that checks whether a server is ready."""
    live: ProbeConfig | None = None
    """Request that checks whether a server is live. Default: the request in `ready`."""
    models: ListingConfig | None = None
    """Request for a server's model list."""
    error: JsonValue = None
    """Template of the error body."""
    error_type: Name = "application/json"
    """Media type of the error body."""
    failures: tuple[FailureConfig, ...] = ()
    """Errors whose HTTP status differs from the usual status of their reason. The first matching entry applies."""
    tensors: Mapping[Name, TensorForm] = {}
    """`{TENSOR: "DATATYPE SHAPE"}`: datatype and shape of each tensor in the templates, such as `"FP64 [-1, 4]"` or
    `{datatype: FP64, shape: [-1, 4]}`. If this key is absent, the datatypes and names of tensors are unknown."""
    ignore_unknown: Flag = False
    """Ignore members of requests and responses that are not in the templates. If `false`, the gateway rejects messages
    with such members, and the error contains the member's name."""
    nan: NanKey = None
    """Representation of NaN and infinities, unless a route sets
    [`translate.nan`](configuration/routes.md#routes.translate.nan). If this key is `null`, the gateway also reads null
    as NaN. If this key is absent, the gateway rejects NaN and infinities in JSON, and writes `NaN` and `Infinity` in
    CSV."""
    batch: Literal["each"] | None = None
    """`each`: a request to the server contains one row, so the gateway calls the server once for each row of a batch.
    In `tensors`, a first dimension of -1 is the number of rows. Clients also send one row per request, and the response
    contains one row."""
    default_type: Name | None = None
    """Media type of requests without a Content-Type. Default: JSON, or bytes if the body is not JSON."""

    def document(self) -> dict[str, Any]:
        """Return the form as written in YAML, with exchanges and failures as lists, for `gateway.protocols.json`."""
        written = self.model_dump(exclude_unset=True)
        return {**written, **{key: list(written[key]) for key in ("infer", "failures") if key in written}}


FormEntries = Mapping[FormName, FormConfig]
