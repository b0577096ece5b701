"""Creates the errors for requests whose model is on no server of a backend, as far as known."""

from collections.abc import Mapping

from gateway.core.errors import GatewayError, Reason, Status, TransportError, not_found
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.table import Placements


def model_missing(
    table: Placements, errors: Mapping[Endpoint, GatewayError], model: str, version: str = ""
) -> GatewayError:
    """Return the error for a request whose model is not on any server.

    The error is NOT_FOUND, or UNAVAILABLE if only drained endpoints have the model or if a server has not reported its
    models yet. `errors` are the reasons why servers did not report."""
    what = f"model {model!r}"
    if version and model in table.models:
        what = f"version {version!r} of {what}"
    if drained := table.drained_holders(model):
        return _unreachable(table, f"{what} is only at endpoints that are drained ({', '.join(drained)})")
    unknown = table.unknown()
    if not unknown:
        return not_found(f"backend {table.backend!r}: {what} is on no server")
    return _unreachable(table, f"{what} is on no server that answers, and {_why_unreported(unknown[0], errors)}")


def nothing_reported(table: Placements, errors: Mapping[Endpoint, GatewayError]) -> GatewayError:
    """Return the error to use before any server has reported its models. For `errors`, see `model_missing`."""
    return _unreachable(table, _why_unreported(table.unknown()[0], errors))


def _why_unreported(endpoint: Endpoint, errors: Mapping[Endpoint, GatewayError]) -> str:
    error = errors.get(endpoint)
    why = f": {error.message}" if error is not None else ""
    return f"{endpoint.address} has not reported its models yet{why}"


def _unreachable(table: Placements, text: str) -> TransportError:
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, f"backend {table.backend!r}: {text}", sent=False)
