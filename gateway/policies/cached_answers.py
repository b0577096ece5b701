"""The answers that a `cache` keeps: what identifies a request, and a store with a bound in bytes and one in time."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256

import numpy as np

from gateway.core.frozen import field_names, frozen, replace
from gateway.core.types import NO_HEADERS, Buffer, Message, Parameters, Request, Response, Tensor

LARGEST_SHARE = 8
"""One answer may take this part of the whole store: 1/8."""

ENTRY_BYTES = 1200
"""Bytes that an entry takes beside its tensors and texts (measured: tests/policies/test_cached_answers.py)."""
TENSOR_BYTES = 500
"""Bytes that a tensor of an entry takes beside its data and texts."""

_OF_MESSAGE = frozenset(field_names(Message))


def request_key(request: Request, more: tuple[object, ...] = ()) -> bytes:
    """The digest (SHA-256) of everything in `request` that a server gets, and of `more`: two requests have the same key
    only if a server could not tell them apart.

    Tensors count by their bytes: 0.0 and -0.0 differ, and so do two NaNs with different payloads. Who asked, when,
    under which id and with which deadline is left out. SHA-256, because where the processor has instructions for it, as
    most have, it is the fastest of the strong hashes: 1.9 GB/s, BLAKE2b 1.3 GB/s.
    """
    inputs, translate = request.inputs, request.translate
    # `repr` of texts and numbers in tuples is unambiguous, and quick. It has the size of each tensor, so that the bytes
    # of one cannot be taken for those of the next.
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
    """The notes of the client's codec on a message, beyond the message itself: such as the payload of
    grps, in which a grps server gets the request too."""
    if origin is None or type(origin) is Message:
        return ()
    noted = [name for name in field_names(type(origin)) if name not in _OF_MESSAGE]
    return tuple(repr(getattr(origin, name)) for name in noted)


def _sorted(parameters: Parameters) -> list[tuple[str, object]]:
    return sorted(parameters.items()) if parameters else []


def own_copy(response: Response) -> Response:
    """`response` with data of its own. Where tensors are views of a received body, keeping them would keep all of it,
    and the memory budget of bodies would count it as in flight."""
    origin = response.origin
    if origin is not None and origin.parts:
        origin = replace(origin, parts=(), headers=NO_HEADERS)  # what a codec noted of the message, without the message
    outputs = tuple([replace(each, data=_copied(each.data)) for each in response.outputs])
    return replace(response, outputs=outputs, origin=origin, id=None)


def _copied(data: Buffer) -> Buffer:
    # Unlike bytes(), numpy lets other threads run while it copies much.
    return data if type(data) is bytes else np.frombuffer(data, np.uint8).copy().data


def size_of(response: Response) -> int:
    """The bytes that `response`, an `own_copy`, takes in a store."""
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


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes of their data."""
    return sum([len(each.data) for each in tensors])


@frozen
class CachedAnswer:
    """An answer, the `size` that it takes, and when it was `made`, in seconds on the clock of its store."""

    response: Response
    size: int
    made: float


class AnswerStore:
    """Answers by the keys of their requests. When they would take more than `capacity` bytes, the least recently
    used ones are evicted (LRU). Answers older than `seconds` are not returned."""

    def __init__(self, capacity: int, seconds: float, clock: Callable[[], float]) -> None:
        self.capacity = capacity
        self.seconds = seconds
        self.bytes = 0
        self.evicted = self.expired = self.too_large = self.cleared = 0
        self.generation = 0
        """How often it was emptied: an answer is not stored if it was asked for in an earlier generation."""
        self._clock = clock
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        """The one that was asked for last comes last."""
        self._by_age: OrderedDict[bytes, None] = OrderedDict()
        """The keys in the order in which the answers came, so that the oldest are at the beginning."""

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> tuple[Response, float] | None:
        """The answer with its age in seconds; None if there is none."""
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
        """Keep `response`, an `own_copy` that is `age` seconds old, if it is not too large and nothing has emptied the
        store since `generation`."""
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
        """Forget all answers, also those that are still being made."""
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
