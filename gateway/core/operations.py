"""The operations that a client can ask for."""

from enum import Enum


class Operation(Enum):
    """The type of a request: `infer`, `metadata`, `gradient`, ... The values are the words used in logs, metrics and
    YAML."""

    INFER = "infer"
    EXPLAIN = "explain"
    STREAM = "stream"
    LIVE = "live"
    READY = "ready"
    MODEL_READY = "model-ready"
    METADATA = "metadata"
    SERVER_METADATA = "server-metadata"
    MODELS = "models"
    ONLINE = "online"
    OFFLINE = "offline"
    STATISTICS = "statistics"
    CONFIG = "config"
    MODEL_STATISTICS = "model-statistics"
    ALL_STATISTICS = "all-statistics"
    LOAD = "load"
    UNLOAD = "unload"
    TRACE_SETTINGS = "trace-settings"
    LOG_SETTINGS = "log-settings"
    GRADIENT = "gradient"
    APPLY_JACOBIAN = "apply_jacobian"
    APPLY_HESSIAN = "apply_hessian"

    # Members are singletons: identity is equality, and hashing by it keeps cached lookups cheap.
    __hash__ = object.__hash__


WORDS = {each: each.value for each in Operation}
"""The values of the operations. Looking them up here costs a quarter of asking a member."""

INFER, STREAM = Operation.INFER, Operation.STREAM
"""The members that each request is compared with: Python 3.11 takes ten times as long to find them in the class."""

SERVER_OPERATIONS = frozenset(
    {
        Operation.LIVE,
        Operation.READY,
        Operation.SERVER_METADATA,
        Operation.MODELS,
        Operation.ONLINE,
        Operation.OFFLINE,
        Operation.STATISTICS,
        Operation.ALL_STATISTICS,
    }
)
"""Operations on the server as a whole: they name no model and take no route. ONLINE and OFFLINE change whether the
listener that received them reports itself ready. STATISTICS asks for figures of that listener's requests for each
second, ALL_STATISTICS for the counters of every model."""

CONTROL_OPERATIONS = frozenset({Operation.LOAD, Operation.UNLOAD, Operation.TRACE_SETTINGS, Operation.LOG_SETTINGS})
"""Operations that show or change how a model server runs. They are refused unless the listener has `allow_control`.
LOG_SETTINGS never names a model and TRACE_SETTINGS need not; without a model they take a route without
`match.model`."""

EXTENSION_OPERATIONS = CONTROL_OPERATIONS | {Operation.CONFIG, Operation.MODEL_STATISTICS}
"""Operations on models and servers that a protocol has only if its `Servers.extensions` say so."""

DERIVATIVES: dict[Operation, tuple[str, ...]] = {
    Operation.GRADIENT: ("out_wrt", "in_wrt", "sens"),
    Operation.APPLY_JACOBIAN: ("out_wrt", "in_wrt", "vec"),
    Operation.APPLY_HESSIAN: ("out_wrt", "in_wrt1", "in_wrt2", "sens", "vec"),
}
"""For each derivative the names of the tensors that follow the model's own inputs, in this order. Tensor protocols have
them as extra inputs of a companion model (`M.gradient`), whose only output is COMPANION_OUTPUT."""

CALLS = frozenset({Operation.INFER, Operation.EXPLAIN, Operation.STREAM, *DERIVATIVES})
"""The operations that run a model."""

WAKING = CALLS | {Operation.METADATA}
"""The operations that are worth the start of a server. Bridges and UM-Bridge's clients ask for metadata before their
first call."""

INDEX_TENSORS = frozenset({"out_wrt", "in_wrt", "in_wrt1", "in_wrt2"})
"""Those that hold the zero-based position of an input or output, as INT64; 0 if absent. They have no batch
dimension."""

COMPANION_OUTPUT = "output"

COMPANION_SUFFIXES: dict[str, Operation] = {f".{operation.value}": operation for operation in DERIVATIVES}
"""`.gradient` and so on: what follows a model's name in the name of a companion model."""


def split_companion(model: str) -> tuple[str, Operation] | None:
    """`M.gradient` as (`M`, GRADIENT); None for a name without such a suffix."""
    name, dot, suffix = model.rpartition(".")
    operation = COMPANION_SUFFIXES.get(dot + suffix)
    return (name, operation) if name and operation else None


CONFIG_FROM_METADATA = "gateway_from_metadata"
"""The parameter of a model's configuration (Operation.CONFIG) that a gateway has written from the model's metadata. Its
`max_batch_size` says that first dimensions are batches, but not, as Triton's does, that rows are independent."""
