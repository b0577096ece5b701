"""The operations that a client can request."""

from enum import Enum


class Operation(Enum):
    """The type of a request: `infer`, `metadata`, `gradient`, ... Logs, metrics and YAML use the values."""

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

    # Members are singletons, so comparing and hashing by identity is correct, and keeps cached lookups cheap.
    __hash__ = object.__hash__


WORDS = {each: each.value for each in Operation}
"""The values of the operations. A lookup in this table takes a quarter of the time of reading a member's `value`."""

INFER, STREAM = Operation.INFER, Operation.STREAM
"""The members that the code compares with the operation of every request. The constants exist because a lookup in the
class takes ten times as long in Python 3.11."""

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
"""Operations on the entire server. Their requests contain no model name and use no route.

ONLINE and OFFLINE determine whether the listener that receives them reports that it is ready. STATISTICS requests a
listener's figures for each second, and ALL_STATISTICS requests the counters of every model."""

CONTROL_OPERATIONS = frozenset({Operation.LOAD, Operation.UNLOAD, Operation.TRACE_SETTINGS, Operation.LOG_SETTINGS})
"""Operations that show or change how a model server runs.

The gateway rejects these operations unless `allow_control` is set on the listener. A LOG_SETTINGS request never
contains a model name, but a TRACE_SETTINGS request can. Without a model name, the request uses a route without
`match.model`."""

EXTENSION_OPERATIONS = CONTROL_OPERATIONS | {Operation.CONFIG, Operation.MODEL_STATISTICS}
"""Operations on models and servers that a protocol supports only if its `Servers.extensions` lists them."""

DERIVATIVES: dict[Operation, tuple[str, ...]] = {
    Operation.GRADIENT: ("out_wrt", "in_wrt", "sens"),
    Operation.APPLY_JACOBIAN: ("out_wrt", "in_wrt", "vec"),
    Operation.APPLY_HESSIAN: ("out_wrt", "in_wrt1", "in_wrt2", "sens", "vec"),
}
"""For each derivative, the names of the tensors that follow the model's own inputs, in order. In tensor protocols,
these tensors are additional inputs of a derivative model (`M.gradient`), whose only output is COMPANION_OUTPUT."""

CALLS = frozenset({Operation.INFER, Operation.EXPLAIN, Operation.STREAM, *DERIVATIVES})
"""The operations that run a model."""

WAKING = CALLS | {Operation.METADATA}
"""The operations for which the gateway starts a server. METADATA is included because bridges and UM-Bridge clients
request metadata before their first call."""

INDEX_TENSORS = frozenset({"out_wrt", "in_wrt", "in_wrt1", "in_wrt2"})
"""The tensors that contain the zero-based position of an input or output, as INT64.

A missing index tensor means 0. Index tensors have no batch dimension."""

COMPANION_OUTPUT = "output"

COMPANION_SUFFIXES: dict[str, Operation] = {f".{operation.value}": operation for operation in DERIVATIVES}
"""The suffixes that turn a model's name into the names of its derivative models, such as `.gradient`."""


def split_companion(model: str) -> tuple[str, Operation] | None:
    """Split the name of a derivative model: return `M.gradient` as (`M`, GRADIENT). Return None for any other name."""
    name, dot, suffix = model.rpartition(".")
    operation = COMPANION_SUFFIXES.get(dot + suffix)
    return (name, operation) if name and operation else None


CONFIG_FROM_METADATA = "gateway_from_metadata"
"""The parameter that marks a model's configuration (Operation.CONFIG) as written by a gateway, based on the model's
metadata.

In this configuration, `max_batch_size` means that the first dimension of each tensor is the batch dimension. Unlike in
a Triton configuration, it does not mean that rows are independent."""
