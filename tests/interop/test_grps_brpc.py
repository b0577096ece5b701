"""A baidu_std client and a baidu_std server that are not ours, and the gateway between them; V2 clients in front of the
same server; and bytes that no real peer sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Listen, post
from tests.interop.kubemo_server import exchanged
from tests.peers import grps_cpp
from tests.peers.brpc_client import Call, Client
from tests.peers.brpc_frames import GZIP, SNAPPY, ZLIB
from tests.peers.brpc_peer import HOSTILE, Server, compressed_zeros
from tests.peers.grps_messages import encode
from tests.peers.protobuf import Document
from tests.peers.test_brpc_peer import DOUBLED, TWICE

CONFIG = """
listeners:
  - {{name: brpc, bind: "tcp://127.0.0.1:{brpc}", protocols: [grps-brpc], limits: {{message: 1000000}}}}
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}
backends:
  grps:
    protocol: grps-brpc
    endpoints: ["{server}"]
    limits: {{message: 1000000}}
    policies: [timeout: {{seconds: 1}}]
routes:
  - {{match: {{protocol: v2-rest, model: double}}, backend: grps, rewrite: {{model: twice, version: 1.0.0}}}}
  - {{match: {{protocol: grps-brpc}}, backend: grps}}
"""

ECHO: Document = {"model": "echo-1.0.0", "str_data": "x"}

Behave = Callable[..., Server]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with grps_cpp.serve(grpc_port=None) as running:
        yield running.brpc


@pytest.fixture(scope="module")
def addresses(listen: Listen, server: Server) -> Addresses:
    return listen(CONFIG, server=server.address)


@pytest.fixture
def behaving(server: Server) -> Iterator[Behave]:
    """Changes the server's habits for one test."""
    before = server.habits

    def change(**habits: Any) -> Server:
        server.change(**habits)
        return server

    yield change
    server.habits = before


@pytest.fixture
def client(addresses: Addresses) -> Iterator[Client]:
    with Client(addresses["brpc"]) as connected:
        yield connected


def one(client: Client, call: Call) -> tuple[int, str, Document]:
    [reply] = client.exchange([call])
    return reply.code, reply.text, reply.message


# --- What real peers do ---


@pytest.mark.parametrize("vendored", [False, True], ids=["brpc 1.17", "brpc 1.6"])
@pytest.mark.parametrize("minimal", [False, True], ids=["usual reply", "smallest reply"])
def test_a_call(client: Client, behaving: Behave, vendored: bool, minimal: bool) -> None:
    behaving(minimal=minimal, vendored=vendored)
    assert one(client, Call(TWICE, vendored=vendored)) == (0, "", DOUBLED)


def test_byte_by_byte_in_both_directions(client: Client, behaving: Behave) -> None:
    behaving(piece=1)
    [reply] = client.exchange([Call(TWICE)], piece=1)
    assert reply.message == DOUBLED


def test_hundreds_of_calls_on_one_connection_each_way(client: Client, behaving: Behave) -> None:
    server = behaving(reorder=64)
    before = server.connections
    replies = client.exchange([Call(ECHO | {"str_data": str(number)}) for number in range(500)])
    assert [reply.message["str_data"] for reply in replies] == [str(number) for number in range(500)]
    assert client.order != [reply.number for reply in replies]
    assert not client.strays
    assert server.connections - before <= 1


@pytest.mark.parametrize("number", [0, 4294967298, 2**63 - 1, -1, -(2**63), None])
def test_correlation_ids_are_exact(client: Client, number: int | None) -> None:
    client.send(Call(TWICE, meta={"correlation_id": number}).frame(0))
    assert client.receive().number == (number or 0)


@pytest.mark.parametrize("compress", [SNAPPY, GZIP, ZLIB], ids=["snappy", "gzip", "zlib"])
@pytest.mark.parametrize("size", [3, 200_000], ids=["small", "large"])
def test_compression_checksums_and_attachments(client: Client, behaving: Behave, compress: int, size: int) -> None:
    behaving(compress=compress, with_checksum=size == 3, attachment=b"tail")
    message = ECHO | {"str_data": "x" * size}
    call = Call(message, compress=compress, with_checksum=size == 3, attachment=b"12345678")
    [reply] = client.exchange([call])
    assert reply.message["str_data"] == "x" * size
    # ours are neither compressed nor summed
    assert (reply.meta["compress_type"], reply.meta.get("checksum_type", 0), reply.attachment) == (0, 0, b"tail")


@pytest.mark.parametrize("attachment", [b"\0\xff\x80tail", bytes(range(256)) * 1000], ids=["small", "large"])
def test_an_attachment_goes_to_the_server_and_comes_back(client: Client, behaving: Behave, attachment: bytes) -> None:
    behaving(returns_attachment=True)
    replies = client.exchange([Call(TWICE, attachment=attachment), Call(TWICE), Call(TWICE, attachment=b"2")])
    assert [(reply.code, reply.message) for reply in replies] == [(0, DOUBLED)] * 3
    assert [reply.attachment for reply in replies] == [attachment, b"", b"2"]


def test_only_inferences_have_attachments(client: Client) -> None:
    [reply] = client.exchange([Call({"str_data": "twice-1.0.0"}, method="ModelMetadata", attachment=b"12345")])
    text = "an attachment of 5 bytes; only Predict can have one"
    assert reply.message["status"] == {"code": 400, "msg": text, "status": "FAILURE"}


