"""Large messages over TLS are whole, and a client that does not read does not cost memory."""

import json

import pytest

from gateway.core.messages import Message
from tests.limits import settle, until
from tests.running_gateway import reference, running_gateway
from tests.tls.certificates import Files
from tests.tls.running import at, connected, post, reply
from tests.tls.test_handshakes import listening, port
from tests.transports.http.server.toy_listener import HELLO, text_reply

pytestmark = pytest.mark.long

MESSAGE = 64 * 2**20 - 2**16
"""Bytes of a tensor. The reference server accepts 64 MiB with everything around it."""
LIMITS = "limits: {message: 200000000}"


def two_gateways(files: Files, far_port: int, protocol: str) -> str:
    return f"""
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {files.server}, {LIMITS}}}]
backends:
  far: {{protocol: {protocol}, endpoints: ["localhost:{far_port}"], tls: {{ca: {files.ca}}}, {LIMITS}}}
routes: [{{match: {{model: identity}}, backend: far}}]
"""


async def test_64_mib_go_through_two_gateways_and_back(files: Files) -> None:
    """Over HTTP, gRPC and TCP, each with TLS on both sides."""
    tensor = bytes(range(256)) * (MESSAGE // 256)
    item = {"name": "x", "datatype": "UINT8", "shape": [1, MESSAGE], "parameters": {"binary_data_size": MESSAGE}}
    head = json.dumps({"inputs": [item], "parameters": {"binary_data_output": True}}).encode()
    request = post("/v2/models/identity/infer", head + tensor, f"Inference-Header-Content-Length: {len(head)}\r\n")
    protocols = ("v2-rest", "v2-grpc", "grps-brpc")
    listeners = "".join(
        f"  - {{name: {name}, bind: 127.0.0.1:0, protocols: [{name}], tls: {files.server}, {LIMITS}}}\n"
        for name in protocols
    )
    async with reference("v2-rest", "identity") as server:
        far = f"""
listeners:
{listeners}
backends: {{lab: {{protocol: v2-rest, flavor: binary, endpoints: ["{server}"], {LIMITS}}}}}
routes: [{{match: {{model: identity}}, backend: lab}}]
"""
        async with running_gateway(far) as behind:
            for name in protocols:
                async with (
                    running_gateway(two_gateways(files, at(behind, name), name)) as gateway,
                    connected(at(gateway, "http"), files.trusting()) as (reader, writer),
                ):
                    writer.write(request)
                    status, body = await reply(reader)
                    assert status == 200, (name, body[:300])
                    assert body[-MESSAGE:] == tensor, name


async def test_a_client_that_does_not_read_holds_one_reply_and_no_copy_of_it(files: Files) -> None:
    """The gateway hands TLS a piece at a time; all that is unread is counted."""
    body = "x" * (16 * 2**20)
    answered: list[Message] = []

    def answer(message: Message, _: object) -> Message:
        answered.append(message)
        return text_reply(body)

    async with (
        listening(files, answer=answer) as listener,
        connected(port(listener), files.trusting()) as (reader, writer),
    ):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(3):
            writer.write(HELLO)
            await writer.drain()
        await until(lambda: answered, 0)
        await settle(1000)
        [served] = listener._connections._open
        transport = served._transport  # type: ignore[attr-defined]
        assert len(answered) == 1
        held = transport.get_write_buffer_size()
        assert 0 < held <= len(body) + 2**10
        # In TLS and at the socket, encrypted: a few pieces.
        assert held - transport._unwritten_bytes < 2**19
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(3):
            assert await reply(reader) == (200, body.encode())
        assert transport.get_write_buffer_size() == 0
