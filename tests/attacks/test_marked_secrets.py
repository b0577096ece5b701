"""Every place that accepts a secret gets a marked secret. No output of the gateway contains a mark, for clients with
and without permissions, at the most detailed log level."""

from __future__ import annotations

import json
import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gateway.assembly import authentication
from gateway.auth.keys import new_key, write_keys
from gateway.cli.options import catalog
from gateway.config import load_with_warnings
from gateway.core.log_limit import LogLimit
from gateway.protocols.grps.schema import RpcMeta
from gateway.runtime.app import Gateway
from tests.attacks.clients import Brpc, Mip, message, tensor
from tests.auth.issuer import Issuer
from tests.cli import commands
from tests.cli.commands import gateway as command
from tests.cli.commands import started
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.observing.collector import collecting
from tests.tls.certificates import Authority

MARK = "tiger7391"
"""The mark that every secret in this file contains."""

ROOT, ROOT_ENTRY = new_key("root")
USER, USER_ENTRY = new_key("user")
REVOKED, REVOKED_ENTRY = new_key("user")

CONFIG = """
auth:
  keys: {{file: {folder}/keys.yaml}}
  jwt: {{issuer: "https://issuer.test", audience: [models], jwks: {folder}/jwks.json}}
principals:
  root: {{permissions: [all]}}
  user: {{permissions: [use]}}
admin: {{bind: "127.0.0.1:0", auth: {{}}}}
health: {{bind: "127.0.0.1:0"}}
log: {{level: debug, format: json, access: {{path: "{folder}/access.log"}}}}
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, grps-rest], model: dead, auth: {{}},
     errors: {{detail: brief}}, allow_explain: true, reply_headers: true}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], auth: {{}}}}
  - {{name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc], model: dead, auth: {{}}}}
backends:
  dead:
    protocol: v2-rest
    flavor: plain
    endpoints: ["127.0.0.1:{dead}"]
    forward_headers: [x-secret]
    discovery: {{register: {{token: "${{SECRET_TOKEN}}"}}}}
    policies: [{{rate_limit: {{requests: 1000, by: principal, redis: "redis://u:${{SECRET_TOKEN}}@127.0.0.1:{dead}/0"}}}}]
routes:
  - {{match: {{model: keyed, header: {{x-secret: "${{file:{folder}/secret}}"}}}}, backend: dead}}
  - {{match: {{}}, backend: dead}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    issuer = Issuer()
    issuer.rotate("ES256")
    entries = [ROOT_ENTRY, USER_ENTRY, REVOKED_ENTRY.model_copy(update={"revoked": ROOT_ENTRY.created})]
    (tmp_path / "keys.yaml").write_text(write_keys(entries))
    (tmp_path / "jwks.json").write_bytes(issuer.jwks)
    (tmp_path / "secret").write_text(f"file-{MARK}")
    (tmp_path / "token").write_text(issuer.token("user", note=MARK))
    (tmp_path / "gateway.yaml").write_text(CONFIG.format(folder=tmp_path, dead=free_port()))
    monkeypatch.setenv("SECRET_TOKEN", f"env-{MARK}")
    return tmp_path


def secrets(folder: Path) -> list[str]:
    token = (folder / "token").read_text()
    digests = [each.sha256 for each in (ROOT_ENTRY, USER_ENTRY, REVOKED_ENTRY)]
    return [MARK, ROOT, USER, REVOKED, token, token.split(".")[2], *digests]


def credentials(folder: Path) -> Iterator[dict[str, str]]:
    yield {}
    yield {"x-api-key": USER}
    yield {"x-api-key": ROOT}
    yield {"x-api-key": REVOKED}
    yield {"x-api-key": f"wrong-{MARK}"}
    yield {"authorization": f"Bearer {MARK}"}
    yield {"authorization": f"Basic {MARK}"}
    yield {"authorization": f"{MARK} scheme"}
    token = (folder / "token").read_text()
    yield {"authorization": f"Bearer {token}"}
    yield {"authorization": f"Bearer {token[:-6]}AAAAAA"}
    yield {"authorization": f"Bearer {MARK}.{MARK}.{MARK}"}


BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [1.5]}]}).encode()


async def test_nothing_that_comes_out_has_a_secret(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(authentication, "_lines", LogLimit(authentication.log, lines=10_000))
    config, warned = load_with_warnings(folder / "gateway.yaml", catalog())
    told: list[str] = []
    operators = [*map(str, warned), str(config.auth), str(config.backends)]
    running = Gateway(config)
    await running.start()
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=GENEROUS) as client:
            base = f"http://{running.state.listeners['http'].address}"
            for headers in credentials(folder):
                sent = {**headers, "x-secret": f"not-{MARK}", "cookie": MARK, "gateway-explain": "1"}
                for method, path, body in (
                    ("POST", "/v2/models/dead/infer", BODY),
                    ("POST", "/v2/models/keyed/infer", BODY),
                    ("POST", "/v2/models/dead/infer", b"{"),
                    ("POST", "/v2/models/dead/load", b""),
                    ("POST", "/v2/repository/index", b"{}"),
                    ("POST", "/Evaluate", b'{"name": "dead", "input": [[1]]}'),
                    ("GET", "/nothing", b""),
                    ("POST", "/grps/v1/infer/predict", b'{"str_data": "x"}'),
                ):
                    reply = await client.request(method, base + path, content=body, headers=sent)
                    told.append(f"{reply.headers} {reply.text}")
                admin = f"http://{running.ports.all['admin'].address}"
                for path in ("/status", "/docs", "/openapi.json", "/config"):
                    reply = await client.get(admin + path, headers=sent)
                    operators.append(f"{reply.headers} {reply.text}")
                reply = await client.post(f"{admin}/register", headers=sent, json={"backend": "dead", "address": "h:1"})
                operators.append(f"{reply.headers} {reply.text}")
                for path in ("/readyz", "/metrics"):
                    health = await client.get(f"http://{running.ports.all['health'].address}{path}", headers=sent)
                    operators.append(health.text)
                async with grpc.aio.insecure_channel(running.state.listeners["grpc"].address) as channel:
                    infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                    try:
                        await infer(message("v2-grpc", "dead", tensor(b"1")), metadata=tuple(sent.items()))
                    except grpc.aio.AioRpcError as error:
                        told.append(repr((error.details(), error.trailing_metadata(), error.initial_metadata())))
        operators.append(str(running.state.status().model_dump_json()))
    finally:
        await running.drain(0)
    operators.append((folder / "access.log").read_text())
    assert '"operation":"infer"' in operators[-1]
    operators.append(caplog.text)
    everything = "\n".join((*told, *operators))
    assert "refuses client" in caplog.text
    assert "401" in everything or "no credentials" in everything
    for secret in secrets(folder):
        assert secret not in everything
    assert str(folder) not in "\n".join(told)


FAR = """
auth:
  keys: {{file: {folder}/keys.yaml}}
  jwt: {{issuer: "https://issuer.test", audience: [models], jwks: {folder}/jwks.json}}
