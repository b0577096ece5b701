"""What kills or confuses a real Triton is answered by the gateway in front of it, and never forwarded.

Every request goes to two listeners: behind one is the real Triton, which must be alive and right afterwards; behind the
other is a server that records, and must have heard nothing.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.interop.exchanges import listening
from tests.interop.kubemo_server import connected
from tests.interop.processes import Triton
from tests.interop.rawhttp import Answer, ask, post, send
from tests.peers.httplib import Reply, Server

CONFIG = """
listeners:
  - {{name: front, bind: "127.0.0.1:{front}", protocols: [v2-rest]}}
  - {{name: recorded, bind: "127.0.0.1:{recorded}", protocols: [v2-rest]}}
backends:
  triton: {{protocol: v2-rest, endpoints: ["{triton}"]}}
  recorder: {{protocol: v2-rest, endpoints: ["{recorder}"], flavor: triton}}
check: full
routes:
  - {{match: {{listener: recorded}}, backend: recorder}}
  - {{match: {{listener: front}}, backend: triton}}
"""
MIB = 2**20


@dataclass(frozen=True)
class Rig:
    front: str
    """The gateway's address in front of the real Triton."""
    recorded: str
    """Its address in front of the recorder."""
    recorder: Server
    triton: Triton


@pytest.fixture(scope="module")
def rig(triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    recorder = Server(lambda request: Reply(200, b'{"model_name":"m","outputs":[]}'))
    try:
        with listening(CONFIG, tmp_path_factory.mktemp("gateway"), triton=triton.http, recorder=recorder.url) as fronts:
            yield Rig(fronts["front"], fronts["recorded"], recorder, triton)
    finally:
        recorder.stop()


# --- requests that must not be forwarded ---


@dataclass(frozen=True)
class Case:
    """A body for the identity model of a datatype, and what the gateway says to it."""

    name: str
    body: bytes
    text: str
    headers: tuple[str, ...] = ()
    status: int = 400
    datatype: str = "INT32"

    @property
    def path(self) -> str:
        return f"/v2/models/identity_{self.datatype}/infer"


def of(datatype: str, members: str) -> bytes:
    """One input with these members."""
    return f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}",{members}}}]}}'.encode()


def shaped(shape: str, data: str = "[1,2,3]", text: str = "", datatype: str = "INT32") -> Case:
    return Case(f"shape {shape}", of(datatype, f'"shape":{shape},"data":{data}'), text or "shape", datatype=datatype)


def number(datatype: str, data: str, text: str) -> Case:
    """One element that is none of its datatype."""
    return Case(f"{datatype} {data}", of(datatype, f'"shape":[1],"data":{data}'), text, datatype=datatype)


def whole(name: str, body: bytes, text: str, *headers: str, status: int = 400) -> Case:
    """A body as it is."""
    return Case(name, body, text, headers, status)


def beside(name: str, members: str, text: str) -> Case:
    """A good input, with these members beside `inputs`."""
    body = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}],%b}' % members.encode()
    return Case(name, body, text)


def binary(
    name: str, shape: str, size: object, tensor: bytes, text: str, datatype: str = "INT32", length: object = None
) -> Case:
    """A tensor in binary; `length` for another Inference-Header-Content-Length than is right."""
    header = of(datatype, f'"shape":{shape},"parameters":{{"binary_data_size":{size}}}')
    told = f"Inference-Header-Content-Length: {len(header) if length is None else length}"
    return Case(f"binary {name}", header + tensor, text, (told,), datatype=datatype)


def told_length(length: str, text: str) -> Case:
    return binary(f"header length {length!r}", "[1]", 4, b"\1\0\0\0", text, length=length)


def coded(name: str, coding: str, body: bytes, text: str, status: int = 400) -> Case:
    return whole(name, body, text, f"Content-Encoding: {coding}", status=status)


