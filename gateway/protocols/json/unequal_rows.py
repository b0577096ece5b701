"""Rows of unequal length, such as the tokens of several texts: `[[1, 2, 3], [4]]`. Together, the rows are not a tensor,
but each row is one. `places` finds such rows; the bridge can send them one by one."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from gateway.core.errors import DecodeError
from gateway.core.protocol import Limits
from gateway.core.requests import UnequalRows
from gateway.core.tensors import Tensor
from gateway.protocols.json.templates import Spelling
from gateway.protocols.json.tensor_form import TensorForm
from gateway.protocols.json.tensor_reading import read_tensor

_decode_rows = msgspec.json.Decoder(list[Raw]).decode
_REMEDY = (
    "send one request for each row, or add `batch: each` to the backend's form: the gateway then calls the server once"
    " for each row"
)


class UnequalTensors(Struct, frozen=True):
    """The tensors of a body whose rows differ in length, by tensor position.

    For each tensor, it contains the tensors of the rows, whose first dimension is 1. `error` is the reason why the rows
    cannot be one tensor."""

    rows: Mapping[int, tuple[Tensor, ...]]
    error: str


def rows_of(form: TensorForm, text: bytes, error: DecodeError, limits: Limits) -> tuple[Tensor, ...]:
    """Return the tensors of the rows in the list `text`, if `error` says that the list is ragged. Raises `error` for
    any other error, for more than `limits.json_values` rows, and if a row is not a tensor."""
    is_free = form.spec is None or form.spec.shape[:1] == (-1,)
    if "ragged" not in str(error) or form.place.spelling is not Spelling.NESTED or not is_free:
        raise error
    if text.count(b"[") > limits.json_values:
        raise error
    try:
        found = tuple([read_tensor(form, b"[%b]" % row, None, limits) for row in _decode_rows(text)])
    except (msgspec.DecodeError, DecodeError) as other:
        raise error from other
    if len({len(each.shape) for each in found}) > 1:
        raise error
    return found


def flaw(unequal: UnequalTensors, tensors: Sequence[Tensor], further: Sequence[Tensor]) -> UnequalRows:
    """Return the flaw of a request whose tensors are `further`, followed by the `tensors` of the body."""
    columns = [unequal.rows.get(at, (tensor,)) for at, tensor in enumerate(tensors)]
    return UnequalRows(f"{unequal.error}; {_REMEDY}", (*((each,) for each in further), *columns))
