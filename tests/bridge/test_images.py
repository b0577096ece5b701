"""Routes where images are files for clients and pixels for the backend."""

import re
import zlib
from contextlib import suppress
from io import BytesIO
from struct import pack
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gateway.bridge.images import ImageDecoder, ImageEncoder
from gateway.bridge.settings import ImageInput, ImageOutput, Images, Renames, Renaming, RouteSettings
from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Models, Rows, Traits, Wire
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, describe, infer, named, signature, spec
from tests.limits import examples
from tests.records import made
from tests.traced import traced

Array = np.ndarray[Any, Any]
UINT8, FP32, BYTES = Datatype.UINT8, Datatype.FP32, Datatype.BYTES
LIMIT = 2**26

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14  # H=2, W=3


def chunk(kind: bytes, body: bytes) -> bytes:
    return pack(">I", len(body)) + kind + body + pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes, *, depth: int = 8, color: int = 2) -> bytes:
    """A PNG by its specification: each row with its filter type in front."""
    header = pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def png_of(pixels: Array) -> bytes:
    height, width = pixels.shape[:2]
    color = {1: 0, 3: 2, 4: 6}[pixels.shape[2]]
    return png(width, height, b"".join(b"\0" + row.tobytes() for row in pixels), color=color)


def written(pixels: Array | Image.Image, form: str, **options: Any) -> bytes:
    file = BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(file, form, **options)
    return file.getvalue()


def files(*elements: bytes, shape: tuple[int, ...] | None = None, name: str = "x") -> Tensor:
    return Tensor(name, BYTES, shape or (len(elements),), bytes_elements.pack(elements), "image")


def decoder(*settings: Any, **named: Any) -> ImageDecoder:
    return ImageDecoder(ImageInput("x", *settings, **named))


def encoder(*settings: Any, **named: Any) -> ImageEncoder:
    return ImageEncoder(ImageOutput("y", *settings, **named))


def decoded(image: ImageDecoder, *elements: bytes, rank: int = 4, limit: int = LIMIT) -> Array:
    return image.decode(files(*elements), rank, "input 'x'", limit).array


def reason(image: ImageDecoder, *elements: bytes) -> str:
    with pytest.raises(DecodeError) as caught:
        decoded(image, *elements)
    return str(caught.value)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (ImageInput("x"), [[[[255, 0, 0], [0, 255, 0], [0, 0, 255]]]]),
        (ImageInput("x", channels="bgr"), [[[[0, 0, 255], [0, 255, 0], [255, 0, 0]]]]),
        (ImageInput("x", channels="rgba"), [[[[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]]]]),
        (ImageInput("x", channels="gray"), [[[[76], [150], [29]]]]),
        (ImageInput("x", layout="chw"), [[[[255, 0, 0]], [[0, 255, 0]], [[0, 0, 255]]]]),
        (ImageInput("x", "chw", "bgr"), [[[[0, 0, 255]], [[0, 255, 0]], [[255, 0, 0]]]]),
        (ImageInput("x", scale="unit"), [[[[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]]]),
    ],
)
def test_a_file_is_pixels_in_the_layout_and_channels_of_the_route(image: ImageInput, expected: list[Any]) -> None:
    given = png(3, 1, bytes([0, 255, 0, 0, 0, 255, 0, 0, 0, 255]))
    tensor = ImageDecoder(image).decode(files(given), 4, "x", LIMIT)
    assert tensor.datatype is (FP32 if image.scale == "unit" else UINT8)
    assert tensor.array.tolist() == expected
    assert tensor.content_type == ""


