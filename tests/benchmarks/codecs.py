"""What the codecs alone cost, in this process: every protocol that is installed, on messages as its transport hands
them over. The sockets, the framing and the routes are not in it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gateway.assembly import registry
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.contract.wire import LISTENER, LITERAL, arrived, returned

SMALL, LARGE = 10, 1_000_000
"""Elements of FP32."""
CALLS = 300
"""Of each function in a round, with SMALL."""
CALLS_RAW, CALLS_TEXT = 10, 1
"""The same with LARGE."""
WARM_UP = 3
"""Calls before the first round, which fill caches; the checks have made some more."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Form:
    """A way in which a protocol carries numbers: what its server and its tensors must be, to have it."""

    protocol: Protocol
    flavor: str = ""
    content_type: str = ""

    def request(self, array: NDArray[np.float32]) -> Request:
        return Request(Operation.INFER, "m", inputs=(self.tensor("input0", array),), translate=LITERAL)

    def tensor(self, name: str, array: NDArray[np.float32]) -> Tensor:
        """One example; of protocols that know only points, one point."""
        shaped = array if self.protocol.traits.wire.points else array.reshape(1, -1)
        return replace(tensor(name, shaped), content_type=self.content_type)

    @property
    def target(self) -> Target:
        return Target("benchmark", "127.0.0.1:1", self.flavor)

    @property
    def is_text(self) -> bool:
        """Whether the numbers are not on the wire as they are in memory."""
        request = self.request(numbers(SMALL))
        return bytes(request.inputs[0].data) not in b"".join(self.protocol.encode_request(request, self.target).parts)


@dataclass(frozen=True)
class Row:
    form: Form
    is_text: bool

    @property
    def name(self) -> str:
        words = (self.form.protocol.name, self.form.flavor, self.form.content_type)
        return f"codec {' '.join(filter(None, words))}{', numbers as JSON text' if self.is_text else ''}"


@dataclass(frozen=True)
class Cost:
    """CPU of one call, and the same by that of the yardstick, which is measured in the same rounds."""

    microseconds: float
    ratio: float


@dataclass(frozen=True)
class Measured:
    row: Row
    facing: Cost
    """Of SMALL: decode_request and encode_response, by `json.loads(json.dumps(...))` of the same payload."""
    backend: Cost
    """Of SMALL: encode_request and decode_response, by the same."""
    encode: Cost
    """Of LARGE: encode_request, by a copy of the array."""
    decode: Cost
    """Of LARGE: decode_request, by the same."""


def rows() -> Iterator[Row]:
    """Every protocol that carries FP32: raw, as JSON text, or both where it has both."""
    for protocol in registry.protocols().values():
        if Datatype.FP32 in protocol.traits.wire.datatypes:
            found: dict[bool, Form] = {}
            for form in _forms(protocol):
                found.setdefault(form.is_text, form)
            yield from (Row(form, is_text) for is_text, form in found.items())


def measure(row: Row, rounds: int) -> Measured:
    """Everything in turns, so that what else the machine does meets all alike; of the rounds, the medians.

    Raises:
        AssertionError: a codec does not give back what it was given.
    """
    small, large = numbers(SMALL), numbers(LARGE)
    facing, backend = _compare(_exchange(row.form, small), (_json(small), CALLS), CALLS, rounds)
    calls = CALLS_TEXT if row.is_text else CALLS_RAW
    encode, decode = _compare(_request(row.form, large), (large.copy, CALLS_RAW), calls, rounds)
    return Measured(row, facing, backend, encode, decode)


def numbers(size: int) -> NDArray[np.float32]:
    """With all their digits; the same in every run."""
    source = random.Random(size)
    return np.array([source.gauss(0, 1) for _ in range(size)], np.float32)


def _forms(protocol: Protocol) -> Iterator[Form]:
    flavors = protocol.traits.servers.flavors
    for flavor in flavors.names if flavors else ("",):
        for content_type in ("", "npy"):
            yield Form(protocol, flavor, content_type)


def _json(array: NDArray[np.float32]) -> Call:
    """Writing and reading the same as V2's JSON, each number in as few digits as tell it."""
    data = [float(str(number)) for number in array]
    document = {"inputs": [{"name": "input0", "datatype": "FP32", "shape": [1, len(data)], "data": data}]}
    return lambda: json.loads(json.dumps(document))


def _exchange(form: Form, array: NDArray[np.float32]) -> tuple[Call, Call]:
    """Both halves of one exchange: the one that faces clients, and the one that faces backends."""
    protocol, target, request = form.protocol, form.target, form.request(array)
    answer = Response((form.tensor("output0", array),))
    question = arrived(protocol.encode_request(request, target), protocol)

    def facing() -> object:
        return protocol.encode_response(answer, protocol.decode_request(question, LISTENER), LITERAL)

    understood = protocol.decode_request(question, LISTENER)
    reply = returned(protocol.encode_response(answer, understood, LITERAL), protocol)

    def backend() -> Response:
        protocol.encode_request(request, target)
        response = protocol.decode_response(reply, request, target)
        assert isinstance(response, Response)
        return response

    _check(understood.inputs, array)
    _check(backend().outputs, array)
    return facing, backend


def _request(form: Form, array: NDArray[np.float32]) -> tuple[Call, Call]:
    """Writing a request, and reading it."""
    protocol, target, request = form.protocol, form.target, form.request(array)
    question = arrived(protocol.encode_request(request, target), protocol)
    _check(protocol.decode_request(question, LISTENER).inputs, array)
    return partial(protocol.encode_request, request, target), partial(protocol.decode_request, question, LISTENER)


def _check(tensors: Sequence[Tensor], array: NDArray[np.float32]) -> None:
    [only] = tensors
    assert np.array_equal(only.array.reshape(-1).astype(np.float32), array)


def _compare(pair: tuple[Call, Call], yardstick: tuple[Call, int], calls: int, rounds: int) -> tuple[Cost, Cost]:
    """The costs of both of `pair`, each called so often in a round, and the `yardstick` as often as is said with it."""
    for call in (*pair, yardstick[0]):
        _spent(call, WARM_UP)
    taken = [(_spent(pair[0], calls), _spent(pair[1], calls), _spent(*yardstick)) for _ in range(rounds)]
    first, second = (
        Cost(1e6 * median(each[at] for each in taken), median(each[at] / each[2] for each in taken)) for at in (0, 1)
    )
    return first, second


def _spent(call: Call, calls: int) -> float:
    """Seconds of CPU of one call, of so many."""
    before = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - before) / calls
