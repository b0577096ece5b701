"""Mixed traffic: requests of many models, shapes, numbers of inputs and clients, none the same as another.

Thirty models with one, two or three inputs, batches of 1 to 32, JSON as Python writes it (with spaces), an id and a
traceparent in each request, and the heads of eight kinds of clients. The same requests in every run. A cache of bodies,
heads or layouts that helps a benchmark with one body does not help here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gateway.protocols.v2.grpc import schema

MODELS = 30
POOL = 480
"""Requests that are sent in turns: more than a processor's caches or a table of recent ones would know."""

_HEADS = (
    "Host: {address}\r\nUser-Agent: python-requests/2.34.2\r\nAccept-Encoding: gzip, deflate, zstd\r\nAccept: */*\r\n"
    "Connection: keep-alive\r\n",
    "Host: {address}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
    "User-Agent: python-httpx/0.28.1\r\n",
    "Host: {address}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\n"
    "User-Agent: Python/3.11 aiohttp/3.14.5\r\n",
    "Host: {address}\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n",
    "Host: {address}\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: identity\r\n",
    "Accept: application/json, text/plain, */*\r\nUser-Agent: axios/1.13.2\r\n"
    "Accept-Encoding: gzip, compress, deflate, br\r\nHost: {address}\r\nConnection: keep-alive\r\n",
    "User-Agent: Java-http-client/21.0.9\r\nHost: {address}\r\nX-Request-Source: scoring\r\n",
    "Host: {address}\r\nUser-Agent: okhttp/5.3.0\r\nAccept-Encoding: identity\r\nConnection: Keep-Alive\r\n"
    "X-Forwarded-For: 10.4.7.{octet}\r\nX-Forwarded-Proto: https\r\n",
)
"""One head for each kind of client, without what follows from the request. None asks for gzip alone, for which the
gateway compresses replies: the proxies beside it do not."""

_MEMBERS = {"FP32": "fp32_contents", "FP64": "fp64_contents", "INT64": "int64_contents"}


@dataclass(frozen=True)
class Input:
    name: str
    datatype: str
    shape: tuple[int, int]
    data: list[float] | list[int]


@dataclass(frozen=True)
class Sample:
    """One request, in no wire form."""

    model: str
    id: str
    trace: str
    head: str
    inputs: tuple[Input, ...]


@cache
def sample(seed: int) -> Sample:
    """The request of that number."""
    source = random.Random(seed)
    number = source.randrange(MODELS)
    rows = source.choice((1, 1, 2, 4, 8, 16, 32, 32))
    inputs: tuple[Input, ...]
    if number % 5 == 0:  # as a language model for classification has them
        length = source.choice((16, 32, 64, 128))
        names = ("input_ids", "attention_mask", "token_type_ids")
        rows = min(rows, 4)
        values = (
            [source.randrange(30_000) for _ in range(rows * length)],
            [1] * (rows * length),
            [0] * (rows * length),
        )
        inputs = tuple(Input(name, "INT64", (rows, length), data) for name, data in zip(names, values, strict=True))
    else:
        width = (4, 10, 13, 28, 64)[number % 7 % 5]
        datatype, digits = ("FP32", 7) if number % 3 else ("FP64", 16)
        floats = [float(f"{source.gauss(0, 1):.{digits}g}") for _ in range(rows * width)]
        inputs = (Input("features", datatype, (rows, width), floats),)
        if number % 2:
            inputs += (Input("categories", "INT64", (rows, 4), [source.randrange(1000) for _ in range(rows * 4)]),)
    identity = f"{source.getrandbits(128):032x}"
    trace = f"00-{source.getrandbits(128):032x}-{source.getrandbits(64):016x}-01"
    head = _HEADS[seed % len(_HEADS)].replace("{octet}", str(source.randrange(256)))
    return Sample(f"traffic_{number}", identity, trace, head, inputs)


