"""The metadata and the status of models, both sides."""

import re
from collections.abc import Mapping

from gateway.core.errors import DecodeError, Status
from gateway.core.grpc_status import error_of
from gateway.core.protobuf.schema import Protobuf, not_utf8, parse
from gateway.core.protobuf.wire import Allowance
from gateway.core.types import Answer, Buffer, Message, NotReady, Request, Signature, TensorSpec, Translate
from gateway.protocols.tensorflow_serving import schema
from gateway.protocols.tensorflow_serving.model_spec import MISSING, as_number, is_version
from gateway.protocols.tensorflow_serving.schema import DATA_TYPES, DATATYPES, SERVING_DEFAULT, SIGNATURE_DEF

# --- facing clients ---


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """A GetModelMetadataResponse with the signature `serving_default`.

    Raises:
        GatewayError: INVALID_ARGUMENT, a name that is not valid Unicode.
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
    return schema.protobuf_reply(reply)


def _write_info(info: Protobuf, spec: TensorSpec) -> None:
    info.name = f"{spec.name}:0"
    info.dtype = DATA_TYPES[spec.datatype]
    info.tensor_shape.SetInParent()
    for size in spec.shape:
        info.tensor_shape.dim.add(size=size)


def encode_status(answer: Answer, request: Request, translate: Translate) -> Message:
    """A GetModelStatusResponse with the state of the requested version. Without one, or with a label, it is version 1,
    because the version that would answer is not known."""
    number = as_number(request.version)
    reply = schema.GetModelStatusResponse()
    state = schema.AVAILABLE if answer is True else schema.LOADING
    status = reply.model_version_status.add(version=1 if number is None else number, state=state)
    status.status.SetInParent()
    return schema.protobuf_reply(reply)


def encode_ready(answer: Answer, request: Request, translate: Translate) -> Message:
    """The refusal of a GetModelStatusRequest without a model, as by every server; UNAVAILABLE from one that is not
    ready. There is no other question about the server as a whole."""
    if answer is True:
        return Message(parts=(MISSING.encode(),), status=Status.INVALID_ARGUMENT)
    why = answer.text if isinstance(answer, NotReady) else "the server is not ready"
    return Message(parts=(why.encode("utf-8", "replace"),), status=Status.UNAVAILABLE)


# --- facing backends ---


def decode_server_ready(reply: Message) -> bool:
    """Whether the server is ready, by its refusal of a GetModelStatusRequest without a model.

    Raises:
        GatewayError: any other error in the reply.
    """
    if reply.status in (Status.OK, Status.INVALID_ARGUMENT, Status.NOT_FOUND):
        return True
    raise error_of(reply)


def decode_ready(reply: Message) -> bool:
    """Whether a version of the model is AVAILABLE. Raises DecodeError for another message."""
    return bool(_available(reply.body))


def decode_status(reply: Message, request: Request) -> Signature:
    """The available versions of the model, in a Signature without tensors. Raises DecodeError for another message."""
    return Signature(name=request.model, versions=_available(reply.body))


def _available(body: Buffer) -> tuple[str, ...]:
    """The available versions, the latest last."""
    _check_size(body)
    found = parse(schema.GetModelStatusResponse, body).model_version_status
    return tuple(str(each) for each in sorted(each.version for each in found if each.state == schema.AVAILABLE))


def decode_metadata(reply: Message, request: Request) -> Signature:
    """The model's default signature: `serving_default`, or its only one, with tensors in the order of their names,
    since maps have none. Without tensors if the model has no such signature, or if a tensor has a data type that no
    datatype is for, or no rank.

    Raises:
        DecodeError: not a GetModelMetadataResponse, or without signatures.
    """
    _check_size(reply.body)
    metadata = parse(schema.GetModelMetadataResponse, reply.body)
    packed = metadata.metadata.get(SIGNATURE_DEF)
    if packed is None:
        raise DecodeError(f"the metadata of model {request.model!r} has no {SIGNATURE_DEF}")
    definitions = parse(schema.SignatureDefMap, packed.value).signature_def
    chosen = definitions.get(SERVING_DEFAULT) or (next(iter(definitions.values())) if len(definitions) == 1 else None)
    inputs, outputs = (_specs(chosen.inputs), _specs(chosen.outputs)) if chosen else (None, None)
    spec = metadata.model_spec
    versions = (str(spec.version.value),) if spec.HasField("version") else ()
    signature = Signature(inputs or (), outputs or (), name=spec.name or request.model, versions=versions)
    # OpenVINO's server, which decodes image files, names no method
    return signature if chosen is None or chosen.method_name else signature.with_images()


def _check_size(body: Buffer) -> None:
    """Raises DecodeError for a reply that is too large for metadata."""
    if len(body) > Allowance.BYTES:
        raise DecodeError(f"the reply has {len(body)} bytes; expected at most {Allowance.BYTES} of metadata")


def by_number(name: str) -> tuple[object, ...]:
    """The key that puts `input_2` before `input_10`."""
    pieces = re.split("([0-9]+)", name)
    return (*pieces[::2][:1], *((int(number), text) for number, text in zip(pieces[1::2], pieces[2::2], strict=True)))


def _specs(tensors: Mapping[str, Protobuf]) -> tuple[TensorSpec, ...] | None:
    """The specifications of the tensors; None if one of them cannot be expressed."""
    found = []
    for name in sorted(tensors, key=by_number):
        info = tensors[name]
        datatype = DATATYPES.get(info.dtype)
        sizes = tuple(each.size for each in info.tensor_shape.dim)
        if datatype is None or info.tensor_shape.unknown_rank or min(sizes, default=0) < -1:
            return None
        found.append(TensorSpec(name, datatype, sizes))
    return tuple(found)
