"""The key `routes`: rules that assign requests to backends, and change requests and responses; with the conditions of a
route (`match`), and its name."""

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, Strict, model_validator

from gateway.bridge.settings import (
    DIFFERENCE_ORDERS,
    Derivatives,
    ImageInput,
    ImageOutput,
    Renaming,
    TranslateSettings,
)
from gateway.config.catalog import Catalog
from gateway.config.declared import Declared
from gateway.config.document import Location
from gateway.config.fields import (
    VALUE,
    Flag,
    HeaderName,
    Keys,
    Name,
    Names,
    NanKey,
    Size,
    Written,
    distinct_by,
    refusal,
)
from gateway.config.policies import Policies
from gateway.config.problems import Finding, listed
from gateway.config.tensors import Constant, FreeDimension, RouteSignature
from gateway.core.datatypes import Datatype
from gateway.core.globs import captures, wildcards
from gateway.core.operations import CALLS, SERVER_OPERATIONS, Operation
from gateway.core.requests import Nan
from gateway.core.tensors import MAX_RANK, Tensor

_OF_A_MODEL = tuple(operation.value for operation in Operation if operation not in SERVER_OPERATIONS)
ModelOperation = Annotated[Operation, Written(Literal[_OF_A_MODEL], Operation)]


def _path(path: str) -> str:
    if not path.startswith("/") or "*" in path[:-1]:
        raise refusal("expected a path such as /v2/models/m/infer or, with one * at its end, /v2/*, got {value}")
    return path


ANY_VALUE = "*"
"""The value that matches any header value in `match.header`."""


def _text_header(name: str) -> str:
    if name.endswith("-bin"):
        raise refusal(f"headers that end in -bin are bytes over gRPC; choose another name, got {VALUE}")
    return name


TextHeaderName = Annotated[HeaderName, AfterValidator(_text_header)]


class InputMatchConfig(Keys):
    """Conditions that must all hold for the same input of the request."""

    name: Name | None = None
    """Name of the input in the client's request. Inputs without a name (UM-Bridge, MIP) do not match."""
    datatype: Datatype | None = None
    """V2 datatype of the input. JSON numbers without a datatype are FP64, or INT64 if all of them are integers."""
    shape: Annotated[tuple[FreeDimension, ...], Field(max_length=MAX_RANK)] | None = None
    """Dimensions of the input. The number of dimensions must match. -1 matches any size."""


class MatchConfig(Keys):
    """Conditions that a request must meet. Every request meets `{}`."""

    listener: Name | None = None
    """Listener that received the request."""
    protocol: Name | None = None
    """Protocol of the client."""
    path: Annotated[Name, AfterValidator(_path)] | None = None
    """Path of the request. If the value ends with `*`, the path must begin with the text before the `*`."""
    model: Name | None = None
    """Name of the model, or a glob with `*`, `?` and `[...]`. Routes with this key do not match requests without a
    model name."""
    version: Name | None = None
    """Version of the model, as text: `"1"`."""
    operation: ModelOperation | None = None
    """Operation that the client requests."""
    header: Mapping[TextHeaderName, str] = {}
    """`{NAME: VALUE}`: headers or gRPC metadata that the request must have, with exactly these values. `"*"` means any
    value. MIP and brpc have no headers."""
    input: InputMatchConfig | None = None
    """An input that the request must have. The condition applies to inference, explanation and derivatives; all other
    operations on the model, such as metadata, always match."""

    def whole_findings(self, location: Location) -> Iterator[Finding]:
        """Find conditions for inputs that no request meets, or that have no keys."""
        if self.input is not None and self.input == InputMatchConfig():
            yield Finding((*location, "input"), "expected name, datatype or shape of an input", at_key=True)
        elif self.input is not None and self.operation not in (None, *CALLS):
            text = "only inference, explanation and derivatives have inputs; remove the key"
            yield Finding((*location, "input"), text, at_key=True)


OF_GRAPHS, OF_BACKENDS = "models.", "backends."
"""Prefixes for the names of graphs and backends in lists that also contain route names."""
LONGEST = 80
"""Maximum length of a route's name, in characters."""
EVERY_REQUEST = "any"
"""The name for a route with `match: {}`."""

_DIGITS = 6


def _usable_name(name: str) -> str:
    if name.startswith((OF_GRAPHS, OF_BACKENDS)):
        raise refusal(
            f"names that begin with {OF_GRAPHS} or {OF_BACKENDS} are reserved; choose another name, got {VALUE}"
        )
    if not name.isprintable() or name != name.strip():
        raise refusal(f"expected printable characters, without spaces at the beginning and the end, got {VALUE}")
    return name


RouteName = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(_usable_name)]


