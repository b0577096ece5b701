"""The request keys of a `cache`, and its two stores for responses: one in memory, limited in bytes and in seconds, and
one in Redis or Valkey, which several gateways share."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256
from struct import Struct
from time import time
from typing import Any

import numpy as np

from gateway.core.datatypes import DATATYPES
from gateway.core.frozen import field_names, frozen, replace
from gateway.core.messages import NO_HEADERS, Buffer, Message
from gateway.core.requests import NestedJson, Request, Response
from gateway.core.tasks import spawn
from gateway.core.tensors import Parameters, Tensor, tensor_bytes
from gateway.policies.shared_server import SharedServer

LARGEST_SHARE = 8
"""The maximum fraction of the store that one response can use."""

ENTRY_BYTES = 1200
"""The number of bytes that an entry uses in addition to its tensors and texts, as measured in
tests/policies/test_cached_answers.py."""
TENSOR_BYTES = 500
"""The number of bytes that a tensor in an entry uses in addition to its data and texts."""

_OF_MESSAGE = frozenset(field_names(Message))


def request_key(request: Request, more: tuple[object, ...] = ()) -> bytes:
    """Return the SHA-256 digest of `more` and of everything in `request` that a server receives. Two requests have the
    same key only if a server cannot distinguish between them.

    Tensors are compared as bytes: 0.0 differs from -0.0, and two NaNs with different payloads differ. The key excludes
    the caller, the time, the id and the deadline. SHA-256 is the fastest strong hash on most processors, because they
    have instructions for it (1.9 GB/s; BLAKE2b: 1.3 GB/s)."""
    inputs, translate = request.inputs, request.translate
    # `repr` of tuples of texts and numbers is unambiguous and fast. It includes the size of each tensor, so bytes of
    # one tensor cannot be mistaken for bytes of the next.
    head = repr(
        (
            request.operation.value,
            request.model,
            request.version,
            _sorted(request.parameters),
            [(each.name, _sorted(each.parameters)) for each in request.outputs],
            [
                (
                    each.name,
                    each.datatype.value,
                    each.shape,
                    each.content_type,
                    each.untyped,
                    len(each.data),
                    _sorted(each.parameters),
                )
                for each in inputs
            ],
            request.schemaless,
            (translate.nan, translate.bytes, translate.payload),
            more,
        )
    ).encode()
    digest = sha256(b"%d " % len(head))
    digest.update(head)
    for each in inputs:
        digest.update(each.data)
    return digest.digest()


def form_of_message(origin: Message | None) -> tuple[object, ...]:
    """Return the codec's notes about a client message, such as the payload format of grps. These notes reach the server
    but are not in the canonical request."""
    if origin is None or type(origin) is Message:
        return ()
    noted = [name for name in field_names(type(origin)) if name not in _OF_MESSAGE]
    return tuple(repr(getattr(origin, name)) for name in noted)


def _sorted(parameters: Parameters) -> list[tuple[str, object]]:
    return sorted(parameters.items()) if parameters else []


def own_copy(response: Response) -> Response:
    """Return `response` with its own copy of the data. Views of a received body would keep the entire body in memory,
    and the body would still count against the memory limit."""
    origin = response.origin
    if origin is not None and origin.parts:
        origin = replace(origin, parts=(), headers=NO_HEADERS)  # a codec's notes, without the message
    outputs = tuple([replace(each, data=_copied(each.data)) for each in response.outputs])
    return replace(response, outputs=outputs, origin=origin, id=None)


def _copied(data: Buffer) -> Buffer:
    # Use numpy, because bytes() blocks other threads while it copies large data.
    return data if type(data) is bytes else np.frombuffer(data, np.uint8).copy().data


def size_of(response: Response) -> int:
    """Return the number of bytes that `response`, an `own_copy`, uses in a store."""
    size = ENTRY_BYTES + _text_sizes((response.model, response.version)) + _size_of_parameters(response.parameters)
    if response.origin is not None:
        size += sum(len(each) for each in map(repr, form_of_message(response.origin))) + TENSOR_BYTES
    for each in response.outputs:
        size += TENSOR_BYTES + len(each.data) + _text_sizes((each.name,)) + _size_of_parameters(each.parameters)
    return size


def _size_of_parameters(parameters: Parameters) -> int:
    return 100 * len(parameters) + _text_sizes(str(each) for item in parameters.items() for each in item)


def _text_sizes(texts: Iterable[str]) -> int:
    return sum(4 * len(each) for each in texts)


@frozen
class CachedAnswer:
    """A response, its `size` in the store, and the time at which it was `made`, on the store's clock."""

    response: Response
    size: int
    made: float


