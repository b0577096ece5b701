"""Copies of requests and responses as messages of V2 REST (KServe's "Open Inference Protocol", section "Inference"): as
JSON, or as JSON followed by the tensor data (Triton's binary tensor data extension). No I/O.

If a tensor contains no data, the parameter LEFT_OUT gives the reason. In JSON, NaN and infinities are strings in
numpy's spelling. BYTES that are not UTF-8 are encoded in base64, as the parameter `content_type` indicates.
"""

from base64 import b64encode
from collections.abc import Iterator
from math import isfinite
from typing import Any

from msgspec import Raw

from gateway.core import bytes_elements, json
from gateway.core.datatypes import BYTES
from gateway.core.tensors import Parameters
from gateway.observing.payload_log.copies import CopiedMessage, CopiedTensor

LEFT_OUT, NOT_SHOWN = "log.left_out", "log.not_shown"
"""Parameters for omissions: the reason why a value was left out, and the number of tensors, parameters and requested
outputs whose names were left out."""


def request_json(id: str, message: CopiedMessage) -> bytes:
    """Return a request as JSON: `$inference_request`."""
    return _joined(_request(id, message, [_with_data(each) for each in message.tensors]))


def reply_json(id: str, model: str, version: str, message: CopiedMessage) -> bytes:
    """Return a response as JSON: `$inference_response`."""
    return _joined(_reply(id, model, version, message, [_with_data(each) for each in message.tensors]))


def request_binary(id: str, message: CopiedMessage) -> tuple[int, bytes]:
    """Return a request as JSON followed by its data, and the length of the JSON."""
    return _with_raw(_request(id, message, [_with_size(each) for each in message.tensors]), message)


def reply_binary(id: str, model: str, version: str, message: CopiedMessage) -> tuple[int, bytes]:
    """Return a response as JSON followed by its data, and the length of the JSON."""
    return _with_raw(_reply(id, model, version, message, [_with_size(each) for each in message.tensors]), message)


def error_json(id: str, text: str) -> bytes:
    """Return the message for an error instead of a response: `$inference_error_response`, with the request's id."""
    return _joined({"id": readable(id), "error": readable(text)})


def readable(text: str) -> str:
    """Return `text` with unpaired surrogates escaped, because UTF-8 cannot represent them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _request(id: str, message: CopiedMessage, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"id": readable(id), **_of_message(message), "inputs": tensors}
    if message.requested:
        found["outputs"] = [{"name": readable(name)} for name in message.requested]
    return found


def _reply(id: str, model: str, version: str, message: CopiedMessage, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"model_name": readable(model)}
    if version:
        found["model_version"] = readable(version)
    return {**found, "id": readable(id), **_of_message(message), "outputs": tensors}


def _of_message(message: CopiedMessage) -> dict[str, Any]:
    parameters = _plain(message.parameters)
    if message.left_out:
        parameters[LEFT_OUT] = "; ".join(f"{readable(name)}: {why}" for name, why in message.left_out.items())
    if message.uncounted:
        parameters[NOT_SHOWN] = message.uncounted
    return {"parameters": parameters} if parameters else {}


def _plain(parameters: Parameters) -> dict[str, Any]:
    """Return parameters as values that JSON can represent."""
    return {readable(name): _value(value) for name, value in parameters.items()}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _head(tensor: CopiedTensor, further: Parameters) -> dict[str, Any]:
    parameters = {**_plain(tensor.parameters), **further}
    if tensor.left_out:
        parameters[LEFT_OUT] = f"{tensor.left_out} ({tensor.size} bytes)"
    found: dict[str, Any] = {
        "name": readable(tensor.name), "shape": list(tensor.shape), "datatype": tensor.datatype.value,
    }  # fmt: skip
    return {**found, "parameters": parameters} if parameters else found


def _with_size(tensor: CopiedTensor) -> dict[str, Any]:
    return _head(tensor, {} if tensor.data is None else {"binary_data_size": len(tensor.data)})


def _with_data(tensor: CopiedTensor) -> dict[str, Any]:
    data = tensor.data
    if data is None:
        return _head(tensor, {})
    if tensor.datatype is not BYTES:
        written = Raw(b"".join(json.written(data, tensor.datatype, "string", tensor.name)))
        return {**_head(tensor, {}), "data": written}
    elements = bytes_elements.unpack(data)
    try:
        return {**_head(tensor, {}), "data": [each.decode() for each in elements]}
    except UnicodeDecodeError:
        texts = [b64encode(each).decode() for each in elements]
        return {**_head(tensor, {"content_type": "base64"}), "data": texts}


def _joined(document: dict[str, Any]) -> bytes:
    return b"".join(json.write_message(document))


def _with_raw(document: dict[str, Any], message: CopiedMessage) -> tuple[int, bytes]:
    header = _joined(document)
    return len(header), b"".join((header, *_raw(message)))


def _raw(message: CopiedMessage) -> Iterator[bytes]:
    return (each.data for each in message.tensors if each.data is not None)
