"""Requests fitted to a signature, and the responses to them fitted back."""

from asyncio import to_thread

from gateway.bridge import members, names, outputs
from gateway.bridge.inputs import Fitted, fit_inputs
from gateway.bridge.points import none_asked
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Key
from gateway.bridge.upstream import Upstream
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_output, unsupported
from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from gateway.core.types import Request, Response, Signature, Tensor


class Fitting:
    """What the clients of one protocol and one backend need for it. Where images are decoded or encoded it is done in a
    thread: a few bytes may be millions of pixels."""

    def __init__(self, client: Protocol, upstream: Upstream) -> None:
        self._client = client
        self._upstream = upstream
        self._has_numbers_alone = Datatype.BYTES not in client.traits.datatypes

    async def fit(
        self, request: Request, key: Key, signature: Signature, settings: RouteSettings
    ) -> tuple[Request, Fitted]:
        """What to ask the backend, of the model that is `key` there.

        Raises:
            DecodeError: the client's tensors do not fit.
            GatewayError: what `fit_inputs` raises.
        """
        given = request, key, signature, settings
        return await to_thread(self._fit, *given) if settings.images else self._fit(*given)

    async def unfit(
        self,
        response: Response,
        request: Request,
        asked: Request,
        fitted: Fitted,
        signature: Signature,
        settings: RouteSettings,
    ) -> Response:
        """What to answer the client of `request`, for which the backend was `asked`.

        Raises:
            GatewayError: INTERNAL, the response does not fit.
        """
        results = response, request, asked, fitted, signature, settings
        return await to_thread(self._unfit, *results) if settings.images else self._unfit(*results)

    def _fit(self, request: Request, key: Key, signature: Signature, settings: RouteSettings) -> tuple[Request, Fitted]:
        upstream = self._upstream
        traits, limit = upstream.traits, upstream.limits.message
        if self._has_numbers_alone:
            self._refuse_bytes(request.model, signature, settings)
        if request.schemaless:
            request = members.told_apart(request, signature, settings)
        fitted = fit_inputs(request.inputs, signature, settings, self._client.traits, traits, limit)
        wanted = names.requested(request.outputs, signature, settings)
        if not traits.selects:
            # It gives all its outputs, whatever is asked for. Where nobody declares their names the route's are taken,
            # never the client's: it would get some output under whatever name it asked for.
            none = none_asked(request.outputs, upstream.protocol)
            wanted = none if signature.outputs else names.requested((), signature, settings)
        asked = replace(
            request,
            model=key[0],
            version=key[1],
            inputs=outputs.carried(fitted.inputs, upstream.protocol, upstream.traits),
            outputs=wanted,
            translate=settings.translate,
        )
        return asked, fitted

    def _refuse_bytes(self, model: str, signature: Signature, settings: RouteSettings) -> None:
        for role, wanted in (
            ("input", names.inputs_of(signature, settings)),
            ("output", names.outputs_of(signature, settings)),
        ):
            for name, spec in wanted:
                if spec.datatype is Datatype.BYTES:
                    text = f"{role} {name!r} of model {model!r} is BYTES, which {self._client.name} cannot carry"
                    raise unsupported(text)

    def _unfit(
        self,
        response: Response,
        request: Request,
        asked: Request,
        fitted: Fitted,
        signature: Signature,
        settings: RouteSettings,
    ) -> Response:
        client = self._client
        try:
            results = outputs.fit_outputs(
                response.outputs, asked.outputs, signature, fitted, settings, client.traits, self._upstream.traits
            )
            chosen = names.for_client(results, request.outputs, settings)
        except DecodeError as error:
            raise invalid_output(f"backend {self._upstream.name!r}: {error}") from error
        return reply(response, request, outputs.carried(chosen, client.name, client.traits))


def reply(response: Response, request: Request, tensors: tuple[Tensor, ...] | None = None) -> Response:
    """The answer under the names that the client used, with other outputs if some are given."""
    return Response(
        response.outputs if tensors is None else tensors,
        request.model,
        request.version or response.version,
        request.id,
        response.parameters,
        response.origin,
    )