def bomb(coding: str, inflated: int) -> bytes:
    """Blanks, a thousandth of their size."""
    stream = zlib.compressobj(1, zlib.DEFLATED, {"gzip": 31, "deflate": 15}[coding])
    blanks = b" " * MIB
    return b"".join(stream.compress(blanks) for _ in range(inflated // MIB)) + stream.flush()


def raw_deflated(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(body) + stream.flush()


INFER = "/v2/models/identity_INT32/infer"
GOOD = of("INT32", '"shape":[1],"data":[1]')
REGION = '"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}'
NESTED = "nested deeper than 64"

KILLS = (
    # SIGSEGV, length_error, bad_alloc; 8.4 GB allocated for the fourth
    shaped("[1,4611686018427387904]"),
    shaped("[1,2305843009213693952]"),
    shaped("[1,1099511627776]", text="3 elements, but shape [1, 1099511627776] takes 1099511627776"),
    shaped("[1,2147483648]", text="3 elements, but shape [1, 2147483648] takes 2147483648"),
    shaped("[4294967296,4294967296,4294967296]"),
    shaped("[1,9223372036854775807]"),
    shaped("[1,9223372036854775808]"),
    shaped("[1,18446744073709551617]"),
    shaped("[0,4611686018427387904,4]", "[]"),
    # the size wraps to 0; the model's process dies and stays dead while ready says 200
    binary("2^62 elements in no bytes", "[1,4611686018427387904]", 0, b"", "spans more than 2^63 bytes"),
    binary("2^61 elements in no bytes", "[2305843009213693952]", 0, b"", "spans more than 2^63 bytes", "FP64"),
    binary("2^62 BYTES in no bytes", "[4611686018427387904]", 0, b"", "0 BYTES elements", "BYTES"),
    binary("2^62 BOOL in no bytes", "[4611686018427387904]", 0, b"", "0 bytes, but BOOL", "BOOL"),
    # the parser's stack
    shaped("[1]", "[" * 100_000 + "1" + "]" * 100_000, NESTED),
    shaped("[1]", "[" * 65 + "1" + "]" * 65, NESTED),
    shaped("[1]", "[" * 1_000_000, "'data' at byte"),
    whole("1 M opening brackets", b"[" * 1_000_000, "more than 10000 JSON values"),
    whole("100 000 objects in one another", b'{"a":' * 100_000, "more than 10000 JSON values"),
    whole("nested parameters", b'{"inputs":[],"parameters":{"a":' + b"[" * 500 + b"]" * 500 + b"}}", NESTED),
    coded("gzip of 200 MB blanks", "gzip", bomb("gzip", 200 * MIB), "limits.inflation, 1100 times", 413),
    coded("deflate of 200 MB blanks", "deflate", bomb("deflate", 200 * MIB), "limits.inflation, 1100 times", 413),
)

SHAPES = (
    shaped("[-1]", "[1]", "each dimension must be an integer of at least 0, not -1"),
    shaped("[-3,-1]", "[1,2,3]", "each dimension must be an integer of at least 0, not -3"),
    shaped("[3.0]", text="must be an integer of at least 0, not 3.0"),
    shaped('["3"]', text="must be an integer of at least 0, not '3'"),
    shaped("[true]", "[1]", "must be an integer of at least 0, not True"),
    shaped("[null]", "[1]", "must be an integer of at least 0, not None"),
    shaped("3", text="shape must be a list"),
    shaped('"3"', text="shape must be a list"),
    shaped("null", text="shape must be a list"),
    shaped("[" + ",".join("1" * 33) + "]", "[1]", "a list of at most 32 integers"),
    shaped("[2]", text="3 elements, but shape [2] takes 2"),
    shaped("[4]", text="3 elements, but shape [4] takes 4"),
    shaped("[0]", text="3 elements, but shape [0] takes 0"),
    shaped("[3]", "[]", "0 elements, but shape [3] takes 3"),
    shaped("[2,2]", "[[1,2],[3]]", "ragged"),
    shaped("[2,2]", "[[1,2],3,4]", "ragged"),
    shaped("[2,3]", "[[1,2],[3,4],[5,6]]", "data nested as [3, 2], but shape [2, 3]"),
    shaped("[1,3]", "[[[1,2,3]]]", "data nested as [1, 1, 3], but shape [1, 3]"),
    whole("no shape", of("INT32", '"data":[1]'), "shape must be a list"),
)

NUMBERS = (
    number("UINT8", "[256]", "element 0, 256, is out of the range of UINT8"),
    number("UINT8", "[-1]", "element 0, -1, is out of the range of UINT8"),
    number("INT8", "[128]", "out of the range of INT8"),
    number("INT8", "[-129]", "out of the range of INT8"),
    number("UINT16", "[65536]", "out of the range of UINT16"),
    number("INT16", "[32768]", "out of the range of INT16"),
    number("INT32", "[2147483648]", "out of the range of INT32"),
    number("INT32", "[-2147483649]", "out of the range of INT32"),
    number("UINT32", "[4294967296]", "out of the range of UINT32"),
    number("INT64", "[9223372036854775808]", "out of the range of INT64"),
    number("INT64", "[-9223372036854775809]", "beyond 64 bits"),
    number("UINT64", "[18446744073709551616]", "beyond 64 bits"),
    number("UINT64", "[-1]", "out of the range of UINT64"),
    number("INT32", "[1.5]", "element 0, 1.5, is not integral"),
    number("INT64", "[1e300]", "has no exact value as INT64"),
    number("INT32", "[NaN]", "has no exact value as INT32"),
    number("INT32", '["1"]', "holds strings, expected INT32"),
    number("FP32", '["1"]', "holds strings, expected FP32"),
    number("FP32", "[true]", "holds true or false, expected FP32"),
    number("FP32", "[null]", "null is not a number"),
    number("FP32", "[{}]", "an object at byte"),
    number("FP32", "[1e39]", "out of the range of FP32"),
    number("FP32", "[1e400]", "out of the range of a double"),
    number("FP64", "[1e400]", "out of the range of a double"),
    number("FP64", "[-1e400]", "out of the range of a double"),
    number("FP64", "[1" + "0" * 400 + "]", "out of the range of a double"),
    number("FP64", "[NaN,1e400]", "element 1 is out of the range of a double"),
    number("FP16", "[65520]", "out of the range of FP16"),
    number("BF16", "[0.5]", "BF16 has no JSON form; use the binary data format"),
    number("BOOL", "[1]", "holds numbers, expected BOOL"),
    number("BOOL", "[2]", "holds numbers, expected BOOL"),
    number("BOOL", '["true"]', "holds strings, expected BOOL"),
    number("BYTES", "[1]", "holds no strings, expected BYTES as strings"),
    number("BYTES", '["\\ud800"]', "not JSON"),
    number("BYTES", '["a",1]', "a number next to a string"),
    Case("BYTES not in UTF-8", of("BYTES", '"shape":[1],"data":["@"]').replace(b"@", b"\xff"), "", datatype="BYTES"),
)

DOCUMENTS = (
    whole("empty body", b"", "empty body, expected a JSON object"),
    whole("blank body", b" \r\n", "empty body, expected a JSON object"),
    whole("no JSON", b"inputs=1", "not JSON"),
    whole("cut short", GOOD[:-1], "not JSON"),
    whole("not UTF-8", b"\xff\xfe{}", "not UTF-8"),
    whole("an array", b"[]", "expected a JSON object"),
    whole("null", b"null", "expected a JSON object"),
    whole("no inputs", b"{}", "inputs are missing"),
    whole("inputs null", b'{"inputs":null}', "inputs are missing"),
    whole("inputs an object", b'{"inputs":{}}', "inputs must be a list"),
    whole("inputs of numbers", b'{"inputs":[1]}', "input 0 must be an object"),
    whole("input without a name", b'{"inputs":[{"datatype":"INT32","shape":[1],"data":[1]}]}', "name must be a string"),
    whole("bytes behind the document", GOOD + b"x", "not JSON"),
    whole("a second document", GOOD + GOOD, "not JSON"),
    whole("inputs twice", b'{"inputs":[],"inputs":[]}', "key 'inputs' occurs twice"),
    whole("data twice", of("INT32", '"shape":[1],"data":[1],"data":[2]'), "key 'data' occurs twice"),
    whole("shape twice", of("INT32", '"shape":[1],"shape":[2],"data":[1]'), "key 'shape' occurs twice"),
    whole("an escaped key twice", of("INT32", '"shape":[1],"data":[1],"d\\u0061ta":[2]'), "key 'data' occurs twice"),
    beside("parameter twice", '"parameters":{"a":1,"a":2}', "key 'a' occurs twice"),
    whole("an input twice", b'{"inputs":[%b,%b]}' % ((GOOD[11:-2],) * 2), "input 'INPUT0' occurs twice"),
    whole("an unknown datatype", of("FLOAT", '"shape":[1],"data":[1]'), "datatype must be one of BOOL, UINT8"),
    whole("a datatype in lower case", of("int32", '"shape":[1],"data":[1]'), "datatype must be one of BOOL, UINT8"),
    whole("no datatype", b'{"inputs":[{"name":"INPUT0","shape":[1],"data":[1]}]}', "datatype must be one of"),
    whole("no data", of("INT32", '"shape":[1]'), "neither data nor binary_data_size"),
    beside("id a number", '"id":5', "id must be a string, not 5"),
    beside("id an object", '"id":{}', "id must be a string"),
    beside("parameters a list", '"parameters":[]', "parameters must be an object"),
    beside("parameter of 65 bits", '"parameters":{"a":18446744073709551616}', "parameter 'a' must be"),
    beside("outputs a number", '"outputs":5', "outputs must be a list"),
    beside("an output twice", '"outputs":[{"name":"OUTPUT0"},{"name":"OUTPUT0"}]', "'OUTPUT0' is requested twice"),
    beside("timeout a text", '"parameters":{"timeout":"soon"}', "timeout must be an integer number of microseconds"),
    beside("timeout negative", '"parameters":{"timeout":-1}', "timeout must be an integer number of microseconds"),
    whole("input in shared memory", of("INT32", f'"shape":[1],{REGION}'), "shared_memory_region cannot cross"),
    whole("and with data", of("INT32", f'"shape":[1],"data":[1],{REGION}'), "shared_memory_region cannot cross"),
    beside(
        "output in shared memory", f'"outputs":[{{"name":"OUTPUT0",{REGION}}}]', "shared_memory_region cannot cross"
    ),
    beside("request in shared memory", REGION, "shared_memory_region cannot cross"),
)

BINARY = (
    told_length("abc", "must be a number of bytes, not 'abc'"),
    told_length("-1", "must be a number of bytes, not '-1'"),
    told_length("", "must be a number of bytes, not ''"),
    told_length("+5", "must be a number of bytes"),
    told_length("0x10", "must be a number of bytes"),
    told_length("1e2", "must be a number of bytes"),
    told_length("9" * 30, "must be a number of bytes"),
    told_length("9999", "is 9999, but the body has"),
    told_length("0", "a raw binary request) is not supported"),
    told_length("5", "not JSON"),
    Case("two header lengths", GOOD, "more than one", tuple(f"Inference-Header-Content-Length: {n}" for n in (5, 6))),
    binary("too few bytes", "[1]", 4, b"\1\0\0", "binary_data_size is 4, but 3 bytes are left"),
    binary("trailing bytes", "[1]", 4, b"\1\0\0\0\0", "1 bytes follow the last tensor"),
    binary("size not of the shape", "[1]", 8, b"\0" * 8, "8 bytes, but INT32 of shape [1] takes 4"),
    binary("negative size", "[1]", -4, b"\0" * 4, "binary_data_size must be an integer of at least 0, not -4"),
    binary("size a text", "[1]", '"4"', b"\0" * 4, "binary_data_size must be an integer"),
    binary("size a fraction", "[1]", 4.0, b"\0" * 4, "binary_data_size must be an integer"),
    binary("size true", "[1]", "true", b"\0" * 4, "binary_data_size must be an integer"),
    binary("size of 64 bits", "[1]", 2**63, b"\0" * 4, "but 4 bytes are left"),
    binary("data as well", '[1],"data":[1]', 4, b"\0" * 4, "both data and binary_data_size"),
    whole(
        "size without a header length",
        of("INT32", '"shape":[1],"parameters":{"binary_data_size":4}'),
        "0 bytes are left",
    ),
    binary("BYTES cut short", "[1]", 7, b"\5\0\0\0abc", "reaches past the end", "BYTES"),
    binary("BYTES length cut short", "[1]", 3, b"\0\0\0", "element 0", "BYTES"),
    binary("BYTES of 4 GiB", "[1]", 7, b"\xff\xff\xff\xffabc", "reaches past the end", "BYTES"),
    binary("BYTES too few", "[2]", 5, b"\1\0\0\0a", "1 BYTES elements, but shape [2] takes 2", "BYTES"),
    binary("BYTES too many", "[1]", 10, b"\1\0\0\0a" * 2, "2 BYTES elements, but shape [1] takes 1", "BYTES"),
    binary("BOOL 2", "[3]", 3, b"\0\1\2", "element 2 of BOOL is the byte 2, expected 0 or 1", "BOOL"),
)

CODINGS = (
    coded("no gzip", "gzip", b"not gzip", "the body is not gzip data"),
    coded("gzip of nothing", "gzip", b"", "ends before its gzip data"),
    coded("gzip cut short", "gzip", gzip.compress(GOOD)[:-9], "ends before its gzip data"),
    coded("gzip with a wrong checksum", "gzip", gzip.compress(GOOD)[:-8] + b"\0" * 8, "the body is not gzip data"),
    coded("bytes behind gzip", "gzip", gzip.compress(GOOD) + b"x", "bytes behind the end"),
    coded("raw deflate", "deflate", raw_deflated(GOOD), "deflate data"),
    coded("gzip called deflate", "deflate", gzip.compress(GOOD), "the body is not deflate data"),
    coded("brotli", "br", b"x", "Content-Encoding 'br' is not supported", 415),
    coded("gzip twice", "gzip, gzip", gzip.compress(gzip.compress(GOOD)), "is not supported", 415),
)

CASES = (*KILLS, *SHAPES, *NUMBERS, *DOCUMENTS, *BINARY, *CODINGS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[:60])
def test_is_answered_here_and_never_forwarded(rig: Rig, case: Case) -> None:
    heard = rig.recorder.connections
    for address in (rig.front, rig.recorded):
        reply = post(address, case.path, case.body, *case.headers)
        assert (reply.status, case.text in reply.error) == (case.status, True), reply
    assert rig.recorder.connections == heard
    assert_triton_serves(rig)


def assert_triton_serves(rig: Rig) -> None:
    """That the process runs is not enough: a model's own may have died, and ready would still be true."""
    assert rig.triton.process.returncode is None
    reply = post(rig.front, INFER, GOOD)
    assert json.loads(reply.body)["outputs"][0]["data"] == [1]


def test_the_recorder_hears_what_is_good(rig: Rig) -> None:
    heard = len(rig.recorder.requests)
    reply = post(rig.recorded, INFER, GOOD)

    assert reply.status == 200
    assert [request.target for request in rig.recorder.requests[heard:]] == [INFER]


# --- requests that servers disagree about ---


def replied(reply: Answer) -> object:
    assert reply.status == 200, reply
    document = json.loads(reply.body)
    return {key: document[key] for key in document if key not in ("model_name", "model_version")}


OUTPUTS = [{"name": "OUTPUT0", "datatype": "INT32", "shape": [1], "data": [1]}]


@pytest.mark.parametrize(
    ("members", "more"),
    [
        ('"id":""', {"id": ""}),  # Triton drops it
        ('"id":null', {}),
        ('"parameters":null', {}),  # Triton: 500
        ('"outputs":[]', {}),
        ('"unknown":{"a":[1]}', {}),
        ('"parameters":{"triton_enable_empty_final_response":true}', {}),  # Triton: 400; perf_analyzer sends it
    ],
)
def test_what_is_good(rig: Rig, members: str, more: dict[str, object]) -> None:
    reply = post(rig.front, INFER, beside("", members, "").body)
    assert replied(reply) == {**more, "outputs": OUTPUTS}


@pytest.mark.parametrize("data", ["[1.0]", "[1e0]", "[0.1e1]"])
def test_integral_numbers_are_integers(rig: Rig, data: str) -> None:
    body = of("INT32", f'"shape":[1],"data":{data}')
    assert replied(post(rig.front, INFER, body)) == {"outputs": OUTPUTS}


@pytest.mark.parametrize(
    "header",
    [
        "Content-Type: application/octet-stream",  # tritonclient's asyncio form, for JSON too
        "Content-Type: text/plain",
        "Accept: text/html",
        "Accept-Encoding: br, gzip;q=0.5",
    ],
)
def test_the_content_type_says_nothing(rig: Rig, header: str) -> None:
    reply = post(rig.front, INFER, GOOD, header)

    assert replied(reply) == {"outputs": OUTPUTS}
    assert reply.headers["content-type"] == "application/json"


def test_chunked_bodies(rig: Rig) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (GOOD[:7], GOOD[7:])) + b"0\r\n\r\n"
    head = b"POST /v2/models/identity_INT32/infer HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert replied(send(rig.front, head + chunks)) == {"outputs": OUTPUTS}


def test_pipelined_requests_are_all_answered(rig: Rig) -> None:
    """Triton answers the first alone."""
    lines = ["GET /v2/health/live HTTP/1.1", "Host: gateway"]
    requests = ["\r\n".join([*lines, *more, "", ""]) for more in ([], ["Connection: close"])]
    with connected(f"tcp://{rig.front}") as connection:
        connection.sendall("".join(requests).encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))

    assert received.count(b"HTTP/1.1 200 OK\r\n") == 2


# --- what Triton itself refuses well ---


@pytest.mark.parametrize(
    ("model", "body", "text"),
    [
        ("add_sub", GOOD, "missing required input(s) ['INPUT1']"),
        ("identity_INT32", b'{"inputs":[]}', "missing required input(s) ['INPUT0']"),
        ("identity_INT32", GOOD.replace(b"INPUT0", b"other"), "unexpected inference input 'other'"),
        ("identity_FP32", GOOD, "data-type is 'INT32', but model 'identity_FP32' expects 'FP32'"),
        ("identity_INT32", of("INT32", '"shape":[1,1],"data":[1]'), "Expected [-1], got [1,1]"),
        ("identity_INT32", of("INT32", '"shape":[],"data":[1]'), "Expected [-1], got []"),
        ("identity_INT32", beside("", '"outputs":[{"name":"other"}]', "").body, "unexpected inference output 'other'"),
        ("identity_INT32", beside("", '"parameters":{"triton_x":1}', "").body, "triton_"),
    ],
)
def test_what_triton_refuses_is_told_in_its_words(rig: Rig, model: str, body: bytes, text: str) -> None:
    reply = post(rig.front, f"/v2/models/{model}/infer", body)

    assert (reply.status, text in reply.error) == (400, True), reply.error


# --- paths and methods, as curl sends them ---

ALIVE = b'{"live":true}'


NOT_READY = b'{"name":"%b","ready":false,"error":"model \'%b\' is not ready"}'


@pytest.mark.parametrize(
    ("line", "status", "expected"),
    [
        ("GET /v2/health/live", 200, ALIVE),
        ("GET //v2/health/live", 200, ALIVE),  # of a base URL that ends in a slash
        ("GET /v2/health/live?verbose=1", 200, ALIVE),
        ("GET http://gateway/v2/health/live", 200, ALIVE),
        ("HEAD /v2/health/live", 200, b""),
        ("HEAD /v2/health/ready", 200, b""),
        ("HEAD /v2/models/fail/ready", 200, b""),
        ("HEAD /v2/models/nobody/ready", 400, b""),
        ("GET /v2/models/fail/ready", 200, b'{"name":"fail","ready":true}'),
        ("GET /v2/models/nobody/ready", 400, NOT_READY % (b"nobody", b"nobody")),
        ("GET /v2/models/f%61il/ready", 200, b'{"name":"fail","ready":true}'),  # Triton does not decode: 404
        ("GET /v2/models/versioned/versions/%31/ready", 200, b'{"name":"versioned","ready":true}'),
        ("GET /v2/models/versioned/versions/7/ready", 400, NOT_READY % (b"versioned", b"versioned")),
    ],
)
def test_paths(rig: Rig, line: str, status: int, expected: bytes) -> None:
    reply = ask(rig.front, line)

    assert (reply.status, reply.body) == (status, expected)


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("GET /v2/", 404, "'/v2/'"),  # never a redirect: tritonclient takes one for an error
        ("GET /v2/health/live/", 404, "'/v2/health/live/'"),
        ("GET /v2//health/live", 404, "'/v2//health/live'"),
        ("POST /v2/models/fail/infer/", 404, "'/v2/models/fail/infer/'"),
        ("GET /v2/models//ready", 404, "'/v2/models//ready'"),
        ("GET /v2/models/../health/live", 404, "'/v2/models/../health/live'"),
        ("GET /v2/models/%2e%2e/ready", 404, "'/v2/models/%2e%2e/ready'"),
        ("GET /v2/models/fail%2fready", 404, "unknown model: 'fail%2Fready'"),
        ("GET /v2/models/f%2561il", 404, "unknown model: 'f%2561il'"),  # decoded once
        ("GET /v2/models/%ff", 400, "not percent-encoded UTF-8"),
        ("GET /v2/models/%zz", 400, "a % without two hexadecimal digits"),
        # what the gateway does not carry
        ("POST /v2/repository/models/fail/unload", 403, "`allow_control: true`"),
        ("GET /v2/systemsharedmemory/status", 501, "shared memory cannot cross the gateway"),
        ("GET /v2/logging", 403, "`allow_control: true`"),
        ("GET /metrics", 404, "unknown path"),
    ],
)
def test_paths_that_lead_nowhere(rig: Rig, line: str, status: int, text: str) -> None:
    reply = ask(rig.front, line)

    assert (reply.status, text in reply.error) == (status, True), reply.error
    assert "location" not in reply.headers


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("POST /v2", "GET, HEAD"),
        ("POST /v2/health/live", "GET, HEAD"),
        ("POST /v2/models/fail/ready", "GET, HEAD"),
        ("DELETE /v2/models/fail", "GET, HEAD"),
        ("OPTIONS /v2/models/fail/config", "GET, HEAD"),
        ("GET /v2/models/fail/infer", "POST"),
        ("PUT /v2/models/fail/versions/1/infer", "POST"),
        ("GET /v2/repository/index", "POST"),
    ],
)
def test_other_methods(rig: Rig, line: str, allowed: str) -> None:
    reply = ask(rig.front, line)

    assert (reply.status, reply.headers["allow"]) == (405, allowed)
    assert line.split()[0] in reply.error


def test_large_headers(rig: Rig) -> None:
    """Triton resets the connection."""
    reply = ask(rig.front, "GET /v2/health/live", f"X: {'x' * 70_000}")

    assert (reply.status, "limits.headers" in reply.error) == (431, True)