def name_of_match(match: MatchConfig) -> str:
    """Return the default name of a route with this match. The name contains the model, then the other conditions:
    `iris,protocol=v2-rest`.

    The name depends only on the match, so it stays the same when routes are added before the route. Clients can see
    names, so header values, which can be secrets, are replaced by digits of a hash. Names that are too long, or that
    contain unprintable characters, also end with these digits."""
    whole = ",".join(_name_parts(match)) or EVERY_REQUEST
    if whole.startswith((OF_GRAPHS, OF_BACKENDS)):
        whole = f"model={whole}"
    values = {name: value for name, value in match.header.items() if value != ANY_VALUE}
    text = "".join(each if each.isprintable() else "?" for each in whole)
    if not values and text == whole and len(text) <= LONGEST:
        return text
    digits = sha256(json.dumps([whole, values], sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"{text[: LONGEST - _DIGITS - 1]}~{digits}"


def _name_parts(match: MatchConfig) -> Iterator[str]:
    operation = None if match.operation is None else match.operation.value
    if match.model is not None:
        yield match.model
    for key, value in (
        ("listener", match.listener),
        ("protocol", match.protocol),
        ("path", match.path),
        ("version", match.version),
        ("operation", operation),
        ("header", "+".join(match.header) or None),
        ("input", None if match.input is None else _name_of_input(match.input)),
    ):
        if value is not None:
            yield f"{key}={value}"


def _name_of_input(wanted: InputMatchConfig) -> str:
    """Return a text such as `image:UINT8[-1,3]`, without the parts that are not set."""
    datatype = "" if wanted.datatype is None else wanted.datatype.value
    shape = "" if wanted.shape is None else f"[{','.join(map(str, wanted.shape))}]"
    return ":".join(filter(None, (wanted.name, f"{datatype}{shape}")))


Check: TypeAlias = Literal["full", "none"]


class RewriteConfig(Keys):
    """Names of the model and the version at the backend."""

    model: Name | None = None
    """Name of the model at the backend. The placeholders `{1}`, `{2}`, ... contain the text that the first, second, ...
    wildcard in `match: {model: GLOB}` matched. `{0}` contains the entire name. Default: the client's name."""
    version: str | None = None
    """Version at the backend. Requests for any other version fail with NOT_FOUND, unless `match` contains that version.
    `""` removes the client's version. Default: the client's version."""


def _without_hidden_loss(image: ImageOutput) -> ImageOutput:
    if image.format == "jpeg" and not image.lossy:
        raise refusal(f"{VALUE} is lossy; add `lossy: true`, or use png or webp, which are lossless", "format")
    if image.format == "png" and image.lossy:
        raise refusal("png is lossless; expected false, or jpeg or webp as format", "lossy")
    if image.format == "jpeg" and image.channels == "rgba":
        raise refusal(f"jpeg does not support {VALUE}; use png or webp", "channels")
    return image


def _height_and_width(sides: tuple[int, ...]) -> tuple[int, int]:
    height, width = sides
    return height, width


def _known_stencil(derivatives: Derivatives) -> Derivatives:
    method, order = derivatives.method, derivatives.order
    orders = DIFFERENCE_ORDERS[method]
    if order is not None and order not in orders:
        raise refusal(f"method {method} needs order {listed(map(str, orders))}, got {VALUE}", "order")
    return derivatives


# WebP has the smallest limit of all formats.
_Side = Annotated[int, Strict(), Field(ge=1, le=16383)]
_Sides = Annotated[tuple[_Side, ...], Field(min_length=2, max_length=2)]
_FORMS: Mapping[Any, Any] = {
    bool: Flag,
    int: Size,
    str: Name,
    tuple[str, ...]: Names,
    tuple[int, int]: Annotated[tuple[int, int], Written(_Sides, _height_and_width)],
    Tensor: Constant,
    Operation: Annotated[Operation, Written(Literal["gradient", "apply_jacobian", "apply_hessian"], Operation)],
    float: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)],
    Nan | None: NanKey,
}
"""YAML types of the fields of TranslateSettings, by their Python types."""

_CHECKS: Mapping[Any, Callable[[Any], Any]] = {
    tuple[Renaming, ...]: distinct_by("client", "backend", message=f"{VALUE} is renamed twice"),
    tuple[ImageInput, ...]: distinct_by("name"),
    tuple[ImageOutput, ...]: distinct_by("name"),
    ImageOutput: _without_hidden_loss,
    Derivatives: _known_stencil,
}


FiniteDifferences: Any = Annotated[Derivatives, Declared(Derivatives, _FORMS, _CHECKS), AfterValidator(_known_stencil)]
"""Settings for derivatives by finite differences, as a map in YAML."""


class SplitConfig(Keys):
    """One backend of a split."""

    backend: Name
    """Name of the backend."""
    weight: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] = 1
    """Share of the calls, relative to the other weights. A backend with weight 0 receives no calls."""


class StickyConfig(Keys):
    """Session affinity: a client's calls go to the same backend of the split."""

    header: TextHeaderName
    """Header or gRPC metadata key. Calls with the same value go to the same backend while the weights stay the same.
    The gateway distributes calls without the header at random."""


def _with_a_weight(split: tuple[SplitConfig, ...]) -> tuple[SplitConfig, ...]:
    if not any(each.weight for each in split):
        raise refusal("all weights are 0; at least one weight must be greater than 0")
    return split


