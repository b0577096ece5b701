"""What a UM-Bridge server is asked."""

from collections.abc import Iterator

from gateway.core.datatypes import Kind
from gateway.core.errors import invalid_input, unsupported
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import Target
from gateway.core.types import Message, Request, Tensor
from gateway.json import write
from gateway.protocols.umbridge import config
from gateway.protocols.umbridge.schema import JSON, KEYS, MODEL_INFO, NAN, PARTS, PATHS
from gateway.protocols.umbridge.vectors import all_to_json, members, to_json

# There is no question about health or about one model's state: a server that lists its models is well.
INFO = frozenset({Operation.LIVE, Operation.READY, Operation.SERVER_METADATA, Operation.MODELS, Operation.MODEL_READY})


def encode_request(request: Request, target: Target) -> Message:
    """One HTTP request with the keys and their order of the Python client. Inputs are vectors, those of derivatives
    followed by the tensors of DERIVATIVES.

    Raises:
        GatewayError: UNIMPLEMENTED, UM-Bridge has no words for it; INVALID_ARGUMENT, an index or a parameter that its
            JSON cannot carry.
    """
    if request.operation in PATHS:
        return _post(PATHS[request.operation], request, _call(request, target))
    if request.operation is Operation.METADATA and request.part in PARTS:
        return _post(f"/{request.part}", request, _about(request, target))
    if request.operation in INFO:
        return Message("GET", "/Info", deadline=request.deadline)
    raise unsupported(f"UM-Bridge has no words for {request.operation.value!r}")


def _post(path: str, request: Request, pairs: Iterator[tuple[str, tuple[bytes, ...]]]) -> Message:
    return Message("POST", path, JSON, members(pairs), deadline=request.deadline)


def _about(request: Request, target: Target) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    yield "name", (write(request.model),)
    if request.part != MODEL_INFO:
        yield "config", (_config(request, target),)


def _call(request: Request, target: Target) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    names = DERIVATIVES.get(request.operation, ())
    inputs, extras = _split(request, len(names))
    named = dict(zip(names, extras, strict=True))
    yield "name", (write(request.model),)
    for name in names:
        if name in INDEX_TENSORS:
            yield KEYS[name], (_index(name, named[name]),)
    yield "input", all_to_json(inputs, NAN, "input")
    for name in names:
        if name not in INDEX_TENSORS:
            yield KEYS[name], to_json(named[name], NAN, name)
    yield "config", (_config(request, target),)


def _split(request: Request, extras: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    at = len(request.inputs) - extras
    if at < 0:
        needed = ", ".join(DERIVATIVES[request.operation])
        raise invalid_input(f"{request.operation.value} got {len(request.inputs)} tensors; {needed} must be the last")
    return request.inputs[:at], request.inputs[at:]


def _index(name: str, given: Tensor) -> bytes:
    if given.datatype.kind not in (Kind.SIGNED, Kind.UNSIGNED) or given.elements != 1:
        raise invalid_input(f"{name} is {given.datatype} of shape {list(given.shape)}, expected one integer")
    return b"%d" % int(given.array.reshape(-1)[0])


def _config(request: Request, target: Target) -> bytes:
    return config.to_json(request, target.limits, f"backend {target.backend!r}")
