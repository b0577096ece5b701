"""A gateway in front of hostile servers, and clients that call them over V2 REST, V2 gRPC and UM-Bridge. Each server is
the backend of its own model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from gateway.assembly import registry
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import tensor
from tests.attacks import hostile
from tests.attacks.attacked import Attacked, attacked
from tests.attacks.clients import INFER, Http, message, post
from tests.interop.processes import eventually
from tests.limits import GENEROUS

BOUND = 30
LIMIT = 2**20
"""Maximum size of a server's message, in bytes."""

BACKEND = """
  {name}:
    protocol: {protocol}
    endpoints: ["{endpoint}"]
    limits: {{message: {limit}, headers: 16384}}
    policies: [{{timeout: {{seconds: {seconds}}}}}]
    {more}
"""
ROUTE = """
  - match: {{model: {name}}}
    backend: {name}
    signature:
      inputs: [{{name: x, datatype: INT64, shape: [-1, 1]}}]
      outputs: [{{name: x, datatype: INT64, shape: [-1, 1]}}]
"""


@dataclass(frozen=True)
class Mode:
    """The behavior of a server. `expected`: part of the error that every client gets (` | ` separates alternatives);
    empty if clients get their answers. `hangs`: the call ends by timeout. `stays`: the connection is reusable."""

    script: hostile.Script
    expected: str = ""
    hangs: bool = False
    stays: bool = False


Told = tuple[int | None, str]
"""The number that a client got, or None and the error message in its protocol."""
Client = Callable[[Attacked, str, int], Told]


def by_rest(gateway: Attacked, model: str, number: int) -> Told:
    given = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [number]}
    status, document = _posted(gateway, f"/v2/models/{model}/infer", {"inputs": [given]})
    if status == 200:
        (output,) = document["outputs"]
        (got,) = output["data"]
        return got, ""
    assert document.keys() == {"error"}
    return None, document["error"]


def by_umbridge(gateway: Attacked, model: str, number: int) -> Told:
    status, document = _posted(gateway, "/Evaluate", {"name": model, "input": [[number]], "config": {}})
    if status == 200:
        ((got,),) = document["output"]
        return got, ""
    assert document.keys() == {"error"}
    assert document["error"].keys() == {"type", "message"}
    return None, document["error"]["message"]


def _posted(gateway: Attacked, path: str, document: object) -> tuple[int, Any]:
    with Http(gateway.address("http")) as connection:
        head, _, body = connection.call(post(path, json.dumps(document).encode())).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


V2_GRPC = registry.protocols()["v2-grpc"]


def by_grpc(gateway: Attacked, model: str, number: int) -> Told:
    host, port = gateway.address("grpc")
    asked = message("v2-grpc", model, tensor("x", np.array([[number]], np.int64)))
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            reply = channel.unary_unary(INFER.decode())(asked, timeout=60)
        except grpc.RpcError as error:
            return None, str(error.details())
    response = V2_GRPC.decode_response(Message(parts=(reply,)), Request(Operation.INFER, model), Target())
    assert isinstance(response, Response)
    return int(response.outputs[0].array.item()), ""


CLIENTS: tuple[Client, ...] = (by_rest, by_grpc, by_umbridge)


class Rig:
    """The gateway, the servers and the clients."""

    def __init__(self, gateway: Attacked, playing: hostile.Stage, modes: Mapping[str, Mode]) -> None:
        self.gateway = gateway
        self._playing = playing
        self._modes = modes

    def check(self, name: str) -> None:
        """Call the server with this mode over every client protocol.

        Assert everything that the mode promises, that a correct server answers the next request, and that no
        connections and tasks remain.
        """
        mode, model = self._modes[name], model_of(name, self._modes)
        assert by_rest(self.gateway, "identity", 1) == (1, "")
        open_before, tasks = self.gateway.descriptors, self.gateway.look().tasks
        told = []
        for number, client in enumerate(CLIENTS, 1000):
            got, error = client(self.gateway, model, number)
            told.append(error or str(got))
            assert got == (None if mode.expected else number), told
            assert any(text in error for text in mode.expected.split(" | ")), told
            assert by_rest(self.gateway, "identity", number) == (number, "")
        if mode.stays:
            self._playing.close(model)
        assert eventually(lambda: not self._playing.open(model), GENEROUS)
        assert eventually(lambda: self.gateway.descriptors <= open_before, GENEROUS)
        assert eventually(lambda: self.gateway.look().tasks <= tasks, GENEROUS)
        assert "Traceback" not in self.gateway.log


def model_of(name: str, modes: Mapping[str, Mode]) -> str:
    """Return the model whose server has this mode."""
    return f"mode{list(modes).index(name)}"


@contextmanager
def rig(folder: Path, works: str, modes: Mapping[str, Mode], protocol: str, more: str = "") -> Iterator[Rig]:
    """Yield a gateway in front of a server for each mode."""
    named = {model_of(name, modes): mode for name, mode in modes.items()}
    with hostile.stage({model: mode.script for model, mode in named.items()}) as playing:
        backends = "".join(
            BACKEND.format(
                name=model,
                protocol=protocol,
                endpoint=playing.addresses[model],
                limit=LIMIT,
                seconds=0.3 if mode.hangs else BOUND,
                more=more,
            )
            for model, mode in named.items()
        )
        routes = "".join(ROUTE.format(name=model) for model in named)
        with attacked(folder, works, backends=backends, routes=routes) as gateway:
            yield Rig(gateway, playing, modes)