def test_the_unit_scale_is_the_exact_quotient_as_fp32() -> None:
    shades = np.arange(256, dtype=np.uint8).reshape(1, 256, 1)
    array = decoded(decoder(channels="gray", scale="unit"), png_of(shades))
    assert array.reshape(-1).tolist() == [float(np.float32(shade) / np.float32(255)) for shade in range(256)]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["png", "webp"]),
    st.sampled_from(["hwc", "chw"]),
    st.sampled_from(["rgb", "bgr", "rgba", "gray"]),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
    st.integers(0, 2**32),
)
def test_lossless_formats_bring_every_pixel_back(
    form: str, layout: str, channels: str, size: tuple[int, int, int], seed: int
) -> None:
    count = {"rgb": 3, "bgr": 3, "rgba": 4, "gray": 1}[channels]
    shape = (*size, count) if layout == "hwc" else (size[0], count, *size[1:])
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    encoded = encoder(form, False, layout, channels).encode(named("x", pixels, UINT8), "output 'x'")
    assert (encoded.datatype, encoded.shape, encoded.content_type) == (BYTES, size[:1], "image")
    again = decoder(layout, channels).decode(encoded, 4, "x", LIMIT)
    assert np.array_equal(again.array, pixels)


def test_the_channels_of_an_output_are_what_the_route_says() -> None:
    blue_first = named("y", [[[[255, 0, 0]]]], UINT8)
    (file,) = bytes_elements.unpack(encoder("png", channels="bgr").encode(blue_first, "y").data)
    assert Image.open(BytesIO(file)).getpixel((0, 0)) == (0, 0, 255)


@pytest.mark.parametrize("form", ["png", "webp"])
def test_the_colours_of_transparent_pixels_are_kept(form: str) -> None:
    clear = named("x", [[[[1, 2, 3, 0], [200, 100, 50, 0]]]], UINT8)
    again = decoder(channels="rgba").decode(encoder(form, channels="rgba").encode(clear, "y"), 4, "x", LIMIT)
    assert again.array.tolist() == clear.array.tolist()


@pytest.mark.parametrize("form", ["jpeg", "webp"])
def test_lossy_formats_are_near(form: str) -> None:
    smooth = np.linspace(40, 200, 32 * 32 * 3).astype(np.uint8).reshape(1, 32, 32, 3)
    again = decoder().decode(encoder(form, True).encode(named("x", smooth, UINT8), "y"), 4, "x", LIMIT)
    assert 0 < np.abs(again.array.astype(int) - smooth).max() <= 16


@pytest.mark.parametrize("form", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_the_formats_that_are_read(form: str) -> None:
    gray = np.full((8, 8, 3), 128, np.uint8)
    options = {"lossless": True} if form == "WEBP" else {}
    assert np.abs(decoded(decoder(), written(gray, form, **options)).astype(int) - 128).max() <= 2


def test_a_palette_is_its_colours() -> None:
    file = written(Image.fromarray(PIXELS).convert("P", palette=Image.Palette.ADAPTIVE), "PNG")
    assert np.abs(decoded(decoder(), file)[0].astype(int) - PIXELS).max() <= 4


def test_transparency_is_refused_where_there_is_no_place_for_it_and_opaque_alpha_is_not() -> None:
    opaque = np.full((1, 2, 4), 255, np.uint8)
    assert decoded(decoder(), png_of(opaque)).shape == (1, 1, 2, 3)
    opaque[0, 1, 3] = 254
    text = "input 'x': image 0 has transparent pixels, which gray cannot hold; `channels: rgba` can"
    assert reason(decoder(channels="gray"), png_of(opaque)) == text
    assert decoded(decoder(channels="rgba"), png_of(opaque))[0].tolist() == opaque.tolist()


GOOD = png_of(PIXELS)


def animated(form: str) -> bytes:
    return written(PIXELS, form, save_all=True, append_images=[Image.fromarray(255 - PIXELS)])


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (b"", "image 1 is no image in a supported format: BMP, GIF, JPEG, PNG, WEBP"),
        (b"hello", "image 1 is no image in a supported format"),
        (written(PIXELS, "TIFF"), "image 1 is no image in a supported format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "image 1 is no image in a supported format"),
        (GOOD[:-32], "image 1 cannot be decoded: "),
        (GOOD[:33], "image 1 is no image in a supported format"),
        (png(1, 1, b"\0" + b"\1\2" * 3, depth=16), "image 1 has more than 8 bits per channel"),
        (png(1, 1, b"\0\1\2", depth=16, color=0), "image 1 has more than 8 bits per channel"),
        (animated("GIF"), "image 1 is animated, expected a single picture"),
        (animated("PNG"), "image 1 is animated, expected a single picture"),
        (animated("WEBP"), "image 1 is animated, expected a single picture"),
        (png_of(PIXELS[:, :2]), "image 1 has 2 x 2 pixels and image 0 has 3 x 2; `resize` in the route's `images`"),
    ],
)
def test_what_is_no_image_is_refused_by_its_number(element: bytes, text: str) -> None:
    assert reason(decoder(), GOOD, element).startswith(f"input 'x': {text}")


