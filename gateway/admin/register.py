"""`/register` on the admin port, where model servers register themselves at backends that allow registration."""

import logging
from collections.abc import Mapping
from typing import Annotated, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.admin.request_body import read_body
from gateway.core.log_limit import LogLimit
from gateway.servers.discovery.register import Lease, Registrations, TooManyLeasesError

log = logging.getLogger(__name__)
_lines = LogLimit(log)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Requested duration of the lease, in seconds. The backend's `register: {seconds}` is the maximum and the
    default."""


class Registration(_Body):
    """A server's request to join a backend's endpoints."""

    backend: str
    address: str
    """The server's address, in the format of the backend's `endpoints`."""


class Renewal(_Body):
    """A request to renew a lease."""


class GrantedLease(BaseModel):
    """A lease. The gateway removes the server `seconds` after the last renewal, unless the server ends the lease
    earlier."""

    lease: str
    address: str
    seconds: float


BodyT = TypeVar("BodyT", bound=_Body)


def add_routes(app: FastAPI, registrations: Mapping[str, Registrations]) -> None:
    """Add `POST /register`, which grants or renews a lease, and `PUT` and `DELETE /register/LEASE`, which renew and end
    a lease. `registrations` contains the backends that allow registration, by name.

    A request without a token gets a 401 response. A request with a wrong token, or for a backend without registration,
    gets a 403 response."""

    @app.post("/register", summary="Register a model server", openapi_extra=_body(Registration))
    async def register(request: Request) -> GrantedLease:
        if not registrations:
            raise HTTPException(404, "no backend allows servers to register (discovery: {register: ...})")
        token = _token(request)
        wanted = await _read(request, Registration)
        try:
            await allowed(request, token, wanted.backend).check(wanted.address)
            # Find the backend again: a reload might have changed the configuration during the check.
            return _granted(allowed(request, token, wanted.backend).take(wanted.address, wanted.seconds))
        except ValueError as error:
            raise HTTPException(422, f"address: {error}") from error
        except TooManyLeasesError as error:
            raise HTTPException(
                429, "too many servers have registered at this backend; end leases, or use another backend"
            ) from error

    @app.put("/register/{lease}", summary="Renew a lease", openapi_extra=_body(Renewal))
    async def renew(request: Request, lease: str) -> GrantedLease:
        token = _token(request)
        wanted = await _read(request, Renewal)
        return _granted(owner(request, token, lease).renew(lease, wanted.seconds))

    @app.delete("/register/{lease}", summary="End a lease", status_code=204)
    async def end(request: Request, lease: str) -> Response:
        owner(request, _token(request), lease).end(lease)
        return Response(status_code=204)

    def allowed(request: Request, token: str, name: str) -> Registrations:
        """Return the backend `name`. Raise an error if `token` is not valid for this backend."""
        backend = registrations.get(name)
        if backend is None or not backend.allows(token):
            raise _forbidden(request)
        return backend

    def owner(request: Request, token: str, lease: str) -> Registrations:
        """Return the backend that granted `lease`, among the backends for which `token` is valid."""
        allowed = [backend for backend in registrations.values() if backend.allows(token)]
        if not allowed:
            raise _forbidden(request)
        for backend in allowed:
            if lease in backend:
                return backend
        raise HTTPException(404, "the lease is unknown or has expired; register again")


def _body(model: type[BaseModel]) -> dict[str, object]:
    """Return the OpenAPI description of the request body. FastAPI cannot generate it, because the routes read the body
    themselves, with a size limit."""
    return {"requestBody": {"content": {"application/json": {"schema": model.model_json_schema()}}, "required": True}}


def _granted(lease: Lease) -> GrantedLease:
    return GrantedLease(lease=lease.id, address=lease.address, seconds=lease.seconds)


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        text = "expected the header Authorization: Bearer TOKEN"
        raise HTTPException(401, text, headers={"WWW-Authenticate": "Bearer"})
    return token.strip()


def _forbidden(request: Request) -> HTTPException:
    peer = request.client.host if request.client else "-"
    _lines.write("refused", logging.WARNING, "refused a registration from %s: wrong token or backend", peer)
    return HTTPException(403, "this token does not allow registration at this backend; check both")


async def _read(request: Request, model: type[BodyT]) -> BodyT:
    body = await read_body(request)
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()]
        raise HTTPException(422, "; ".join(problems)) from error
