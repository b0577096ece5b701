"""Drive the real `kubemo.Client`, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": {"type", "text"}}` where the client raised.
Steps:

    {"op": "ping"}                                      true
    {"op": "infer", "batch": [[input, ..], ..]}         [[output, ..], ..], one list for each example
    {"op": "parallel", "clients": [[step, ..], ..]}     each list of steps by a client of its own, all at once

An input or output is `{"json": "text"}`, `{"text": "text"}`, `{"image": "base64"}`, or
`{"npy": [dtype, shape, values]}` for the type of our own that `register` makes known; outputs tell JSON as the value
that the client decodes.
"""

import base64
import io
from concurrent.futures import ThreadPoolExecutor

import numpy
from kubemo import Client, Image, Json, Text, register
from kubemo.serialize import Serial


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


register(Npy)

INPUTS = {
    # Json(object) cannot be sent: the client does not encode its text.
    "json": lambda text: Json(io.BytesIO(text.encode())),
    "text": Text,
    "image": lambda data: Image(io.BytesIO(base64.b64decode(data))),
    "npy": lambda told: Npy(numpy.array(told[2], told[0]).reshape(told[1])),
}


def told(output):
    serial = output.serial
    if isinstance(serial, Npy):
        array = serial.decode()
        return {"npy": [array.dtype.name, list(array.shape), array.reshape(-1).tolist()]}
    if isinstance(serial, Image):
        return {"image": base64.b64encode(serial.reader.read()).decode()}
    return {"text" if isinstance(serial, Text) else "json": output.decode()}


def infer(url, step):
    batch = tuple(
        tuple(INPUTS[kind](given) for each in example for kind, given in each.items()) for example in step["batch"]
    )
    return [[told(output) for output in example] for example in Client().inference(url, batch)]


def ping(url, step):
    return Client().ping(url) >= 0


def parallel(url, step):
    with ThreadPoolExecutor(len(step["clients"])) as pool:
        return list(pool.map(lambda steps: [run(url, each) for each in steps], step["clients"]))


def run(url, step):
    try:
        return OPERATIONS[step["op"]](url, step)
    except Exception as error:
        return {"error": {"type": type(error).__name__, "text": str(error)}}


OPERATIONS = {"ping": ping, "infer": infer, "parallel": parallel}


def main(url, steps):
    return [run(url, step) for step in steps]
