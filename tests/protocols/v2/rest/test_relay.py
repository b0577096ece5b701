"""Requests that pass unread between two sides of V2 REST: which of them a server of each type gets."""

import pytest

from gateway.core.exchange import unread
from gateway.core.messages import Headers
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.recorded import target
from tests.protocols.v2.rest.test_generate import message
from tests.protocols.v2.rest.wire import LISTENER

X = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'
WITH_ID = b'{"id":"7",' + X[1:]
HALF = X.replace(b"FP32", b"FP16")
HALF_IN_BINARY = X.replace(b"FP32", b"FP16").replace(b'"data":[1]', b'"parameters":{"binary_data_size":2}')
ASKS_FOR_BINARY = b'{"parameters":{"binary_data_output":true},' + HALF_IN_BINARY[1:]
ASKS_FOR_BOTH = ASKS_FOR_BINARY[:-1] + b',"outputs":[{"name":"y","parameters":{"binary_data":false}}]}'
MEMBERS = b'{"n":1,"text":"a"}'


@pytest.mark.parametrize(
    ("flavor", "path", "body", "binary", "passes"),
    [
        ("triton", "infer", X, b"", True),
        # Triton and KServe have 16 bits only in binary
        ("triton", "infer", HALF, b"", False),
        ("triton", "infer", HALF_IN_BINARY, b"\0\0", False),
        ("triton", "infer", ASKS_FOR_BINARY, b"\0\0", True),
        ("triton", "infer", ASKS_FOR_BOTH, b"\0\0", False),
        ("binary", "infer", HALF, b"", True),
        ("plain", "infer", ASKS_FOR_BINARY, b"\0\0", False),
        # KServe fails without an id, and lacks BF16
        ("kserve", "infer", X, b"", False),
        ("kserve", "infer", WITH_ID, b"", True),
        ("kserve", "infer", WITH_ID.replace(b"FP32", b"BF16"), b"", False),
        # a path of `generate` has two meanings
        ("triton", "generate", MEMBERS, b"", True),
        ("triton", "generate", X, b"", False),
        ("mlserver", "generate", MEMBERS, b"", False),
        ("mlserver", "generate_stream", X, b"", True),
        ("binary", "generate_stream", MEMBERS, b"", True),
        ("binary", "generate_stream", X, b"", True),
        ("kserve", "generate", WITH_ID, b"", False),
        ("plain", "generate_stream", X, b"", False),
    ],
)
def test_what_a_server_gets_unread(flavor: str, path: str, body: bytes, binary: bytes, passes: bool) -> None:
    length = ((b"inference-header-content-length", b"%d" % len(body)),) if binary else ()
    asked = message(body + binary, path, Headers(length))
    request = unread(asked, V2_REST, LISTENER)
    assert request is not None
    assert V2_REST.relay is not None
    sent = V2_REST.relay.request(asked, request, target(flavor))
    assert (sent is not None) is passes
    if sent is not None:
        assert (sent.path, bytes(sent.body)) == (f"/v2/models/m/{path}", body + binary)
