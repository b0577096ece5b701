"""Who may do what, through a running gateway: every wire form, with keys, tokens and without; before bodies are
received; and while keys and issuers change."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import grpc.aio
import httpx
import pytest

from gateway.assembly import issuer_keys, registry
from gateway.assembly.authentication import Access
from gateway.auth.keys import KeyEntry, new_key, write_keys
from gateway.config import Config
from gateway.config.access import ListenerAuthConfig
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.messages import Headers
from gateway.core.tasks import spawn
from gateway.core.tensors import Tensor
from gateway.protocols.grps.schema import RpcMeta
from gateway.runtime.app import Gateway
from tests.attacks.clients import message
from tests.auth.issuer import Issuer, served
from tests.limits import GENEROUS, settle, until
from tests.paused_server import port_of
from tests.running_gateway import config_of, running_gateway
from tests.skipping_loop import skip

ALICE, ALICE_ENTRY = new_key("alice")
BOB, BOB_ENTRY = new_key("bob")

CONFIG = """
auth:
  keys: {file: FILE}
permissions:
  doubling: [{operations: [infer, metadata], models: ["double*"]}]
principals:
  alice: {permissions: [doubling]}
  guest: {permissions: [doubling]}
  root: {permissions: [all]}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, graphpipe, grps-rest, v1-rest], model: double,
     prefix: {graphpipe: /graphpipe, umbridge: /science}, auth: {}, allow_control: true, allow_offline: true}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc], model: double, auth: {}, allow_control: true}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc], model: double, auth: {}}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: double, auth: {anonymous: guest}}
backends:
  lab: {protocol: v2-rest, endpoints: ["127.0.0.1:PORT"], flavor: plain}
