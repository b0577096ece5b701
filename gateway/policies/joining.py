"""Joins requests into a batch, and splits the batch's response, for `gather`.

The requests' tensors are concatenated along the first dimension, the number of rows. The concatenation copies their
data once. The response's rows are views of its data.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import prod

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import INDEX_TENSORS, Operation
from gateway.core.record import UNRECORDED, Record
from gateway.core.requests import ATTACHMENT, Request, Response, Tries
from gateway.core.tensors import Parameters, Tensor

SEQUENCE = frozenset({"sequence_id", "sequence_start", "sequence_end"})
"""The parameters of a request that belongs to a sequence."""

_NOT_JOINED = SEQUENCE | {ATTACHMENT}


class NotSplittableError(Exception):
    """The response to a batch cannot be split into responses to the requests. The message contains the reason."""


def rows_of(request: Request) -> int | None:
    """Return the number of rows in a joinable request, or None if the request is not joinable.

    A request is joinable if it is an inference request that is not part of a sequence, has no attachments and is not a
    repeated attempt. In addition, its message must be joinable, and the first dimension of all its tensors must be the
    number of rows."""
    inputs = request.inputs
    if request.operation is not Operation.INFER or not inputs or request.schemaless:
        return None
    if request.origin is not None and not request.origin.joinable:
        return None
    if request.parameters and not _NOT_JOINED.isdisjoint(request.parameters):
        return None
    tries = request.tries
    if tries is not None and (tries.avoided or tries.elsewhere):
        return None
    rows = inputs[0].shape[0] if inputs[0].shape else 0
    for tensor in inputs:
        if not tensor.shape or tensor.shape[0] != rows or tensor.untyped:
            return None
        if tensor.name in INDEX_TENSORS and not _is_one_index(tensor):
            return None
    return rows or None


def key_of(request: Request, forward_headers: Iterable[str]) -> Hashable:
    """Return the key of joinable requests: everything that the backend receives except the rows and the request's
    id."""
    translate, tries = request.translate, request.tries
    return (
        request.model,
        request.version,
        _hashable(request.parameters),
        tuple((each.name, _hashable(each.parameters)) for each in request.outputs),
        tuple(map(_kind, request.inputs)),
        (translate.nan, translate.bytes, translate.payload),
        None if tries is None else tries.seconds,
        tuple(tuple(request.headers.all(name)) for name in forward_headers),
    )


def _kind(tensor: Tensor) -> Hashable:
    """Return the key of an input. Only inputs with the same key can be joined. The position in an index tensor of a
    derivative (INDEX_TENSORS) counts as a parameter."""
    index = bytes(memoryview(tensor.data)[: len(tensor.data) // tensor.shape[0]]) if tensor.name in INDEX_TENSORS else 0
    return tensor.name, tensor.datatype, tensor.shape[1:], tensor.content_type, _hashable(tensor.parameters), index


def _is_one_index(tensor: Tensor) -> bool:
    """Return True if all rows of the tensor are equal."""
    data, rows = bytes(tensor.data), tensor.shape[0]
    return rows > 0 and data == data[: len(data) // rows] * rows


def _hashable(parameters: Parameters) -> Hashable:
    """Return a value that represents the parameters and the types of their values. Because of the types, True differs
    from 1."""
    return tuple((key, type(value), value) for key, value in sorted(parameters.items())) if parameters else ()


def bytes_of(request: Request) -> int:
    """Return the number of bytes in the request's tensors."""
    return sum(len(tensor.data) for tensor in request.inputs)