BOMBS = {
    "png": png(30_000, 30_000, bytes(1000)),
    "gif": b"GIF89a" + pack("<HH", 60_000, 60_000) + b"\0\0\0,\0\0\0\0" + pack("<HH", 60_000, 60_000) + b"\0\2",
    "bmp": b"BM" + pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 30_000, 30_000, 1, 24, 0, 0, 0, 0, 0, 0),
    # lossless: after 0x2f 14 bits of width - 1 and 14 of height - 1
    "webp": b"RIFF\x22\0\0\0WEBPVP8L\x15\0\0\0/"
    + pack("<I", 16382 | 16382 << 14)
    + bytes.fromhex("071011fd0f039010feff5722fa9ffa0000"),
}


@pytest.mark.parametrize("form", BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(form: str) -> None:
    with traced() as memory:
        text = reason(decoder(), BOMBS[form])
    assert "the images of one input have at most 16777216 (max_pixels)" in text
    assert memory.peak < 2**20


def test_the_pixels_of_all_images_count() -> None:
    assert decoded(decoder(max_pixels=12), GOOD, GOOD).shape == (2, 2, 3, 3)
    text = "input 'x': image 1 has 3 x 2 pixels; the images of one input have at most 11 (max_pixels)"
    assert reason(decoder(max_pixels=11), GOOD, GOOD) == text


def test_what_a_backend_would_not_take_is_refused_before_it_takes_memory() -> None:
    with pytest.raises(GatewayError, match=r"takes 72 bytes as \[1, 2, 3, 3\]; limits.message") as caught:
        decoded(decoder(scale="unit"), GOOD, limit=71)
    assert caught.value.reason is Reason.TOO_LARGE


def test_resizing_makes_images_alike() -> None:
    flat = [np.full((size, size + 1, 3), 77, np.uint8) for size in (2, 9)]
    array = decoded(decoder("chw", resize=(4, 5)), *map(png_of, flat))
    assert array.shape == (2, 3, 4, 5)
    assert (array == 77).all()


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from([GOOD, written(PIXELS, "JPEG"), written(PIXELS, "WEBP"), written(PIXELS, "GIF"), BOMBS["bmp"]]),
    st.integers(0, 400),
    st.integers(0, 255),
)
def test_broken_files_are_an_image_or_a_decode_error(file: bytes, at: int, byte: int) -> None:
    broken = bytearray(file)
    broken[at % len(file)] = byte
    for element in (bytes(broken), file[: at % len(file)]):
        with suppress(DecodeError):
            assert decoded(decoder(channels="rgba", max_pixels=10_000), element).ndim == 4


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (named("x", [[1]], UINT8), "input 'x' is UINT8, expected BYTES whose elements are image files"),
        (files(GOOD, GOOD, shape=(1, 2)), "input 'x' has shape [1, 2], expected [-1], an image for each element"),
        (files(shape=(0,)), "input 'x' holds no image"),
    ],
)
def test_tensors_that_are_no_images(tensor: Tensor, text: str) -> None:
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        decoder().decode(tensor, 4, "input 'x'", LIMIT)


