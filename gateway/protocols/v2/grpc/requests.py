"""V2 gRPC's inference request: read from clients, written to backends."""

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import extended, frozen
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Buffer, Message, Request, RequestedOutput
from gateway.protobuf.schema import Protobuf, not_utf8, parse
from gateway.protobuf.wire import Allowance, cut
from gateway.protocols.v2.extensions import check_outputs
from gateway.protocols.v2.flavors import KSERVE, MLSERVER
from gateway.protocols.v2.grpc.parameters import read_parameters, write_parameters
from gateway.protocols.v2.grpc.schema import SERVICE, ModelInferRequest
from gateway.protocols.v2.grpc.tensors import REQUEST, TENSORS, read_inference, read_tensors, write_inference
from gateway.protocols.v2.parameters import refuse_shared_memory, take_deadline, take_flag, without_consumed
from gateway.protocols.v2.versions import check_version
from gateway.protocols.v2.widening import widened

NAME = "v2-grpc"

INFER = f"/{SERVICE}/ModelInfer"
STREAM = f"/{SERVICE}/ModelStreamInfer"

EMPTY_FINAL = "triton_enable_empty_final_response"

_OPERATIONS = {INFER: Operation.INFER, STREAM: Operation.STREAM}
_PATHS = {operation: path for path, operation in _OPERATIONS.items()}

_LACKS = {flavor: frozenset({Datatype.BF16}) for flavor in (KSERVE, MLSERVER)}

_WHAT = "the request"


@frozen
class EmptyFinalMessage(Message):
    """A stream's request whose client wants an empty response behind the last."""


def decode_infer(message: Message, listener: ListenerSettings) -> Request:
    """A ModelInferRequest, of either method. Its tensors are views on the message where it is large.

    Raises:
        DecodeError: not an inference request, or one that a real server must not see.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    operation = _OPERATIONS[message.pattern]
    inference = read_inference(message.body, REQUEST)
    head = inference.message
    inputs = read_tensors(inference, REQUEST, listener.limits.message)
    parameters = read_parameters(head.parameters, _WHAT)
    refuse_shared_memory(parameters, _WHAT)
    deadline = take_deadline(parameters, message, _WHAT) if parameters else None
    # perf_analyzer puts it on unary calls, too
    empty_final = take_flag(parameters, EMPTY_FINAL, _WHAT) and operation is Operation.STREAM
    return Request(
        operation,
        head.model_name,
        head.model_version,
        head.id or None,
        inputs,
        _read_outputs(head.outputs) if head.outputs else (),
        without_consumed(parameters),
        deadline=deadline,
        origin=extended(EmptyFinalMessage, message) if empty_final else message,
    )


def _read_outputs(given: Protobuf) -> tuple[RequestedOutput, ...]:
    outputs: dict[str, RequestedOutput] = {}
    for position, each in enumerate(given):
        if not each.name or each.name in outputs:
            fault = f"is a second {each.name!r}" if each.name else "has no name"
            raise DecodeError(f"requested output {position} {fault}")
        what = f"output {each.name!r}"
        parameters = read_parameters(each.parameters, what)
        refuse_shared_memory(parameters, what)
        parameters.pop("binary_data", None)
        outputs[each.name] = RequestedOutput(each.name, parameters)
    return tuple(outputs.values())


def read_id(body: Buffer) -> str | None:
    """The id in a ModelInferRequest, also in one that decode_infer refuses; None where there is none to be found."""
    try:
        head, _ = cut(memoryview(body), (TENSORS, REQUEST.raw_number), Allowance())
        return parse(ModelInferRequest, head).id or None
    except DecodeError:
        return None


def encode_infer(request: Request, target: Target) -> Message:
    """The ModelInferRequest for `target`, raw: every flavor reads that.

    Raises:
        GatewayError: INVALID_ARGUMENT or NOT_FOUND, a name, version or parameter that has no form on the wire;
            UNIMPLEMENTED, an extension that the server lacks.
    """
    check_version(request.version, target)
    if request.outputs:
        check_outputs(request.outputs, target)
    try:
        head = ModelInferRequest(model_name=request.model, model_version=request.version, id=request.id)
        write_parameters(head.parameters, request.parameters, target.flavor, _WHAT)
        for output in request.outputs:
            entry = head.outputs.add(name=output.name)
            write_parameters(entry.parameters, output.parameters, target.flavor, f"output {output.name!r}")
        lacks = _LACKS.get(target.flavor)
        inputs = [widened(each, lacks) for each in request.inputs] if lacks else request.inputs
        parts = write_inference(head, REQUEST, inputs, target.flavor)
    except UnicodeEncodeError as error:
        raise not_utf8(error, _WHAT) from error
    path = _PATHS[request.operation]
    return Message(path=path, parts=parts, pattern=path)
