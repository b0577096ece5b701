"""The real kubemo server with one model, run in the peer's own environment: `kubemo_model.py URL`.

The model takes any input, each by itself:

    JSON    numbers in lists are doubled; strings come back; an object does what it says:
            {"raise": "MemoryError"}, {"outputs": 2} (two outputs for the one input), {"labels": {..}} (that object),
            {"sleep": 0.05, "value": 1} (the value, later), {"text": 1} (a Text)
    TEXT    in upper case
    IMAGE   its size as JSON: [width, height]; the file itself if it is a GIF
    NPY     doubled, with its dtype; a type of our own, made known by `register`
"""

import builtins
import io
import sys
import time
from urllib.parse import urlparse

import numpy
from kubemo import Inference, InferenceHandler, Json, Server, Text, register
from kubemo.serialize import Image, Serial


class Npy(Serial):
    kind = 0x4E505900

    def __init__(self, given):
        if isinstance(given, io.BytesIO):
            reader = given
        else:
            reader = io.BytesIO()
            numpy.save(reader, given, allow_pickle=False)
            reader.seek(0)
        super().__init__(self.kind, reader)

    def decode(self):
        return numpy.load(self.reader, allow_pickle=False)


class Model(Inference):
    """Called with the inputs of every example; the five steps are left out."""

    def __call__(self, *examples):
        return tuple(tuple(output for each in example for output in answer(each.serial)) for example in examples)


def answer(given):
    if isinstance(given, Text):
        return [Text(given.decode().upper())]
    if isinstance(given, Npy):
        array = given.decode()
        return [Npy((array + array).astype(array.dtype) if array.dtype != bool else array)]
    if isinstance(given, Image):
        image = given.decode()
        if image.format == "GIF":
            given.reader.seek(0)
            return [Image(io.BytesIO(given.reader.read()))]
        return [Json(list(image.size))]
    return of_json(given.decode())


def of_json(value):
    if not isinstance(value, dict):
        return [Json(doubled(value))]
    if "raise" in value:
        raise getattr(builtins, value["raise"])("as told")
    if "outputs" in value:
        return [Json(at) for at in range(value["outputs"])]
    if "labels" in value:
        return [Json(value["labels"])]
    if "text" in value:
        return [Text(str(value["text"]))]
    time.sleep(value["sleep"])
    return [Json(value["value"])]


def doubled(value):
    if isinstance(value, list):
        return [doubled(each) for each in value]
    return value if isinstance(value, (str, bool)) or value is None else value * 2


def main(url):
    register(Npy)
    where = urlparse(url)
    address = where.path if where.scheme == "unix" else (where.hostname, where.port)
    with Server(where.scheme, address) as server:
        server.handle(InferenceHandler(Model()))
        server.serve()


if __name__ == "__main__":
    main(sys.argv[1])
