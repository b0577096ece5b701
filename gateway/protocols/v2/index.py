"""The repository index, whatever its wire form."""

from gateway.core.types import ModelEntry, Request

READY = "READY"


def asked_for(models: tuple[ModelEntry, ...], request: Request) -> list[ModelEntry]:
    """Those of `models` that go into the reply: the request's `ready` leaves out those that are known not to be."""
    return [each for each in models if not request.parameters.get("ready") or each.state in ("", READY)]
