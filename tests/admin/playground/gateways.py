"""A gateway in the test's process whose playground is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from gateway.auth.keys import new_key
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, key_file
from tests.interop.processes import free_port
from tests.running_gateway import running_gateway
from tests.tls.certificates import Authority

HOSTILE = 'it\'s "$(exit 3)" `x` \\ <img src=x onerror=alert(1)>'
"""A model whose name would be run by a shell or a browser that reads more than a name in it."""

CONFIG = """
listeners:
  - name: http
    bind: "127.0.0.1:0"
    protocols: [v2-rest, v1-rest, umbridge, graphpipe, grps-rest]
    allow_explain: true
    reply_headers: true
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc, tfs-grpc]}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: double}
  - {name: secure, bind: "127.0.0.1:0", protocols: [v2-rest], tls: TLS, auth: {}}
  - {name: secure-grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], tls: TLS, auth: {}}
auth: {keys: {file: KEYS}}
principals: {somebody: {permissions: [use]}}
admin: {bind: "127.0.0.1:0"}
reference:
  - {protocol: v2-grpc, bind: "127.0.0.1:TENSORS", models: [double, add_sub, count]}
  - {protocol: umbridge, bind: "127.0.0.1:SCIENCE", models: [posterior]}
  - {protocol: grps-rest, bind: "127.0.0.1:TEXTS", models: [upper]}
backends:
  tensors: {protocol: v2-grpc, endpoints: ["127.0.0.1:TENSORS"], policies: [{timeout: {seconds: 30}}]}
  science: {protocol: umbridge, endpoints: ["http://127.0.0.1:SCIENCE"]}
  texts: {protocol: grps-rest, endpoints: ["127.0.0.1:TEXTS"]}
routes:
  - {match: {model: posterior}, backend: science}
  - match: {model: upper}
    backend: texts
    signature:
      inputs: [{name: text, datatype: BYTES, shape: [-1]}]
      outputs: [{name: upper, datatype: BYTES, shape: [-1]}]
  - match: {model: HOSTILE}
    backend: tensors
    rewrite: {model: double}
  - match: {protocol: umbridge, model: double}
    backend: tensors
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 3]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 3]}]
  - {match: {model: "*"}, backend: tensors}
"""

DOUBLE: dict[str, Any] = {
    "listener": "http",
    "protocol": "v2-rest",
    "model": "double",
    "inputs": [{"name": "x", "datatype": "FP64", "shape": "1, 3", "values": "1, 2.5, -3e-5", "declared": [-1, -1]}],
    "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1, -1]}],
}
POSTERIOR = {
    **DOUBLE,
    "model": "posterior",
    "inputs": [{"name": "input0", "datatype": "FP64", "shape": "1, 2", "values": "1, 2", "declared": [-1, 2]}],
    "outputs": [{"name": "output0", "datatype": "FP64", "shape": [-1, 1]}],
}
UPPER = {
    **DOUBLE,
    "model": "upper",
    "inputs": [{"name": "text", "datatype": "BYTES", "shape": "", "values": 'it\'s\n$HOME "b" \\n', "declared": [-1]}],
    "outputs": [{"name": "upper", "datatype": "BYTES", "shape": [-1]}],
}


class RunningPlayground:
    """A running gateway. `key` is one for its listeners with `auth`, `ca` the file with the CA of their certificate."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient, key: str, ca: Path) -> None:
        self.gateway, self.client, self.key, self.ca = gateway, client, key, ca

    async def ask(self, path: str, form: dict[str, Any], status: int = 200) -> Any:
        """The JSON that `/api/playground/PATH` answers to a form."""
        found = await self.client.post(f"/api/playground/{path}", json=form)
        assert found.status_code == status, found.text
        return found.json()


@asynccontextmanager
async def played(folder: Path, text: str = CONFIG) -> AsyncIterator[RunningPlayground]:
    key, entry = new_key("somebody")
    files = Authority().issue(folder, "127.0.0.1", "localhost")
    for name in ("TENSORS", "SCIENCE", "TEXTS", "NOTHING"):
        text = text.replace(name, str(free_port()))
    text = text.replace("TLS", files.server).replace("KEYS", str(key_file(folder, entry)))
    text = text.replace("HOSTILE", orjson.dumps(HOSTILE).decode())
    async with running_gateway(text) as gateway, admin_client(gateway) as client:
        yield RunningPlayground(gateway, client, key, files.ca)
