"""`images:` of a route: which inputs and outputs are image files for clients and pixels for the backend."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, Strict

from gateway.config.fields import VALUE, Flag, Keys, Name, Size, Written, refusal

# of every format that is read and written: WebP's
_Side = Annotated[int, Strict(), Field(ge=1, le=16383)]


def _pair(sides: tuple[int, ...]) -> tuple[int, int]:
    height, width = sides
    return height, width


_Sides = Annotated[tuple[_Side, ...], Field(min_length=2, max_length=2)]
HeightAndWidth = Annotated[tuple[int, int], Written(_Sides, _pair)]
Layout = Literal["hwc", "chw"]
Channels = Literal["rgb", "bgr", "rgba", "gray"]


class ImageInputConfig(Keys):
    """An input whose elements are image files: PNG, JPEG, WebP, GIF or BMP."""

    name: Name
    """The backend's name of it."""
    layout: Layout = "hwc"
    """The order of dimensions after the batch: height, width, channels, or channels, height, width."""
    channels: Channels = "rgb"
    """What each pixel becomes; gray is one channel, the luma of ITU-R 601. Transparent pixels need rgba."""
    resize: HeightAndWidth | None = None
    """`[HEIGHT, WIDTH]` that every image is resized to, which loses detail (bilinear); without it all images of a
    request must have one size."""
    scale: Literal["none", "unit"] = "none"
    """UINT8 from 0 to 255, or FP32 from 0 to 1."""
    max_pixels: Size = 2**24
    """The pixels that the images of one request may have together, by their headers."""


def _named_losses(keys: "ImageOutputConfig") -> "ImageOutputConfig":
    if keys.format == "jpeg" and not keys.lossy:
        raise refusal(f"{VALUE} is lossy; `lossy: true` beside it allows that, png and webp lose nothing", "format")
    if keys.format == "png" and keys.lossy:
        raise refusal("png loses nothing; expected false, or jpeg or webp as format", "lossy")
    if keys.format == "jpeg" and keys.channels == "rgba":
        raise refusal(f"jpeg has no place for {VALUE}; png and webp have", "channels")
    return keys


class ImageOutputConfig(Keys):
    """An output of UINT8 pixels that clients get as image files."""

    name: Name
    """The backend's name of it."""
    format: Literal["png", "webp", "jpeg"]
    """The format of the files; jpeg needs `lossy`."""
    lossy: Flag = False
    """Allow that pixels change: needed for jpeg; webp is written without loss unless this is set."""
    layout: Layout = "hwc"
    """The order of dimensions after the batch, as of inputs."""
    channels: Channels = "rgb"
    """What the channels are."""


Image = TypeVar("Image", ImageInputConfig, ImageOutputConfig)


def _distinct_names(images: tuple[Image, ...]) -> tuple[Image, ...]:
    names = [image.name for image in images]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise refusal("{value} is listed twice", at, "name")
    return images


class ImagesConfig(Keys):
    """Tensors that are image files for clients and pixels for the backend. Needs Pillow:
    `pip install "inference-gateway[images]"`."""

    inputs: Annotated[tuple[ImageInputConfig, ...], AfterValidator(_distinct_names)] = ()
    """Inputs that are decoded."""
    outputs: Annotated[
        tuple[Annotated[ImageOutputConfig, AfterValidator(_named_losses)], ...], AfterValidator(_distinct_names)
    ] = ()
    """Outputs that are encoded."""
