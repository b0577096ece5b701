"""Payloads in a coding, and checksums of them."""

import gzip
import random
import subprocess
import sys
import zlib
from collections.abc import Callable

import cramjam
import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.protocols.grps.brpc import frames
from gateway.protocols.grps.brpc import payload as brpc_payload
from tests.limits import GENEROUS
from tests.protocols.grps.brpc.recorded import META, PAYLOAD, joined
from tests.protocols.grps.brpc.wire import arrived
from tests.traced import traced

MIB = 2**20


def snappy(payload: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(payload))


CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("1801", snappy),
    ("1802", gzip.compress),
    ("1803", zlib.compress),
]
each_coding = pytest.mark.parametrize(("field", "compress"), CODINGS, ids=["snappy", "gzip", "zlib"])


def compressed(field: str, payload: bytes, more: str = "", attachment: bytes = b"") -> Message:
    return arrived(joined(META + bytes.fromhex(field + more), payload + attachment))


def inflated(message: Message, limit: int = MIB, attachment: bytes = b"") -> bytes:
    assert brpc_payload.is_compressed(message)
    frame = frames.read_frame(brpc_payload.inflate(message, Limits(message=limit)))
    assert (frame.meta.compress_type, bytes(frame.attachment), frame.meta.checksum_type) == (0, attachment, 0)
    return bytes(frame.payload)


@each_coding
def test_a_payload_is_inflated(field: str, compress: Callable[[bytes], bytes]) -> None:
    message = compressed(field, compress(PAYLOAD))
    assert inflated(message) == PAYLOAD
    frame = frames.read_frame(brpc_payload.inflate(message, Limits(message=MIB)))
    assert frame.meta.request.method_name == "Predict"
    assert frame.meta.correlation_id == frames.read_correlation_id(message)


@each_coding
@pytest.mark.parametrize("payload", [b"", b"\0", bytes(100_000), random.Random(1).randbytes(100_000)])
def test_payloads_of_any_sort(field: str, compress: Callable[[bytes], bytes], payload: bytes) -> None:
    assert inflated(compressed(field, compress(payload))) == payload


def test_what_is_not_all_there_is_not_inflated() -> None:
    """It is beyond the limit."""
    message = compressed("1802", gzip.compress(PAYLOAD))
    assert not brpc_payload.is_compressed(Message(parts=(message.parts[0], message.parts[1][:-1])))


@each_coding
def test_the_attachment_is_not_compressed(field: str, compress: Callable[[bytes], bytes]) -> None:
    message = compressed(field, compress(PAYLOAD), "2808", b"attached")
    assert inflated(message, attachment=b"attached") == PAYLOAD


@each_coding
def test_the_limit_is_for_what_it_inflates_to(field: str, compress: Callable[[bytes], bytes]) -> None:
    message = compressed(field, compress(bytes(1000)))
    assert len(inflated(message, 1000)) == 1000
    with pytest.raises(GatewayError, match=r"inflates to more than 999 bytes.*limits\.message, 999 bytes") as error:
        inflated(message, 999)
    assert error.value.reason is Reason.TOO_LARGE


@each_coding
def test_a_bomb_takes_little_more_memory_than_the_limit(field: str, compress: Callable[[bytes], bytes]) -> None:
    message = compressed(field, compress(bytes(64 * MIB)))
    with traced() as memory, pytest.raises(GatewayError, match="inflates to more than"):
        inflated(message, 32 * MIB)
    assert memory.peak < 48 * MIB


def test_a_length_that_snappy_data_cannot_have_is_not_allocated() -> None:
    message = compressed("1801", bytes.fromhex("80808020") + bytes(100))  # 64 MiB
    with traced() as memory, pytest.raises(DecodeError, match="104 bytes cannot become 67108864"):
        inflated(message, 64 * MIB)
    assert memory.peak < MIB


