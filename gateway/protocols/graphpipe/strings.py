"""`config`: "a string or any other binary data" for the model, opaque here, and elsewhere the parameter of that name.

Bytes that are not UTF-8 stand in the parameter's text as lone surrogates (`surrogateescape`), which no other protocol
writes: it refuses them."""

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.protocol import Limits, Target
from gateway.core.types import Request

CONFIG = "config"
_BYTES = "surrogateescape"


def read_config(raw: bytes) -> str:
    """The parameter's text."""
    return raw.decode(errors=_BYTES)


def check_size(raw: bytes, limits: Limits, where: str) -> None:
    """Raises GatewayError, RESOURCE_EXHAUSTED, for a config beyond the limit."""
    if len(raw) > limits.config:
        text = f"config of {len(raw)} bytes; `limits: {{config: {limits.config}}}` of {where} allows no more"
        raise refusal(Reason.TOO_LARGE, text)


def write_config(request: Request, target: Target) -> bytes:
    """The field's bytes; empty without the parameter. Nothing else that a client said is dropped in silence.

    Raises:
        GatewayError: it is no text, or too long; there are other parameters.
    """
    for owner, parameters, allowed in (
        ("", request.parameters, (CONFIG,)),
        *((f" of input {tensor.name!r}", tensor.parameters, (GATEWAY_DATATYPE,)) for tensor in request.inputs),
        *((f" of output {output.name!r}", output.parameters, ()) for output in request.outputs),
    ):
        for name in parameters:
            if name not in allowed:
                raise invalid_input(f"parameter {name!r}{owner} has no place in GraphPipe, which takes 'config' only")
    text = request.parameters.get(CONFIG, "")
    if not isinstance(text, str):
        raise invalid_input(f"parameter 'config' is {text!r}, expected text")
    try:
        raw = text.encode(errors=_BYTES)
    except UnicodeEncodeError as error:
        raise invalid_input(f"config {text[:40]!r} is not UTF-8") from error
    check_size(raw, target.limits, f"backend {target.backend!r}")
    return raw
