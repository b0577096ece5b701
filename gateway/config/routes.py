"""`routes:`: which requests go to which backend, and how they are changed on the way."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from gateway.bridge.settings import ImageInput, ImageOutput, Renaming, TranslateSettings
from gateway.config.declared import Declared
from gateway.config.fields import VALUE, Flag, HeaderName, Keys, Name, Names, Size, Written, refusal
from gateway.config.policies import Policies
from gateway.config.tensors import Constant, RouteSignature
from gateway.core.operations import SERVER_OPERATIONS, Operation
from gateway.core.types import Nan, Tensor

Image = TypeVar("Image", ImageInput, ImageOutput)
_OF_A_MODEL = tuple(operation.value for operation in Operation if operation not in SERVER_OPERATIONS)
ModelOperation = Annotated[Operation, Written(Literal[_OF_A_MODEL], Operation)]


def _path(path: str) -> str:
    if not path.startswith("/") or "*" in path[:-1]:
        raise refusal("expected a path such as /v2/models/m/infer or, with one * at its end, /v2/*, got {value}")
    return path


class MatchConfig(Keys):
    """Conditions that a request must all meet; {} is met by every request."""

    listener: Name | None = None
    """The listener that received the request."""
    protocol: Name | None = None
    """The client's protocol."""
    path: Annotated[Name, AfterValidator(_path)] | None = None
    """The request's path; with `*` at the end every path that begins so."""
    model: Name | None = None
    """The model's name, or a glob with `*`, `?` and `[...]`. Requests that do not name a model match only routes
    without this key."""
    version: Name | None = None
    """The model's version as text: `"1"`."""
    operation: ModelOperation | None = None
    """The operation on the model."""
    header: Mapping[HeaderName, str] = {}
    """`{NAME: VALUE}`: headers that the request must have, with exactly these values."""


class RewriteConfig(Keys):
    """The names of the model and the version in the backend."""

    model: Name | None = None
    """The backend's name of the model. Without it the client's is kept."""
    version: str | None = None
    """The backend's version; `""` drops the client's. Without it the client's is kept."""


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
        raise refusal(f"{VALUE} is lossy; `lossy: true` beside it allows that, png and webp lose nothing", "format")
    if image.format == "png" and image.lossy:
        raise refusal("png loses nothing; expected false, or jpeg or webp as format", "lossy")
    if image.format == "jpeg" and image.channels == "rgba":
        raise refusal(f"jpeg cannot hold {VALUE}; png and webp can", "channels")
    return image


def _height_and_width(sides: tuple[int, ...]) -> tuple[int, int]:
    height, width = sides
    return height, width


def _null_is_a_word(given: Any) -> Any:
    # `nan: null` is YAML's null, and here the word.
    return "null" if given is None else given


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
    Nan | None: Annotated[Nan | None, BeforeValidator(_null_is_a_word)],
}
"""How values of a type are written in YAML, for the fields of TranslateSettings."""

_CHECKS: Mapping[Any, Callable[[Any], Any]] = {
    tuple[Renaming, ...]: _distinct_renamings,
    tuple[ImageInput, ...]: _distinct_images,
    tuple[ImageOutput, ...]: _distinct_images,
    ImageOutput: _without_hidden_loss,
}


class RouteConfig(Keys):
    """One route from clients to a backend."""

    match: MatchConfig
    """Which requests take this route."""
    backend: Name
    """The name of the backend that answers."""
    rewrite: RewriteConfig = Field(default_factory=RewriteConfig)
    """The backend's names in place of the client's."""
    passthrough: Flag = False
    """Pass messages unchanged in both directions between clients and a backend of the same protocol, at the path in
    `match`: for HTTP interfaces that an operator defines (grps: `customized_predict_http`). Only sizes are checked."""
    signature: RouteSignature | None = None
    """The model's tensors, in place of the backend's metadata."""
    translate: Annotated[TranslateSettings, Declared(TranslateSettings, _FORMS, _CHECKS)] = Field(
        default_factory=TranslateSettings
    )
    """How tensors are converted."""
    policies: Policies = ()
    """Policies around the route's calls, outermost first, outside of the backend's policies."""