@pytest.mark.parametrize(
    ("field", "payload", "why"),
    [
        ("1801", b"", "not snappy data: it does not begin with a length"),
        ("1801", b"\xff" * 11, "not snappy data: it does not begin with a length"),
        ("1801", b"\x05ab", "not snappy data: snappy: corrupt input"),
        ("1801", snappy(PAYLOAD)[:-1], "not snappy data: snappy: corrupt input"),
        ("1801", snappy(PAYLOAD) + b"\0", "not snappy data: snappy: corrupt input"),
        ("1802", PAYLOAD, "not gzip data: Error -3"),  # the real server takes it for an empty message
        ("1802", b"", "ends before its gzip data does"),
        ("1802", gzip.compress(PAYLOAD, mtime=0)[:-1], "ends before its gzip data does"),
        ("1802", gzip.compress(PAYLOAD, mtime=0) + b"x", "bytes behind the end of the payload's gzip data"),
        ("1802", zlib.compress(PAYLOAD), "not gzip data"),
        ("1803", gzip.compress(PAYLOAD, mtime=0), "not zlib data"),
        ("1803", zlib.compress(PAYLOAD)[:-1], "ends before its zlib data does"),
        ("1803", zlib.compress(PAYLOAD) * 2, "bytes behind the end of the payload's zlib data"),
    ],
)
def test_what_is_not_in_its_coding(field: str, payload: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        inflated(compressed(field, payload))


@pytest.mark.parametrize(
    "meta",
    [
        META,
        META + bytes.fromhex("1804"),  # lz4: a number without a handler
        META + bytes.fromhex("18 ffffffffffffffffff01"),
        bytes.fromhex("1203 08ea07 1802"),  # of an error nobody reads the payload
        b"\xff",
    ],
)
def test_what_is_not_inflated(meta: bytes) -> None:
    assert not brpc_payload.is_compressed(arrived(joined(meta, gzip.compress(PAYLOAD, mtime=0))))


WITHOUT_THE_EXTRA = """
import asyncio, sys
sys.modules.update(cramjam=None, google_crc32c=None)  # as if they were not installed
from gateway.core.exchange import answer, ask
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.operations import Operation
from gateway.core.transport import Destination
from gateway.core.messages import Message
from gateway.core.requests import Request
from gateway.protocols.grps import GRPS_BRPC
from gateway.protocols.grps.brpc.frames import read_meta

class Server:
    def __init__(self, reply):
        self.reply = reply

    async def exchange(self, message):
        return self.reply

def arrived(data):
    return Message(parts=(data[:12], data[12:]))

for data in sys.argv[1:]:
    message = arrived(bytes.fromhex(data))
    reply = answer(message, GRPS_BRPC, ListenerSettings(), lambda request: Destination())
    refused = read_meta(arrived(reply.body)).response
    print(refused.error_code, refused.error_text)
    try:
        asyncio.run(ask(Request(Operation.INFER), GRPS_BRPC, Server(message), Target("llm", "here:1")))
    except Exception as error:
        print(error.reason.value, error)
"""


def test_without_the_extra_the_error_names_it_and_whoever_needs_it() -> None:
    needs = (("1801", "compress_type 1 (snappy)"), ("5801", "checksum_type 1 (crc32c)"))
    frames = [joined(META + bytes.fromhex(field), b"") for field, _ in needs]
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, *(frame.hex() for frame in frames)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GENEROUS).stdout
    texts = [f'{what} needs a library that is not installed here: pip install "modelglot[brpc]"' for _, what in needs]
    expected = [(f"1003 [E1003]{text}", f"invalid-output backend 'llm' at here:1: {text}") for text in texts]
    assert told.splitlines() == [line for pair in expected for line in pair]


# --- Checksums ---

NINE = b"123456789"
# Their CRC-32C is e3069283, the check value of its definition; turned right by 15 bits and 0xa282ead8 added, c78ab0e5.
SUM = "6204 c78ab0e5"


@pytest.mark.parametrize(
    ("more", "attachment"),
    [("5801" + SUM, b""), ("2803 5801" + SUM, b"abc"), ("2803 5801 6801" + SUM, b"")],
    ids=["payload", "beside an attachment", "with the attachment"],
)
def test_a_checksum_that_is_right(more: str, attachment: bytes) -> None:
    message = arrived(joined(META + bytes.fromhex(more), NINE + attachment))
    brpc_payload.verify_checksum(frames.read_frame(message))


def test_a_checksum_of_no_type_is_not_looked_at() -> None:
    """As a real server's reply has it: the request's, under type 0."""
    brpc_payload.verify_checksum(frames.read_frame(arrived(joined(META + bytes.fromhex("5800 6204 00000000"), NINE))))


@pytest.mark.parametrize(
    ("more", "payload", "why"),
    [
        ("5801" + SUM, NINE + b"0", "checksum_value is c78ab0e5, but the payload's is [0-9a-f]{8} "),
        ("5801 6204 c78ab0e6", NINE, "checksum_value is c78ab0e6, but the payload's is c78ab0e5 "),
        ("5801 6204 e3069283", NINE, "checksum_value is e3069283, but"),
        ("5801 6203 c78ab0", NINE, "checksum_value is c78ab0, but"),
        ("5801", NINE, "checksum_value is empty, but"),
        ("2801 5801 6801" + SUM, NINE + b"0", "checksum_value is c78ab0e5, but"),
        ("5802" + SUM, NINE, r"checksum_type 2 is unknown, expected 0 \(none\) or 1"),
        ("58 ffffffffffffffffff01" + SUM, NINE, "checksum_type -1 is unknown"),
    ],
)
def test_a_checksum_that_is_wrong(more: str, payload: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        brpc_payload.verify_checksum(frames.read_frame(arrived(joined(META + bytes.fromhex(more), payload))))


def test_the_checksum_is_of_the_compressed_payload() -> None:
    packed = gzip.compress(PAYLOAD, mtime=0)
    wrong = compressed("1802", packed, "5801" + SUM)
    with pytest.raises(DecodeError, match=r"the payload's is [0-9a-f]{8}") as error:
        inflated(wrong)
    found = str(error.value).split("payload's is ")[1][:8]
    assert inflated(compressed("1802", packed, f"5801 6204 {found}")) == PAYLOAD
