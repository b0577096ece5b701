"""Sample model servers for tests and demos: bundled models, and any Python callable as a model."""

from gateway.reference.bundled import BUNDLED
from gateway.reference.callables import from_callable
from gateway.reference.declaration import signature
from gateway.reference.handler import check, handler, stream_handler
from gateway.reference.loading import find, load
from gateway.reference.model import Model

__all__ = ["BUNDLED", "Model", "check", "find", "from_callable", "handler", "load", "signature", "stream_handler"]
