"""Reads and writes model metadata and model status (client side and upstream side)."""

import re
from collections.abc import Mapping

from gateway.core.errors import DecodeError, Status
from gateway.core.grpc_status import error_of
from gateway.core.messages import Buffer, Message
from gateway.core.models import NotReady, Signature, TensorSpec
from gateway.core.protobuf.schema import Protobuf, not_utf8, parse, protobuf_reply
from gateway.core.protobuf.wire import Allowance
from gateway.core.requests import Answer, Request, Translate
from gateway.protocols.tensorflow_serving import schema
from gateway.protocols.tensorflow_serving.model_spec import MISSING, as_number, is_version
from gateway.protocols.tensorflow_serving.schema import DATA_TYPES, DATATYPES, SERVING_DEFAULT, SIGNATURE_DEF

# --- client side ---


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a GetModelMetadataResponse with the signature `serving_default`.

    Raises:
        GatewayError: INVALID_ARGUMENT if a name is not valid Unicode.
    """
    assert isinstance(answer, Signature)
    reply, definitions = schema.GetModelMetadataResponse(), schema.SignatureDefMap()
    version = request.version or (answer.versions[-1] if answer.versions else "")
    definition = definitions.signature_def[SERVING_DEFAULT]
    try:
        reply.model_spec.name = request.model
        if version and is_version(version) and (number := as_number(version)) is not None:
            reply.model_spec.version.value = number
        for side, specs in ((definition.inputs, answer.inputs), (definition.outputs, answer.outputs)):
            for spec in specs:
                _write_info(side[spec.name], spec)
    except UnicodeEncodeError as error:
        raise not_utf8(error, "the metadata") from error
    definition.method_name = schema.PREDICT_NAME
    reply.metadata[SIGNATURE_DEF].Pack(definitions)
    return protobuf_reply(reply)


def _write_info(info: Protobuf, spec: TensorSpec) -> None:
    info.name = f"{spec.name}:0"
    info.dtype = DATA_TYPES[spec.datatype]
    info.tensor_shape.SetInParent()
    for size in spec.shape:
        info.tensor_shape.dim.add(size=size)


def encode_status(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a GetModelStatusResponse with the state of the requested version.

    If the request contains no version, or contains a label, the response reports version 1, because the gateway cannot
    determine the version that runs.
    """
    number = as_number(request.version)
    reply = schema.GetModelStatusResponse()
    state = schema.AVAILABLE if answer is True else schema.LOADING
    status = reply.model_version_status.add(version=1 if number is None else number, state=state)
    status.status.SetInParent()
    return protobuf_reply(reply)


def encode_ready(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the error with which every server rejects a GetModelStatusRequest without a model.

    If the gateway is not ready, the error is UNAVAILABLE. The protocol offers no other request about the entire
    server."""
    if answer is True:
        return Message(parts=(MISSING.encode(),), status=Status.INVALID_ARGUMENT)
    why = answer.text if isinstance(answer, NotReady) else "the server is not ready"
    return Message(parts=(why.encode("utf-8", "replace"),), status=Status.UNAVAILABLE)


# --- upstream side ---


def decode_server_ready(reply: Message) -> bool:
    """Return whether the server is ready. A ready server rejects a GetModelStatusRequest without a model.

    Raises:
        GatewayError: any other error in the response.
    """
    if reply.status in (Status.OK, Status.INVALID_ARGUMENT, Status.NOT_FOUND):
        return True
    raise error_of(reply)


def decode_ready(reply: Message) -> bool:
    """Return whether a model version is AVAILABLE. Raise DecodeError for any other message."""
    return bool(_available(reply.body))


def decode_status(reply: Message, request: Request) -> Signature:
    """Return the available model versions, in a Signature without tensors. Raise DecodeError for any other message."""
    return Signature(name=request.model, versions=_available(reply.body))


def _available(body: Buffer) -> tuple[str, ...]:
    """Return the available versions in ascending order."""
    _check_size(body)
    found = parse(schema.GetModelStatusResponse, body).model_version_status
    return tuple(str(each) for each in sorted(each.version for each in found if each.state == schema.AVAILABLE))


def decode_metadata(reply: Message, request: Request) -> Signature:
    """Return the Signature of the model's default signature, which is `serving_default` or the model's only signature.

    Tensors are sorted by name, because maps have no order. The Signature has no tensors if the model has no default
    signature, or if a tensor has an unknown rank or a data type without a corresponding datatype.

    Raises:
        DecodeError: the body is not a GetModelMetadataResponse, or contains no signatures.
    """
    _check_size(reply.body)
    metadata = parse(schema.GetModelMetadataResponse, reply.body)
    packed = metadata.metadata.get(SIGNATURE_DEF)
    if packed is None:
        raise DecodeError(f"the metadata for model {request.model!r} has no {SIGNATURE_DEF}")
    definitions = parse(schema.SignatureDefMap, packed.value).signature_def
    chosen = definitions.get(SERVING_DEFAULT) or (next(iter(definitions.values())) if len(definitions) == 1 else None)
    inputs, outputs = (_specs(chosen.inputs), _specs(chosen.outputs)) if chosen else (None, None)
    spec = metadata.model_spec
    versions = (str(spec.version.value),) if spec.HasField("version") else ()
    signature = Signature(inputs or (), outputs or (), name=spec.name or request.model, versions=versions)
    # A signature without a method name comes from OpenVINO's server, which decodes image files.
    return signature if chosen is None or chosen.method_name else signature.with_images()


def _check_size(body: Buffer) -> None:
    """Raise DecodeError if a response is too large for metadata."""
    if len(body) > Allowance.BYTES:
        raise DecodeError(f"the reply has {len(body)} bytes; expected at most {Allowance.BYTES} of metadata")


def by_number(name: str) -> tuple[object, ...]:
    """Return a sort key that puts `input_2` before `input_10`."""
    pieces = re.split("([0-9]+)", name)
    return (*pieces[::2][:1], *((int(number), text) for number, text in zip(pieces[1::2], pieces[2::2], strict=True)))


def _specs(tensors: Mapping[str, Protobuf]) -> tuple[TensorSpec, ...] | None:
    """Return the specifications of the tensors, or None if a specification cannot represent a tensor."""
    found = []
    for name in sorted(tensors, key=by_number):
        info = tensors[name]
        datatype = DATATYPES.get(info.dtype)
        sizes = tuple(each.size for each in info.tensor_shape.dim)
        if datatype is None or info.tensor_shape.unknown_rank or min(sizes, default=0) < -1:
            return None
        found.append(TensorSpec(name, datatype, sizes))
    return tuple(found)
