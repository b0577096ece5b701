"""The key `routes`: rules that assign requests to backends, and change requests and responses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, Strict, model_validator

from gateway.bridge.settings import (
    DIFFERENCE_ORDERS,
    Derivatives,
    ImageInput,
    ImageOutput,
    Renaming,
    TranslateSettings,
)
from gateway.config.declared import Declared
from gateway.config.fields import VALUE, Flag, Keys, Name, Names, NanKey, Size, Written, refusal
from gateway.config.matching import MatchConfig, TextHeaderName
from gateway.config.policies import Policies
from gateway.config.problems import listed
from gateway.config.route_names import RouteName, name_of_match
from gateway.config.tensors import Constant, RouteSignature
from gateway.core.operations import Operation
from gateway.core.requests import Nan
from gateway.core.tensors import Tensor

Image = TypeVar("Image", ImageInput, ImageOutput)
Check: TypeAlias = Literal["full", "none"]


class RewriteConfig(Keys):
    """Names of the model and the version at the backend."""

    model: Name | None = None
    """Name of the model at the backend. The placeholders `{1}`, `{2}`, ... contain what the first, second, ... wildcard
    in `match: {model: GLOB}` matched, and `{0}` contains the whole name. Default: the client's name."""
    version: str | None = None
    """Version at the backend. Requests for another version fail with NOT_FOUND, unless `match` contains this other
    version. `""` removes the client's version. Default: the client's version."""


def _distinct_renamings(renamings: tuple[Renaming, ...]) -> tuple[Renaming, ...]:
    for side in ("client", "backend"):
        _distinct(renamings, side, "{value} is renamed twice")
    return renamings


def _distinct_images(images: tuple[Image, ...]) -> tuple[Image, ...]:
    _distinct(images, "name", "{value} is listed twice")
    return images


def _distinct(items: Sequence[object], key: str, message: str) -> None:
    values = [getattr(item, key) for item in items]
    for at, value in enumerate(values):
        if value in values[:at]:
            raise refusal(message, at, key)


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
    tuple[Renaming, ...]: _distinct_renamings,
    tuple[ImageInput, ...]: _distinct_images,
    tuple[ImageOutput, ...]: _distinct_images,
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
    """Number of calls relative to the other weights. A backend with weight 0 gets no calls."""


class StickyConfig(Keys):
    """Session affinity: a client's calls go to the same backend of the split."""

    header: TextHeaderName
    """Header or gRPC metadata key. Calls with the same value go to the same backend while the weights stay the same.
    Calls without the header are distributed at random."""


def _distinct_backends(split: tuple[SplitConfig, ...]) -> tuple[SplitConfig, ...]:
    _distinct(split, "backend", "{value} is listed twice")
    if not any(each.weight for each in split):
        raise refusal("all weights are 0; at least one weight must be greater than 0")
    return split


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
    split: Annotated[tuple[SplitConfig, ...], Field(min_length=1), AfterValidator(_distinct_backends)] | None = None
    """Backends that share the calls in proportion to their weights, instead of `backend`. Metadata comes from the first
    backend with a weight above 0."""
    sticky: StickyConfig | None = None
    """Send a client's calls to the same backend of `split`."""
    fallback: Names = ()
    """Backends to try, in order, if the route's own backend is unreachable, overloaded or not ready, or does not have
    the model. If the server might have run a call, the gateway repeats it only with `safe: true` on the backend."""
    rewrite: RewriteConfig = Field(default_factory=RewriteConfig)
    """Names at the backend that replace the client's names."""
    passthrough: Flag = False
    """Forward messages at the path in `match` unchanged, in both directions, between clients and a backend with the
    same protocol. Use this key for HTTP interfaces that an operator defines (grps: `customized_predict_http`). The
    gateway checks only message sizes."""
    signature: RouteSignature | None = None
    """The model's tensors, which replace the backend's metadata."""
    translate: Annotated[TranslateSettings, Declared(TranslateSettings, _FORMS, _CHECKS)] = Field(
        default_factory=TranslateSettings
    )
    """Conversion of tensors."""
    check: Check | None = None
    """`full`: decode and check every request before it reaches a server, even if client and server use the same
    protocol. `none`: forward such requests without decoding them. Default: the top-level `check`."""
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
