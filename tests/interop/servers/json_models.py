"""Models of the gateway's reference server, for clients whose API fixes what a model takes and gives."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.reference import signature

Array = NDArray[Any]


@signature(inputs=[("text", "BYTES", [-1])], outputs=[("embedding", "FP32", [-1, 2])])
def embed(text: Array) -> Array:
    """How long each text is, and its half."""
    lengths = np.array([len(each) for each in text], np.float32)
    return np.stack([lengths, lengths / 2], axis=1)


@signature(inputs=[("tokens", "INT64", [-1, -1])], outputs=[("embedding", "FP32", [-1, 2])])
def embed_tokens(tokens: Array) -> Array:
    """The sum of each sequence, and its length."""
    return np.stack([tokens.sum(axis=1), np.full(len(tokens), tokens.shape[1])], axis=1).astype(np.float32)


@signature(inputs=[("text", "BYTES", [-1])], outputs=[("label", "BYTES", [-1, 2]), ("score", "FP64", [-1, 2])])
def sentiment(text: Array) -> tuple[Array, Array]:
    """The labels of each text, the likely one first."""
    good = [b"good" in each for each in text]
    labels = [[b"POSITIVE", b"NEGATIVE"] if each else [b"NEGATIVE", b"POSITIVE"] for each in good]
    return np.array(labels, object), np.full((len(good), 2), [0.75, 0.25])


@signature(
    inputs=[("text", "BYTES", [1]), ("labels", "BYTES", [-1])],
    outputs=[("label", "BYTES", [-1]), ("score", "FP64", [-1])],
)
def zero_shot(text: Array, labels: Array) -> tuple[Array, Array]:
    """The labels as they came; each scores one by how long it is."""
    return labels, np.array([1 / len(each) for each in labels])


@signature(inputs=[("sentence", "BYTES", [1]), ("others", "BYTES", [-1])], outputs=[("similarity", "FP64", [-1])])
def similarity(sentence: Array, others: Array) -> Array:
    """1 where the texts are the same, else 0."""
    return np.array([float(each == sentence[0]) for each in others])


@signature(inputs=[("image", "BYTES", [1])], outputs=[("label", "BYTES", [-1]), ("score", "FP64", [-1])])
def picture(image: Array) -> tuple[Array, Array]:
    """Whether the mean of the bytes is above 127."""
    [pixels] = image
    return np.array([b"bright" if sum(pixels) / len(pixels) > 127 else b"dark"], object), np.array([1.0])


@signature(inputs=[("a", "FP64", [-1]), ("b", "FP64", [-1])], outputs=[("y", "FP64", [-1])])
def plane(a: Array, b: Array) -> Array:
    """2 a + 3 b + 1, of two columns."""
    return np.asarray(2 * a + 3 * b + 1)


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1])])
def plane_of_rows(x: Array) -> Array:
    """The same, of rows."""
    return np.asarray(2 * x[:, 0] + 3 * x[:, 1] + 1)


@signature(inputs=[("prompt", "BYTES", [1])], outputs=[("token", "BYTES", [1])])
def words(prompt: Array) -> Iterator[Array]:
    """The words of a text, one after the other."""
    for word in prompt[0].split():
        yield np.array([word], object)


@signature(
    inputs=[("image", "BYTES", [1]), ("crop", "INT64", [-1]), ("caption", "BYTES", [1])],
    outputs=[("size", "INT64", [1]), ("said", "BYTES", [1])],
)
def upload(image: Array, crop: Array, caption: Array) -> tuple[Array, Array]:
    """The number of bytes of the image within the crop, and the caption."""
    start, stop = crop
    return np.array([len(image[0][start:stop])]), caption
