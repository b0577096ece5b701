"""Every wire form over TLS, in both directions."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.app import Gateway
from gateway.cli.options import catalog
from gateway.config import loads
from gateway.registry import protocols
from tests.paused_server import port_of
from tests.tls.certificates import Files

GENEROUS = 60
THETA = [0.5, -0.25]
INFER = json.dumps({"inputs": [{"name": "theta", "datatype": "FP64", "shape": [2], "data": THETA}]}).encode()


@asynccontextmanager
async def running(text: str) -> AsyncIterator[Gateway]:
    gateway = Gateway(loads(text, "test.yaml", catalog(), {}))
    await gateway.start()
    try:
        async with asyncio.timeout(GENEROUS):
            yield gateway
    finally:
        await gateway.drain(0)


def servers(files: Files, tls: str) -> str:
    """A gateway with one listener of each protocol, over TLS, in front of a reference server."""
    listeners = "".join(
        f"  - {{name: {name}, bind: 127.0.0.1:0, protocols: [{name}], model: posterior, tls: {tls}}}\n"
        for name in protocols()
    )
    return f"""
listeners:
{listeners}
reference: [{{protocol: umbridge, bind: "127.0.0.1:18080", models: [posterior]}}]
backends: {{lab: {{protocol: umbridge, endpoints: ["127.0.0.1:18080"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""


async def test_it(files: Files) -> None:
    async with running(servers(files, files.asking("required"))) as far:
        backends = "".join(
            f"""
  {name}:
    protocol: {name}
    endpoints: ["{far.listeners[name].address.rpartition("/")[2].replace("127.0.0.1", "localhost")}"]
    tls: {{ca: {files.ca}, certificate: {files.certificate}, key: {files.key}}}"""
            for name in protocols()
        )
        routes = "".join(
            f"  - {{match: {{model: {name}}}, backend: {name}, rewrite: {{model: posterior}}}}\n"
            for name in protocols()
        )
        async with running(
            f"""
listeners: [{{name: near, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {files.server}}}]
backends: {backends}
routes:
{routes}
"""
        ) as near:
            port = port_of(near.listeners["near"].address)
            for name in protocols():
                reader, writer = await asyncio.open_connection("localhost", port, ssl=files.trusting())
                writer.write(
                    b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
                    % (name.encode(), len(INFER), INFER)
                )
                head = await reader.readuntil(b"\r\n\r\n")
                print(name, head.split(b"\r\n")[0], await reader.read(400))
                writer.close()
            print(near.status().certificates)
