"""Calls a model, and converts requests and responses according to the model's signature.

A model's tensors can change at any time, for example when a new version is deployed. If a call fails because of its
tensors before the model runs, and the backend now reports a different signature, the gateway repeats the call once.
"""

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.bridge.backend import BackendSide
from gateway.bridge.comparison import compare
from gateway.bridge.config_tensor import ConfigTensor
from gateway.bridge.fitting import FittedRequest, Fitting
from gateway.bridge.request import fit_request
from gateway.bridge.response import fit_response
from gateway.bridge.rows import as_point, infer_row_by_row
from gateway.bridge.settings import Renaming, RouteSettings
from gateway.bridge.signature_cache import Key, are_same
from gateway.bridge.signatures import RouteSignatures
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError, invalid_output
from gateway.core.requests import Request, Response
from gateway.core.spans import Repeated, Span, begin

Find: TypeAlias = Callable[[Request, Key], Awaitable[Fitting]]
"""Returns the Fitting for a request."""


class FittedCalls:
    """Calls models of one backend for one client protocol of a route."""

    def __init__(
        self, settings: RouteSettings, backend: BackendSide, signatures: RouteSignatures, config_tensor: ConfigTensor
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._signatures = signatures
        self._config_tensor = config_tensor

    async def response(self, request: Request, key: Key, fitting: Fitting) -> Response:
        """Adapt a request to a model's signature, call the model, and return the response for the client."""
        record = request.record
        if record.events is not None:
            fitted = await self.fit(request, key, fitting)
            response = await self._answered(fitted, fitting)
            return await self.fit_reply(response, request, fitted, fitting, begin(record, "fit reply"))
        if fitting.has_images:
            fitted = await to_thread(fit_request, request, key, fitting)
            response = await self._answered(fitted, fitting)
            return await to_thread(fit_response, response, request, fitted, fitting)
        fitted = fit_request(request, key, fitting)
        return fit_response(await self._answered(fitted, fitting), request, fitted, fitting)

    async def again(
        self, error: DecodeError | GatewayError, request: Request, key: Key, fitting: Fitting, find: Find
    ) -> Response:
        """Call the model again after `error` if its tensors have changed since `fitting`.

        The model has not run, because the request did not match the signature or the backend rejected it.

        Raises:
            DecodeError, GatewayError: `error` itself if it has another cause or the tensors are unchanged; otherwise
                the error of the second call.
        """
        if isinstance(error, GatewayError):
            if error.reason is Reason.INVALID_OUTPUT:  # do not repeat the call, because the model has run
                self._backend.signatures.doubt(key[0])
            if error.status is not Status.INVALID_ARGUMENT or isinstance(error, TransportError):
                raise error
        return await self.response(request, key, await self.other_fitting(error, request, key, fitting, find))

    async def other_fitting(
        self, error: DecodeError | GatewayError, request: Request, key: Key, fitting: Fitting, find: Find
    ) -> Fitting:
        """Return the Fitting for the signature that the backend now reports. `error` occurred with the stored
        signature.

        Raises:
            DecodeError, GatewayError: the signature is unchanged; this is `error`.
        """
        if not await self._signatures.confirm(key) or await self._signatures.model(key) is fitting.of:
            raise error
        other = await find(request, key)
        if are_same(other.of, fitting.of):
            raise error
        return other

    async def fit(self, request: Request, key: Key, fitting: Fitting) -> FittedRequest:
        """Call `fit_request`. If the request records spans, record one with the tensor changes, for explanations."""
        record = request.record
        if record.events is None:
            if fitting.has_images:
                return await to_thread(fit_request, request, key, fitting)
            return fit_request(request, key, fitting)
        with begin(record, "fit") as span:
            if fitting.has_images:
                fitted = await to_thread(fit_request, request, key, fitting)
            else:
                fitted = fit_request(request, key, fitting)
            if record.explain is not None:
                renamings = self._settings.rename.inputs
                span.facts["tensors"] = compare(request.inputs, fitted.request.inputs, renamings)
        return fitted

    async def fit_reply(
        self, response: Response, request: Request, fitted: FittedRequest, fitting: Fitting, work: Span | Repeated
    ) -> Response:
        """Call `fit_response` in the span `work`. Add the changes of the first response for explanations."""
        with work as span:
            if fitting.has_images:
                reply = await to_thread(fit_response, response, request, fitted, fitting)
            else:
                reply = fit_response(response, request, fitted, fitting)
            if request.record.explain is not None and "tensors" not in span.facts:
                # On the way from the backend to the client, the two names of a tensor are swapped.
                back = [Renaming(each.backend, each.client) for each in self._settings.rename.outputs]
                span.facts["tensors"] = compare(response.outputs, reply.outputs, back)
        return reply

    async def _answered(self, fitted: FittedRequest, fitting: Fitting) -> Response:
        try:
            if fitted.is_point:
                return await self._infer(as_point(fitted.request))
            if fitting.row_by_row:
                return await infer_row_by_row(fitted, fitting, self._infer)
            return await self._infer(fitted.request)
        except DecodeError as error:
            raise self.invalid_output(error) from error

    def _infer(self, outgoing: Request) -> Awaitable[Response]:
        if self._config_tensor.to_backend:
            outgoing = self._config_tensor.to_tensor(outgoing)
        return self._backend.infer(outgoing)

    def invalid_output(self, error: DecodeError) -> GatewayError:
        """Return the error for a response that does not match the model's signature; `error` contains the reason."""
        return invalid_output(f"backend {self._backend.name!r}: {error}")
