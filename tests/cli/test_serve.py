"""`gateway serve`: what it prints, and how it ends."""

import asyncio
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.cli.commands import gateway, started, written
from tests.interop.processes import eventually, start_gateway
from tests.paused_server import INFER, REPLY, Held, ask, held, port_of

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
  - {name: second, bind: "127.0.0.1:0", protocols: [umbridge]}
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
reference:
  - {protocol: umbridge, bind: "127.0.0.1:0", models: [posterior, double]}
backends:
  lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}
routes:
  - {match: {model: "m*"}, backend: lab}
  - {match: {model: hidden, header: {team: red}}, backend: lab}
  - {match: {model: flat, protocol: v2-rest}, backend: lab}
  - {match: {model: points, listener: second}, backend: lab}
"""

ADDRESS = r"127\.0\.0\.1:([1-9][0-9]*)"
PRINTED = [
    rf"listener http       {ADDRESS} +v2-rest, umbridge",
    rf"listener second     {ADDRESS} +umbridge",
    rf"reference umbridge  {ADDRESS} +posterior, double",
    rf"health              {ADDRESS} +/healthz, /readyz, /metrics",
    rf"admin               {ADDRESS} +/ \(console\), /status, /reload, /docs",
    r"try:",
    rf"  curl http://{ADDRESS}/v2/models/flat",
    rf"""  curl http://{ADDRESS}/InputSizes -d '{{"name": "points"}}'""",
    r"ready",
]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Held, "subprocess.Popen[str]", list[str]]]:
    """The gateway in front of a server that waits."""
    async with held() as lab:
        path = written(folder, CONFIG.replace("PORT", str(lab.port)))
        with started("serve", "--config", path) as (process, printed):
            yield lab, process, printed


async def until_refused(port: int) -> None:
    """Wait until nobody listens any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_it_prints_addresses_and_example_commands(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, printed):
        found = [re.fullmatch(line, text) for line, text in zip(PRINTED, printed, strict=True)]
        assert None not in found, printed


async def test_a_signal_lets_requests_in_flight_finish(tmp_path: Path) -> None:
    async with serving(tmp_path) as (lab, process, printed):
        port = port_of(printed[0].split()[2])
        inflight = asyncio.ensure_future(ask(port, INFER))
        await lab.arrived.wait()
        process.send_signal(signal.SIGTERM)
        await until_refused(port)
        lab.release.set()
        assert (await inflight).endswith(REPLY)
        assert await asyncio.to_thread(process.wait) == 0


def test_warnings_are_printed_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"{{name: http, bind: '127.0.0.1:{taken.getsockname()[1]}', protocols: [v2-rest]}}"
        path = written(tmp_path, f"listeners: [{listener}]\nroutes: []\n")
        result = gateway("serve", "--config", path)
    warning, _, error = result.stderr.splitlines()
    assert warning == f"{path}:2:1: warning: `routes` is empty, so the gateway cannot answer any request; add a route"
    assert "cannot bind" in error


async def test_the_log_goes_to_stderr_with_time_and_level(tmp_path: Path) -> None:
    text = CONFIG.replace("127.0.0.1:PORT", "127.0.0.1:1")
    running = await asyncio.to_thread(start_gateway, text, tmp_path)
    try:
        port = port_of(running.process.stdout().split()[2])
        assert (await ask(port, INFER.replace(b"Host", b"Connection: close\r\nHost"))).startswith(b"HTTP/1.1 503")
        line = r"^[0-9T:.-]+Z WARNING gateway\.[a-z.]+: endpoint 127\.0\.0\.1:1 of backend 'lab' is down: "
        told = re.compile(line, re.M)
        assert await asyncio.to_thread(eventually, lambda: told.search(running.output()) is not None, 10)
    finally:
        running.stop()


def test_an_address_that_cannot_be_bound_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = CONFIG.replace('second, bind: "127.0.0.1:0"', f'second, bind: "{address}"').replace("PORT", "1")
        result = gateway("serve", written(tmp_path, text))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith(f"\nlistener 'second': cannot bind {address}: Address already in use\n")


def test_errors_of_the_configuration_are_printed(tmp_path: Path) -> None:
    path = written(tmp_path, CONFIG.replace("PORT", "1").replace("backend: lab", "backend: lob", 1))
    result = gateway("serve", "--config", path)
    assert result.exit_code == 1
    assert result.stderr == f"{path}:12:37: unknown backend 'lob'; expected lab\n"
