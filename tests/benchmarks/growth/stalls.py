"""The longest stall of the loop while messages of 64 MiB of JSON pass, by their content, and large ones of TCP."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.tensors import Tensor
from tests.attacks.attacked import MIB, Attacked, attacked, reference
from tests.attacks.clients import Brpc, Connection, Http, Mip, infer, message, post

SIZE = 64 * MIB - 4096
"""Bytes of a document, with which its head and some blanks stay within the default limit."""
AIM = 0.05
"""Seconds."""
TRIES = 3

V1 = '  - {name: v1, bind: "127.0.0.1:0", protocols: [v1-rest]}\n'
BACKENDS = """
  rest: {{protocol: v2-rest, flavor: plain, endpoints: ["{rest}"]}}
"""
ROUTES = """
  - {match: {model: rest}, backend: rest, rewrite: {model: identity}}
"""


@dataclass(frozen=True)
class Stall:
    """Seconds: the longest that the loop waited for its turn, by the work of the gateway and by the clock; of some
    tries the best, since the machine is not alone. CPU is that of the whole process."""

    row: str
    size: int
    stall: float
    wall: float
    cpu: float

    def shown(self) -> str:
        size, ratio = self.size / MIB, self.stall / AIM
        return f"{self.row:52}{size:8.0f}{1e3 * self.stall:8.0f}{1e3 * self.wall:9.0f}{ratio:7.2f}{self.cpu:8.2f}"


def heading() -> str:
    title = f"longest stall of the loop; aim {1e3 * AIM:.0f} ms"
    return f"{title:52}{'MiB':>8}{'ms':>8}{'clock':>9}{'ratio':>7}{'CPU s':>8}"


@dataclass(frozen=True)
class Row:
    name: str
    request: Callable[[], bytes]
    listener: str = "http"
    connect: Callable[[tuple[str, int]], Connection] = Http


def measure(folder: Path, wanted: str = "") -> Iterator[Stall]:
    """Raises AssertionError if the gateway does not answer with 200."""
    with (
        reference(folder / "grpc") as grpc,
        reference(folder / "rest", "v2-rest") as rest,
        attacked(folder / "gateway", grpc, backends=BACKENDS.format(rest=rest), routes=ROUTES, listener=V1) as gateway,
    ):
        for row in ROWS:
            if wanted in row.name:
                yield _measured(gateway, row)


def _measured(gateway: Attacked, row: Row) -> Stall:
    request = row.request()
    found = [_once(gateway, row, request) for _ in range(TRIES)]
    stall, wall, cpu = map(min, zip(*found, strict=True))
    return Stall(row.name, len(request), stall, wall, cpu)


def _once(gateway: Attacked, row: Row, request: bytes) -> tuple[float, float, float]:
    with row.connect(gateway.address(row.listener)) as connection:
        gateway.look()
        before = gateway.cpu
        reply = connection.call(request)
        cpu, seen = gateway.cpu - before, gateway.look()
    if row.connect is Http:
        assert reply.startswith(b"HTTP/1.1 200 "), reply[:500]
    return seen.stall, seen.wall, cpu


def _floats(size: int = SIZE) -> list[bytes]:
    """Random doubles with all their digits, as many as fit with their commas."""
    digits = [b"%r" % each for each in np.random.default_rng(1).standard_normal(size // 19).tolist()]
    total = np.cumsum([len(each) + 1 for each in digits])
    return digits[: int(np.searchsorted(total, size - 200))]


def _rows(elements: list[bytes], width: int) -> tuple[bytes, int]:
    """Rows of so many elements, and how many there are; the brackets take of the elements' place."""
    size = sum(map(len, elements)) + len(elements)
    kept = elements[: int(len(elements) * size / (size + 2 * len(elements) / width)) // width * width]
    rows = [b",".join(kept[at : at + width]) for at in range(0, len(kept), width)]
    return b"[[" + b"],[".join(rows) + b"]]", len(rows)


def _v2(datatype: str, shape: tuple[int, ...], data: bytes, model: str = "identity") -> bytes:
    sizes = ",".join(map(str, shape))
    head = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{sizes}],"data":'.encode()
    return post(f"/v2/models/{model}/infer", head + data + b"}]}")


def _flat(model: str = "identity") -> bytes:
    floats = _floats()
    return _v2("FP64", (len(floats),), b"[%b]" % b",".join(floats), model)


def _nested(width: int) -> bytes:
    data, rows = _rows(_floats(), width)
    return _v2("FP64", (rows, width), data)


def _repeated(datatype: str, element: bytes, size: int = SIZE - 200) -> bytes:
    count = size // (len(element) + 1)
    return _v2(datatype, (count,), b"[%b%b]" % ((element + b",") * (count - 1), element))


