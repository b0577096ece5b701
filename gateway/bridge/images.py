"""Decodes image files to tensors of pixels, and encodes pixels as image files. This module does no I/O. Only this
module requires Pillow; the gateway imports the module if a route has `images`. Because the files come from clients, the
module checks the sizes in the file headers before it allocates memory for pixels.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL import WebPImagePlugin as WebPImagePlugin  # registers this format; the others are already registered

from gateway.bridge.settings import ImageInput, ImageOutput
from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.tensors import Shape, Tensor, tensor

Array = np.ndarray[Any, Any]

READ = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
"""The formats to decode. Pillow's readers for other formats are less hardened against hostile files, or start other
programs."""

_MODES = {"rgb": "RGB", "bgr": "RGB", "rgba": "RGBA", "gray": "L"}
_CHANNELS = {"rgb": 3, "bgr": 3, "rgba": 4, "gray": 1}
_DEEP = ("I", "F")
"""Prefixes of Pillow's modes with more than 8 bits per channel: I, I;16, I;16B, F, ..."""

# The route's `max_pixels` limits every image. Pillow's own limit would only write a warning to the log.
Image.MAX_IMAGE_PIXELS = None


class ImageDecoder:
    """Decodes the image files of one input from BYTES elements to UINT8 pixels, or to FP32 from 0 to 1 (`scale:
    unit`)."""

    def __init__(self, image: ImageInput) -> None:
        self._image = image

    def decode(self, files: Tensor, rank: int, what: str, limit: int) -> Tensor:
        """Decode BYTES `[B]` to pixels `[B, H, W, C]` or `[B, C, H, W]`.

        If `rank` is 3 and B is 1, omit the dimension B from the result.

        Raises:
            DecodeError: an element is not an image, has too many pixels, differs in size from the first image, or has
                transparency or a color depth that `channels` does not allow. The message contains the input's name and
                the image's position.
            GatewayError: RESOURCE_EXHAUSTED if the tensor would take more than `limit` bytes.
        """
        elements, left = _elements(files, what), self._image.max_pixels
        sizes: list[tuple[int, int]] = []
        pixels: Array | None = None
        for at, element in enumerate(elements):
            where = f"{what}: image {at}"
            image = _opened(element, where)
            left -= self._cost(image, left, where)
            sizes.append(self._image.resize or (image.height, image.width))
            _check_size(sizes, where)
            if pixels is None:
                pixels = self._allocated(len(elements), *sizes[0], what, limit)
            self._write(self._converted(image, where), pixels[at])
        assert pixels is not None
        laid = pixels.transpose(0, 3, 1, 2) if self._image.layout == "chw" else pixels
        made = tensor(files.name, laid[0] if rank == 3 and len(laid) == 1 else laid)
        return replace(files, datatype=made.datatype, shape=made.shape, data=made.data, content_type="")

    def _cost(self, image: Image.Image, left: int, where: str) -> int:
        count = image.width * image.height
        if count > left:
            text = f"{where} has {image.width} x {image.height} pixels"
            raise DecodeError(f"{text}; the images of one input have at most {self._image.max_pixels} (max_pixels)")
        return count

    def _allocated(self, count: int, height: int, width: int, what: str, limit: int) -> Array:
        dtype = np.dtype(np.float32 if self._image.scale == "unit" else np.uint8)
        shape = (count, height, width, _CHANNELS[self._image.channels])
        size = count * height * width * shape[3] * dtype.itemsize
        if size > limit:
            text = f"{what} takes {size} bytes as {list(shape)}; limits.message of the backend is {limit}"
            raise refusal(Reason.TOO_LARGE, text)
        return np.empty(shape, dtype)

    def _converted(self, image: Image.Image, where: str) -> Image.Image:
        """Return the decoded image with the configured channels and size."""
        try:
            converted = _with_channels(image, self._image.channels)
            return converted if self._image.resize is None else _resized(converted, *self._image.resize)
        except DecodeError as error:
            raise DecodeError(f"{where} {error}") from error
        except Exception as error:  # Pillow's readers raise many kinds of exceptions
            raise DecodeError(f"{where} cannot be decoded: {error}") from error

    def _write(self, image: Image.Image, place: Array) -> None:
        values = _flipped(np.asarray(image).reshape(place.shape), self._image.channels)
        if self._image.scale == "unit":
            np.divide(values, np.float32(255), out=place)
        else:
            place[...] = values