routes: [{match: {}, backend: lab}]
reload: {interval: 0.1}
"""
REFERENCE = 'reference: [{protocol: v2-rest, bind: "127.0.0.1:0", models: [double, posterior]}]\n'
SERVER = 'listeners: [{name: own, bind: "127.0.0.1:0", protocols: [v2-rest]}]\n' + REFERENCE

INFER = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.0, 2.0]}]}
X = Tensor("x", Datatype.FP64, (1, 2), struct.pack("<2d", 1, 2))


def config(text: str, file: Path, port: int) -> Config:
    return config_of(text.replace("FILE", str(file)).replace("PORT", str(port)))


@pytest.fixture
async def server() -> AsyncIterator[int]:
    """The port of a model server with `double` and `posterior`."""
    async with running_gateway(SERVER) as gateway:
        yield port_of(gateway.references[0].address)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "keys.yaml"
    write(written, ALICE_ENTRY, BOB_ENTRY)
    return written


def write(file: Path, *entries: KeyEntry) -> None:
    new = file.with_suffix(".new")
    new.write_text(write_keys(entries))
    new.replace(file)


@pytest.fixture
async def gateway(file: Path, server: int) -> AsyncIterator[Gateway]:
    async with running_gateway(config(CONFIG, file, server)) as found:
        yield found


def url(gateway: Gateway, path: str, listener: str = "http") -> str:
    return f"http://{gateway.state.listeners[listener].address}{path}"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=GENEROUS, trust_env=False) as made:
        yield made


def key(text: str) -> dict[str, str]:
    return {"x-api-key": text}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


INFER_METHOD = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture
async def channel(gateway: Gateway) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as found:
        yield found


HTTP_INFERENCES: dict[str, tuple[str, object]] = {
    "v2-rest": ("/v2/models/MODEL/infer", INFER),
    "v1-rest": ("/v1/models/MODEL:predict", {"instances": [[1.0, 2.0]]}),
    "umbridge": ("/science/Evaluate", {"name": "MODEL", "input": [[1, 2, 3]], "config": {}}),
    "grps-rest": (
        "/grps/v1/infer/predict",
        {
            "model": "MODEL",
            "gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT64", "shape": [1, 2], "flat_float64": [1, 2]}]},
        },
    ),
}


@pytest.mark.parametrize(("path", "body"), HTTP_INFERENCES.values(), ids=HTTP_INFERENCES)
async def test_over_http_the_status_says_who_may_what(
    path: str, body: object, gateway: Gateway, client: httpx.AsyncClient
) -> None:
    async def status(model: str, headers: dict[str, str]) -> httpx.Response:
        content = json.dumps(body).replace("MODEL", model)
        json_headers = {"content-type": "application/json", **headers}
        return await client.post(url(gateway, path.replace("MODEL", model)), content=content, headers=json_headers)

    for headers in ({}, key("wrong"), bearer("wrong")):
        refused = await status("double", headers)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert "wrong" not in refused.text
    assert (await status("double", key(ALICE))).status_code == 200
    assert (await status("double", bearer(ALICE))).status_code == 200
    for model in ("posterior", "nothing"):  # whether there is such a model is not told
        forbidden = await status(model, key(ALICE))
        assert forbidden.status_code == 403
        assert "'alice' does not have the permission" in forbidden.text
    assert (await status("double", key(BOB))).status_code == 403


async def test_basic_has_the_key_as_password(gateway: Gateway, client: httpx.AsyncClient) -> None:
    path = url(gateway, "/v2/models/double")
    assert (await client.get(path, auth=("anybody", ALICE))).status_code == 200
    assert (await client.get(path, auth=(ALICE, ""))).status_code == 401


async def test_control_needs_its_own_permission(gateway: Gateway, client: httpx.AsyncClient) -> None:
    for path in ("/v2/repository/models/double/load", "/v2/logging"):
        refused = await client.post(url(gateway, path), json={}, headers=key(ALICE))
        assert refused.status_code == 403
    assert (await client.get(url(gateway, "/grps/v1/health/offline"), headers=key(ALICE))).status_code == 403
    assert (await client.get(url(gateway, "/v2/health/ready"), headers=key(ALICE))).status_code == 200


async def test_lists_have_only_what_the_client_may_see(gateway: Gateway, client: httpx.AsyncClient) -> None:
    listed = await client.post(url(gateway, "/v2/repository/index"), json={}, headers=key(ALICE))
    assert {each["name"] for each in listed.json()} == {"double"}
    refused = await client.post(url(gateway, "/v2/repository/index"), json={}, headers=key(BOB))
    assert refused.status_code == 403
    assert "double" not in refused.text
    assert (await client.get(url(gateway, "/science/Info"), headers=key(ALICE))).json()["models"] == ["double"]


async def test_over_grpc_metadata_have_the_key(channel: grpc.aio.Channel) -> None:
    infer = channel.unary_unary(INFER_METHOD)
    asked = message("v2-grpc", "double", X)
    for metadata in (("x-api-key", ALICE), ("authorization", f"Bearer {ALICE}")):
        assert await infer(asked, metadata=(metadata,))
    for wrong, status in (
        ((), grpc.StatusCode.UNAUTHENTICATED),
        ((("x-api-key", "wrong"),), grpc.StatusCode.UNAUTHENTICATED),
        ((("x-api-key", BOB),), grpc.StatusCode.PERMISSION_DENIED),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await infer(asked, metadata=wrong)
        assert refused.value.code() is status
        assert "wrong" not in (refused.value.details() or "")
    assert await channel.unary_unary("/grpc.health.v1.Health/Check")(b"")  # probes have no key


async def test_over_grpc_call_credentials_are_a_bearer(gateway: Gateway) -> None:
    """As grpcio's clients of clouds send them. Local credentials stand for TLS, without which it sends none."""
    local = grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP)
    credentials = grpc.composite_channel_credentials(local, grpc.access_token_call_credentials(ALICE))
    async with grpc.aio.secure_channel(gateway.state.listeners["grpc"].address, credentials) as channel:
        assert await channel.unary_unary(INFER_METHOD)(message("v2-grpc", "double", X))


