"""The Python client for model servers of all protocols: `Client`, `AsyncClient` and their errors. `docs/client.md`
shows how to use it.

The client uses the gateway's codecs, connectors and bridge, and opens no port.
"""

import logging

from gateway.client.asynchronous import AsyncClient
from gateway.client.errors import (
    BadReply,
    ClientError,
    ConnectError,
    InvalidInput,
    NotFound,
    Refused,
    ServerError,
    Timeout,
    Unsupported,
)
from gateway.client.model_function import AsyncModelFunction
from gateway.client.outputs import Outputs
from gateway.client.results import Evaluation, Results
from gateway.client.settings import CallLimits, ServerKind, Tls
from gateway.client.synchronous import Client, ModelFunction
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec

__all__ = [
    "AsyncClient",
    "AsyncModelFunction",
    "BadReply",
    "CallLimits",
    "Client",
    "ClientError",
    "ConnectError",
    "Evaluation",
    "InvalidInput",
    "ModelEntry",
    "ModelFunction",
    "NotFound",
    "Outputs",
    "Refused",
    "Results",
    "ServerError",
    "ServerInfo",
    "ServerKind",
    "Signature",
    "TensorSpec",
    "Timeout",
    "Tls",
    "Unsupported",
]

# As in other libraries, log lines appear only if the program has set up logging.
logging.getLogger("gateway").addHandler(logging.NullHandler())
