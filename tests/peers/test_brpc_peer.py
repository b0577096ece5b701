"""The independent baidu_std server and client, against frames of the original and what was observed of it."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peers import grps_cpp
from tests.peers.brpc_client import Call, Client
from tests.peers.brpc_frames import (
    COMPRESS,
    DECOMPRESS,
    GZIP,
    HEADER,
    SNAPPY,
    ZLIB,
    Broken,
    Frame,
    checksum,
    crc32c,
    cut,
    snappy_compress,
    snappy_decompress,
)
from tests.peers.brpc_peer import BOMB, HOSTILE, Server, compressed_zeros
from tests.peers.grps_messages import SUCCESS, encode, failure, tensor
from tests.peers.protobuf import Document

REQUEST = bytes.fromhex(
    "50525043 00000061 00000039 0a29 0a1e 677270732e70726f746f732e76312e477270734272706353657276696365 1207"
    "50726564696374 1800 20 8280808060 5000 5800 6200 120b 74776963652d312e302e30 2a19 0a17 0a0178 1007 1a020103 520c"
    "0000803f 00000040 00004040"
)
REPLY = bytes.fromhex(
    "50525043 00000038 00000012 1202 0800 1800 20 8280808060 5000 5800 6200 0a09 08c801 1202 4f4b 1801"
    "2a19 0a17 0a0178 1007 1a020103 520c 00000040 00008040 0000c040"
)
NUMBER = 25769803778
X = tensor("x", "DT_FLOAT32", [1, 3], [1.0, 2.0, 3.0])
TWICE: Document = {"model": "twice-1.0.0", "gtensors": {"tensors": [X]}}
DOUBLED: Document = {"status": SUCCESS, "gtensors": {"tensors": [X | {"flat_float32": [2.0, 4.0, 6.0]}]}}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with grps_cpp.serve(grpc_port=None) as running:
        yield running.brpc


@pytest.fixture
def behaving(server: Server) -> Iterator[Callable[..., Server]]:
    """Changes the habits for one test."""
    before = server.habits

    def change(**habits: Any) -> Server:
        server.change(**habits)
        return server

    yield change
    server.habits = before


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


def raw(server: Server, data: bytes, size: int) -> bytes:
    """What comes back for `data`: so many bytes, or fewer if the server closes."""
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(data)
        return connection.recv(size, socket.MSG_WAITALL)


def test_the_recorded_frames(server: Server) -> None:
    assert (len(REQUEST), len(REPLY)) == (109, 68)
    assert raw(server, REQUEST, len(REPLY)) == REPLY
    assert Call(TWICE).frame(NUMBER) == REQUEST


def test_brpc_1_6_writes_less(server: Server, behaving: Callable[..., Server]) -> None:
    request, reply = older(REQUEST), older(REPLY)
    assert Call(TWICE, vendored=True).frame(NUMBER) == request
    assert raw(behaving(vendored=True), request, len(reply)) == reply


def older(data: bytes) -> bytes:
    """Without the content type and the checksum."""
    magic, size, meta_size = HEADER.unpack_from(data)
    return HEADER.pack(magic, size - 6, meta_size - 6) + data[12:].replace(bytes.fromhex("500058006200"), b"")


def test_frames_are_cut_byte_by_byte_and_with_a_tail() -> None:
    data = bytearray()
    for byte in REQUEST[:-1]:
        data.append(byte)
        assert cut(data) is None
    data += REQUEST[-1:] + REPLY[:5]
    assert cut(data) == Frame(REQUEST[12:69], REQUEST[69:])
    assert data == REPLY[:5]


def test_many_calls_out_of_order(behaving: Callable[..., Server]) -> None:
    with Client(behaving(reorder=4).address) as client:
        replies = client.exchange([Call({"str_data": str(number)}) for number in range(10)])
        numbers = [reply.number for reply in replies]
        assert [reply.message["str_data"] for reply in replies] == [str(number) for number in range(10)]
        assert numbers == [4294967298 + (each << 32) for each in range(10)]
        assert client.order == [*numbers[3::-1], *numbers[7:3:-1], *numbers[:7:-1]]


@pytest.mark.parametrize("compress", [SNAPPY, GZIP, ZLIB])
def test_compression_and_checksums_both_ways(behaving: Callable[..., Server], compress: int) -> None:
    with Client(behaving(compress=compress, with_checksum=True, attachment=b"tail").address) as client:
        reply = client.call("Predict", TWICE, compress=compress, with_checksum=True, attachment=b"12345678")
    assert (reply.message, reply.attachment, reply.meta["compress_type"]) == (DOUBLED, b"tail", compress)


def test_known_checksums_and_snappy() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert checksum(b"").hex() == "a282ead8"
    assert snappy_decompress(snappy_compress(bytes(range(256)) * 300)) == bytes(range(256)) * 300
    # A literal "ab", then copies of either kind that reach into themselves.
    assert snappy_decompress(bytes.fromhex("0e 04 6162 0d02 120200")) == b"ab" * 7
    assert COMPRESS[GZIP](b"x")[:3] == b"\x1f\x8b\x08"
    assert COMPRESS[ZLIB](b"x")[:2] == b"\x78\x9c"
    assert DECOMPRESS[GZIP](b"plain") == b""


def test_pieces_and_small_replies(behaving: Callable[..., Server]) -> None:
    with Client(behaving(piece=1, minimal=True).address) as client:
        (reply,) = client.exchange([Call(TWICE)], piece=1)
    assert (reply.message, reply.meta) == (DOUBLED, {"correlation_id": reply.number})


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (Call(method="Nothing"), 1002, "Fail to find method=grps.protos.v1.GrpsBrpcService/Nothing"),
        (Call(service="grps.protos.v1.GrpsService"), 1002, "Fail to find method=grps.protos.v1.GrpsService/Predict"),
        (Call(service="Nobody"), 1001, "Fail to find service=Nobody"),
        (Call(meta={"request": None}), 1001, "Fail to find service="),
        (Call(payload=b"\xff"), 1003, "Fail to parse request="),
        (Call(TWICE, meta={"compress_type": 9}), 1003, "Fail to parse request="),
        (Call(TWICE, meta={"compress_type": SNAPPY}), 1003, "Fail to parse request="),
        (Call(TWICE, meta={"attachment_size": 1000}), 1003, "attachment_size=1000 is larger than request_size=40"),
    ],
)
def test_error_codes(server: Server, client: Client, call: Call, code: int, text: str) -> None:
    (reply,) = client.exchange([call])
    assert reply.code == code
    assert reply.text.startswith(f"[{server.address}][E{code}]{text}")
    assert client.call("Predict", TWICE).message == DOUBLED


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call(TWICE, service="GrpsBrpcService"), DOUBLED),
        (Call(TWICE, auth=b"secret", meta={"user_fields": {"a": "b"}}), DOUBLED),
        (Call(TWICE, attachment=b"12345678"), DOUBLED),
        (Call(payload=encode(TWICE), meta={"compress_type": GZIP}), {"status": SUCCESS}),
        (Call(payload=b'{"str_data": "x"}', meta={"content_type": 1}), {"status": SUCCESS, "str_data": "x"}),
        (Call({"model": "fail-1.0.0", "str_data": "no"}), failure(500, "no")),
    ],
)
def test_what_is_accepted(client: Client, call: Call, message: Document) -> None:
    (reply,) = client.exchange([call])
    assert (reply.code, reply.message) == (0, message)


def test_correlation_ids_come_back_exactly(client: Client) -> None:
    for number in (-1, 2**63 - 1, None):
        client.send(Call(TWICE, meta={"correlation_id": number}).frame(0))
        assert client.receive().number == (number or 0)


def test_a_checksum_comes_back_under_type_0(client: Client) -> None:
    reply = client.call("Predict", TWICE, with_checksum=True)
    assert reply.meta["checksum_type"] == 0
    assert reply.meta["checksum_value"] == checksum(encode(TWICE))
    wrong = Call(TWICE, meta={"checksum_type": 1, "checksum_value": b"oops"})
    assert client.exchange([wrong])[0].code == 1003


@pytest.mark.parametrize(
    "data",
    [
        b"HULU" + REQUEST[4:],
        bytes.fromhex("50525043 04000001 00000001"),
        bytes.fromhex("50525043 00000002 00000002 ffff"),
        bytes.fromhex("50525043 00000002 00000002 0a00"),
    ],
    ids=["magic", "size", "meta", "names"],
)
def test_what_closes_the_connection(server: Server, data: bytes) -> None:
    assert raw(server, data, 1) == b""


@pytest.mark.parametrize(
    "data", [bytes.fromhex("50525043 00000001 00000002 00"), Call(method="PredictByHttp").frame(1)]
)
def test_what_is_never_answered(server: Server, data: bytes) -> None:
    with Client(server.address) as client:
        client.send(data)
        client.finish()
        with pytest.raises(EOFError):
            client.receive()


def test_a_stream_is_reset_ahead_of_the_reply(server: Server) -> None:
    request = Call(TWICE, meta={"stream_settings": {"stream_id": 7}}).frame(NUMBER)
    told = raw(server, request, 58 + len(REPLY))
    assert (told[:4], told[58:]) == (b"STRM", REPLY)


# --- Worse than any real server ---


@pytest.mark.parametrize("hostile", ["wrong-id", "stray", "twice"])
def test_replies_that_nobody_waits_for(behaving: Callable[..., Server], hostile: str) -> None:
    with Client(behaving(hostile=hostile).address) as client:
        client.send(Call(TWICE).frame(NUMBER))
        numbers = [client.receive().number for _ in range(1 if hostile == "wrong-id" else 2)]
    other = NUMBER + (1 << 32)
    assert numbers == {"wrong-id": [other], "stray": [other, NUMBER], "twice": [NUMBER, NUMBER]}[hostile]


@pytest.mark.parametrize("hostile", [name for name in HOSTILE if "bomb" not in name] + ["close"])
def test_every_reply_that_is_no_reply_is_sent(behaving: Callable[..., Server], hostile: str) -> None:
    """The bytes are what the name says: a client that takes them for a good reply fails here."""
    with Client(behaving(hostile=hostile).address) as client:
        client.send(Call(TWICE).frame(NUMBER))
        client.finish()
        try:
            good = client.receive().message == DOUBLED
        except (Broken, ValueError, KeyError, EOFError):
            good = False
    assert good == (hostile in ("", "wrong-id", "stray", "twice"))


def test_the_bomb_is_one() -> None:
    assert len(compressed_zeros()) < BOMB // 900
    beyond = (64 << 20) + 1
    assert zlib.decompressobj(31).decompress(compressed_zeros(), beyond) == bytes(beyond)


def test_an_error_for_every_call(behaving: Callable[..., Server]) -> None:
    with Client(behaving(error=(2004, "Reached server's max_concurrency=1")).address) as client:
        reply = client.call("Predict", TWICE)
    assert (reply.code, reply.text.endswith("[E2004]Reached server's max_concurrency=1")) == (2004, True)
