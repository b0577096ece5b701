"""V2's extensions, by the names that servers list in their metadata: which operation needs which, and who has it."""

import re
from collections.abc import Mapping

from gateway.core.errors import GatewayError, unsupported
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import CLASSIFICATION, Request, RequestedOutput
from gateway.protocols.v2.flavors import KSERVE, MLSERVER, PLAIN

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

FURTHER_EXTENSIONS = frozenset({CLASSIFICATION, "sequence"})
"""Those that are parameters of inferences."""

FILE = "file:"
"""What the names of load parameters begin with that hold a file of the model's folder: `file:1/model.onnx`."""

TRACE_LEVEL = "trace_level"
"""The one trace setting that is a list in JSON; over gRPC every one is."""

_HAVE_NONE = frozenset({MLSERVER, KSERVE, PLAIN})


def check_operation(operation: Operation, target: Target) -> None:
    """Whether the server has the extension that `operation` needs, if it needs one.

    Raises:
        GatewayError: UNIMPLEMENTED naming the extension.
    """
    extension = EXTENSIONS.get(operation)
    if extension is not None:
        _check(extension, operation.value, target)


def check_outputs(outputs: tuple[RequestedOutput, ...], target: Target) -> None:
    """The same of what is asked of single outputs: their classes."""
    for output in outputs:
        if CLASSIFICATION in output.parameters:
            _check(CLASSIFICATION, f"parameter {CLASSIFICATION} of output {output.name!r}", target)


def _check(extension: str, what: str, target: Target) -> None:
    # where `flavor` is configured the server was not asked
    has = target.flavor not in _HAVE_NONE if target.extensions is None else extension in target.extensions
    if not has:
        backend = f"backend {target.backend!r} ({target.flavor})"
        raise unsupported(f"{what} needs V2's extension {extension!r}, which {backend} does not have")


def named_for(request: Request, config: Mapping[str, object]) -> dict[str, object]:
    """A model's configuration under the name that the client used. Triton names instance groups after the model."""
    backend, client = config.get("name"), request.model
    if not backend or not client or backend == client:
        return dict(config)
    groups = config.get("instance_group")
    own = re.compile(f"{re.escape(str(backend))}(_[0-9]+)")
    document = {**config, "name": client}
    if isinstance(groups, list):
        document["instance_group"] = [_renamed(each, own, client) for each in groups]
    return document


def _renamed(group: object, own: re.Pattern[str], client: str) -> object:
    found = own.fullmatch(str(group.get("name"))) if isinstance(group, dict) else None
    return {**group, "name": client + found[1]} if isinstance(group, dict) and found else group


def shared_memory(kind: str) -> GatewayError:
    """The error of every question about shared memory of `kind` (system, cuda, tpu): a region of the client's machine
    means nothing behind a gateway."""
    return unsupported(f"{kind} shared memory cannot cross the gateway; send the tensors' data in the request")
