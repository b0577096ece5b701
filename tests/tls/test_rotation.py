"""Certificates that change while the gateway runs."""

import asyncio
import logging
import os
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc.aio
import pytest

from gateway.assembly.certificates import Certificates
from tests.limits import until
from tests.running_gateway import config_of, reference, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import ask, at, connected, infer, reply

RELOAD = "reload: {interval: 0.1}\n"


def text(files: Files, server: str, tls: str = "") -> str:
    return f"""{RELOAD}
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {tls or files.server}}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], tls: {tls or files.server}}}
backends: {{lab: {{protocol: v2-rest, endpoints: ["{server}"]}}}}
routes: [{{match: {{model: posterior}}, backend: lab}}]
"""


async def serial(port: int, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that a new connection is shown."""
    async with connected(port, context) as (_, writer):
        number: str = writer.get_extra_info("peercert")["serialNumber"]
        return number


async def test_a_new_certificate_is_used_and_no_call_fails(authority: Authority, files: Files) -> None:
    """Under load, on connections that stay open and on new ones; calls over gRPC too."""
    folder, stopping, done = files.key.parent, asyncio.Event(), {"kept": 0, "new": 0, "grpc": 0}

    async def on_one_connection(port: int) -> None:
        async with connected(port, files.trusting()) as (reader, writer):
            while not stopping.is_set():
                writer.write(infer("posterior"))
                assert (await reply(reader))[0] == 200
                done["kept"] += 1

    async def on_new_ones(port: int) -> None:
        while not stopping.is_set():
            assert (await ask(port, files.trusting(), infer("posterior")))[0] == 200
            done["new"] += 1

    async def over_grpc(port: int) -> None:
        credentials = grpc.ssl_channel_credentials(files.ca.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
            while not stopping.is_set():
                await ready(b"")
                done["grpc"] += 1

    async with reference("v2-rest", "posterior") as server, running_gateway(text(files, server)) as gateway:
        http, rpc = at(gateway, "http"), at(gateway, "grpc")
        tasks = [asyncio.ensure_future(each) for each in (on_one_connection(http), on_new_ones(http), over_grpc(rpc))]
        shown = [await serial(http, files.trusting())]
        for _ in range(3):
            authority.issue(folder, "localhost")
            while (number := await serial(http, files.trusting())) == shown[-1]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            shown.append(number)
        await until(lambda: all(count > 10 for count in done.values()))
        stopping.set()
        await asyncio.gather(*tasks)
    assert len(set(shown)) == 4


async def test_links_of_kubernetes_are_followed(authority: Authority, files: Files, tmp_path: Path) -> None:
    """A Secret is a folder `..data`, a link that is exchanged, and a link for each of its files into that folder."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()

    def publish(version: str) -> None:
        folder = mounted / version
        folder.mkdir()
        made = authority.issue(folder, "localhost")
        for path, name in ((made.certificate, "tls.crt"), (made.key, "tls.key")):
            path.rename(folder / f"new-{name}")
            (folder / f"new-{name}").rename(folder / name)
        os.symlink(version, mounted / "..new")
        os.replace(mounted / "..new", mounted / "..data")

    publish("..1")
    for name in ("tls.crt", "tls.key"):
        os.symlink(f"..data/{name}", mounted / name)
    own = Files(mounted / "tls.crt", mounted / "tls.key", files.ca)
    async with running_gateway(text(own, "127.0.0.1:1")) as gateway:
        before = await serial(at(gateway, "http"), files.trusting())
        publish("..2")
        shutil.rmtree(mounted / "..1")
        while await serial(at(gateway, "http"), files.trusting()) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_cannot_be_used_is_logged_and_the_certificate_before_is_kept(
    authority: Authority, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(text(files, "127.0.0.1:1")) as gateway:
        before = await serial(at(gateway, "http"), files.trusting())
        other = authority.issue(files.key.parent, "localhost", stem="other")
        other.certificate.replace(files.certificate)  # its key has not come yet
        await until(lambda: all(each.error for each in gateway.state.status().certificates))
        assert "listener 'http'" in caplog.text
        assert "keeps the previous ones: tls.key: the private key does not belong to the certificate" in caplog.text
        assert await serial(at(gateway, "http"), files.trusting()) == before
        assert [each.error for each in gateway.state.status().certificates] == [
            "tls.key: the private key does not belong to the certificate; use the key of this certificate"
        ] * 2
        other.key.replace(files.key)
        await until(lambda: not any(each.error for each in gateway.state.status().certificates))
        assert await serial(at(gateway, "http"), files.trusting()) != before


async def test_a_reload_reads_certificates_again_also_where_files_are_not_watched(
    authority: Authority, files: Files
) -> None:
    unwatched = text(files, "127.0.0.1:1").replace(RELOAD, "reload: {watch: false}\n")
    async with running_gateway(unwatched) as gateway:
        before = await serial(at(gateway, "http"), files.trusting())
        authority.issue(files.key.parent, "localhost")
        await gateway.reload(config_of(unwatched))
        assert await serial(at(gateway, "http"), files.trusting()) != before


async def test_a_reload_switches_tls_on_and_off_and_keeps_connections(authority: Authority, files: Files) -> None:
    async with reference("v2-rest", "posterior") as server:
        secure = text(files, server)
        plain = secure.replace(f", tls: {files.server}", "")
        own = authority.issue(files.key.parent, "worker.lab", stem="own")
        asking = text(files, server, files.asking("required"))
        async with running_gateway(plain) as gateway, connected(at(gateway, "http"), None) as (reader, writer):
            assert "listener 'http': tls changed" in await gateway.reload(config_of(secure))
            async with connected(at(gateway, "http"), files.trusting()) as (secure_reader, secure_writer):
                await gateway.reload(config_of(asking))
                assert (await ask(at(gateway, "http"), files.trusting(own), infer("posterior")))[0] == 200
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await ask(at(gateway, "http"), files.trusting(), infer("posterior"))
                await gateway.reload(config_of(plain))
                assert (await ask(at(gateway, "http"), None, infer("posterior")))[0] == 200
                for each, of in ((writer, reader), (secure_writer, secure_reader)):
                    each.write(infer("posterior"))
                    assert (await reply(of))[0] == 200


async def test_a_client_certificate_towards_a_backend_is_read_again(authority: Authority, files: Files) -> None:
    folder = files.key.parent
    own = Authority().issue(folder, "gateway.lab", stem="own")  # of a CA of which the far side knows nothing
    async with (
        reference("v2-rest", "posterior") as server,
        running_gateway(text(files, server, files.asking("required"))) as far,
    ):
        near = f"""{RELOAD}
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends:
  far:
    protocol: v2-rest
    endpoints: ["https://localhost:{at(far, "http")}"]
    tls: {own.shown_to(files)}
routes: [{{match: {{model: posterior}}, backend: far}}]
"""
        async with running_gateway(near) as gateway:
            assert (await ask(at(gateway, "http"), None, infer("posterior")))[0] == 503
            authority.issue(folder, "gateway.lab", stem="own")
            while (await ask(at(gateway, "http"), None, infer("posterior")))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_certificates_that_expire_are_logged_in_advance(
    authority: Authority, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    now = [datetime.now(UTC)]
    certificates = Certificates(lambda: now[0])
    here = config_of(text(files, "127.0.0.1:1"))
    certificates.prepare(here)
    counts = []
    for days in (364 - 31, 2, 1, 22, 8):  # 32 days left, 30, 29, 7, and none
        now[0] += timedelta(days=days)
        caplog.clear()
        certificates.take_over(here)
        certificates.take_over(here)
        counts.append(sum(each.levelno >= logging.WARNING for each in caplog.records))
    assert counts == [0, 2, 0, 2, 2]  # the two listeners have one certificate, and different protocols over it
    assert "the certificate of listener 'http' has expired" in caplog.text
