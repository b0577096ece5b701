"""`config`: a string for the model, opaque here, and elsewhere the parameter of that name."""

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.protocol import Limits, Target
from gateway.core.types import Request
from gateway.protocols.graphpipe.texts import encode

CONFIG = "config"


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
    raw = encode(text, "config")
    check_size(raw, target.limits, f"backend {target.backend!r}")
    return raw
