"""The models of the grps peers, chosen by `name-version`; no name is the dag, whose one node is the first model.

- echo: what came, its `model` included
- twice: numbers doubled; upper: strings, str_data and bin_data in capitals
- add_sub: INPUT0 and INPUT1, DT_INT32, to OUTPUT0, their sum, and OUTPUT1, their difference
- fail: what set_err_msg does, with str_data for its text; crash: an exception
- count: streams as many messages as str_data or the first element of a tensor says, of the request's kind; for -n it
  streams n and then fails. Asked for one message it gives the number back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.peers.grps_messages import DATA, SUCCESS, failure, flat_name, tensor
from tests.peers.protobuf import Document


class ModelError(Exception):
    """What upstream's set_err_msg does: the text reaches the client bare."""


def nothing(message: Document) -> Iterator[Document]:
    """What a model streams that does not stream: its result is dropped."""
    yield from ()


@dataclass(frozen=True)
class Model:
    name: str
    apply: Callable[[Document], Document]
    stream: Callable[[Document], Iterator[Document]] = nothing
    version: str = "1.0.0"

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.version}"

    def description(self) -> Document:
        """Its mapping in inference.yml."""
        return {
            "name": self.name,
            "version": self.version,
            "device": "original",
            "inferer_type": "customized",
            "inferer_name": f"{self.name}_inferer",
            "inferer_path": None,
            "inferer_args": None,
            "converter_type": "none",
            "converter_name": None,
            "converter_path": None,
            "converter_args": None,
            "batching": {"type": "none"},
        }


def data_of(message: Document) -> Document:
    return {name: message[name] for name in ("model", *DATA) if name in message}


def on_elements(message: Document, function: Callable[[Any], Any]) -> Document:
    tensors = []
    for each in message.get("gtensors", {}).get("tensors", []):
        flat = flat_name(each.get("dtype", ""))
        tensors.append(each | {flat: [function(value) for value in each.get(flat, [])]})
    return {"gtensors": {"tensors": tensors}}


def twice(message: Document) -> Document:
    return on_elements(message, lambda value: 2 * value)


def upper(message: Document) -> Document:
    for name in ("str_data", "bin_data"):
        if name in message:
            return {name: message[name].upper()}
    return on_elements(message, lambda value: value.upper())


def add_sub(message: Document) -> Document:
    given = {each.get("name", ""): each for each in message["gtensors"]["tensors"]}
    shape = given["INPUT0"].get("shape", [])
    pairs = list(zip(*(given[name].get("flat_int32", []) for name in ("INPUT0", "INPUT1")), strict=True))
    sums = tensor("OUTPUT0", "DT_INT32", shape, [a + b for a, b in pairs])
    return {"gtensors": {"tensors": [sums, tensor("OUTPUT1", "DT_INT32", shape, [a - b for a, b in pairs])]}}


def fail(message: Document) -> Document:
    raise ModelError(message.get("str_data", "the model says no"))


def fail_stream(message: Document) -> Iterator[Document]:
    yield fail(message)


def crash(message: Document) -> Document:
    raise ValueError("the model broke")


def crash_stream(message: Document) -> Iterator[Document]:
    yield crash(message)


def number_of(message: Document) -> int:
    if "gtensors" in message:
        (first, *_) = message["gtensors"]["tensors"]
        return int(first[flat_name(first["dtype"])][0])
    return int(message.get("str_data") or message.get("bin_data") or 0)


def counted(message: Document, number: int) -> Document:
    """A number in the kind of data that the request had; bytes that are no text, for bin_data."""
    if "gtensors" in message:
        return {"gtensors": {"tensors": [tensor("i", "DT_INT32", [1], [number])]}}
    return {"bin_data": bytes((0, 255, number))} if "bin_data" in message else {"str_data": str(number)}


def count(message: Document) -> Iterator[Document]:
    number = number_of(message)
    for each in range(abs(number)):
        yield counted(message, each)
    if number < 0:
        raise ModelError("the stream broke")


MODELS = (
    Model("echo", data_of),
    Model("twice", twice),
    Model("upper", upper),
    Model("add_sub", add_sub),
    Model("fail", fail, fail_stream),
    Model("crash", crash, crash_stream),
    Model("count", lambda message: counted(message, number_of(message)), count),
)


@dataclass
class Repository:
    """Models, and what differs between the servers in asking them."""

    models: Sequence[Model]
    tell: Callable[[Exception], str]
    """The `msg` of an exception."""
    not_found: Callable[[str], Exception]

    def find(self, name: str) -> Model:
        for model in self.models:
            if not name or model.full_name == name:
                return model
        raise self.not_found(name)

    def predict(self, message: Document) -> Document:
        try:
            return {"status": SUCCESS, **self.find(message.get("model", "")).apply(message)}
        except Exception as error:
            return self.failure(error)

    def stream(self, message: Document) -> Iterator[Document]:
        """A failure is one more message."""
        try:
            for each in self.find(message.get("model", "")).stream(message):
                yield {"status": SUCCESS, **each}
        except Exception as error:
            yield self.failure(error)

    def failure(self, error: Exception) -> Document:
        return failure(500, str(error) if isinstance(error, ModelError) else self.tell(error))

    def inference_yml(self) -> str:
        first = self.models[0]
        node = {"name": "node-1", "type": "model", "model": first.full_name}
        dag = {"type": "sequential", "name": "sequential_dag", "nodes": [node]}
        return dump({"models": [each.description() for each in self.models], "dag": dag})


def dump(document: Any, *, sort_keys: bool = False) -> str:
    text: str = yaml.safe_dump(document, sort_keys=sort_keys)
    return text


def server_yml(framework: str) -> str:
    return dump(
        {
            "interface": {"framework": framework, "host": "127.0.0.1", "port": "7080,7081"},
            "max_connections": 1000,
            "max_concurrency": 32,
            "gpu": {"devices": [0], "mem_limit_mib": -1, "mem_gc_enable": False},
            "log": {"log_dir": "./logs", "log_backup_count": 7},
        }
    )