class AnswerStore:
    """Responses by request key. If the responses would use more than `capacity` bytes, the store evicts the least
    recently used ones (LRU). The cache does not return responses that are older than `seconds` seconds."""

    def __init__(self, capacity: int, seconds: float, clock: Callable[[], float]) -> None:
        self.capacity = capacity
        self.seconds = seconds
        self.bytes = 0
        self.evicted = self.expired = self.too_large = self.cleared = 0
        self.generation = 0
        """The number of times that the store was cleared. A response whose request started in an earlier generation is
        not stored."""
        self._clock = clock
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        """The entries; the most recently used one is last."""
        self._by_age: OrderedDict[bytes, None] = OrderedDict()
        """The keys in order of insertion; the oldest one is first."""

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> tuple[Response, float] | None:
        """Return the response and its age in seconds, or None if the store does not contain it."""
        found = self._answers.get(key)
        if found is None:
            return None
        age = self._clock() - found.made
        if age >= self.seconds:
            self._drop(key)
            self.expired += 1
            return None
        self._answers.move_to_end(key)
        return found.response, age

    def put(self, key: bytes, response: Response, generation: int, age: float = 0.0) -> None:
        """Store `response`, an `own_copy` that is `age` seconds old, unless it is too large or the store was cleared
        since `generation`."""
        if generation != self.generation:
            return
        self._expire()
        size = size_of(response)
        if size > self.capacity // LARGEST_SHARE:
            self.too_large += 1
            return
        self._drop(key)
        while self.bytes + size > self.capacity:
            self._drop(next(iter(self._answers)))
            self.evicted += 1
        self._answers[key] = CachedAnswer(response, size, self._clock() - age)
        self._by_age[key] = None
        self.bytes += size

    def clear(self) -> None:
        """Remove all responses. Later responses to calls that are now in flight are not stored."""
        self.generation += 1
        self.cleared += 1
        self._answers.clear()
        self._by_age.clear()
        self.bytes = 0

    def _expire(self) -> None:
        oldest_kept = self._clock() - self.seconds
        while self._by_age:
            key = next(iter(self._by_age))
            if self._answers[key].made > oldest_kept:
                return
            self._drop(key)
            self.expired += 1

    def _drop(self, key: bytes) -> None:
        found = self._answers.pop(key, None)
        if found is not None:
            del self._by_age[key]
            self.bytes -= found.size


VERSION = b"gateway-cache-1\n"
"""The format version of stored responses. Change this number when you change the format or the meaning of
`request_key`."""
MOST_WRITES = 32
"""Maximum number of responses that are sent to the server in parallel. Additional responses are not stored there."""

_MOST_BESIDE = 2**16
"""Maximum size of a stored response in addition to its tensor data, in bytes."""

_HEAD = Struct("<16sI")


def packed(key: bytes, response: Response, epoch: bytes, made: float) -> bytes | None:
    """Serialize a response that was `made` at this Unix time, as

        VERSION, 16 bytes of a checksum over the key and all following bytes, the length of a JSON head, the head, the
        data of each tensor

    Return None if this format cannot represent the response."""
    if response.origin is not None:
        return None  # only the codec that wrote a note about a message can read it
    parameters = (response.parameters, *[each.parameters for each in response.outputs])
    if any(NestedJson in map(type, each.values()) for each in parameters):
        return None  # the format cannot represent nested JSON
    described = {
        "epoch": epoch.decode(),
        "made": made,
        "model": response.model,
        "version": response.version,
        "parameters": dict(response.parameters),
        "schemaless": response.schemaless,
        "outputs": [
            {
                "name": each.name,
                "datatype": each.datatype.value,
                "shape": each.shape,
                "content_type": each.content_type,
                "parameters": dict(each.parameters),
                "untyped": each.untyped,
                "bytes": len(each.data),
            }
            for each in response.outputs
        ],
    }
    # Use json instead of orjson, because json writes and reads NaN and integers of any size.
    head = json.dumps(described).encode()
    body = b"".join([head, *(each.data for each in response.outputs)])
    return b"".join((VERSION, _HEAD.pack(_checksum(key, len(head), body), len(head)), body))