@dataclass(frozen=True)
class Traffic:
    """A `Form` of such requests: `write` makes the target and the body of one, `read` the data of a reply's tensors."""

    name: str
    write: Callable[[Sample], tuple[str, str | bytes]]
    read: Callable[[bytes], dict[str, list[Any]]]
    pool: int = POOL
    method: str = ""
    """Of gRPC, whose requests have the same head all."""
    doubles: bool = False

    def request(self, address: str, _size: int, seed: int) -> bytes:
        """The bytes of the request of that number; always the same one where `pool` is 1."""
        chosen = sample(_usual_sample() if self.pool == 1 else seed)
        path, body = self.write(chosen)
        if isinstance(body, bytes):
            return body
        head = chosen.head.replace("{address}", address)
        more = f"Content-Type: application/json\r\ntraceparent: {chosen.trace}\r\nContent-Length: {len(body)}\r\n"
        return f"POST {path} HTTP/1.1\r\n{head}{more}\r\n{body}".encode("ascii")

    def difference(self, _size: int, reply: bytes) -> str:
        """How the reply to the first request differs from what was sent; empty if it does not."""
        given = {
            each.name: _numbers(each.datatype, each.data)
            for each in sample(_usual_sample() if self.pool == 1 else 0).inputs
        }
        found = self.read(reply)
        return "" if found == given else f"sent {str(given)[:200]}, got {str(found)[:200]}"


def _v2_rest(sent: Sample) -> tuple[str, str]:
    inputs = [
        {"name": each.name, "shape": each.shape, "datatype": each.datatype, "data": each.data} for each in sent.inputs
    ]
    return f"/v2/models/{sent.model}/infer", json.dumps({"id": sent.id, "inputs": inputs})


def _v2_grpc(sent: Sample) -> tuple[str, bytes]:
    message = schema.ModelInferRequest(model_name=sent.model, id=sent.id)
    for each in sent.inputs:
        message.inputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        message.raw_input_contents.append(np.array(each.data, _DTYPES[each.datatype]).tobytes())
    return schema.MODEL_INFER, message.SerializeToString()


def _read_v2_grpc(body: bytes) -> dict[str, list[Any]]:
    """Behind gRPC's prefix."""
    reply = schema.ModelInferResponse.FromString(body[5:])
    pairs = zip(reply.outputs, reply.raw_output_contents, strict=True)
    return {each.name: np.frombuffer(raw, _DTYPES[each.datatype]).tolist() for each, raw in pairs}


_DTYPES = {"FP32": "<f4", "FP64": "<f8", "INT64": "<i8"}


def _transcoded(sent: Sample) -> tuple[str, str]:
    inputs = [
        {
            "name": each.name,
            "datatype": each.datatype,
            "shape": each.shape,
            "contents": {_MEMBERS[each.datatype]: each.data},
        }
        for each in sent.inputs
    ]
    return schema.MODEL_INFER, json.dumps({"model_name": sent.model, "id": sent.id, "inputs": inputs})


def _read_v2_rest(body: bytes) -> dict[str, list[Any]]:
    return {each["name"]: _numbers(each["datatype"], each["data"]) for each in json.loads(body)["outputs"]}


def _read_transcoded(body: bytes) -> dict[str, list[Any]]:
    found = {}
    for each in json.loads(body)["outputs"]:
        [data] = each["contents"].values()
        found[each["name"]] = _numbers(each["datatype"], data)
    return found


def _numbers(datatype: str, data: list[Any]) -> list[Any]:
    """The numbers that a reader of this datatype has: the transcoder writes INT64 as texts, and FP32 that were sent
    with seven digits may come back with more."""
    if datatype == "INT64":
        return [int(each) for each in data]
    found: list[Any] = np.array(data, np.float32).tolist() if datatype == "FP32" else data
    return found


V2_REST = Traffic("V2 REST, traffic", _v2_rest, _read_v2_rest)
V2_GRPC = Traffic("V2 gRPC, traffic", _v2_grpc, _read_v2_grpc, method=schema.MODEL_INFER)
V2_REST_ONE = Traffic("V2 REST, one body", _v2_rest, _read_v2_rest, pool=1)
TRANSCODED = Traffic("JSON of the transcoder, traffic", _transcoded, _read_transcoded)


@cache
def _usual_sample() -> int:
    """The number of the request whose body is nearest to the mean size, for one repeated body."""
    sizes: Mapping[int, int] = {seed: len(_v2_rest(sample(seed))[1]) for seed in range(POOL)}
    mean = sum(sizes.values()) / len(sizes)
    return min(sizes, key=lambda seed: abs(sizes[seed] - mean))


def about() -> str:
    """The mean size of a body, and the share of requests with several inputs, as the page tells them."""
    bodies = [len(_v2_rest(sample(seed))[1]) for seed in range(POOL)]
    several = sum(len(sample(seed).inputs) > 1 for seed in range(POOL))
    return (
        f"{sum(bodies) / len(bodies) / 1000:.1f} kB in the mean, {100 * several / POOL:.0f} % with two or three inputs"
    )
