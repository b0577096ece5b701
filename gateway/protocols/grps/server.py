"""GrpsMessage to the answer of a backend, and answers to the messages that clients get, in whichever wire form."""

from gateway.core import bytes_elements
from gateway.core.datatypes import NUMBERS
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import Answer, Headers, Message, NotReady, Request, Response, Signature, Tensor, Translate
from gateway.protocols.grps import metadata
from gateway.protocols.grps import payload as forms
from gateway.protocols.grps.client import check_data, named_apart, text
from gateway.protocols.grps.errors import NOT_READY, OK, is_failure, told
from gateway.protocols.grps.message import GrpsMessage, GrpsStatus
from gateway.protocols.grps.operations import HEALTH
from gateway.protocols.grps.schema import Kind
from gateway.protocols.grps.strings import as_texts, is_text


def encode(answer: Answer, request: Request, translate: Translate) -> GrpsMessage:
    """The message that answers a Request of `requests.decode`.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that has no form in the reply.
    """
    if request.operation in HEALTH:
        return GrpsMessage(status=_health(answer))
    if isinstance(answer, Response):
        return _encode_infer(answer, request, translate)
    if isinstance(answer, Signature):
        return _text(metadata.write_model(answer, request.model))
    assert isinstance(answer, tuple)
    return _text(metadata.write_server(answer))


def _health(answer: Answer) -> GrpsStatus:
    if isinstance(answer, NotReady):
        return replace(NOT_READY, text=answer.text)
    return OK if answer is True else NOT_READY


def _text(content: str) -> GrpsMessage:
    return GrpsMessage(status=OK, kind=Kind.STR_DATA, tensors=(text(content),))


def _encode_infer(response: Response, request: Request, translate: Translate) -> GrpsMessage:
    kind, tensors = _data(response, request.origin, translate)
    # an echo model's reply has the name that its client used, others' have none
    told = response.origin
    is_named = told.names_model if isinstance(told, forms.ToldMessage) else bool(response.model)
    return GrpsMessage(request.model if is_named else "", OK, kind, tensors)


def _data(response: Response, asked: Message | None, translate: Translate) -> forms.Data:
    """The outputs in the first form into which they fit. A model's own form is the client's too, unless the route chose
    the one that the model was asked in."""
    outputs, form = response.outputs, translate.bytes
    if isinstance(asked, forms.AskedMessage) and asked.returns_ndarray:
        return Kind.NDARRAY, (_array(outputs),)
    told_apart = isinstance(response.origin, forms.ToldMessage) and response.origin.kind is Kind.GMAP
    client, keys = forms.of_client(asked), forms.keys_of(asked, response.origin)
    for kind in (client,) if translate.payload else forms.of_reply(response.origin, client):
        if kind is Kind.GTENSORS:
            break
        if fitting := forms.fit(kind, outputs, keys, told_apart=told_apart):
            return fitting
    if form == "text" and forms.is_one_element(outputs) and not is_text(outputs[0]):
        return Kind.BIN_DATA, forms.element(outputs)
    return Kind.GTENSORS, as_texts(outputs, form, "output")


def _array(outputs: tuple[Tensor, ...]) -> Tensor:
    """The output that goes out as an ndarray; refused in the words of the C++ server. Real servers take DT_FLOAT32
    alone, but JSON has all numbers."""
    if not outputs:
        raise invalid_input("No tensors in output. Cannot convert to ndarray.")
    if len(outputs) > 1:
        names = ", ".join(repr(each.name) for each in outputs)
        raise invalid_input(f"NDArray only support one tensor, got {len(outputs)}: {names}")
    if outputs[0].datatype not in NUMBERS:
        raise invalid_input(f"NDArray only support numbers, output {outputs[0].name or 0!r} is {outputs[0].datatype}")
    return outputs[0]


# --- From backends ---


def decode(grps: GrpsMessage, headers: Headers, request: Request) -> Answer:
    """What a backend answers to `request`. `headers` are those of its reply.

    Raises:
        DecodeError: the reply holds neither a status nor data, or data that no model can give.
        GatewayError: the error that it tells.
    """
    failed = is_failure(grps.status)
    if request.operation in HEALTH:
        # not ready is FAILURE with 503; over gRPC the Python server's has 403
        return not failed
    if grps.status is not None and failed:
        raise told(grps.status, headers)
    if request.operation is Operation.METADATA:
        return metadata.read_model(_content(grps))
    if request.operation is Operation.MODELS:
        return metadata.read_server(_content(grps))
    return _decode_infer(grps)


def _content(grps: GrpsMessage) -> str:
    if grps.kind is not Kind.STR_DATA:
        raise DecodeError("the reply holds no str_data, expected metadata as YAML text")
    [content] = bytes_elements.unpack(grps.tensors[0].data)
    return content.decode()


def _decode_infer(grps: GrpsMessage) -> Response:
    if grps.kind is not None or grps.status is None:
        check_data(grps, "output")
    outputs, keys = named_apart(grps)
    return Response(outputs, grps.model, origin=forms.told(grps.kind, bool(grps.model), keys))
