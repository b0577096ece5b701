"""TLS towards backends: real servers, names, and errors that say what is wrong."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
import uvicorn

from gateway.protocols.v2.grpc import schema
from tests.limits import until
from tests.running_gateway import running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import SIGNATURE, ask, at, infer

NOT_FOR_THE_HOST = b"its certificate is not for the host 'localhost'; check the address, or set `server_name`"
OUTPUT = {"name": "logdensity", "datatype": "FP64", "shape": [1, 1], "data": [7.0]}


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        self.accepting.set()


@asynccontextmanager
async def uvicorn_server(files: Files, *, asks: bool = False) -> AsyncIterator[int]:
    """A model server over HTTPS. It may ask for certificates."""

    async def application(scope: dict[str, object], receive: object, send: object) -> None:
        more = True
        while more:
            more = (await receive()).get("more_body", False)  # type: ignore[operator]
        body = json.dumps({"model_name": "m", "outputs": [OUTPUT]}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": body})  # type: ignore[operator]

    config = uvicorn.Config(
        application, port=0, log_config=None, lifespan="off", ssl_certfile=files.certificate, ssl_keyfile=files.key,
        ssl_ca_certs=str(files.ca) if asks else None, ssl_cert_reqs=ssl.CERT_REQUIRED if asks else ssl.CERT_NONE,
    )  # fmt: skip
    server = _Uvicorn(config)
    task = asyncio.ensure_future(server._serve())
    await server.accepting.wait()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task


@asynccontextmanager
async def grpc_server(files: Files, *, asks: bool = False) -> AsyncIterator[int]:
    """A grpcio server with TLS."""

    async def model_infer(request: bytes, _: object) -> bytes:
        reply = schema.ModelInferResponse(model_name="m", raw_output_contents=[b"\0" * 6 + b"\x1c\x40"])
        reply.outputs.add(name="logdensity", datatype="FP64", shape=[1, 1])
        return bytes(reply.SerializeToString())

    server = grpc.aio.server()
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(model_infer)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(schema.SERVICE, handlers)])
    pair = [(files.key.read_bytes(), files.certificate.read_bytes())]
    credentials = grpc.ssl_server_credentials(pair, files.ca.read_bytes() if asks else None, asks)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def text(protocol: str, address: str, tls: str) -> str:
    return f"""
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends:
  lab:
    protocol: {protocol}
    endpoints: ["{address}"]
    {"flavor: plain" if protocol == "v2-rest" else ""}
    tls: {tls}
routes: [{{match: {{model: m}}, backend: lab, signature: {SIGNATURE}}}]
"""


async def asked(protocol: str, address: str, tls: str) -> tuple[int, bytes]:
    async with running_gateway(text(protocol, address, tls)) as gateway:
        return await ask(at(gateway, "http"), None, infer("m"))


@pytest.mark.parametrize(
    ("protocol", "server", "scheme"),
    [("v2-rest", uvicorn_server, ""), ("v2-grpc", grpc_server, "grpcs://")],
    ids=["uvicorn", "grpcio"],
)
async def test_a_real_server_that_asks_for_certificates(
    authority: Authority, files: Files, protocol: str, server: Any, scheme: str
) -> None:
    own = authority.issue(files.key.parent, "gateway.lab", stem="own")
    async with server(files, asks=True) as port:
        status, body = await asked(protocol, f"{scheme}localhost:{port}", own.shown_to(files))
        assert (status, json.loads(body)["outputs"]) == (200, [OUTPUT])
        assert (await asked(protocol, f"localhost:{port}", f"{{ca: {files.ca}}}"))[0] == 503


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "mip", "grps-brpc"])
async def test_what_is_wrong_is_said(authority: Authority, files: Files, protocol: str) -> None:
    folder = files.key.parent
    expired = authority.issue(folder, "localhost", days=-1, stem="expired")
    other = Authority().issue(folder, "localhost", stem="other")
    named = authority.issue(folder, "models.lab", stem="named")
    wrong = {
        f"{{ca: {other.ca}}}": (files, b"its certificate is signed by an unknown CA; check `ca`"),
        f"{{ca: {expired.ca}}}": (expired, b"its certificate has expired"),
        f"{{ca: {named.ca}}}": (named, NOT_FOR_THE_HOST),
        f"{{ca: {files.ca}, server_name: other.lab}}": (named, b"its certificate is not for the host 'other.lab'"),
    }
    for tls, (shown, why) in wrong.items():
        async with uvicorn_server(shown) as port:
            status, body = await asked(protocol, f"localhost:{port}", tls)
            assert status == 503, body
            assert why in body, (why, body)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 this is a mail server\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        address = f"localhost:{server.sockets[0].getsockname()[1]}"
        status, body = await asked(protocol, address, f"{{ca: {files.ca}}}")
    assert status == 503
    assert b"it does not speak TLS" in body


async def test_grpc_needs_an_agreement_on_http2(files: Files) -> None:
    async with uvicorn_server(files) as port:
        status, body = await asked("v2-grpc", f"localhost:{port}", f"{{ca: {files.ca}}}")
    assert status == 503
    assert b"TLS: it does not offer h2 (ALPN)" in body


async def test_the_server_name_is_asked_for_and_checked(authority: Authority, files: Files) -> None:
    named = authority.issue(files.key.parent, "models.lab", stem="named")
    async with uvicorn_server(named) as http, grpc_server(named) as rpc:
        tls = f"{{ca: {files.ca}, server_name: models.lab}}"
        assert (await asked("v2-rest", f"127.0.0.1:{http}", tls))[0] == 200
        assert (await asked("v2-grpc", f"127.0.0.1:{rpc}", tls))[0] == 200


async def test_without_verification_any_certificate_will_do(files: Files) -> None:
    async with uvicorn_server(files) as port:
        assert (await asked("v2-rest", f"127.0.0.1:{port}", "{verify: false}"))[0] == 200


async def test_probes_use_tls(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with uvicorn_server(files) as port:
        good = text("v2-rest", f"localhost:{port}", f"{{ca: {files.ca}}}\n    health: {{interval: 0.05}}")
        async with running_gateway(good) as gateway:
            await until(lambda: gateway.state.status().backends["lab"].endpoints[0].state == "up")
