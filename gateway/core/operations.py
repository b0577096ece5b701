"""What a client can ask for, listed once."""

from enum import Enum


class Operation(Enum):
    """One question. The values are the words of logs, metrics and YAML."""

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
"""Asked of the server as a whole: they name no model and take no route. ONLINE and OFFLINE change whether the listener
where they arrive calls itself ready; STATISTICS asks how its requests went, second by second; ALL_STATISTICS for the
counters of every model."""

CONTROL_OPERATIONS = frozenset({Operation.LOAD, Operation.UNLOAD, Operation.TRACE_SETTINGS, Operation.LOG_SETTINGS})
"""They show or change how a model server runs, and are refused unless the listener has `allow_control`. LOG_SETTINGS
never names a model and TRACE_SETTINGS need not; without one they take a route whose `match` has no `model`."""

DERIVATIVES: dict[Operation, tuple[str, ...]] = {
    Operation.GRADIENT: ("out_wrt", "in_wrt", "sens"),
    Operation.APPLY_JACOBIAN: ("out_wrt", "in_wrt", "vec"),
    Operation.APPLY_HESSIAN: ("out_wrt", "in_wrt1", "in_wrt2", "sens", "vec"),
}
"""The tensors that follow a model's own inputs in each derivative, in this order, by these names. On tensor protocols
they are the extra inputs of a companion model (`M.gradient`), whose only output is `output`."""

INDEX_TENSORS = frozenset({"out_wrt", "in_wrt", "in_wrt1", "in_wrt2"})
"""Zero-based positions of inputs and outputs, INT64. Left out they mean 0; they count neither for batch nor rank."""

COMPANION_OUTPUT = "output"

COMPANION_SUFFIXES: dict[str, Operation] = {f".{operation.value}": operation for operation in DERIVATIVES}


def split_companion(model: str) -> tuple[str, Operation] | None:
    """`M.gradient` as (`M`, GRADIENT); None for a name without such a suffix."""
    name, dot, suffix = model.rpartition(".")
    operation = COMPANION_SUFFIXES.get(dot + suffix)
    return (name, operation) if name and operation else None