def _spaced() -> bytes:
    """As a printer for people writes it."""
    floats = _floats(SIZE * 19 // 32)
    return _v2("FP64", (len(floats),), b"[\n            %b\n]" % b",\n            ".join(floats))


def _gzipped() -> bytes:
    document = _flat().partition(b"\r\n\r\n")[2]
    return post("/v2/models/identity/infer", gzip.compress(document, 1), "Content-Encoding: gzip")


def _umbridge(model: str) -> bytes:
    return post("/Evaluate", b'{"name":"%b","input":[[%b]],"config":{}}' % (model.encode(), b",".join(_floats())))


def _v1(width: int) -> bytes:
    return post("/v1/models/identity:predict", b'{"instances":%b}' % _rows(_floats(), width)[0])


def _v1_bytes() -> bytes:
    content = base64.b64encode(np.random.default_rng(1).bytes((SIZE - 200) // 4 * 3))
    return post("/v1/models/identity:predict", b'{"instances":[{"b64":"%b"}]}' % content)


def _grps(width: int) -> bytes:
    return post("/grps/v1/infer/predict?model=identity", b'{"ndarray":%b}' % _rows(_floats(), width)[0])


def _grps_nan() -> bytes:
    """A NaN in each row, in quotes."""
    floats = _floats()
    floats[::1000] = [b'"NaN"'] * len(floats[::1000])
    return post("/grps/v1/infer/predict?model=identity", b'{"ndarray":%b}' % _rows(floats, 1000)[0])


def _gtensors(dtype: str, member: str, element: bytes, size: int = SIZE - 200) -> bytes:
    count = size // (len(element) + 1)
    head = f'{{"gtensors":{{"tensors":[{{"name":"x","dtype":"{dtype}","shape":[{count}],"{member}":['.encode()
    return post("/grps/v1/infer/predict?model=identity", b"%b%b]}]}}" % (head, b",".join([element] * count)))


def _binary(datatype: str, size: int, element: bytes) -> bytes:
    count = size // len(element)
    return infer("identity", element * count, datatype, [count])


def _message(protocol: str, shape: tuple[int, ...]) -> bytes:
    numbers = np.random.default_rng(1).standard_normal(shape[-1]).astype("<f4").tobytes()
    return message(protocol, "identity", Tensor("x", Datatype.FP32, shape, numbers))


def _numbers(count: int) -> bytes:
    return infer("identity", np.random.default_rng(1).standard_normal(count).tobytes(), "FP64", [count])


ROWS = (
    Row("V2, floats", _flat),
    Row("V2, floats in rows of 1,000", lambda: _nested(1000)),
    Row("V2, floats in rows of 2", lambda: _nested(2)),
    Row("V2, floats, a line each", _spaced),
    Row("V2, floats, gzip", _gzipped),
    Row("V2, integers of one digit", lambda: _repeated("INT8", b"7")),
    Row("V2, booleans", lambda: _repeated("BOOL", b"true")),
    Row("V2, short strings", lambda: _repeated("BYTES", b'"abcdef"', SIZE * 5 // 6)),
    Row("V2, one string", lambda: _v2("BYTES", (1,), b'["%b"]' % (b"a" * (SIZE - 200)))),
    Row("V2, floats, to JSON", lambda: _flat("rest")),
    Row("V2, binary to JSON, 3 million doubles", lambda: _numbers(3_000_000)),
    Row("V2, binary to JSON, 60 MiB of octets", lambda: _binary("UINT8", 60 * MIB, b"\0")),
    Row("V2, binary to JSON, 10 million BYTES", lambda: _binary("BYTES", 50 * MIB, b"\1\0\0\0x")),
    Row("UM-Bridge, floats", lambda: _umbridge("identity")),
    Row("UM-Bridge, floats, to JSON", lambda: _umbridge("rest")),
    Row("V1, rows of 1,000 floats", lambda: _v1(1000), "v1"),
    Row("V1, rows of 2 floats", lambda: _v1(2), "v1"),
    Row("V1, one b64", _v1_bytes, "v1"),
    Row("grps, rows of 1,000 floats", lambda: _grps(1000)),
    Row("grps, rows of 1,000 floats with a NaN each", _grps_nan),
    Row("grps, integers in quotes", lambda: _gtensors("DT_INT64", "flat_int64", b'"1234567890123456789"')),
    Row("grps, short strings", lambda: _gtensors("DT_STRING", "flat_string", b'"abcdef"', SIZE * 5 // 6)),
    Row("grps BRPC, 10 million FP32", lambda: _message("grps-brpc", (10**7,)), "brpc", Brpc),
    Row("MIP, 2 million FP32 in JSON", lambda: _message("mip", (1, 2 * 10**6)), "mip", Mip),
)
