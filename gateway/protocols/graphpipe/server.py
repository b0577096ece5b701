"""What a GraphPipe client asks."""

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.types import Message, Parameters, Request, RequestedOutput, Tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffer_reader import Flatbuffer, Table
from gateway.protocols.graphpipe.strings import CONFIG, check_size, read_config
from gateway.protocols.graphpipe.tensors import read_tensor
from gateway.protocols.graphpipe.texts import decode

_CONTROL = "control"
_NO_PARAMETERS: Parameters = {}


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """The question of one HTTP request. GET asks for metadata. Neither the Content-Type (the Python client sends none,
    libcurl calls the body a form) nor the path beyond the model's name is looked at.

    Raises:
        DecodeError: the body is not a Request, or one that a real server must not see.
        GatewayError: NOT_FOUND for `/control/`; RESOURCE_EXHAUSTED for a long `config`.
    """
    if message.path.lstrip("/").partition("/")[0] == _CONTROL:
        # where real servers take orders, without credentials: /control/shutdown
        raise refusal(Reason.PATH_NOT_FOUND, "/control/ is not served, nor passed on")
    if message.method != "POST":
        return _request(Operation.METADATA, message, listener)
    root = Flatbuffer(message.body).root()
    kind = root.byte(schema.Request.REQ_TYPE)
    if kind == schema.METADATA_REQUEST:
        return _request(Operation.METADATA, message, listener)
    question = root.table(schema.Request.REQ)
    if kind != schema.INFER_REQUEST or question is None:
        shown = f"{kind}{' without a table' * (kind == schema.INFER_REQUEST)}"
        raise DecodeError(f"the request's type is {shown}; expected InferRequest (1) or MetadataRequest (2)")
    return _infer(question, message, listener)


def _infer(question: Table, message: Message, listener: ListenerSettings) -> Request:
    return _request(
        Operation.INFER,
        message,
        listener,
        _read_inputs(question),
        _read_outputs(question),
        _read_config(question, listener.limits, listener.name),
    )


def _request(
    operation: Operation,
    message: Message,
    listener: ListenerSettings,
    inputs: tuple[Tensor, ...] = (),
    outputs: tuple[RequestedOutput, ...] = (),
    parameters: Parameters = _NO_PARAMETERS,
) -> Request:
    return Request(
        operation,
        message.captures.get("model") or listener.model,
        "",
        None,
        inputs,
        outputs,
        parameters,
        origin=message,
    )


def _read_inputs(question: Table) -> tuple[Tensor, ...]:
    names = [decode(raw, "an input's name") for raw in question.strings(schema.InferRequest.INPUT_NAMES)]
    inputs = []
    for at, table in enumerate(question.tables(schema.InferRequest.INPUT_TENSORS)):
        name = names[at] if at < len(names) else ""
        inputs.append(read_tensor(table, name, f"input {name!r}" if name else f"input {at}"))
    if names and len(names) != len(inputs):
        raise DecodeError(f"{len(names)} input names for {len(inputs)} tensors; expected one for each, or none")
    return tuple(inputs)


def _read_outputs(question: Table) -> tuple[RequestedOutput, ...]:
    names: dict[str, None] = {}
    blank = 0
    for raw in question.strings(schema.InferRequest.OUTPUT_NAMES):
        name = decode(raw, "an output's name")
        if name in names:
            raise DecodeError(f"output {name!r} is requested twice")
        if name:
            names[name] = None
        else:
            blank += 1
    if names and blank:
        raise DecodeError(f"{blank} of {blank + len(names)} output names are empty; name each output, or none")
    return tuple([RequestedOutput(name, _NO_PARAMETERS) for name in names])


def _read_config(question: Table, limits: Limits, listener: str) -> Parameters:
    raw = question.string(schema.InferRequest.CONFIG)
    if not raw:
        return _NO_PARAMETERS
    check_size(raw, limits, f"listener {listener!r}")
    return {CONFIG: read_config(raw)}
