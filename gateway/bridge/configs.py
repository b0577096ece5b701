"""UM-Bridge's `config` on wires without parameters: the last input, BYTES that hold its JSON text. Pure."""

from gateway.bridge.settings import RouteSettings
from gateway.bridge.shapes import repeat
from gateway.bridge.upstream import Upstream
from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.frozen import replace
from gateway.core.protocol import Rows, Traits
from gateway.core.types import Request, Tensor

CONFIG = "config"
EMPTY = "{}"


class Configs:
    """What one route does with them: `carry_config` lets them travel as a tensor."""

    def __init__(self, settings: RouteSettings, client: Traits, upstream: Upstream) -> None:
        self._carried = settings.carry_config
        self._upstream = upstream
        self.takes = self._carried and not client.parameters
        """Whether the client's last input may be one."""
        self.places = not upstream.traits.parameters
        """Whether the backend can have it as an input only."""

    def taken(self, request: Request) -> Request:
        """A client's request with the parameter `config` in place of its last input, if that is one: BYTES called
        `config`, or without a name where tensors have none.

        Raises:
            DecodeError: it is not one text, the same in every row.
            GatewayError: RESOURCE_EXHAUSTED, it is longer than the limit.
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

    def placed(self, asked: Request) -> Request:
        """The backend's request with its last input in place of the parameter.

        Raises:
            GatewayError: INVALID_ARGUMENT where the route does not say `carry_config`; RESOURCE_EXHAUSTED for one that
                is longer than the limit.
        """
        if CONFIG not in asked.parameters:
            return asked
        text = asked.parameters[CONFIG]
        if not isinstance(text, str):
            raise invalid_input(f"parameter 'config' is {text!r}, expected the text of a JSON object")
        parameters = {name: each for name, each in asked.parameters.items() if name != CONFIG}
        if text.strip() in ("", EMPTY):
            return replace(asked, parameters=parameters)
        if not self._carried:
            where = f"{self._upstream.protocol}, which backend {self._upstream.name!r} speaks"
            text = f"parameter 'config' has no place in {where}; `translate: {{carry_config: true}}` on the route"
            raise invalid_input(f"{text} would send it as one more input")
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            where = f"{self._upstream.protocol}, which backend {self._upstream.name!r} speaks"
            raise invalid_input(f"parameter 'config' is not UTF-8, and has no other form in {where}") from error
        return replace(asked, parameters=parameters, inputs=(*asked.inputs, self._tensor(raw, asked)))

    def _tensor(self, raw: bytes, asked: Request) -> Tensor:
        self._check_size(raw)
        # MIP's `json` is the text of a JSON value; elsewhere BYTES are bytes.
        one = Tensor(CONFIG, Datatype.BYTES, (1,), bytes_elements.pack([raw]), content_type="json")
        if self._upstream.traits.rows is not Rows.FIRST or not asked.inputs or not asked.inputs[0].shape:
            return one
        rows = asked.inputs[0].shape[0]
        texts = repeat(one, rows, self._upstream.limits.message, "parameter 'config'")
        return replace(one, shape=(rows,), data=bytes_elements.pack(texts.tolist()))

    def _check_size(self, raw: bytes) -> None:
        limit = self._upstream.limits.config
        if len(raw) > limit:
            where = f"`limits: {{config: {limit}}}` of backend {self._upstream.name!r}"
            raise refusal(Reason.TOO_LARGE, f"config of {len(raw)} bytes; {where} allows no more")
