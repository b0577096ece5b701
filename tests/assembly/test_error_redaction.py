"""`errors: {detail: brief}`: clients do not learn what is behind the gateway; the log tells it."""

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.assembly.error_redaction import ErrorRedaction
from gateway.assembly.registry import protocols
from gateway.client import AsyncClient, ClientError
from gateway.config.keys import Config
from gateway.core.errors import Reason, refusal
from gateway.core.messages import Message
from tests.paused_server import QUESTION, ask, get, http, port_of
from tests.running_gateway import config_of, running_gateway
from tests.test_loops import INFER

CONFIG = """
listeners: [{name: round, bind: "127.0.0.1:0", protocols: [PROTOCOL], model: m, errors: {detail: DETAIL}}]
backends:
  secret-lab: {protocol: v2-rest, flavor: plain, endpoints: ["${file:PATH}", "hidden.invalid:1", "http://h.invalid:2/x"]}
  other: {protocol: mip, endpoints: ["unix:///run/secret.sock"]}
routes: [{match: {model: m}, backend: secret-lab}]
"""


@pytest.fixture
def path(tmp_path) -> str:  # type: ignore[no-untyped-def]
    (tmp_path / "address").write_text("127.0.0.1:1")
    return str(tmp_path / "address")


def config(path: str, protocol: str = "v2-rest", detail: str = "brief", text: str = CONFIG) -> Config:
    text = text.replace("PATH", path).replace("PROTOCOL", protocol).replace("DETAIL", detail)
    return config_of(text)


@pytest.mark.parametrize("protocol", sorted(protocols()))
@pytest.mark.parametrize("detail", ["full", "brief"])
async def test_what_clients_are_told_when_a_backend_is_down(
    path: str, protocol: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(config(path, protocol, detail)) as gateway:
        address = gateway.state.listeners["round"].address
        async with AsyncClient(address, protocol=protocol) as client:
            with pytest.raises(ClientError) as failed:
                await client.ask(INFER)
    told = failed.value.message
    if detail == "full":
        assert "backend 'secret-lab' at " in told
    else:
        assert "the model's server cannot be reached" in told
        assert "secret" not in told
        assert "invalid" not in told
        assert "127.0.0.1:1:" not in told
        assert any("backend 'secret-lab' at " in each.getMessage() for each in caplog.records)


TEXTS = {
    "backend 'secret-lab' at 127.0.0.1:1: status 302": "a model server: status 302",
    "backend 'secret-lab' at 127.0.0.1:1: status 302, expected 200; it redirects to 'https://secret-host/x', which":
        "a model server: status 302, expected 200",
    "backend 'secret-lab': 5 of 5 places in the queue": "a model server: 5 of 5 places in the queue",
    "endpoints 127.0.0.1:1 and hidden.invalid:1 of backend 'secret-lab' differ":
        "endpoints its address and its address of a model server differ",
    "backend 'other' at unix:///run/secret.sock: no": "a model server: no",
    "the model says http://h.invalid:2/x failed": "the model says its address failed",
    "h.invalid:2 refused": "its address refused",
    "backend 'secret-lab' (triton) has no streams": "a model server has no streams",
    "not ready: backends 'other', 'secret-lab'": "not ready: a model server",
    "input 'backend' of x": "input 'backend' of x",
    "shape [2], expected [3]": "shape [2], expected [3]",
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_names_and_addresses_are_left_out_and_no_more(path: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    protocol = ErrorRedaction(config(path)).protocol(protocols()["umbridge"], "round")
    reply = protocol.encode_error(refusal(Reason.INVALID_OUTPUT, text), None, Message(peer="1.2.3.4:5"))
    assert f'"{TEXTS[text]}"'.encode() in bytes(reply.body)
    logged = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert logged == ([] if TEXTS[text] == text else [f"listener 'round', client 1.2.3.4:5, model '': {text}"])


async def failing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server whose errors say more than their text."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(http(b"HTTP/1.1 422 No\r\nContent-Type: application/json", b'{"error": "no", "node": "secret-node"}'))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(("detail", "is_told"), [("full", True), ("brief", False)])
async def test_other_members_of_a_servers_error_pass_only_in_full(tmp_path: Path, detail: str, is_told: bool) -> None:
    server = await asyncio.start_server(failing, "127.0.0.1", 0)
    async with server:
        address = tmp_path / "address"
        address.write_text(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        text = CONFIG.replace(', "hidden.invalid:1", "http://h.invalid:2/x"', "").replace("plain", "triton")
        async with running_gateway(config(str(address), "v2-rest", detail, text)) as gateway:
            call = http(b"POST /v2/models/m/infer HTTP/1.1\r\nConnection: close", QUESTION)
            reply = await ask(port_of(gateway.state.listeners["round"].address), call)
    assert reply.startswith(b"HTTP/1.1 422 " if is_told else b"HTTP/1.1 400 ")
    assert b'"no"' in reply
    assert (b"secret-node" in reply) is is_told


async def test_readiness_names_no_backend(path: str) -> None:
    async with running_gateway(config(path)) as gateway:
        reply = await ask(port_of(gateway.state.listeners["round"].address), get("/v2/health/ready"))
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"secret" not in reply