principals:
  root: {{permissions: [all]}}
  user: {{permissions: [use]}}
admin: {{bind: "127.0.0.1:0", auth: {{}}}}
health: {{bind: "127.0.0.1:0", auth: {{}}}}
log: {{level: debug, format: json, access: {{path: "{folder}/access.log"}}}}
tracing: {{otlp: "{collector}", sample: 1, interval: 0.1, headers: {{x-key: "header-{mark}"}}}}
reload: {{watch: false, interval: 0.1}}
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], auth: {{}},
     tls: {{certificate: {tls.certificate}, key: {tls.key}}}}}
  - {{name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc], model: dead, auth: {{}}}}
  - {{name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: dead, auth: {{anonymous: user}}}}
backends:
  dead:
    protocol: v2-rest
    flavor: plain
    endpoints: ["127.0.0.1:{dead}"]
    forward_headers: [x-secret]
    discovery: {{register: {{token: "${{SECRET_TOKEN}}"}}}}
routes: [{{match: {{}}, backend: dead}}]
"""


def brpc(credential: bytes) -> bytes:
    """A call with these authentication data, which its log id and its extension fields repeat."""
    raw = message("grps-brpc", "dead", tensor(b"1"))
    size, meta_size = struct.unpack(">II", raw[4:12])
    meta = RpcMeta.FromString(raw[12 : 12 + meta_size])
    meta.authentication_data = credential
    written, rest = meta.SerializeToString(), raw[12 + meta_size : 12 + size]
    return struct.pack(">4sII", b"PRPC", len(written) + len(rest), len(written)) + bytes(written) + rest


def with_passphrase(file: Path) -> bytes:
    """The private key in `file`, encrypted by a marked passphrase, with marked text around it."""
    key = load_pem_private_key(file.read_bytes(), None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(MARK.encode()))
    return f"passphrase: {MARK}\n".encode() + secret


BROKEN = [
    "auth: {{keys: {{file: '{mark}'}}}}",
    "{mark}: [",
    "\t{mark}",
    "tracing: {{otlp: '{collector}', headers: {{x-key: [header-{mark}]}}}}",
    "tracing: {{otlp: '{collector}', headers: {{'x key': header-{mark}}}}}",
    "tracing: {{otlp: '{collector}', headers: {{x-key: ' header-{mark}'}}}}",
    "tracing: {{otlp: 'http://u:{mark}@h:1'}}",
    "tracing: {{otlp: 'u:{mark}@h:1'}}",
    "tracing: {{otlp: 'ftp://u:a/{mark}@h:1'}}",
    "auth: {{jwt: {{audience: [a], issuer: 'https://u:{mark}@h'}}}}",
    "auth: {{jwt: {{audience: [a], issuer: 'https://h', jwks: 'https://u:{mark}@h/j', leeway: x}}}}",
    "backends: {{dead: {{protocol: v2-rest, endpoints: ['http://u:{mark}@h:1']}}}}",
    "backends: {{dead: {{protocol: v2-grpc, endpoints: ['grpc://u:{mark}@h:1']}}}}",
    "backends: {{dead: {{protocol: v2-rest, discovery: {{register: {{token: {{a: {mark}}}}}}}}}}}",
    "backends: {{dead: {{protocol: v2-rest, discovery: {{register: {{tokn: {mark}}}}}}}}}",
    "backends: {{dead: {{protocol: v2-rest, discovery: {{register: {{token: t, seconds: '${{SECRET_TOKEN}}'}}}}}}}}",
    "backends: {{dead: {{protocol: '${{SECRET_TOKEN}}', endpoints: ['${{file:{folder}/secret}}']}}}}",
    "listeners: [{{name: a, bind: '${{SECRET_TOKEN}}', protocols: [v2-rest]}}]",
    "log: {{level: '${{file:{folder}/secret}}'}}",
    "backends: {{dead: {{policies: [{{rate_limit: {{requests: 1, redis: 'redis://u:{mark}@h:x/0'}}}}]}}}}",
    "backends: {{dead: {{policies: [{{rate_limit: {{requests: x, redis: ['redis://u:{mark}@h/0']}}}}]}}}}",
]
"""Configurations that cannot be used, each with a secret where one belongs or where a reference brought it."""


def test_nor_over_brpc_mip_reload_and_traces_and_no_private_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(commands.ENVIRON, "SECRET_TOKEN", f"env-{MARK}")
    tls = Authority().issue(tmp_path, "localhost", "127.0.0.1")
    with collecting() as collector:
        given = {"folder": folder, "mark": MARK, "collector": collector.url, "tls": tls, "dead": free_port()}
        file, log = folder / "gateway.yaml", folder / "log"
        file.write_text(FAR.format(**given))
        sound, key = file.read_text(), tls.key.read_text()
        told: list[str] = []
        with (
            log.open("w") as written,
            started("serve", "--config", str(file), folder=folder, stderr=written.fileno()) as (_, lines),
        ):
            said = [line.removeprefix("listener ").split() for line in lines if "127.0.0.1:" in line]
            addresses = {words[0]: words[1].removeprefix("tcp://") for words in said}
            for name, kind in (("brpc", Brpc), ("mip", Mip)):
                host, _, port = addresses[name].partition(":")
                for credential in (b"", MARK.encode(), f"Bearer {MARK}".encode(), REVOKED.encode(), USER.encode()):
                    asked = brpc(credential) if name == "brpc" else message("mip", MARK, tensor(credential or b"1"))
                    with kind((host, int(port))) as connection:
                        answered = connection.call(asked).decode("latin-1")
                    # a client may be told the name of the model that it asks for
                    told.append(answered.replace(MARK, "") if name == "mip" else answered)
            with httpx.Client(trust_env=False, timeout=GENEROUS, verify=tls.trusting()) as client:
                url = f"https://{addresses['http']}/v2/models/dead/infer"
                for headers in credentials(folder):
                    sent = {**headers, "x-secret": f"not-{MARK}", "cookie": MARK, "baggage": f"a={MARK}"}
                    told.append(client.post(f"{url}?token={MARK}", content=BODY, headers=sent).text)
                admin, own = f"http://{addresses['admin']}", {"x-api-key": ROOT}
                for text in BROKEN:
                    file.write_text(f"{text.format(**given)}\n")
                    reply = client.post(f"{admin}/reload", headers=own)
                    assert reply.status_code == 422, (text, reply.text)
                    told += [reply.text, client.get(f"{admin}/status", headers=own).text]
                file.write_text(sound)
                for wrong in (with_passphrase(tls.key), f"{MARK}\n{key[:200]}{MARK}".encode(), MARK.encode()):
                    tls.key.write_bytes(wrong)
                    told.append(client.post(f"{admin}/reload", headers=own).text)
                    told.append(client.get(f"{admin}/status", headers=own).text)
                    told.append(command("check", "--config", str(file)).output)
                told.append(client.get(f"{admin}/config", headers=own).text)
        assert collector.spans
        assert {each["x-key"] for each in collector.headers} == {f"header-{MARK}"}
        told += [str(each) for each in collector.requests]
    everything = "\n".join((*told, *lines, log.read_text(), (folder / "access.log").read_text()))
    assert "has a passphrase" in everything
    assert "expected a private key in PEM" in everything
    for secret in (*secrets(folder), *key.splitlines()[1:-1]):
        at = everything.find(secret)
        assert at < 0, everything[max(at - 200, 0) : at + 100]


def test_what_is_wrong_with_files_of_secrets_is_told_without_them(folder: Path) -> None:
    for name in ("keys.yaml", "jwks.json"):
        sound = (folder / name).read_bytes()
        for wrong in (MARK.encode(), b"{keys: [" + MARK.encode(), b'{"keys": [{"%b": "%b"}]}' % ((MARK.encode(),) * 2)):
            (folder / name).write_bytes(wrong)
            found = command("check", "--config", str(folder / "gateway.yaml"))
            assert found.exit_code == 1
            assert "is not an API key file" in found.output or "is not an issuer's key set" in found.output
            assert MARK not in found.output
        (folder / name).write_bytes(sound)


def test_ten_thousand_wrong_keys_fill_neither_memory_nor_log(folder: Path) -> None:
    """As many from one client in a row: every one is refused, and what is logged of them is bounded."""
    file = folder / "gateway.yaml"
    file.write_text(file.read_text().replace("${SECRET_TOKEN}", "token"))
    arguments = ("serve", "--config", str(file))
    with (folder / "log").open("w") as log, started(*arguments, folder=folder, stderr=log.fileno()) as (process, lines):
        (line,) = [each for each in lines if each.startswith("listener http ")]
        host, _, port = line.split()[2].partition(":")
        size = memory(process.pid)
        with socket.create_connection((host, int(port)), 30) as connection:
            for start in range(0, 10_000, 100):
                connection.sendall(
                    b"".join(
                        b"GET /v2/models/dead HTTP/1.1\r\nHost: a\r\nx-api-key: gw_%d-%b\r\n\r\n" % (number, b"k" * 200)
                        for number in range(start, start + 100)
                    )
                )
                found = b""
                while found.count(b"HTTP/1.1 401 ") < 100:
                    piece = connection.recv(2**16)
                    assert piece
                    found += piece
        assert memory(process.pid) - size < 20 * 2**20
    written = (folder / "log").read_text()
    assert 1 <= written.count("refuses client") <= 20
    assert "kkkk" not in written


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
