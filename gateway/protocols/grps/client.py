"""GrpsMessage to Request and back: what clients ask, and what backends are asked, in whichever wire form."""

from collections.abc import Callable

from gateway.core import bytes_elements
from gateway.core.datatypes import GATEWAY_DATATYPE, NUMBERS, WIDENINGS, Datatype
from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Message, Parameters, Request, Tensor
from gateway.protocols.grps import gmap
from gateway.protocols.grps import payload as forms
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.schema import Kind
from gateway.protocols.grps.strings import as_text, as_texts

_INFERENCES = (Operation.INFER, Operation.STREAM)


def decode(
    grps: GrpsMessage,
    operation: Operation,
    message: Message,
    listener: ListenerSettings,
    *,
    model: str = "",
    returns_ndarray: bool = False,
    deadline: float | None = None,
) -> Request:
    """What a client asks with `grps`, which it sent in `message`. `model` is the one that is meant where the message
    names none; beyond that, the listener's. `deadline` is the one that stood in the message.

    Raises:
        DecodeError: no data to infer from, a name given twice.
    """
    inputs: tuple[Tensor, ...] = ()
    if operation in _INFERENCES:
        check_data(grps, "input")
        inputs, keys = named_apart(grps)
        message = forms.asked(message, grps.kind, returns_ndarray, keys)
        named = grps.model or model or listener.model
    elif operation is Operation.METADATA:
        named = _asked_model(grps) or model or listener.model
    else:
        named = ""
    return Request(operation, named, inputs=inputs, deadline=deadline, origin=message)


def _asked_model(grps: GrpsMessage) -> str:
    """ "`str_data`: model_name"; also `model`, as everywhere else."""
    if grps.kind is not Kind.STR_DATA:
        return grps.model
    [name] = bytes_elements.unpack(grps.tensors[0].data)
    return name.decode() or grps.model


def check_data(grps: GrpsMessage, role: str) -> None:
    """Raises DecodeError for a message whose data no model can have: none, or several tensors of one name."""
    if grps.kind is None:
        raise DecodeError("the message holds no data, expected str_data, bin_data, gtensors, gmap or ndarray")
    if grps.kind is Kind.NDARRAY and not grps.tensors:
        raise DecodeError("ndarray holds its numbers in JSON only, expected gtensors")
    if grps.kind is not Kind.GMAP and len(grps.tensors) > 1:
        _check_names(grps.tensors, role)


def named_apart(grps: GrpsMessage) -> tuple[tuple[Tensor, ...], gmap.Keys]:
    """The message's tensors, each with a name of its own, and the keys of gmap that are not these names."""
    return gmap.named_apart(grps.tensors) if grps.kind is Kind.GMAP else (grps.tensors, gmap.NO_KEYS)


def _check_names(tensors: tuple[Tensor, ...], role: str) -> None:
    names = [tensor.name for tensor in tensors if tensor.name]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DecodeError(f"{role} {repeated!r} is given twice")


# --- Towards backends ---


def encode(request: Request) -> GrpsMessage:
    """The message that asks a backend.

    Raises:
        GatewayError: INVALID_ARGUMENT, a parameter, which grps has no place for, or a tensor that does not fit into
            the form that the route wants (`translate.payload`).
    """
    if request.operation is Operation.METADATA:
        # servers know their models by the bare name here, as in their inference.yml
        return GrpsMessage(kind=Kind.STR_DATA, tensors=(text(request.model),))
    if request.operation not in _INFERENCES:
        return GrpsMessage()
    _refuse_parameters(request)
    kind, tensors = _data(request)
    return GrpsMessage(joined(request), kind=kind, tensors=tensors)


def _data(request: Request) -> forms.Data:
    """In the form that the route wants; where it says nothing, in that of a client that speaks grps, too."""
    if request.translate.payload:
        kind = Kind(request.translate.payload)
        return kind, _FORMS[kind](request)
    keys = forms.keys_of(request.origin)
    kept = forms.fit(forms.of_client(request.origin), request.inputs, keys, told_apart=True)
    return kept or (Kind.GTENSORS, _tensors(request))


