"""Evidence that a server uses a built-in JSON form: responses to GET requests that no other server sends. `asking`
sends the requests.

The probe cannot recognize forms whose servers send no distinctive responses. A Vertex AI or Hugging Face container
answers 200 at its health path, like any web server. So does a SageMaker container, unless it contains AWS's
multi-model-server.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson

from gateway.core.frozen import frozen
from gateway.core.messages import Message

NOWHERE = "/no-such-path"
"""A path that no model server has."""

Shows: TypeAlias = Callable[[Message], bool]


@frozen
class FormEvidence:
    """A path, and a function that returns whether the response to a GET request for this path shows a server of the
    form."""

    path: str
    shows: Shows


def _text(pattern: str) -> Shows:
    """Return a function that checks whether the whole body matches this pattern."""
    return lambda reply: re.fullmatch(pattern.encode(), bytes(reply.body)[:1000]) is not None


def _json(shows: Callable[[Any], bool]) -> Shows:
    """Return a function that checks whether the body is JSON for which `shows` returns True."""

    def judged(reply: Message) -> bool:
        try:
            return shows(orjson.loads(reply.body))
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            return False

    return judged


def _titled(title: str) -> Shows:
    """Return a function that checks whether the body is an API description with this title."""
    return _json(lambda body: body["info"]["title"] == title)


_MODEL_SERVER = FormEvidence("/ping", _json(lambda body: body["status"] in ("Healthy", "Partial Healthy", "Unhealthy")))
_RAY = FormEvidence("/-/healthz", _text("success"))
_COG_STATES = ("UNKNOWN", "STARTING", "READY", "BUSY", "SETUP_FAILED", "DEFUNCT", "UNHEALTHY")

EVIDENCE: Mapping[str, tuple[FormEvidence, ...]] = {
    "json:torchserve": (_MODEL_SERVER, FormEvidence("/api-description", _titled("TorchServe APIs"))),
    # AWS's multi-model-server, which SageMaker containers contain, and on which TorchServe is based.
    "json:sagemaker": (_MODEL_SERVER, FormEvidence("/api-description", _titled("Model Server APIs"))),
    # /version returns the MLflow version in plain text, and /ping an empty line.
    "json:mlflow": (FormEvidence("/ping", _text("\n")), FormEvidence("/version", _text(r"[0-9]+(\.[0-9a-z]+)+\n?"))),
    # A model without a health check has the status "not implemented - assuming healthy".
    "json:seldon": (
        FormEvidence("/health/ping", _text("pong")),
        FormEvidence("/health/status", _json(lambda body: "meta" in body)),
    ),
    "json:cog": (FormEvidence("/health-check", _json(lambda body: body["status"] in _COG_STATES)),),
    "json:litserve": (FormEvidence("/info", _json(lambda body: "workers_per_device" in body["server"])),),
    "json:bentoml": (
        FormEvidence("/readyz", _text("")),
        FormEvidence("/schema.json", _json(lambda body: isinstance(body["routes"], list))),
    ),
    "json:ray": (_RAY, FormEvidence("/-/routes", _json(lambda routes: "/" in routes))),
    "json:ray-applications": (
        _RAY,
        FormEvidence("/-/routes", _json(lambda routes: any(len(prefix) > 1 for prefix in dict(routes)))),
    ),
    "json:infinity": (FormEvidence("/models", _json(lambda body: body["data"][0]["owned_by"] == "infinity")),),
    "json:openai-embeddings": (
        FormEvidence(
            "/v1/models", _json(lambda body: body["object"] == "list" and body["data"][0]["object"] == "model")
        ),
    ),
}
"""The responses that servers of each recognizable form send, by form name. A server must send all of them."""
SILENT_TOO = frozenset({"json:sagemaker"})
"""Forms for which only some servers are recognizable."""