@pytest.mark.parametrize(
    ("pixels", "text"),
    [
        (named("y", np.zeros((1, 2, 2, 3)), FP32), "y is FP32 [1, 2, 2, 3], expected images: UINT8 [..., H, W, 3]"),
        (named("y", np.zeros((1, 3, 2, 2)), UINT8), "y is UINT8 [1, 3, 2, 2], expected images: UINT8 [..., H, W, 3]"),
        (named("y", np.zeros((2, 3)), UINT8), "y is UINT8 [2, 3], expected images"),
        (named("y", np.zeros((1, 0, 2, 3)), UINT8), "y: 2 x 0 pixels cannot be written as png"),
    ],
)
def test_outputs_that_are_no_images(pixels: Tensor, text: str) -> None:
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}"):
        encoder("png").encode(pixels, "y")


# through the bridge

MODEL = signature(
    spec("pixels", -1, 2, 3, 3, datatype=UINT8), spec("n", -1, 1, datatype=FP32),
    gives=(spec("result", -1, 2, 3, 3, datatype=UINT8), spec("score", -1, 1, datatype=FP32)),
)  # fmt: skip
ROUTE = RouteSettings(
    rename=Renames((Renaming("x", "pixels"),), (Renaming("y", "result"),)),
    images=Images((ImageInput("pixels"),), (ImageOutput("result", "png"),)),
)


def negative(asked: Request) -> Response:
    """The negative of the first input, and what there is besides as the score."""
    pixels, *others = asked.inputs
    result = named("result", 255 - pixels.array, UINT8)
    return Response((result, *(replace(each, name="score") for each in others)))


async def test_clients_send_and_get_files_and_the_backend_pixels() -> None:
    backend = Backend({"m": MODEL}, negative)
    sent = infer(files(GOOD, GOOD), named("n", [[1], [2]], FP32))
    response = await call(bridge(TENSORS, TENSORS, backend, ROUTE), sent)
    (asked,) = backend.calls
    found = [(each.name, each.datatype, each.shape) for each in asked.inputs]
    assert found == [("pixels", UINT8, (2, 2, 3, 3)), ("n", FP32, (2, 1))]
    y, score = response.outputs
    assert (y.name, y.datatype, y.shape, y.content_type) == ("y", BYTES, (2,), "image")
    assert np.array_equal(decoded(decoder(), *bytes_elements.unpack(y.data))[1], 255 - PIXELS)
    assert score.array.tolist() == [[1], [2]]


async def test_a_trace_has_the_time_that_files_take() -> None:
    backend, record = Backend({"m": MODEL}, negative), made()
    record.events = []
    await call(bridge(TENSORS, TENSORS, backend, ROUTE), infer(files(GOOD), named("n", [[1]], FP32), record=record))
    assert [each.name for each in record.events] == ["fit", "fit reply"]
    assert backend.calls[0].inputs[0].array[0].tolist() == PIXELS.tolist()


async def test_members_of_a_json_object_are_files_too() -> None:
    one = signature(spec("x", -1, 2, 3, 3, datatype=UINT8), gives=(spec("n", -1, 1, datatype=FP32),))
    backend = Backend({"m": one}, lambda asked: Response((named("n", [[1]], FP32),)))
    route = bridge(TENSORS, TENSORS, backend, RouteSettings(images=Images((ImageInput("x"),))))
    member = replace(files(GOOD), shape=(1, 1), untyped=True)
    await call(route, infer(member, schemaless=True))
    assert backend.calls[0].inputs[0].array[0].tolist() == PIXELS.tolist()


async def test_metadata_tells_clients_of_files() -> None:
    told = await describe(bridge(TENSORS, TENSORS, Backend({"m": MODEL}), ROUTE))
    assert told.inputs == (TensorSpec("x", BYTES, (-1,), "image"), spec("n", -1, 1, datatype=FP32))
    assert told.outputs == (TensorSpec("y", BYTES, (-1,), "image"), spec("score", -1, 1, datatype=FP32))


async def test_clients_without_bytes_see_the_pixels() -> None:
    told = await describe(bridge(POINTS, TENSORS, Backend({"m": MODEL}), ROUTE))
    assert [each.shape for each in told.inputs] == [(18,), (1,)]


