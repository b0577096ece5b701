"""An inference's payload: n-input u8, n-output u8, batch u16, then TLVs of type u32, length u32 and data, example by
example."""

from collections.abc import Iterator, Sequence
from struct import Struct

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.types import Buffer
from gateway.protocols.mip.schema import FORMS, MOST_ROWS, Form

COUNTS = Struct("!2BH")
_TL = Struct("!2L")

_SMALL = 1024
"""Up to this many bytes a copy is smaller, and cheaper, than a view."""


@frozen
class Column:
    """What all examples hold of one tensor: the pieces of each one's content, in the TLVs' common type."""

    form: Form
    contents: Sequence[Sequence[Buffer]]


@frozen
class Examples:
    """A payload's counts, as its head tells them, and its TLVs."""

    inputs: int
    outputs: int
    batch: int
    forms: list[int]
    contents: list[Buffer]

    def columns(self, count: int, what: str) -> Iterator[tuple[Form, list[Buffer]]]:
        """The type and the contents of each of the `count` tensors that every example holds.

        Raises:
            DecodeError: an unknown type, or several in one column; says which of `what` it is.
        """
        if count == 1:
            yield _form(self.forms, f"{what} 0"), self.contents
            return
        for at in range(count):
            yield _form(self.forms[at::count], f"{what} {at}"), self.contents[at::count]


def read(payload: Buffer, values: int) -> Examples:
    """The payload of an inference, of at most MOST_ROWS TLVs and `values` more (`limits.json_values`): each takes 8
    bytes on the wire, and time and 100 bytes here.

    Raises:
        DecodeError: it is cut short, or has more TLVs.
    """
    if len(payload) < COUNTS.size:
        raise DecodeError(f"an inference's payload has {len(payload)} bytes, expected at least {COUNTS.size}")
    view = memoryview(payload)
    inputs, outputs, batch = COUNTS.unpack_from(view)
    forms: list[int] = []
    contents: list[Buffer] = []
    at, end, head = COUNTS.size, len(view), _TL.size
    most = MOST_ROWS + values
    while at < end:
        if len(forms) == most:
            raise DecodeError(
                f"more than {most} TLVs, one for each of {MOST_ROWS} rows and limits.json_values, {values}"
            )
        if end - at < head:
            raise DecodeError(f"{end - at} bytes after TLV {len(forms)}, too few for another one's type and length")
        form, length = _TL.unpack_from(view, at)
        at += head
        if length > end - at:
            raise DecodeError(f"TLV {len(forms)} has {length} bytes, but its packet only {end - at} more")
        content = view[at : at + length]
        forms.append(form)
        contents.append(content if length > _SMALL else content.tobytes())
        at += length
    return Examples(inputs, outputs, batch, forms, contents)


def write(inputs: int, outputs: int, batch: int, columns: Sequence[Column]) -> Iterator[Buffer]:
    """The pieces of a payload."""
    yield COUNTS.pack(inputs, outputs, batch)
    for row in zip(*(column.contents for column in columns), strict=True):
        for column, pieces in zip(columns, row, strict=True):
            yield _TL.pack(column.form, sum(map(len, pieces)))
            yield from pieces


def _form(forms: list[int], what: str) -> Form:
    kinds = set(forms)
    unknown = kinds - FORMS
    if unknown:
        known = ", ".join(f"{form.value:#x} ({form.name})" for form in Form)
        raise DecodeError(f"{what} has the TLV type {min(unknown):#x}, expected one of {known}")
    if len(kinds) > 1:
        raise DecodeError(f"{what} is {' and '.join(Form(kind).name for kind in sorted(kinds))} in one batch")
    return Form(kinds.pop())