def join(requests: Sequence[Request], record: Record = UNRECORDED) -> Request:
    """Join requests with the same key into one: the rows of the first request, then the rows of the second, and so on.

    The joined request has no id, and has the latest of the deadlines. It has a client only if all requests come from
    the same client. `record` records its result."""
    first = requests[0]
    client = first.client
    of_one = all(each.client == client for each in requests)
    return replace(
        first,
        id=None,
        inputs=tuple(map(_concatenated, zip(*(each.inputs for each in requests), strict=True))),
        deadline=_latest(each.deadline for each in requests),
        time_limit=_latest(each.time_limit for each in requests),
        tries=_tries(requests),
        origin=None,
        record=record,
        span=None,
        peer=first.peer if of_one else "",
        principal=first.principal if of_one else None,
    )


def _concatenated(pieces: Sequence[Tensor]) -> Tensor:
    first = pieces[0]
    shape = (sum(each.shape[0] for each in pieces), *first.shape[1:])
    return replace(first, shape=shape, data=b"".join([each.data for each in pieces]))


def _latest(times: Iterable[float | None]) -> float | None:
    """Return the latest time, or None if one of the times is None."""
    found: list[float] = []
    for each in times:
        if each is None:
            return None
        found.append(each)
    return max(found)


class _AllPlaces(list[str]):
    """The endpoints of a batch's attempts. These steps are also recorded for each request of the batch."""

    def __init__(self, each: Sequence[list[str]]) -> None:
        super().__init__()
        self._each = each

    def append(self, address: str) -> None:
        for places in self._each:
            places.append(address)

    def remove(self, address: str) -> None:
        for places in self._each:
            places.remove(address)


def _tries(requests: Sequence[Request]) -> Tries | None:
    tries = [each.tries for each in requests if each.tries is not None]
    if not tries:
        return None
    places = [each.places for each in tries if each.places is not None]
    return replace(tries[0], places=_AllPlaces(places) if places else None)


def split(response: Response, rows: Sequence[int], wanted: Sequence[str]) -> list[Response]:
    """Split a response into responses to requests with `rows` rows each. `wanted` contains the names of the required
    outputs (empty if they are unknown); other outputs are dropped.

    Raises:
        NotSplittableError: an output is missing, or its first dimension is not the total number of rows.
    """
    outputs = _wanted(response.outputs, wanted)
    if not outputs:
        raise NotSplittableError("no outputs")
    total = sum(rows)
    bounds = list(accumulate(rows, initial=0))
    columns = []
    for tensor in outputs:
        if not tensor.shape or tensor.shape[0] != total:
            text = f"output {tensor.name!r} of shape {list(tensor.shape)}"
            raise NotSplittableError(f"{text}, expected a first dimension of {total}")
        columns.append(list(_pieces(tensor, bounds)))
    return [replace(response, outputs=pieces, id=None, origin=None) for pieces in zip(*columns, strict=True)]


def _wanted(outputs: Sequence[Tensor], wanted: Sequence[str]) -> Sequence[Tensor]:
    if not wanted or not all(tensor.name for tensor in outputs):
        if wanted and len(outputs) != len(wanted):
            raise NotSplittableError(f"{len(outputs)} outputs, expected {len(wanted)}")
        return outputs
    given = {tensor.name: tensor for tensor in outputs}
    for name in wanted:
        if name not in given:
            raise NotSplittableError(f"no output {name!r}")
    return [given[name] for name in wanted]


def _pieces(tensor: Tensor, bounds: Sequence[int]) -> Iterator[Tensor]:
    """Return views of the rows between consecutive bounds."""
    view, shape = memoryview(tensor.data), tensor.shape[1:]
    size = prod(shape)
    if tensor.datatype is BYTES:
        try:
            at = bytes_elements.offsets(tensor.data, size) if size else [0] * (bounds[-1] + 1)
        except DecodeError as error:
            raise NotSplittableError(f"output {tensor.name!r}: {error}") from error
        places = [at[row] for row in bounds]
    else:
        places = [row * size * tensor.datatype.size for row in bounds]
    for (row, end), (begin, until) in zip(pairwise(bounds), pairwise(places), strict=True):
        yield replace(tensor, shape=(end - row, *shape), data=view[begin:until])