async def test_images_without_names_travel_by_position() -> None:
    wire = Wire(untyped=True, unnamed=True, selects=False, rows=Rows.FIRST)
    examples = replace(TENSORS, traits=Traits(wire=wire, models=Models(named=False)))
    one = signature(spec("pixels", -1, 2, 3, 3, datatype=FP32), gives=(spec("result", -1, 2, 3, 3, datatype=UINT8),))
    backend = Backend({"m": one}, negative)
    response = await call(bridge(examples, TENSORS, backend, ROUTE), infer(files(GOOD, name="")))
    assert backend.calls[0].inputs[0].array[0].tolist() == PIXELS.tolist()
    assert response.outputs[0].shape == (1,)


async def test_a_model_without_a_batch_gets_one_image() -> None:
    one = signature(spec("pixels", 2, 3, 3, datatype=UINT8), gives=(spec("result", 2, 3, 3, datatype=UINT8),))
    backend = Backend({"m": one}, negative)
    response = await call(bridge(TENSORS, TENSORS, backend, ROUTE), infer(files(GOOD)))
    assert backend.calls[0].inputs[0].shape == (2, 3, 3)
    assert response.outputs[0].shape == (1,)


async def test_where_nobody_knows_the_signature_names_tell_which_are_images() -> None:
    backend = Backend({"m": Signature()}, negative)
    response = await call(bridge(TENSORS, TENSORS, backend, ROUTE), infer(files(GOOD)))
    assert backend.calls[0].inputs[0].shape == (1, 2, 3, 3)
    assert response.outputs[0].datatype is BYTES


async def test_images_of_another_size_than_the_models_are_the_clients_fault_and_bad_pixels_the_backends() -> None:
    backend = Backend({"m": MODEL}, lambda asked: Response((named("result", np.zeros((1, 2, 3, 3)), FP32),)))
    small = png_of(PIXELS[:1])
    with pytest.raises(DecodeError, match=r"input 'x' has shape \[1, 1, 3, 3\], expected \[-1, 2, 3, 3\]"):
        await call(bridge(TENSORS, TENSORS, backend, ROUTE), infer(files(small), named("n", [[1]], FP32)))
    loose = replace(ROUTE, signature=Signature(MODEL.inputs[:1], (spec("result", -1, -1, -1, 3, datatype=FP32),)))
    with pytest.raises(GatewayError, match="backend 'lab': output 'result' is FP32") as caught:
        await call(bridge(TENSORS, TENSORS, backend, loose), infer(files(GOOD)))
    assert caught.value.reason is Reason.INVALID_OUTPUT


async def test_every_response_of_a_stream_is_files() -> None:
    backend = Backend({"m": signature(MODEL.inputs[0], gives=MODEL.outputs[:1])}, negative)
    through = bridge(TENSORS, TENSORS, backend, ROUTE)
    (response,) = [each async for each in through.stream(infer(files(GOOD), operation=Operation.STREAM))]
    assert decoded(decoder(), *bytes_elements.unpack(response.outputs[0].data))[0].tolist() == (255 - PIXELS).tolist()


async def test_images_are_all_that_a_route_may_say() -> None:
    one = signature(spec("x", -1, 2, 3, 3, datatype=UINT8), gives=(spec("n", -1, 1, datatype=FP32),))
    backend = Backend({"m": one}, lambda asked: Response((named("n", [[1]], FP32),)))
    await call(bridge(TENSORS, TENSORS, backend, RouteSettings(images=Images((ImageInput("x"),)))), infer(files(GOOD)))
    assert backend.calls[0].inputs[0].array[0].tolist() == PIXELS.tolist()


async def test_a_derivative_is_no_image_although_the_models_output_is_one() -> None:
    gradient = signature(spec("v", -1, 2), gives=(spec("result", -1, 2),))
    backend = Backend({"m": MODEL, "m.gradient": gradient}, lambda asked: Response((named("result", [[1, 2]]),)))
    through = bridge(TENSORS, TENSORS, backend, ROUTE)
    response = await call(through, infer(named("v", [[1, 2]]), operation=Operation.GRADIENT))
    assert response.outputs[0].array.tolist() == [[1, 2]]