async def test_a_stream_asks_for_each_message(channel: grpc.aio.Channel, file: Path) -> None:
    """A key that is revoked ends a stream that is open."""
    stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    call = stream(metadata=(("x-api-key", ALICE),))
    await call.write(message("v2-grpc", "double", X))
    assert b"may not" not in bytes(await call.read())
    write(file, ALICE_ENTRY.model_copy(update={"revoked": datetime.now(UTC)}))
    answers = b""
    while b"revoked" not in answers and not call.done():
        await call.write(message("v2-grpc", "double", X))
        answers += bytes(await call.read() or b"")
    assert b"revoked" in answers or await call.code() is grpc.StatusCode.UNAUTHENTICATED


@asynccontextmanager
async def sent(gateway: Gateway, listener: str, request: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """The replies to bytes over a connection of their own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway.state.listeners[listener].address))
    writer.write(request)
    yield reader
    writer.close()


def brpc(credential: bytes) -> bytes:
    raw = message("grps-brpc", "double", X)
    size, meta_size = struct.unpack(">II", raw[4:12])
    meta = RpcMeta.FromString(raw[12 : 12 + meta_size])
    if credential:
        meta.authentication_data = credential
    written, rest = meta.SerializeToString(), raw[12 + meta_size : 12 + size]
    return struct.pack(">4sII", b"PRPC", len(written) + len(rest), len(written)) + bytes(written) + rest


@pytest.mark.parametrize(
    ("credential", "code"),
    [(b"", 1004), (b"wrong", 1004), (ALICE.encode(), 0), (b"Bearer " + ALICE.encode(), 0), (b"Digest x", 1004)],
    ids=["none", "wrong", "key", "bearer", "another scheme"],
)
async def test_brpc_has_the_key_in_the_authentication_data(credential: bytes, code: int, gateway: Gateway) -> None:
    async with sent(gateway, "brpc", brpc(credential)) as reader:
        _, size, meta_size = struct.unpack(">4sII", await reader.readexactly(12))
        body = await reader.readexactly(size)
    meta = RpcMeta.FromString(body[:meta_size])
    assert (meta.response.error_code, meta.correlation_id) == (code, 7)


async def test_mip_clients_are_the_anonymous_principal(gateway: Gateway) -> None:
    async with sent(gateway, "mip", message("mip", "double", X)) as reader:
        head = await reader.readexactly(8)
        assert (await reader.readexactly(int.from_bytes(head[4:]))).endswith(b"[2.0,4.0]")


UNSENT = {
    "as usual": b"Content-Length: 50000000",
    "waited for": b"Expect: 100-continue\r\nContent-Length: 9",
    "chunked": b"Transfer-Encoding: chunked",
    "compressed": b"Content-Encoding: gzip\r\nContent-Length: 9",
}


@pytest.mark.parametrize("lines", UNSENT.values(), ids=UNSENT)
async def test_the_body_of_an_unknown_client_is_not_received(lines: bytes, gateway: Gateway) -> None:
    request = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n\r\n"
    async with sent(gateway, "http", request) as reader:
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in head.lower()


async def test_only_known_clients_are_told_what_a_listener_speaks(
    gateway: Gateway, client: httpx.AsyncClient, channel: grpc.aio.Channel
) -> None:
    unknown = await client.get(url(gateway, "/v9"))
    known = await client.get(url(gateway, "/v9"), headers=key(ALICE))
    assert unknown.status_code == known.status_code == 404
    assert "this listener speaks" not in unknown.text
    assert "; this listener speaks v2-rest" in known.text
    for headers, is_told in (((), False), ((("x-api-key", ALICE),), True)):
        call = channel.unary_unary("/no.Such/Method")(b"", metadata=headers)
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        assert ("this listener speaks v2-grpc" in (await call.details() or "")) is is_told


async def test_over_grpc_an_unknown_client_is_refused_by_its_head(channel: grpc.aio.Channel) -> None:
    call = channel.stream_unary(INFER_METHOD)()
    assert await call.code() is grpc.StatusCode.UNAUTHENTICATED  # nothing was written


async def test_keys_are_read_again_when_the_file_changes_and_the_last_good_are_kept(
    gateway: Gateway, client: httpx.AsyncClient, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = url(gateway, "/v2/models/double")
    carol, entry = new_key("alice")
    write(file, entry)
    while (await client.get(path, headers=key(carol))).status_code != 200:
        pass
    assert (await client.get(path, headers=key(ALICE))).status_code == 401
    for broken in ("keys: [", ""):  # a disk that is full leaves an empty file
        caplog.clear()
        file.write_text(broken)  # noqa: ASYNC240
        while "the gateway keeps the previous ones" not in caplog.text:
            assert (await client.get(path, headers=key(carol))).status_code == 200
        assert (await client.get(path, headers=key(carol))).status_code == 200


async def test_a_revoked_key_ends_while_the_file_goes_on_changing(
    gateway: Gateway, client: httpx.AsyncClient, file: Path
) -> None:
    path = url(gateway, "/v2/models/double")
    while (await client.get(path, headers=key(ALICE))).status_code == 200:
        write(file, BOB_ENTRY.model_copy(update={"note": str(datetime.now(UTC))}))


async def test_a_revoked_key_ends_while_reloads_follow_each_other(
    gateway: Gateway, client: httpx.AsyncClient, file: Path, server: int
) -> None:
    path, lines = url(gateway, "/v2/models/double"), 0
    write(file, BOB_ENTRY)
    while (await client.get(path, headers=key(ALICE))).status_code == 200:
        lines += 1
        await gateway.reload(config(f"{CONFIG}# {lines}\nlog: {{access: {{sample: 0.{lines:06}}}}}\n", file, server))


async def test_keys_that_are_read_during_a_reload_count_after_it(file: Path) -> None:
    of = config(CONFIG, file, 1)
    before = Access(of, asyncio.get_running_loop().time)
    after = Access(of, asyncio.get_running_loop().time, before)
    assert before.file is not None
    write(file, BOB_ENTRY)
    while not await before.file.read_if_changed():
        pass
    after.begin()
    with pytest.raises(GatewayError, match="key"):
        after.authenticator(ListenerAuthConfig())(Headers([(b"x-api-key", ALICE.encode())]), "")
    after.end()


async def test_a_reload_changes_permissions_at_once_and_keeps_keys(
    gateway: Gateway, client: httpx.AsyncClient, file: Path, server: int
) -> None:
    path = url(gateway, "/v2/models/double")
    assert (await client.get(path, headers=key(BOB))).status_code == 403
    more = CONFIG.replace("  guest:", "  bob: {permissions: [use]}\n  guest:")
    assert await gateway.reload(config(more, file, server)) == ("principals changed",)
    assert (await client.get(path, headers=key(BOB))).status_code == 200
    without = CONFIG.replace("auth: {}, allow_control: true, allow_offline", "allow_control: true, allow_offline")
    assert "listener 'http': auth changed" in await gateway.reload(config(without, file, server))
    assert (await client.get(path)).status_code == 200


async def test_who_has_the_permission_gets_errors_in_full(
    gateway: Gateway, client: httpx.AsyncClient, file: Path, server: int
) -> None:
    brief = CONFIG.replace("allow_offline: true}", "allow_offline: true, errors: {detail: brief}}", 1)
    brief = brief.replace('["127.0.0.1:PORT"]', '["127.0.0.1:1"]')
    brief = brief.replace("  guest:", "  bob: {permissions: [all]}\n  guest:")
    await gateway.reload(config(brief, file, server))
    path = url(gateway, "/v2/models/double/infer")
    assert "127.0.0.1:1" not in (await client.post(path, json=INFER, headers=key(ALICE))).text
    assert "127.0.0.1:1" in (await client.post(path, json=INFER, headers=key(BOB))).text


# --- Tokens ---

TOKENS = """
auth:
  jwt: {issuer: "ISSUER", audience: [models], permissions: groups, prefix: "oidc:", algorithms: [RS256, ES256]}
principals:
  "oidc:alice": {permissions: [use]}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {}}
