"""The V2 extensions that only some servers implement: model configuration and statistics, loading and unloading, and
trace and log settings. The gateway forwards requests for these extensions with the backend's model names."""

from collections.abc import Mapping

from gateway.bridge import shapes
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.signature_cache import Key
from gateway.core import json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status, unsupported
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import CONFIG_FROM_METADATA, Operation
from gateway.core.requests import Answer, ControlRequest, Request
from gateway.core.statistics import Statistics

_CONFIG_VALUES = 10_000
"""The maximum number of JSON values in a model configuration in which the gateway replaces the name."""


class Extensions:
    """Forwards requests for V2 extensions to one route's backend."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._backend = rewrite.backend
        self._rewrite = rewrite

    async def config(self, request: Request, companion: Operation | None = None) -> Mapping[str, object] | None:
        """Return the model's configuration, or None if the backend does not support the extension."""
        if Operation.CONFIG not in self._backend.traits.servers.extensions:
            return None
        try:
            answer = await self._ask(request, companion)
        except GatewayError as error:
            if error.status is not Status.UNIMPLEMENTED:
                raise
            return None
        assert isinstance(answer, Mapping)
        return answer

    async def statistics(self, request: Request, companion: Operation | None = None) -> Statistics:
        """Return the statistics of the model's versions, with the client's name for the model.

        Raises:
            GatewayError: the backend's error, or UNIMPLEMENTED if the backend's protocol does not have the extension.
        """
        answer = await self._ask(request, companion)
        assert isinstance(answer, Statistics)
        name = f"{request.model}.{companion.value}" if companion else request.model
        return Statistics(tuple(replace(each, name=name) for each in answer.models))

    async def control(self, request: Request, companion: Operation | None = None) -> Answer:
        """Return the response to a request for one of CONTROL_OPERATIONS.

        Raises:
            GatewayError: same as `statistics`.
        """
        return await self._ask(request, companion)

    async def _ask(self, request: Request, companion: Operation | None) -> Answer:
        backend = self._backend
        if request.operation not in backend.traits.servers.extensions:
            subject = f"model {request.model!r} has no" if request.model else "no"
            raise unsupported(
                f"{subject} {request.operation.value}: that is an extension of V2 servers, which backend"
                f" {backend.name!r} ({backend.protocol}) is not"
            )
        key = self._rewrite.key(request)
        key = self._rewrite.companion(key, companion) if companion else key
        return await backend.handler(self._outgoing(request, key))

    def _outgoing(self, request: Request, key: Key) -> Request:
        outgoing = self._rewrite.outgoing(request, key)
        if not request.model:  # the request is about the whole server, even if the route's `rewrite` sets a model
            return replace(outgoing, model="", version="")
        if not isinstance(outgoing, ControlRequest) or outgoing.model == request.model:
            return outgoing
        config = outgoing.settings.get("config")
        if not isinstance(config, str):
            return outgoing
        settings = {**outgoing.settings, "config": _renamed(config, request.model, outgoing.model)}
        return replace(outgoing, settings=settings)


def _renamed(config: str, client: str, backend: str) -> str:
    """In the JSON text of a model configuration, replace the model's name with the backend's name, because Triton
    rejects a configuration with a different name. Leave invalid JSON unchanged; the server rejects it."""
    try:
        document = json.read(config.encode(), {}, values=_CONFIG_VALUES, literals=False)
    except (DecodeError, UnicodeEncodeError):
        return config
    return json.write({**document, "name": backend}).decode() if document.get("name") == client else config


def config_from_metadata(name: str, signature: Signature, max_rows: int) -> Mapping[str, object]:
    """Return the configuration of the model `name` (Triton's `model_configuration`), for models whose server has no
    configuration.

    Triton clients read the configuration before they call a model: PyTriton's ModelClient needs names, datatypes and
    `max_batch_size`, and perf_analyzer stops if it receives no response. The configuration contains only members that
    can be derived from the metadata.

    If the first dimension of every tensor is the batch dimension, `dims` contains the other dimensions and
    `max_batch_size` is `max_rows`. Otherwise, `max_batch_size` is 0 and `dims` contains all dimensions.

    Source: Triton's `model_config.proto`, in the JSON format of Triton's HTTP interface."""
    specs = (*signature.inputs, *signature.outputs)
    batches = bool(specs) and all(shapes.is_batch(each.shape) for each in specs)
    return {
        "name": name,
        "max_batch_size": max_rows if batches else 0,
        "input": [_config_of_tensor(each, batches=batches) for each in signature.inputs],
        "output": [_config_of_tensor(each, batches=batches) for each in signature.outputs],
        "parameters": {CONFIG_FROM_METADATA: {"string_value": "true"}},
    }


def _config_of_tensor(spec: TensorSpec, *, batches: bool) -> dict[str, object]:
    datatype = "STRING" if spec.datatype is Datatype.BYTES else spec.datatype.value
    dims = list(spec.shape[1:] if batches else spec.shape)
    found: dict[str, object] = {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": dims}
    return {**found, "optional": True} if spec.optional else found
