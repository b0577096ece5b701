"""The second tier of a `cache`: responses in Redis or Valkey, which several gateways share.

The cache also works without the server: if the server does not respond in time, or contains data in the format of a
different version, the gateway continues without the server's responses. A response is stored as

    VERSION, 16 bytes of a checksum over the key and all following bytes, the length of a JSON head, the head, the data
    of each tensor

An epoch, which is a number in one key on the server, makes it possible to remove all responses in one step: a removal
increments the number. Each response contains the epoch in which its request started; a response of an earlier epoch is
ignored.
"""

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from struct import Struct
from time import time
from typing import Any

from gateway.core.datatypes import DATATYPES
from gateway.core.requests import NestedJson, Response
from gateway.core.tasks import spawn
from gateway.core.tensors import Tensor, tensor_bytes
from gateway.policies.shared_server import SharedServer

VERSION = b"gateway-cache-1\n"
"""Version of the format of stored responses. Change it when you change the format or the meaning of `request_key`."""
MOST_WRITES = 32
"""Maximum number of responses that are being sent to the server in parallel. Additional responses are not stored
there."""

_MOST_BESIDE = 2**16
"""Maximum size of a stored response in addition to its tensor data, in bytes."""

_HEAD = Struct("<16sI")


def packed(key: bytes, response: Response, epoch: bytes, made: float) -> bytes | None:
    """Serialize a response that was `made` at this Unix time. Return None if this format cannot represent the
    response."""
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
    """Return the response in `stored` and the Unix time when it was made. Return None if `stored` is not a complete,
    intact response to the request with this key, in this format and epoch."""
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
    """The responses of one cache on a Redis server. `largest` is the maximum size of a response, in bytes."""

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
        """True from the moment when all responses must be removed until the server has removed them."""
        self._writes: set[asyncio.Task[Any]] = set()

    async def get(self, key: bytes) -> tuple[tuple[Response, float] | None, bytes | None]:
        """Return the response with its age in seconds, or None, and the epoch for `put`, which is None if the server
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
        """Start storing a response whose request started in `epoch`, and return immediately. The response is not stored
        if the server does not accept it."""
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
        """Remove all responses of this cache name, for all gateways. Until the server has done this, the gateway does
        not query it for responses."""
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
