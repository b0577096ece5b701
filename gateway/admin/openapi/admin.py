"""Add the parts that FastAPI cannot know to the admin port's OpenAPI document: the authentication of clients, and the
errors without their own model."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from fastapi import FastAPI

from gateway.admin.openapi.document import security_schemes
from gateway.admin.state import GatewayState
from gateway.config.keys import Config

REGISTERING = "/register"
_LEASE_TOKEN = "registration"


def describe_errors(app: FastAPI, state: GatewayState) -> None:
    """Add the security schemes and errors of the configuration in use to the OpenAPI document of `app`."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        found = deepcopy(plain())
        schemes = _schemes(state.config)
        for path, operation in _operations(found):
            registers = path.startswith(REGISTERING)
            operation["responses"] |= {
                status: response
                for status, response in (_OF_REGISTRATION if registers else _asked(bool(schemes))).items()
                if status not in operation["responses"]
            }
            for status, response in operation["responses"].items():
                if status in ("401", "403", "404", "409", "413", "429", "502", "504") and "content" not in response:
                    response["content"] = {"application/json": {"schema": _DETAIL}}
            if registers:
                operation["security"] = [{_LEASE_TOKEN: []}]
            elif schemes:
                operation["security"] = [{name: []} for name in schemes]
            else:
                operation["security"] = []
        if any(path.startswith(REGISTERING) for path, _ in _operations(found)):
            schemes[_LEASE_TOKEN] = {"type": "http", "scheme": "bearer", "description": "The token of `register`."}
        found.setdefault("components", {})["securitySchemes"] = schemes
        return found

    app.openapi = openapi  # type: ignore[method-assign]


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _schemes(config: Config) -> dict[str, Any]:
    if config.admin is None or config.admin.auth is None or config.auth is None:
        return {}
    ways = config.admin.auth.accept or [way for way in config.auth.ways if way != "certificates"]
    return security_schemes(ways, config.auth)


_DETAIL = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
_PLAIN = {"text/plain": {"schema": {"type": "string"}}}


def _asked(is_asked: bool) -> dict[str, Any]:
    """Return the errors of the checks that apply to every path."""
    if not is_asked:
        return {
            "403": {"description": "The request came from a web page of another origin.", "content": _PLAIN},
            "421": {"description": "The Host is not loopback.", "content": _PLAIN},
        }
    return {
        "401": {"description": "The credentials are missing or wrong.", "content": _PLAIN},
        "403": {
            "description": "The permission `admin` is missing, or a web page of another origin sent the request.",
            "content": _PLAIN,
        },
        "503": {"description": "The gateway could not fetch the issuer's keys.", "content": _PLAIN},
    }


_OF_REGISTRATION = {
    "401": {"description": "The token is missing."},
    "403": {"description": "The token does not belong to the backend, or the backend does not allow registration."},
    "404": {"description": "No backend allows servers to register, or the lease is unknown."},
    "413": {"description": "The body is too large."},
    "422": {"description": "The body is wrong.", "content": {"application/json": {"schema": _DETAIL}}},
    "429": {"description": "Too many servers have registered."},
}
