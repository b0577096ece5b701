"""Which flatbuffers can go on as they came, and whether they say what is to be written.

Real clients and servers lay their messages out in other orders than the gateway, so that writing one again is no proof
that it says nothing else. Instead all its bytes are accounted for. Each is in exactly one of these places:

- a table, vector or string that an offset leads to; several tables may share a vtable;
- padding, zeros alone, and fewer than 64 of them.

So there are no fields that the schema lacks, no bytes that nothing leads to, and none that are read in two ways. All
numbers of the structure are aligned, as other readers need it. What the gateway always writes must be there, since
there are servers that fail without it: `config` and the vectors of names, which may be empty, and a tensor's shape.
What it never writes must not: strings beside numbers, errors beside outputs, and names that are all empty.
"""

from collections.abc import Callable
from enum import Enum
from struct import Struct, error, unpack_from
from typing import TypeAlias

from gateway.core.frozen import frozen
from gateway.core.layouts import LONGEST
from gateway.core.original import Original
from gateway.core.protocol import Limits
from gateway.core.types import Request, Response, Tensor

_U16_PAIR = Struct("<HH").unpack_from
_I32 = Struct("<i").unpack_from
_U32 = Struct("<I").unpack_from

_MAX_PADDING = 63
"""Bytes between two pieces: the gateway itself aligns the contents of tensors to 64."""


class BufferForm(Enum):
    """The form of a flatbuffer's Original."""

    REQUEST = "InferRequest"
    RESPONSE = "InferResponse"

    # Each member is one object. The hash of Enum is a call of Python for each look-up.
    __hash__ = object.__hash__


# --- accounting for bytes ---


class UnaccountedError(Exception):
    """A flatbuffer has bytes that are not accounted for."""


Follow: TypeAlias = Callable[["Account", int], None]
"""Accounts for what the field at a place leads to."""