def test_a_v2_client_is_told_of_an_attachment_that_it_would_not_get(addresses: Addresses, behaving: Behave) -> None:
    behaving(attachment=b"tail")
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    status, document = post(addresses["http"], "/v2/models/double/infer", inputs=[x])
    text = "backend 'grps': the reply has a brpc attachment of 4 bytes, which v2-rest cannot carry"
    assert (status, document["error"]) == (502, text)


@pytest.mark.parametrize(
    "call",
    [
        Call(TWICE, service="GrpsBrpcService"),
        Call(TWICE, auth=b"secret", meta={"user_fields": {"a": "b"}}),
        Call(TWICE, meta={"stream_settings": {"stream_id": 7}}),
        Call(payload=b'{"model": "twice-1.0.0", "gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32",'
             b' "shape": [1, 3], "flat_float32": [1, 2, 3]}]}}', meta={"content_type": 1}),
    ],
    ids=["bare name", "authentication", "stream", "JSON"],
)  # fmt: skip
def test_what_is_accepted(client: Client, call: Call) -> None:
    assert one(client, call) == (0, "", DOUBLED)


def test_the_deadline_goes_on_to_the_server(client: Client, server: Server) -> None:
    names = {"service_name": "grps.protos.v1.GrpsBrpcService", "method_name": "Predict"}
    assert one(client, Call(TWICE, meta={"request": {**names, "timeout_ms": 500}}))[0] == 0
    asked, _ = server.requests[-1]
    assert 0 < asked["request"]["timeout_ms"] <= 500


def test_errors_of_the_model_are_in_the_body(client: Client) -> None:
    code, _, message = one(client, Call({"model": "fail-1.0.0", "str_data": "no"}))
    assert (code, message["status"]["status"], message["status"]["msg"]) == (0, "FAILURE", "no")


# --- Clients that are wrong ---


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (Call(method="Nothing"), 1002),
        (Call(method="PredictByHttp"), 1002),
        (Call(service="grps.protos.v1.GrpsService"), 1002),
        (Call(service="Nobody"), 1001),
        (Call(meta={"request": None}), 1001),
        (Call(payload=b"\xff"), 1003),
        (Call(TWICE, meta={"compress_type": 9}), 1003),
        (Call(TWICE, meta={"compress_type": SNAPPY}), 1003),
        (Call(payload=b"\xff\xff\xff\xff\x0f", meta={"compress_type": SNAPPY}), 1003),
        (Call(payload=encode(TWICE), meta={"compress_type": GZIP}), 1003),
        (Call({"bin_data": bytes(2_000_000)}, compress=GZIP), 1003),
        (Call(TWICE, meta={"attachment_size": 1000}), 1003),
        (Call(TWICE, meta={"attachment_size": -1}), 1003),
        (Call(TWICE, meta={"checksum_type": 1, "checksum_value": b"oops"}), 1003),
    ],
)
def test_an_error_is_a_reply_and_the_connection_goes_on(client: Client, call: Call, code: int) -> None:
    found, text, _ = one(client, call)
    assert found == code
    assert text.startswith(f"[E{code}]")
    assert one(client, Call(TWICE)) == (0, "", DOUBLED)


def test_a_frame_beyond_the_limit_is_answered_by_its_meta(client: Client) -> None:
    code, text, _ = one(client, Call({"bin_data": bytes(2_000_000)}))
    assert code == 1003
    assert "larger than limits.message, 1000000 bytes" in text
    assert one(client, Call(TWICE)) == (0, "", DOUBLED)


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"PRPC\0\0\0\1\0\0\0\2\0", b"PRPC\0\0\0\2\0\0\0\2\xff\xff", b"PRPC" + b"\xff" * 8],
    ids=["magic", "meta larger than body", "garbage meta", "meta beyond the limit"],
)
def test_what_has_no_correlation_id_ends_the_connection_at_once(addresses: Addresses, data: bytes) -> None:
    assert b"[E1003]" in exchanged(f"tcp://{addresses['brpc']}", data)


# --- Servers that are wrong ---


@pytest.mark.parametrize("hostile", sorted({*HOSTILE, "close"} - {"", "stray", "twice"}))
def test_a_reply_that_is_none_is_an_error_and_the_next_call_is_answered(
    client: Client, behaving: Behave, hostile: str
) -> None:
    compressed_zeros()  # made once, in more than the second that the gateway waits
    behaving(hostile=hostile)
    code, _, message = one(client, Call(TWICE))
    late = hostile in ("silent", "wrong-id")
    gone = hostile in ("cut", "close")
    assert code == 0
    assert message["status"]["code"] == (504 if late else 503 if gone else 502)
    behaving(hostile="")
    assert one(client, Call(TWICE)) == (0, "", DOUBLED)


@pytest.mark.parametrize("hostile", ["stray", "twice"])
def test_replies_that_nobody_waits_for_are_dropped(client: Client, behaving: Behave, hostile: str) -> None:
    behaving(hostile=hostile)
    for _ in range(3):
        assert one(client, Call(TWICE)) == (0, "", DOUBLED)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ((2004, "Reached server's max_concurrency=1"), 429),
        ((1011, "overcrowded"), 429),
        ((1002, "no"), 501),
        ((1003, "Fail to parse request"), 400),
        ((2003, "Server is stopping"), 503),
        ((2001, "x"), 500),
    ],
)
def test_an_error_of_the_servers_frame(client: Client, behaving: Behave, error: tuple[int, str], status: int) -> None:
    server = behaving(error=error)
    code, _, message = one(client, Call(TWICE))
    text = f"backend 'grps' at {server.address}: {error[1]}" if status == 503 else error[1]
    assert (code, message["status"]["code"], message["status"]["msg"]) == (0, status, text)