def joined(request: Request) -> str:
    """ "Select model(with `name-version` format)"; nothing where the server is to use its own dag."""
    return f"{request.model}-{request.version}" if request.model and request.version else request.model


def text(content: str) -> Tensor:
    """A message's `str_data`. Raises GatewayError, INVALID_ARGUMENT, for lone surrogates."""
    try:
        return Tensor("", Datatype.BYTES, (1,), bytes_elements.pack([content.encode()]), gmap.TEXT)
    except UnicodeEncodeError as error:
        raise invalid_input(f"{content[:40]!r} is not UTF-8") from error


def octets(element: bytes) -> Tensor:
    """A message's `bin_data`."""
    return Tensor("", Datatype.BYTES, (1,), bytes_elements.pack([element]))


def _refuse_parameters(request: Request) -> None:
    _refuse(request.parameters, "")
    for tensor in request.inputs:
        if tensor.parameters:
            _refuse(tensor.parameters, f" of input {tensor.name!r}", allowed=GATEWAY_DATATYPE)
    for output in request.outputs:
        _refuse(output.parameters, f" of output {output.name!r}")


def _refuse(parameters: Parameters, owner: str, *, allowed: str | None = None) -> None:
    for name in parameters:
        if name != allowed:
            raise invalid_input(f"parameter {name!r}{owner} has no place in grps, which has no parameters")


def _tensors(request: Request) -> tuple[Tensor, ...]:
    return as_texts(request.inputs, request.translate.bytes, "input")


def _string(request: Request) -> tuple[Tensor, ...]:
    element = _one_element(request, Kind.STR_DATA)
    return (as_text(element, request.translate.bytes, f"input {element.name!r}"),)


def _binary(request: Request) -> tuple[Tensor, ...]:
    return (_one_element(request, Kind.BIN_DATA),)


def _one_element(request: Request, kind: Kind) -> Tensor:
    one = _one(request, kind)
    if not forms.is_one_element(one):
        raise _does_not_fit(one[0], kind, "one element of BYTES")
    return forms.element(one)[0]


def _array(request: Request) -> tuple[Tensor, ...]:
    [tensor] = _one(request, Kind.NDARRAY)
    # servers make DT_FLOAT32 of it, whatever the numbers are
    if tensor.datatype not in NUMBERS or Datatype.FP32 not in WIDENINGS[tensor.datatype]:
        raise _does_not_fit(tensor, Kind.NDARRAY, "numbers that FP32 holds exactly")
    return (tensor,)


def _entries(request: Request) -> tuple[Tensor, ...]:
    told_apart, keys = forms.of_client(request.origin) is Kind.GMAP, forms.keys_of(request.origin)
    return tuple([_entry(each, keys, told_apart) for each in request.inputs])


def _entry(tensor: Tensor, keys: gmap.Keys, told_apart: bool) -> Tensor:
    entry = gmap.fit(tensor, keys, told_apart=told_apart)
    if entry is None:
        raise _does_not_fit(tensor, Kind.GMAP, "a name and one element")
    return entry


def _one(request: Request, kind: Kind) -> tuple[Tensor, ...]:
    if len(request.inputs) != 1:
        names = ", ".join(repr(each.name) for each in request.inputs)
        raise invalid_input(f"translate.payload: {kind.value} takes one input, got {len(request.inputs)}: {names}")
    return request.inputs


def _does_not_fit(tensor: Tensor, kind: Kind, expected: str) -> GatewayError:
    found = f"{tensor.datatype} of shape {list(tensor.shape)}"
    return invalid_input(f"input {tensor.name!r} is {found}; translate.payload: {kind.value} takes {expected}")


_FORMS: dict[Kind, Callable[[Request], tuple[Tensor, ...]]] = {
    Kind.GTENSORS: _tensors,
    Kind.STR_DATA: _string,
    Kind.BIN_DATA: _binary,
    Kind.NDARRAY: _array,
    Kind.GMAP: _entries,
}