class ImageEncoder:
    """Encodes the UINT8 pixels of one output as image files."""

    def __init__(self, image: ImageOutput) -> None:
        self._image = image

    def encode(self, pixels: Tensor, what: str) -> Tensor:
        """Encode pixels of the shape `[B, H, W, C]` or `[B, C, H, W]` as BYTES `[B]`, or one image without B as BYTES
        `[1]`.

        Raises:
            DecodeError: the datatype, rank or number of channels is wrong, or the format does not support the size.
        """
        files = [self._file(image, what) for image in self._images(pixels, what)]
        data = bytes_elements.pack(files)
        return replace(
            pixels, datatype=Datatype.BYTES, shape=(len(files),), data=data, content_type="image", untyped=False
        )

    def _images(self, pixels: Tensor, what: str) -> Array:
        shape, channels = pixels.shape, _CHANNELS[self._image.channels]
        at = -1 if self._image.layout == "hwc" else -3
        if pixels.datatype is not Datatype.UINT8 or len(shape) not in (3, 4) or shape[at] != channels:
            wanted = f"[..., H, W, {channels}]" if self._image.layout == "hwc" else f"[..., {channels}, H, W]"
            raise DecodeError(f"{what} is {pixels.datatype} {list(shape)}, expected images: UINT8 {wanted}")
        images = pixels.array if len(shape) == 4 else pixels.array[None]
        return images.transpose(0, 2, 3, 1) if self._image.layout == "chw" else images

    def _file(self, pixels: Array, what: str) -> bytes:
        flipped = np.ascontiguousarray(_flipped(pixels, self._image.channels))
        file = BytesIO()
        try:
            Image.fromarray(flipped[..., 0] if self._image.channels == "gray" else flipped).save(
                file, **self._options()
            )
        except Exception as error:  # the size is 0, or exceeds what the format allows
            size = f"{pixels.shape[1]} x {pixels.shape[0]}"
            raise DecodeError(f"{what}: {size} pixels cannot be written as {self._image.format}: {error}") from error
        return file.getvalue()

    def _options(self) -> dict[str, Any]:
        if self._image.format == "webp" and not self._image.lossy:
            # `exact` keeps the colors of transparent pixels.
            return {"format": "webp", "lossless": True, "exact": True}
        return {"format": self._image.format}


def _elements(files: Tensor, what: str) -> list[bytes]:
    if files.datatype is not Datatype.BYTES:
        raise DecodeError(f"{what} is {files.datatype}, expected BYTES whose elements are image files")
    if not _is_list(files.shape):
        raise DecodeError(f"{what} has shape {list(files.shape)}, expected [-1], an image for each element")
    elements = bytes_elements.unpack(files.data)
    if not elements:
        raise DecodeError(f"{what} holds no image")
    return elements


def _is_list(shape: Shape) -> bool:
    """Return True if each row has one element: `[B]`, `[B, 1]` (servers with a batch dimension), or a scalar."""
    return len(shape) < 2 or shape[1:] == (1,)


def _opened(element: bytes, where: str) -> Image.Image:
    """Open an image, and read only its header."""
    try:
        image = Image.open(BytesIO(element), formats=READ)
        # Phones can append more pictures to a JPEG (MPO); that is not an animation.
        animated = image.format != "MPO" and getattr(image, "is_animated", False)
    except UnidentifiedImageError as error:
        raise DecodeError(f"{where} is no image in a supported format: {', '.join(READ)}") from error
    except Exception as error:  # Pillow's readers raise many kinds of exceptions
        raise DecodeError(f"{where} cannot be decoded: {error}") from error
    if animated:
        raise DecodeError(f"{where} is animated, expected a single picture")
    # Pillow would silently reduce 16-bit PNG to 8 bits. Byte 24 is the bit depth in IHDR.
    if image.mode.startswith(_DEEP) or (image.format == "PNG" and element[24] == 16):
        raise DecodeError(f"{where} has more than 8 bits per channel")
    return image


def _check_size(sizes: Sequence[tuple[int, int]], where: str) -> None:
    if sizes[-1] != sizes[0]:
        (height, width), (first_height, first_width) = sizes[-1], sizes[0]
        text = f"{where} has {width} x {height} pixels and image 0 has {first_width} x {first_height}"
        raise DecodeError(f"{text}; `resize` in the route's `images` gives them one size")


def _with_channels(image: Image.Image, channels: str) -> Image.Image:
    image.load()
    if not image.has_transparency_data:
        return image.convert(_MODES[channels])
    image = image.convert("RGBA")
    if channels != "rgba" and image.getchannel("A").getextrema() != (255, 255):
        raise DecodeError(f"has transparent pixels, which {channels} cannot hold; `channels: rgba` can")
    return image.convert(_MODES[channels])


def _resized(image: Image.Image, height: int, width: int) -> Image.Image:
    return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)


def _flipped(pixels: Array, channels: str) -> Array:
    """Swap RGB and BGR."""
    return pixels[..., ::-1] if channels == "bgr" else pixels
