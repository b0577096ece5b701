"""One tensor of all examples: the contents of its TLVs to a Tensor, and back."""

from collections.abc import Callable, Sequence

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, invalid_input
from gateway.core.types import Buffer, Shape, Tensor
from gateway.protocols.mip import json_examples, npy
from gateway.protocols.mip.payload import Column
from gateway.protocols.mip.schema import Form


def stack(form: Form, contents: Sequence[Buffer], what: str, values: int) -> Tensor:
    """The contents of one column, an example each, as an unnamed tensor whose first dimension counts them. `values` is
    `limits.json_values`.

    Raises:
        DecodeError: naming `what`.
    """
    match form:
        case Form.JSON:
            return json_examples.stack(contents, "", what, values)
        case Form.NPY:
            return npy.stack(contents, "", what)
        case _:
            packed = bytes_elements.pack(map(bytes, contents))
            return Tensor("", Datatype.BYTES, (len(contents),), packed, content_type=form.name.lower())


def split(
    tensor: Tensor,
    rows: int,
    shape: Shape,
    nan: str,
    what: str,
    preferred: Form = Form.JSON,
    preferred_text: Form = Form.TEXT,
) -> Column:
    """`tensor` as one content, of the given shape, for each of its `rows`. Its `content_type` tells the form; without
    one numbers have the `preferred` one, BYTES the `preferred_text` if there is one element in each, else JSON.

    Raises:
        GatewayError: INVALID_ARGUMENT, naming `what`: it has no such form.
    """
    form = _form(tensor, rows, preferred, preferred_text, what)
    return Column(form, _WRITERS[form](tensor, rows, shape, nan, what))


def _form(tensor: Tensor, rows: int, preferred: Form, preferred_text: Form, what: str) -> Form:
    if tensor.content_type:
        form = _FORMS.get(tensor.content_type)
        if form is None:
            raise invalid_input(f"{what} has the content type {tensor.content_type!r}; expected {', '.join(_FORMS)}")
        return form
    if tensor.datatype is not Datatype.BYTES:
        return preferred
    return preferred_text if tensor.elements == rows else Form.JSON


def _elements(tensor: Tensor, rows: int, what: str) -> list[bytes]:
    """The one BYTES element of each row."""
    if tensor.datatype is not Datatype.BYTES:
        raise _no_form(tensor, what)
    if tensor.elements != rows:
        raise invalid_input(
            f"{what} has shape {list(tensor.shape)}, but as {tensor.content_type} it has one element in each example"
        )
    return bytes_elements.unpack(tensor.data)


def _write_text(tensor: Tensor, rows: int, shape: Shape, nan: str, what: str) -> list[list[Buffer]]:
    elements = _elements(tensor, rows, what)
    for at, element in enumerate(elements):
        json_examples.text(element, at, what)
    return [[element] for element in elements]


def _write_image(tensor: Tensor, rows: int, shape: Shape, nan: str, what: str) -> list[list[Buffer]]:
    return [[element] for element in _elements(tensor, rows, what)]


def _write_json(tensor: Tensor, rows: int, shape: Shape, nan: str, what: str) -> list[list[Buffer]]:
    if tensor.datatype is not Datatype.BYTES:
        return json_examples.texts_of_numbers(tensor, rows, shape, nan, what)
    if tensor.content_type == Form.JSON.name.lower():  # its elements are JSON texts themselves
        return _write_text(tensor, rows, shape, nan, what)
    return json_examples.texts_of_strings(tensor, rows, shape, what)


def _write_npy(tensor: Tensor, rows: int, shape: Shape, nan: str, what: str) -> list[list[Buffer]]:
    if tensor.datatype is Datatype.BYTES:
        raise _no_form(tensor, what)
    return npy.files(tensor, rows, shape)


def _no_form(tensor: Tensor, what: str) -> GatewayError:
    return invalid_input(f"{what} is {tensor.datatype}, which cannot travel as {tensor.content_type}")


_WRITERS: dict[Form, Callable[[Tensor, int, Shape, str, str], list[list[Buffer]]]] = {
    Form.TEXT: _write_text,
    Form.JSON: _write_json,
    Form.IMAGE: _write_image,
    Form.NPY: _write_npy,
}
_FORMS = {form.name.lower(): form for form in Form} | {json_examples.STRINGS: Form.JSON}
