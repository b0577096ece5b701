"""The request keys of a `cache`, and its store of responses, which is limited in bytes and in seconds."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256

import numpy as np

from gateway.core.frozen import field_names, frozen, replace
from gateway.core.messages import NO_HEADERS, Buffer, Message
from gateway.core.requests import Request, Response
from gateway.core.tensors import Parameters

LARGEST_SHARE = 8
"""A response can use at most 1/8 of the store."""

ENTRY_BYTES = 1200
"""Bytes that an entry uses in addition to its tensors and texts, as measured in
tests/policies/test_cached_answers.py."""
TENSOR_BYTES = 500
"""Bytes that a tensor in an entry uses in addition to its data and texts."""

_OF_MESSAGE = frozenset(field_names(Message))


def request_key(request: Request, more: tuple[object, ...] = ()) -> bytes:
    """Return the SHA-256 digest of everything in `request` that a server gets, and of `more`. Two requests have the
    same key only if a server cannot distinguish them.

    Tensors are compared as bytes: 0.0 and -0.0 differ, as do two NaNs with different payloads. The key excludes the
    caller, the time, the id and the deadline. SHA-256 is the fastest strong hash on most processors, which have
    instructions for it (1.9 GB/s; BLAKE2b: 1.3 GB/s)."""
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
    """Return the codec's notes about a client message that reach the server but are not in the canonical request, such
    as the payload format of grps."""
    if origin is None or type(origin) is Message:
        return ()
    noted = [name for name in field_names(type(origin)) if name not in _OF_MESSAGE]
    return tuple(repr(getattr(origin, name)) for name in noted)


def _sorted(parameters: Parameters) -> list[tuple[str, object]]:
    return sorted(parameters.items()) if parameters else []


def own_copy(response: Response) -> Response:
    """Return `response` with its own copy of the data. Views of a received body would keep the whole body in memory,
    and the memory limit would count the body as in flight."""
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
    """A response, its `size` in the store, and the time when it was `made`, on the store's clock."""

    response: Response
    size: int
    made: float


class AnswerStore:
    """Responses by request key. If they would use more than `capacity` bytes, the least recently used ones are evicted
    (LRU). Responses older than `seconds` are not returned."""

    def __init__(self, capacity: int, seconds: float, clock: Callable[[], float]) -> None:
        self.capacity = capacity
        self.seconds = seconds
        self.bytes = 0
        self.evicted = self.expired = self.too_large = self.cleared = 0
        self.generation = 0
        """How often the store was cleared. A response whose request started in an earlier generation is not stored."""
        self._clock = clock
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        """The entries; the most recently used one is last."""
        self._by_age: OrderedDict[bytes, None] = OrderedDict()
        """The keys in order of insertion; the oldest is first."""

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
        """Store `response`, an `own_copy` that is `age` seconds old, if it is not too large and the store was not
        cleared since `generation`."""
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
        """Remove all responses. Responses to calls that are in flight now are not stored."""
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
