"""Defines V2 extensions, under the names that servers list in their metadata.

The codecs of both transports use this module to check that a server has the extension that an operation needs.
"""

import re
from collections.abc import Mapping

from gateway.core.errors import unsupported
from gateway.core.messages import Message
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import CLASSIFICATION, Request, RequestedOutput
from gateway.core.tensors import Parameters
from gateway.protocols.v2.flavors import KSERVE, MLSERVER, OPENVINO, PLAIN, TYPED
from gateway.protocols.v2.parameters import PRIORITY

STATISTICS = "statistics"
REPOSITORY = "model_repository"

EXTENSIONS = {
    Operation.CONFIG: "model_configuration",
    Operation.MODEL_STATISTICS: STATISTICS,
    Operation.ALL_STATISTICS: STATISTICS,
    Operation.LOAD: REPOSITORY,
    Operation.UNLOAD: REPOSITORY,
    Operation.TRACE_SETTINGS: "trace",
    Operation.LOG_SETTINGS: "logging",
}

SCHEDULE_POLICY = "schedule_policy"
FURTHER_EXTENSIONS = frozenset({CLASSIFICATION, "sequence", SCHEDULE_POLICY})
"""Extensions that add parameters to inferences instead of separate operations."""

_FLAVORS_WITHOUT = frozenset({MLSERVER, KSERVE, OPENVINO, PLAIN, TYPED})
"""Server types that support only the UNLISTED extensions."""

UNLISTED = {MLSERVER: frozenset({REPOSITORY})}
"""The extensions that a server type supports without listing them.

MLServer lists no extensions, but loads and unloads models."""


def check_operation(operation: Operation, target: Target) -> None:
    """Check that the server supports the extension that `operation` needs.

    Raises:
        GatewayError: UNIMPLEMENTED if the extension is missing. The message says which.
    """
    extension = EXTENSIONS.get(operation)
    if extension is not None:
        _check(extension, operation.value, target)


def check_outputs(outputs: tuple[RequestedOutput, ...], target: Target) -> None:
    """If the request contains an output with `classification`, check that the server supports this extension.

    Raise the errors of `check_operation`."""
    for output in outputs:
        if CLASSIFICATION in output.parameters:
            _check(CLASSIFICATION, f"parameter {CLASSIFICATION} of output {output.name!r}", target)


def check_parameters(parameters: Parameters, target: Target) -> None:
    """If the request contains a priority, check that the server supports `schedule_policy`.

    Raise the errors of `check_operation`."""
    if PRIORITY in parameters:
        _check(SCHEDULE_POLICY, f"parameter {PRIORITY}", target)


def has_extension(extension: str, flavor: str, listed: frozenset[str] | None) -> bool:
    """Return True if a server of this type supports an extension. `listed` are the extensions in the server's
    metadata."""
    # if `flavor` is configured, the gateway has not queried the server's extensions
    has = flavor not in _FLAVORS_WITHOUT if listed is None else extension in listed
    return has or extension in UNLISTED.get(flavor, ())


def _check(extension: str, what: str, target: Target) -> None:
    if not has_extension(extension, target.flavor, target.extensions):
        backend = f"backend {target.backend!r} ({target.flavor})"
        raise unsupported(f"{what} needs V2's extension {extension!r}, which {backend} does not have")


# --- model repository ---

READY = "READY"


def index_entries(models: tuple[ModelEntry, ...], request: Request) -> list[ModelEntry]:
    """Return the models for the response to a repository index request.

    If the request sets `ready`, omit models that are known to be unready."""
    return [each for each in models if not request.parameters.get("ready") or each.state in ("", READY)]


# --- model configuration ---


def config_for_client(request: Request, config: Mapping[str, object]) -> dict[str, object]:
    """Return a model's configuration with the model name that the client used. The function also renames instance
    groups, because Triton names them after the model."""
    backend, client = config.get("name"), request.model
    if not backend or not client or backend == client:
        return dict(config)
    groups = config.get("instance_group")
    own_name = re.compile(f"{re.escape(str(backend))}(_[0-9]+)")
    document = {**config, "name": client}
    if isinstance(groups, list):
        document["instance_group"] = [_rename_group(each, own_name, client) for each in groups]
    return document


def _rename_group(group: object, own_name: re.Pattern[str], client: str) -> object:
    found = own_name.fullmatch(str(group.get("name"))) if isinstance(group, dict) else None
    return {**group, "name": client + found[1]} if isinstance(group, dict) and found else group


# --- shared memory ---


def refuse_shared_memory_request(kind: str, message: Message, listener: ListenerSettings) -> Request:
    """Reject a request for the shared memory extension of this `kind` (system, cuda, tpu) with an error that mentions
    the kind.

    The gateway serves the paths and methods of these extensions only to return this error, because a backend cannot
    access the client's memory.

    Raises:
        GatewayError: UNIMPLEMENTED in every case.
    """
    raise unsupported(f"{kind} shared memory cannot cross the gateway; send the tensors' data in the request")
