"""Supports forms of servers that accept one row per call (`batch: each`): `{"length": 5.1}` returns `{"label":
"setosa"}`.

Bodies contain the tensors of one row, without the batch dimension. The bridge calls the server once for each row of a
batch. For all other protocols, a request from a client of this form is a batch of one row.
"""

from collections.abc import Mapping

from gateway.core.errors import DecodeError, invalid_output
from gateway.core.frozen import replace, replace_struct
from gateway.core.messages import Message
from gateway.core.models import TensorSpec
from gateway.core.protocol import DecodeRequest, EncodeResponse, ListenerSettings
from gateway.core.requests import Answer, Request, Response, Translate, UnequalRows
from gateway.core.tensors import Shape, Tensor
from gateway.protocols.json.form import FormError


def specs_of_row(specs: Mapping[str, TensorSpec]) -> Mapping[str, TensorSpec]:
    """Return a form's tensors with the shapes of one row."""
    return {name: replace(spec, shape=spec.shape[1:]) if _has_rows(spec) else spec for name, spec in specs.items()}


def _has_rows(spec: TensorSpec) -> bool:
    return spec.shape[:1] == (-1,)


def check_row(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
    """Raise FormError unless the form's declarations determine which tensors contain one row."""
    if not inputs or not outputs:
        text = "`batch: each` needs `tensors`: a first dimension of -1 says that a tensor is one row of a batch"
        raise FormError(("batch",), f"{text}, such as `x: FP64 [-1, 4]` for {{x: [1, 2, 3, 4]}}")
    if not any(map(_has_rows, inputs)):
        text = f"no input of {', '.join(each.name for each in inputs)} has a first dimension of -1"
        raise FormError(("batch",), f"{text}, which counts the rows; write one, or remove `batch: each`")
    for each in outputs:
        if not _has_rows(each):
            text = f"${each.name} has one value for each row: expected a first dimension of -1"
            raise FormError(("tensors", each.name), f"{text}, {each.datatype} {[-1, *each.shape]}")


def reading_one_row(decode: DecodeRequest, specs: Mapping[str, TensorSpec]) -> DecodeRequest:
    """Wrap `decode` for requests that contain one row. The row becomes a batch of one row."""
    in_rows = frozenset(name for name, spec in specs.items() if _has_rows(spec))

    def read(message: Message, listener: ListenerSettings) -> Request:
        request = decode(message, listener)
        if isinstance(request.flaw, UnequalRows):
            raise DecodeError(request.flaw)
        inputs = [_in_shape(each, (1, *each.shape)) if each.name in in_rows else each for each in request.inputs]
        return replace_struct(request, inputs=tuple(inputs)) if inputs else request

    return read


def writing_one_row(encode: EncodeResponse) -> EncodeResponse:
    """Wrap `encode` for responses that contain one row.

    For any other number of rows, the returned function raises GatewayError (INTERNAL, invalid-output)."""

    def write(answer: Answer, request: Request, translate: Translate) -> Message:
        if isinstance(answer, Response):
            answer = replace(answer, outputs=tuple(map(_only_row, answer.outputs)))
        return encode(answer, request, translate)

    return write


def _only_row(tensor: Tensor) -> Tensor:
    if tensor.shape[:1] != (1,):
        found = f"output {tensor.name!r} has the shape {list(tensor.shape)}"
        raise invalid_output(f"{found}, expected one row, like the request's input")
    return _in_shape(tensor, tensor.shape[1:])


def _in_shape(tensor: Tensor, shape: Shape) -> Tensor:
    return replace_struct(tensor, shape=shape)
