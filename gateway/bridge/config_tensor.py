"""Implements `translate: {carry_config: true}`, which sends UM-Bridge's `config` as a tensor in protocols without
parameters.

This module does no I/O.

The config is the last input, named `config` (or unnamed): a BYTES tensor whose one element is the JSON text of the
config. If the protocol requires rows in every tensor, each row repeats the text.
"""

from gateway.bridge.backend import BackendSide
from gateway.bridge.settings import RouteSettings
from gateway.bridge.shapes import repeat
from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.frozen import replace
from gateway.core.protocol import Rows, Traits
from gateway.core.requests import Request
from gateway.core.tensors import Tensor

CONFIG = "config"
EMPTY = "{}"


class ConfigTensor:
    """Converts the config between a parameter and a tensor, for one route."""

    def __init__(self, settings: RouteSettings, client: Traits, backend: BackendSide) -> None:
        self._carried = settings.carry_config
        self._backend = backend
        self.from_client = self._carried and not client.wire.parameters
        """True if clients can send the config only as a tensor."""
        self.to_backend = not backend.traits.wire.parameters
        """True if the backend can receive the config only as a tensor."""

    def to_parameter(self, request: Request) -> Request:
        """If a client's request contains the config tensor, replace the tensor with the parameter `config`.

        Raises:
            DecodeError: rows contain different texts, or the text is not UTF-8.
            GatewayError: RESOURCE_EXHAUSTED if the text is longer than the backend's `limits.config`.
        """
        last = request.inputs[-1] if request.inputs and CONFIG not in request.parameters else None
        if last is None or last.datatype is not Datatype.BYTES or last.name not in (CONFIG, ""):
            return request
        texts = set(bytes_elements.unpack(last.data))
        if len(texts) != 1:
            raise DecodeError(f"input 'config' holds {len(texts)} different texts, expected one, the same in every row")
        [raw] = texts
        self._check_size(raw)
        try:
            parameters = {**request.parameters, CONFIG: raw.decode()}
        except UnicodeDecodeError as error:
            raise DecodeError("input 'config' is not UTF-8, expected the text of a JSON object") from error
        return replace(request, inputs=request.inputs[:-1], parameters=parameters)

    def to_tensor(self, outgoing: Request) -> Request:
        """If the request to the backend has the parameter `config`, replace the parameter with the tensor.

        Raises:
            GatewayError: INVALID_ARGUMENT if the route does not have `carry_config`, or the config is not UTF-8 text;
                RESOURCE_EXHAUSTED if the text is longer than the backend's `limits.config`.
        """
        if CONFIG not in outgoing.parameters:
            return outgoing
        text = outgoing.parameters[CONFIG]
        if not isinstance(text, str):
            raise invalid_input(f"parameter 'config' is {text!r}, expected the text of a JSON object")
        parameters = {name: each for name, each in outgoing.parameters.items() if name != CONFIG}
        if text.strip() in ("", EMPTY):
            return replace(outgoing, parameters=parameters)
        if not self._carried:
            where = f"{self._backend.protocol}, the protocol of backend {self._backend.name!r}"
            text = f"parameter 'config' is not supported by {where}; `translate: {{carry_config: true}}` on the route"
            raise invalid_input(f"{text} sends it as one more input")
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            where = f"backend {self._backend.name!r} ({self._backend.protocol})"
            raise invalid_input(f"parameter 'config' is not UTF-8, as {where} needs") from error
        return replace(outgoing, parameters=parameters, inputs=(*outgoing.inputs, self._tensor(raw, outgoing)))

    def _tensor(self, raw: bytes, outgoing: Request) -> Tensor:
        self._check_size(raw)
        # MIP uses the content type, because it has a format for JSON texts. Other protocols send plain BYTES.
        one = Tensor(CONFIG, Datatype.BYTES, (1,), bytes_elements.pack([raw]), content_type="json")
        if self._backend.traits.wire.rows is not Rows.FIRST or not outgoing.inputs or not outgoing.inputs[0].shape:
            return one
        rows = outgoing.inputs[0].shape[0]
        texts = repeat(one, rows, self._backend.limits.message, "parameter 'config'")
        return replace(one, shape=(rows,), data=bytes_elements.pack(texts.tolist()))

    def _check_size(self, raw: bytes) -> None:
        limit = self._backend.limits.config
        if len(raw) > limit:
            where = f"`limits: {{config: {limit}}}` of backend {self._backend.name!r}"
            raise refusal(Reason.TOO_LARGE, f"config of {len(raw)} bytes; {where} allows no more")
