"""The admin port's part of the OpenAPI documents, and the page that shows all documents. This part contains the facts
that FastAPI cannot derive for its own document: client authentication, and errors without their own model."""

from collections.abc import Iterator
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles

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


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI sets inline styles
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}

_PATHS = {"/docs": "index.html", "/docs/page.js": "page.js", "/docs/page.css": "page.css"}


def add_page(app: FastAPI) -> None:
    """Serve the page at `/docs`, its own files below it, and Swagger UI's files at `/docs/files`."""
    folder = files(__package__) / "files"
    for path, name in _PATHS.items():
        _serve(app, path, folder.joinpath(name).read_bytes(), TYPES[name.rpartition(".")[2]])
    swagger = Path(fastapi_offline.__file__).parent / "static"
    app.mount("/docs/files", StaticFiles(directory=swagger), name="swagger")


def _serve(app: FastAPI, path: str, content: bytes, media_type: str) -> None:
    @app.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, 200, HEADERS, media_type)
