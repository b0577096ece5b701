"""Converts the strings of the schema: names, which are UTF-8 text, and `config`, which can be any bytes.

`config` ("a string or any other binary data") is for the model. In a canonical Request, it becomes the parameter
`config`. Bytes that are not UTF-8 become lone surrogates in this string (`surrogateescape`). Only GraphPipe can write
lone surrogates; every other protocol rejects them. The client and server sides of GraphPipe and its metadata use this
module.
"""

from collections.abc import Iterable

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Request, refuse_parameters
from gateway.core.tensors import Parameters

CONFIG = "config"
_ANY_BYTES = "surrogateescape"
_UNSUPPORTED = " by GraphPipe, which takes 'config' only"


def decode_text(raw: bytes, what: str) -> str:
    """Return the text in `raw`.

    Raises:
        DecodeError: `raw` is not UTF-8. The message contains `what`.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8: {raw[:40]!r}") from error


def encode_text(text: str, what: str) -> bytes:
    """Return `text` as UTF-8.

    Raises:
        GatewayError: INVALID_ARGUMENT if `text` contains lone surrogates. The message contains `what`.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise invalid_input(f"{what} {text[:40]!r} is not UTF-8") from error


def encode_names(names: Iterable[str], what: str) -> tuple[bytes, ...]:
    """Return the names as UTF-8, or no names if all are empty."""
    encoded = tuple([encode_text(name, what) for name in names])
    return encoded if any(encoded) else ()


def decode_config(raw: bytes, limits: Limits, where: str) -> Parameters:
    """Return the parameter for a request's `config`, which is not empty.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if `config` is longer than `limits.config`.
    """
    limits.check_config(len(raw), where)
    return {CONFIG: raw.decode(errors=_ANY_BYTES)}


def encode_config(request: Request, target: Target) -> bytes:
    """Return the bytes of the request's parameter `config`, or no bytes if the parameter is missing.

    Raises:
        GatewayError: INVALID_ARGUMENT if the parameter is not a string, or the request has other parameters, which
            GraphPipe cannot represent; RESOURCE_EXHAUSTED if `config` is longer than `limits.config`.
    """
    refuse_parameters(request.parameters, "", _UNSUPPORTED, CONFIG)
    for tensor in request.inputs:
        if tensor.parameters:
            refuse_parameters(tensor.parameters, f" of input {tensor.name!r}", _UNSUPPORTED, GATEWAY_DATATYPE)
    for output in request.outputs:
        if output.parameters:
            refuse_parameters(output.parameters, f" of output {output.name!r}", _UNSUPPORTED)
    if CONFIG not in request.parameters:
        return b""
    text = request.parameters[CONFIG]
    if not isinstance(text, str):
        raise invalid_input(f"parameter 'config' is {text!r}, expected text")
    try:
        raw = text.encode(errors=_ANY_BYTES)
    except UnicodeEncodeError as error:
        raise invalid_input(f"config {text[:40]!r} is not UTF-8; send it as UTF-8 text") from error
    target.limits.check_config(len(raw), f"backend {target.backend!r}")
    return raw
