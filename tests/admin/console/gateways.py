"""Gateways whose console is looked at, as processes of their own."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.cli.commands import started
from tests.interop.processes import free_port

HOSTILE = "<img src=x onerror=alert(1)>"
"""A name that would run a script if it were read as markup."""

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
admin: {bind: "127.0.0.1:0"}
reference:
  - {protocol: v2-rest, bind: "127.0.0.1:TENSORS", models: [double, add_sub]}
  - {protocol: umbridge, bind: "127.0.0.1:SCIENCE", models: [posterior]}
backends:
  tensors:
    protocol: v2-rest
    endpoints: ["http://127.0.0.1:TENSORS"]
    policies: [{timeout: {seconds: 30}}]
  science:
    protocol: umbridge
    endpoints: ["http://127.0.0.1:SCIENCE"]
    max_in_flight: 1
  gone:
    protocol: v2-rest
    endpoints: ["http://127.0.0.1:NOTHING"]
routes:
  - {match: {model: posterior}, backend: science}
  - {match: {model: broken}, backend: gone}
  - {match: {model: "<img src=x onerror=alert(1)>"}, backend: tensors, rewrite: {model: double}}
  - {match: {model: "*"}, backend: tensors}
models:
  fourfold:
    description: doubled twice
    inputs: {x: "FP64 [-1, -1]"}
    steps:
      first: {model: double, inputs: {x: $x}}
      second: {model: double, inputs: {x: $first}}
    outputs: {y: $second, both: {sum: [$first, $second]}}
"""

DOUBLE = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [1, 2, 3]}]}'


class Looked:
    """A running gateway. `http` and `admin` are `http://host:port`, `file` its configuration."""

    def __init__(self, file: Path, lines: list[str]) -> None:
        self.file = file
        self.http, self.admin = _address(lines, "listener http"), admin_of(lines)

    def infer(self, model: str, body: bytes = DOUBLE, times: int = 1) -> None:
        """Send requests for a model, whatever becomes of them."""
        for _ in range(times):
            request = urllib.request.Request(f"{self.http}/v2/models/{quote(model, safe='')}/infer", body)
            try:
                with urllib.request.urlopen(request) as reply:
                    reply.read()
            except urllib.error.HTTPError as error:
                error.close()

    def reload(self) -> int:
        """Have the file read again; the status of the reply."""
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.admin}/reload", b"")) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code


def _address(lines: list[str], name: str) -> str:
    [address] = [re.split(r"\s{2,}", line)[1] for line in lines if line.startswith(f"{name} ")]
    return f"http://{address}"


def admin_of(lines: list[str]) -> str:
    """The address of the console, from what `gateway serve` prints."""
    return _address(lines, "admin")


@contextmanager
def looked(folder: Path, text: str = CONFIG) -> Iterator[Looked]:
    for name in ("TENSORS", "SCIENCE", "NOTHING"):
        text = text.replace(name, str(free_port()))
    file = folder / "gateway.yaml"
    file.write_text(text)
    with started("serve", "--config", str(file)) as (_, lines):
        yield Looked(file, lines)
