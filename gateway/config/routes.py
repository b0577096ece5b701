"""`routes:`: which request goes to which backend, and what becomes of it on the way."""

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
    """What a request must be for the route to take it: all of the keys given; {} is every request."""

    listener: Name | None = None
    """The listener where it arrived."""
    protocol: Name | None = None
    """The protocol it came in."""
    path: Annotated[Name, AfterValidator(_path)] | None = None
    """Its path: exact, or everything that begins so with one `*` at the end."""
    model: Name | None = None
    """The model it names: exact, or a glob with `*`, `?` and `[...]`. Requests without a name match only routes
    without this key."""
    version: Name | None = None
    """The version it names; quote it."""
    operation: ModelOperation | None = None
    """What it asks of the model."""
    header: Mapping[HeaderName, str] = {}
    """`{NAME: VALUE}`: headers that it must carry with exactly these values."""


class RewriteConfig(Keys):
    """What the backend calls it."""

    model: Name | None = None
    """The backend's name of the model; absent keeps the client's."""
    version: str | None = None
    """The backend's version; `""` drops the client's, absent keeps it."""


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
    """One way through the gateway."""

    match: MatchConfig
    """What it takes."""
    backend: Name
    """The backend that answers."""
    rewrite: RewriteConfig = Field(default_factory=RewriteConfig)
    """Names that the backend knows in place of the client's."""
    passthrough: Flag = False
    """Messages pass untouched, in both directions, between clients and a backend of one protocol, at the path that
    `match` has: HTTP that a server's operator has made up (grps: `customized_predict_http`). Only their size is looked
    at."""
    signature: RouteSignature | None = None
    """The model's tensors: supplies or overrides what the backend's metadata says."""
    translate: Annotated[TranslateSettings, Declared(TranslateSettings, _FORMS, _CHECKS)] = Field(
        default_factory=TranslateSettings
    )
    """How tensors are made to fit."""
    policies: Policies = ()
    """What wraps the route's calls, outermost first, around the backend's own."""