def _captures(location: Location, model: str, glob: str | None) -> Iterator[Finding]:
    """Find placeholders in `rewrite.model` for which `match.model` has no wildcard."""
    wanted = captures(model)
    if wanted and glob is None:
        yield Finding(location, f"{VALUE} needs match: {{model: GLOB}}, whose wildcards are {{1}}, {{2}}, ...")
    elif wanted and glob is not None and max(wanted) > (count := len(wildcards(glob))):
        has = f"match.model has {count or 'no'} wildcard{'' if count == 1 else 's'}"
        known = listed(f"{{{number}}}" for number in range(count + 1))
        yield Finding(location, f"{has}, so there is no {{{max(wanted)}}}; expected {known}")


class RouteConfig(Keys):
    """A route from clients to a backend."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["backend"]}, {"required": ["split"]}]})

    name: RouteName = ""
    """Name of the route in metrics, logs, traces, the console and `gateway-route`; must be unique. Default: a short
    form of `match`, such as `iris` or `iris,protocol=v2-rest`."""
    match: MatchConfig
    """Conditions that a request must meet."""
    backend: Name | None = None
    """Name of the backend. A route has either this key or `split`."""
    split: (
        Annotated[
            tuple[SplitConfig, ...],
            Field(min_length=1),
            AfterValidator(distinct_by("backend")),
            AfterValidator(_with_a_weight),
        ]
        | None
    ) = None
    """Backends that share the calls in proportion to their weights, instead of `backend`. Metadata comes from the first
    backend with a weight above 0."""
    sticky: StickyConfig | None = None
    """Send a client's calls to the same backend of `split`."""
    fallback: Names = ()
    """Backends to try, in order, if the route's own backend is unreachable, overloaded or not ready, or does not have
    the model. If the server might have run a call, the gateway repeats the call only with `safe: true` on the
    backend."""
    rewrite: RewriteConfig = Field(default_factory=RewriteConfig)
    """Names at the backend that replace the client's names."""
    passthrough: Flag = False
    """Forward messages at the path in `match` unchanged, in both directions, between clients and a backend with the
    same protocol. Use this key for custom HTTP interfaces of servers (grps: `customized_predict_http`). The gateway
    checks only message sizes."""
    signature: RouteSignature | None = None
    """The model's tensors, which replace the backend's metadata."""
    translate: Annotated[TranslateSettings, Declared(TranslateSettings, _FORMS, _CHECKS)] = Field(
        default_factory=TranslateSettings
    )
    """Conversion of tensors."""
    check: Check | None = None
    """`full`: decode and check every request before it reaches a server. `none`: if client and server use the same
    protocol, forward requests without decoding them. Default: the top-level `check`."""
    policies: Policies = ()
    """Policies for the route's calls, outermost first. They enclose the backend's policies."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.name:
            self.__dict__["name"] = name_of_match(self.match)  # the model is frozen for all other code
        return self

    @property
    def own_backends(self) -> tuple[str, ...]:
        """The backend in `backend`, or the backends in `split`."""
        if self.split is not None:
            return tuple(each.backend for each in self.split)
        return () if self.backend is None else (self.backend,)

    @property
    def backends(self) -> tuple[str, ...]:
        """All of the route's backends: its own, then the backends in `fallback`."""
        return (*self.own_backends, *self.fallback)

    @property
    def called_backends(self) -> tuple[str, ...]:
        """The backends that get calls: all except backends with weight 0."""
        idle = {each.backend for each in self.split or () if not each.weight}
        return tuple(name for name in self.backends if name not in idle)

    @property
    def backend_places(self) -> tuple[tuple[str | int, ...], ...]:
        """The location of each of `backends`, relative to the route."""
        own: list[tuple[str | int, ...]] = [("backend",)] if self.backend is not None else []
        if self.split is not None:
            own = [("split", at, "backend") for at in range(len(self.split))]
        return (*own, *(("fallback", at) for at in range(len(self.fallback))))

    @property
    def main_backend(self) -> str:
        """The backend for metadata requests: the first backend of the route that gets calls."""
        if self.split is not None:
            return next(each.backend for each in self.split if each.weight)
        assert self.backend is not None
        return self.backend

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find keys whose package is missing."""
        if self.translate.images is not None and not catalog.images:
            text = 'needs Pillow, which is not installed: pip install "modelglot[images]"'
            yield Finding((*location, "translate", "images"), text, at_key=True)

    def whole_findings(self, location: Location) -> Iterator[Finding]:
        """Find missing and inconsistent keys."""
        yield from self.match.whole_findings((*location, "match"))
        if self.split is None:
            if self.backend is None:
                yield Finding(location, "the key 'backend' is missing; add it, or 'split' for several backends")
            if self.sticky is not None:
                yield Finding((*location, "sticky"), "sticky needs a split; remove the key", at_key=True)
        elif self.backend is not None:
            text = "a route has either 'backend' or 'split'; remove one of them"
            yield Finding((*location, "split"), text, at_key=True)
        for at, name in enumerate(self.fallback):
            if name in self.own_backends:
                text = f"{VALUE} is already one of the route's own backends; remove it"
                yield Finding((*location, "fallback", at), text)
        yield from _captures((*location, "rewrite", "model"), self.rewrite.model or "", self.match.model)