class Account:
    """The bytes of a flatbuffer that are accounted for, and where the contents of its tensors begin and end."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.contents: list[tuple[int, int]] = []
        self._pieces: list[tuple[int, int]] = []
        self._vtables: set[int] = set()
        self._left = LONGEST

    def claim(self, at: int, size: int, alignment: int) -> None:
        """Account for `size` bytes of structure at `at`."""
        self._left -= size
        if self._left < 0 or at % alignment:
            raise UnaccountedError
        self._pieces.append((at, at + size))

    def target(self, at: int) -> int:
        """The place that the offset at `at` leads to. Null leads to the offset itself, whose bytes are then accounted
        for twice."""
        return at + int(_U32(self.body, at)[0])

    def vector(self, at: int, width: int) -> tuple[int, int]:
        """The place of the elements, of `width` bytes each, of the vector that the offset at `at` leads to, and how
        many they are. Its count is accounted for."""
        place = self.target(at)
        (count,) = _U32(self.body, place)
        self.claim(place, 4, 4)
        if count and (place + 4) % width:
            raise UnaccountedError
        return place + 4, count

    def table(self, at: int, fields: "tuple[TableField, ...]") -> None:
        """Account for the table at `at` and all that its fields lead to."""
        vtable = at - _I32(self.body, at)[0]
        vtable_size, size = _U16_PAIR(self.body, vtable)
        slots = vtable_size // 2 - 2
        if vtable < 0 or vtable_size % 2 or not 0 <= slots <= len(fields):
            raise UnaccountedError
        if vtable not in self._vtables:
            self._vtables.add(vtable)
            self.claim(vtable, vtable_size, 2)
        self.claim(at, size, 4)
        own = [(at, at + 4)]
        # Fields at the end that are not there may be left out of the vtable.
        offsets = unpack_from(f"<{slots}H", self.body, vtable + 4) + (0,) * (len(fields) - slots)
        for field, offset in zip(fields, offsets, strict=True):
            place = at + offset
            if offset:
                if place % field.size:
                    raise UnaccountedError
                own.append((place, place + field.size))
                field.follow(self, place)
            elif field.required:
                raise UnaccountedError
        self._check_padding(own, at, at + size)

    def close(self) -> None:
        """Raise UnaccountedError if any byte is left, or was accounted for twice."""
        self._check_padding([*self._pieces, *self.contents], 0, len(self.body))

    def _check_padding(self, pieces: list[tuple[int, int]], start: int, end: int) -> None:
        """Check that the pieces follow each other from `start` to `end`, with nothing but padding between them."""
        at = start
        for begin, stop in (*sorted(pieces), (end, end)):
            if not at <= begin <= at + _MAX_PADDING or any(self.body[at:begin]):
                raise UnaccountedError
            at = stop


@frozen
class TableField:
    """A field of a table: its bytes in the table, and what it leads to."""

    size: int
    follow: Follow
    required: bool = True


def _number(account: Account, at: int) -> None:
    """It leads nowhere."""


def _string(account: Account, at: int) -> None:
    start, count = account.vector(at, 1)
    account.claim(start, count + 1, 1)
    if account.body[start + count]:  # the NUL behind it
        raise UnaccountedError


def _names(account: Account, at: int) -> None:
    """A vector of strings: none, or not all of them empty."""
    start, count = account.vector(at, 4)
    account.claim(start, 4 * count, 4)
    places = range(start, start + 4 * count, 4)
    for place in places:
        _string(account, place)
    if count and not any(_U32(account.body, account.target(place))[0] for place in places):
        raise UnaccountedError


def _longs(account: Account, at: int) -> None:
    start, count = account.vector(at, 8)
    account.claim(start, 8 * count, 1)


def _contents(account: Account, at: int) -> None:
    """The vector with the numbers of a tensor."""
    start, count = account.vector(at, 1)
    account.contents.append((start, start + count))


def _nothing(account: Account, at: int) -> None:
    """A vector that has to be empty."""
    _, count = account.vector(at, 1)
    if count:
        raise UnaccountedError


def _table(fields: tuple[TableField, ...]) -> Follow:
    def follow(account: Account, at: int) -> None:
        account.table(account.target(at), fields)

    return follow


def _tables(fields: tuple[TableField, ...]) -> Follow:
    """A vector of tables."""

    def follow(account: Account, at: int) -> None:
        start, count = account.vector(at, 4)
        account.claim(start, 4 * count, 4)
        for place in range(start, start + 4 * count, 4):
            account.table(account.target(place), fields)

    return follow


# The tables of the schema, with their fields in the order of their slots.

_TENSOR = (
    TableField(1, _number),
    TableField(4, _longs),
    TableField(4, _contents),
    TableField(4, _nothing, required=False),
)
_INFER_REQUEST = (TableField(4, _string), TableField(4, _names), TableField(4, _tables(_TENSOR)), TableField(4, _names))
_ROOTS = {
    BufferForm.REQUEST: (TableField(1, _number), TableField(4, _table(_INFER_REQUEST))),
    BufferForm.RESPONSE: (TableField(4, _tables(_TENSOR)), TableField(4, _nothing, required=False)),
}


def contents_if_proven(body: bytes, form: BufferForm) -> list[tuple[int, int]] | None:
    """Where the contents of the tensors in `body` begin and end, in their order, if all else in it is accounted for.
    None also if that is more than LONGEST bytes. `body` was decoded as `form`, without strings as tensors."""
    account = Account(body)
    try:
        account.claim(0, 4, 4)
        _table(_ROOTS[form])(account, 0)
        account.close()
    except (UnaccountedError, error, IndexError):
        return None
    return account.contents


# --- sending it on ---


def request_as_it_came(request: Request, limits: Limits) -> Original | None:
    """The Original of `request`, if it says what the gateway would write to a backend with these limits."""
    original, inputs = request.original, request.inputs
    if (
        original is None
        or original.form is not BufferForm.REQUEST
        or original.parameters is not request.parameters
        or original.evidence > limits.config
        or len(original.tensors) != len(inputs)
        or (original.outputs is not request.outputs and original.outputs != request.outputs)
    ):
        return None
    for read, given in zip(original.tensors, inputs, strict=True):
        if read is not given and (not _are_alike(read, given) or read.name != given.name or given.parameters):
            return None
    return original


def response_as_it_came(response: Response) -> Original | None:
    """The Original of `response`, if it says what the gateway would write to a client. Its outputs have no names."""
    original, outputs = response.original, response.outputs
    if (
        original is None
        or original.form is not BufferForm.RESPONSE
        or len(original.tensors) != len(outputs)
        or not all(map(_are_alike, original.tensors, outputs))
    ):
        return None
    return original


def _are_alike(read: Tensor, given: Tensor) -> bool:
    """Whether a tensor has the very data that was read, in the same datatype and shape."""
    return read.data is given.data and read.datatype is given.datatype and read.shape == given.shape
