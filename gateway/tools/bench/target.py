"""Sends requests to the server under load at the lowest possible cost.

The generator converts the request for the model, encodes it once, and then sends the same message repeatedly. A
response that equals the first response byte for byte counts as a success without decoding. The generator decodes all
other responses, so it detects errors in every protocol.
"""

import asyncio
import random
import string
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from gateway.bridge.settings import Cast
from gateway.client import requests
from gateway.client.errors import as_client_error, timed_out
from gateway.client.model_server import ModelServer, connected
from gateway.client.settings import ClientSettings
from gateway.core.datatypes import Datatype, Kind
from gateway.core.deadlines import wait_until
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message, bytes_of
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.requests import Request
from gateway.core.tensors import Tensor, tensor
from gateway.core.transport import Connector
from gateway.tools.bench.load import CallFailed


@frozen
class Question:
    """The request to send. If `request` has no inputs, the generator creates `batch` rows of random inputs from the
    model's signature."""

    request: Request
    cast: Cast
    batch: int | None
    seed: int


@frozen
class Encoded:
    """An encoded request for the server, and the data that decoding the response requires."""

    message: Message
    request: Request
    target: Target


async def prepared(settings: ClientSettings, question: Question, timeout: float | None) -> Encoded:
    """Send the request once, and return it in encoded form.

    Raises:
        ClientError: the server is unreachable, or returned an error.
        ValueError: the request needs several messages, or inputs are missing and the server does not report the model's
            inputs.
    """
    address = settings.place.address
    found: list[Encoded] = []
    server = ModelServer(replace(settings, protocol=_recording(settings.protocol, found)))
    try:
        async with asyncio.timeout(timeout):
            request = await _with_inputs(question, server)
            found.clear()
            await server.ask(request, question.cast)
    except TimeoutError as error:
        raise timed_out(timeout or 0.0, address) from error
    except (DecodeError, GatewayError) as error:
        raise as_client_error(error, address) from error
    finally:
        await server.close()
    if len(found) != 1:
        raise ValueError(f"these inputs take {len(found)} messages over {settings.protocol.name}, expected one")
    return found[0]


def _recording(protocol: Protocol, found: list[Encoded]) -> Protocol:
    """Return the protocol with an encoder that records, in `found`, the messages that run a model."""

    def encode_request(request: Request, target: Target) -> Message:
        message = protocol.encode_request(request, target)
        if request.operation is not Operation.METADATA and request.model:
            found.append(Encoded(message, request, target))
        return message

    return replace(protocol, encode_request=encode_request)


async def _with_inputs(question: Question, server: ModelServer) -> Request:
    request = question.request
    asked = Request(Operation.METADATA, request.model, request.version)
    if request.inputs:
        return await requests.typed(request, partial(server.ask, asked))
    signature = await server.ask(asked, question.cast)
    assert isinstance(signature, Signature)
    if not signature.inputs:
        raise ValueError("the server does not report the model's inputs; set them with --set NAME=VALUE")
    return replace(request, inputs=random_inputs(signature.inputs, question.batch, question.seed))


class BenchSender:
    """Sends a message over `connections` connections in rotation. With HTTP, MIP and UM-Bridge, each request in flight
    uses its own connection. `timeout` is in seconds; None means no timeout."""

    def __init__(self, settings: ClientSettings, encoded: Encoded, timeout: float | None, connections: int) -> None:
        self.request_bytes = bytes_of(encoded.message)
        self._encoded = encoded
        self._protocol = settings.protocol
        self._address = settings.place.address
        self._timeout = timeout
        self._connectors = [connected(settings) for _ in range(connections)]
        self._next: Callable[[], Connector] = cycle(self._connectors).__next__
        self._time = asyncio.get_running_loop().time
        self._status = 0
        self._body = b""
        """The body of the first success."""

    async def __call__(self) -> int:
        """See `Send`."""
        message, connector, timeout = self._encoded.message, self._next(), self._timeout
        try:
            if timeout is None:
                reply = await connector.exchange(message)
            else:
                deadline = self._time() + timeout
                exchange = connector.exchange(replace(message, deadline=deadline))
                reply = await wait_until(deadline, exchange, TimeoutError)
            body = reply.body
            if body != self._body or reply.status != self._status:
                self._decode(reply)
                self._status, self._body = reply.status, bytes(body)
            return len(body)
        except TimeoutError:
            error: Exception = timed_out(timeout or 0.0, self._address)
            raise CallFailed("DEADLINE_EXCEEDED", str(error)) from None
        except (DecodeError, GatewayError) as failure:
            error = as_client_error(failure, self._address)
            raise CallFailed(error.status.name, error.message) from None

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(each.close() for each in self._connectors))

    def _decode(self, reply: Message) -> None:
        try:
            self._protocol.decode_response(reply, self._encoded.request, self._encoded.target)
        except DecodeError as error:
            raise CallFailed("BAD_REPLY", f"{self._address}: {error}") from None


LARGEST_INTEGER = 9
LETTERS = 8
"""The number of letters in each BYTES element."""


def random_inputs(specs: Iterable[TensorSpec], batch: int | None, seed: int) -> tuple[Tensor, ...]:
    """Return inputs with these names, datatypes and shapes. If the first dimension is -1, it becomes `batch` (1 if
    None); any other -1 becomes 1. Floats are from 0 to 1, integers are from 0 to LARGEST_INTEGER, and BYTES are
    lowercase letters.

    Raises:
        ValueError: `batch` is set although the first dimension of an input is not -1.
    """
    specs = tuple(specs)
    chance = np.random.default_rng(seed)
    for each in specs:
        if batch is not None and each.shape[:1] != (-1,):
            raise ValueError(f"input {each.name!r} has the shape {list(each.shape)}, without a -1 first for --batch")
    return tuple(_random_tensor(each, batch or 1, chance) for each in specs)


def _random_tensor(spec: TensorSpec, batch: int, chance: np.random.Generator) -> Tensor:
    shape = tuple((1 if place else batch) if size < 0 else size for place, size in enumerate(spec.shape))
    return tensor(spec.name, _values(spec.datatype, shape, chance), spec.datatype)


def _values(datatype: Datatype, shape: tuple[int, ...], chance: np.random.Generator) -> "np.ndarray[Any, Any]":
    if datatype.kind is Kind.BYTES:
        letters = random.Random(int(chance.integers(2**32)))
        texts = np.empty(shape, object)
        texts.reshape(-1)[:] = ["".join(letters.choices(string.ascii_lowercase, k=LETTERS)) for _ in range(texts.size)]
        return texts
    if datatype.kind is Kind.FLOAT:
        return chance.random(shape).astype(datatype.dtype)
    return chance.integers(2 if datatype.kind is Kind.BOOL else LARGEST_INTEGER + 1, size=shape).astype(datatype.dtype)