backends:
  lab: {protocol: v2-rest, endpoints: ["127.0.0.1:PORT"], flavor: plain}
routes: [{match: {}, backend: lab}]
"""


def with_issuer(server: int, issuer: Issuer, text: str = TOKENS) -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(config(text.replace("ISSUER", issuer.url), Path("none"), server))


async def test_a_token_of_the_issuer_is_accepted_also_after_a_rotation(
    server: int, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "LEAST_SECONDS", 0.0)
    async with served(Issuer()) as issuer:
        first = issuer.rotate("RS256")
        async with with_issuer(server, issuer) as gateway:
            path = url(gateway, "/v2/models/double")

            async def status(token: str) -> int:
                return (await client.get(path, headers=bearer(token))).status_code

            assert await status(issuer.token("alice")) == 200
            assert await status(issuer.token("bob")) == 403
            assert await status(issuer.token("bob", groups=["use"])) == 200
            assert await status(issuer.token(aud="x")) == 401
            assert (await client.get(path, auth=("token", issuer.token("alice")))).status_code == 200
            old = issuer.token("alice")
            issuer.rotate("ES256")
            assert (await status(issuer.token("alice")), await status(old)) == (200, 200)
            issuer.drop(first)
            issuer.rotate("ES256", "third")
            assert (await status(issuer.token("alice")), await status(old)) == (200, 401)


async def test_tokens_with_unknown_keys_do_not_make_the_gateway_ask_the_issuer_again_and_again(
    server: int, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "LEAST_SECONDS", GENEROUS)
    async with served(Issuer()) as issuer, served(Issuer()) as other:
        issuer.rotate()
        async with with_issuer(server, issuer) as gateway:
            path = url(gateway, "/v2/models/double")
            assert (await client.get(path, headers=bearer(issuer.token("alice")))).status_code == 200
            for number in range(20):
                other.rotate("EdDSA" if number else "ES256", f"unknown-{number}")
                token = other.token("alice", kid="unknown-0", head={"kid": f"unknown-{number}"})
                assert (await client.get(path, headers=bearer(token))).status_code == 401
            assert issuer.asked == 1


async def test_an_issuer_that_hangs_stops_nobody_else(
    server: int, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_SECONDS", 30.0)
    async with served(Issuer()) as issuer:
        issuer.rotate()
        issuer.silent = True
        async with with_issuer(server, issuer) as gateway:
            path = url(gateway, "/v2/models/double")
            waiting = spawn(client.get(path, headers=bearer(issuer.token("alice"))))
            for _ in range(20):
                assert (await client.get(path)).status_code == 401
            await until(lambda: issuer.unanswered)
            assert not waiting.done()
            await skip(30)
            reply = await waiting
            assert reply.status_code == 503
            assert reply.headers["retry-after"] == "1"


async def test_a_reload_does_not_disturb_a_lookup_that_a_request_waits_for(
    server: int, client: httpx.AsyncClient
) -> None:
    async with served(Issuer()) as issuer:
        issuer.rotate()
        issuer.answers.clear()
        async with with_issuer(server, issuer) as gateway:
            await issuer.was_asked.wait()
            waiting = spawn(client.get(url(gateway, "/v2/models/double"), headers=bearer(issuer.token("alice"))))
            await until(lambda: gateway.state.listeners["http"].unanswered_requests, 0)
            text = TOKENS.replace("ISSUER", issuer.url) + "drain: {timeout: 3}\n"
            assert await gateway.reload(config(text, Path("none"), server)) == ("drain changed",)
            await settle(20)  # what the configuration before had ends in the background
            issuer.answers.set()
            assert (await waiting).status_code == 200
            assert issuer.asked == 1


async def test_the_keys_of_an_issuer_can_be_in_a_file(server: int, client: httpx.AsyncClient, tmp_path: Path) -> None:
    issuer = Issuer()
    issuer.rotate("ES256")
    jwks = tmp_path / "jwks.json"
    jwks.write_bytes(issuer.jwks)
    async with with_issuer(server, issuer, TOKENS.replace("jwt: {", f"jwt: {{jwks: {jwks}, ")) as gateway:
        path = url(gateway, "/v2/models/double")
        assert (await client.get(path, headers=bearer(issuer.token("alice")))).status_code == 200


def test_every_wire_form_is_tried_here() -> None:
    tried = {*HTTP_INFERENCES, "v2-grpc", "grps-brpc", "mip"}
    assert set(registry.protocols()) - tried == {"graphpipe", "grps-grpc", "tfs-grpc"}