def unpacked(key: bytes, stored: bytes, epoch: bytes) -> tuple[Response, float] | None:
    """Return the response in `stored` and the Unix time at which it was made. Return None if `stored` is not a
    complete, intact response to the request with this key, in this format and epoch."""
    start = len(VERSION) + _HEAD.size
    if len(stored) < start or not stored.startswith(VERSION):
        return None
    checksum, length = _HEAD.unpack_from(stored, len(VERSION))
    body = memoryview(stored)[start:]
    if checksum != _checksum(key, length, body):
        return None
    try:
        head = json.loads(bytes(body[:length]))
        if head["epoch"].encode() != epoch:
            return None
        at, outputs = length, []
        for each in head["outputs"]:
            data = bytes(body[at : at + each["bytes"]])
            at += each["bytes"]
            datatype, shape = DATATYPES[each["datatype"]], tuple(each["shape"])
            outputs.append(
                Tensor(each["name"], datatype, shape, data, each["content_type"], each["parameters"], each["untyped"])
            )
        response = Response(
            tuple(outputs), head["model"], head["version"], None, head["parameters"], None, head["schemaless"]
        )
        return response, float(head["made"])
    except (ValueError, KeyError, TypeError, AttributeError):  # a different format with the same VERSION
        return None


def _checksum(key: bytes, length: int, body: bytes | memoryview) -> bytes:
    digest = sha256(b"%b%d " % (key, length))
    digest.update(body)
    return digest.digest()[:16]


class SharedAnswers:
    """The responses of one cache on a Redis or Valkey server, which several gateways share. `largest` is the maximum
    size of a response, in bytes.

    The cache also works without the server: if the server does not respond in time, or contains data in a different
    version's format, the gateway continues without the server's responses.

    One key on the server contains a number, the epoch. To remove all responses in one step, the gateway increments the
    epoch. Each response contains the epoch in which its request started, and the gateway ignores responses from earlier
    epochs."""

    def __init__(
        self,
        server: SharedServer,
        name: str,
        seconds: float,
        largest: int,
        now: Callable[[], float] = time,
    ) -> None:
        self.hits = 0
        self.server = server
        self._prefix = f"gateway:cache:{name}:"
        self._seconds = seconds
        self._largest = largest
        self._now = now
        self._has_to_forget = False
        """True from the time at which all responses must be removed until the server has removed them."""
        self._writes: set[asyncio.Task[Any]] = set()

    async def get(self, key: bytes) -> tuple[tuple[Response, float] | None, bytes | None]:
        """Return the response with its age in seconds, or None. Also return the epoch for `put`, or None if the server
        does not respond."""
        found = await self.server.ask(lambda redis: self._get(redis, key))
        if found is None:
            return None, None
        stored, epoch = found
        answer = unpacked(key, stored, epoch) if stored else None
        if answer is None:
            return None, epoch
        age = max(0.0, self._now() - answer[1])
        if age >= self._seconds:
            return None, epoch
        self.hits += 1
        return (answer[0], age), epoch

    async def _get(self, redis: Any, key: bytes) -> tuple[bytes | None, bytes]:
        if self._has_to_forget:
            await self._forget(redis)
        # Read at most the maximum size of a stored response. If the value is longer, the checksum does not match.
        async with redis.pipeline(transaction=False) as questions:
            questions.getrange(self._key(key), 0, self._largest + _MOST_BESIDE)
            questions.get(f"{self._prefix}epoch")
            stored, epoch = await questions.execute()
        return stored, epoch or b"0"

    def put(self, key: bytes, response: Response, epoch: bytes) -> None:
        """Start storing a response whose request started in `epoch`, and return immediately. If the server does not
        accept the response, it is not stored."""
        size = tensor_bytes(response.outputs)
        if size > self._largest or not self.server.is_reached or len(self._writes) >= MOST_WRITES:
            return
        task = spawn(self._put(key, response, epoch))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _put(self, key: bytes, response: Response, epoch: bytes) -> None:
        stored = packed(key, response, epoch, self._now())
        if stored is not None and len(stored) <= self._largest + _MOST_BESIDE:
            milliseconds = max(1, int(self._seconds * 1000))
            await self.server.ask(lambda redis: redis.set(self._key(key), stored, px=milliseconds))

    def forget(self) -> None:
        """Remove all responses of this cache name, for all gateways. Until the server has removed them, the gateway
        does not query it for responses."""
        self._has_to_forget = True
        task = spawn(self.server.ask(self._forget))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _forget(self, redis: Any) -> bool:
        if self._has_to_forget:
            await redis.incr(f"{self._prefix}epoch")
            self._has_to_forget = False
        return True

    def _key(self, key: bytes) -> str:
        return f"{self._prefix}{key.hex()}"

    async def close(self) -> None:
        """Close the connections to the server."""
        for each in list(self._writes):
            each.cancel()
        await self.server.close()
