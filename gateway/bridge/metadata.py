"""What clients are told of a route's models."""

from collections.abc import Container

from gateway.bridge import names, shapes
from gateway.bridge.addressing import Addressing
from gateway.bridge.declared import Declared
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Key, is_unknown, of_derivative
from gateway.bridge.upstream import Upstream
from gateway.core.datatypes import Datatype
from gateway.core.errors import Reason, refusal, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Traits
from gateway.core.types import Request, Signature, TensorSpec


class Metadata:
    """Answers about one route's models, in the client's names. `alike`: tensors pass as they are, so what the backend
    tells does as well."""

    def __init__(
        self,
        settings: RouteSettings,
        client: Traits,
        upstream: Upstream,
        addressing: Addressing,
        declared: Declared,
        alike: bool,
    ) -> None:
        self._settings = settings
        self._of_derivatives = settings.of_derivatives
        self._client = client
        self._upstream = upstream
        self._addressing = addressing
        self._declared = declared
        self._alike = alike

    async def signature(self, request: Request) -> Signature:
        """What the model takes, gives and can do."""
        key = self._addressing.key(request)
        apart = self._client.operations_part
        if apart and request.part == apart:
            return Signature(operations=await self._operations(key), name=request.model)
        signature = self._with_version(await self._tensors(request, key))
        if apart or not self._client.derivatives:
            return signature
        return replace(signature, operations=await self._operations(key))

    async def _operations(self, key: Key) -> frozenset[Operation]:
        """Those that the model claims, without its inference where a tensor has no form on the client's wire. One that
        streams can be inferred where the route makes one response of a stream."""
        claimed = await self._declared.operations(key)
        if Operation.STREAM in claimed and self._settings.stream != "error" and self._upstream.responses is not None:
            claimed |= {Operation.INFER}
        if Datatype.BYTES in self._client.datatypes:
            return claimed
        seen = self._described("", await self._declared.described(key), self._settings)
        has_bytes = any(spec.datatype is Datatype.BYTES for spec in (*seen.inputs, *seen.outputs))
        return claimed - {Operation.INFER} if has_bytes else claimed

    async def _tensors(self, request: Request, key: Key) -> Signature:
        if self._client.points:
            known = await self._declared.model(key)
            if is_unknown(known) and not self._upstream.traits.points:
                await self._declared.check(key)
                text = f"backend {self._upstream.name!r} does not tell what model {request.model!r} takes"
                raise refusal(Reason.FAILED_PRECONDITION, f"{text}; the route's `signature` must")
            return self._as_seen(self._described(request.model, known, self._settings))
        if self._alike:
            return replace(await self._upstream.metadata(self._addressing.asked(request, key)), name=request.model)
        return self._described(request.model, await self._told(request, key), self._settings)

    async def _told(self, request: Request, key: Key) -> Signature:
        """What is known. Metadata that cannot be trusted is for those whose own cannot: its clients do without."""
        known = await self._declared.described(key)
        if not is_unknown(known) or self._client.trusted_metadata or self._upstream.traits.trusted_metadata:
            return known
        return await self._upstream.metadata(self._addressing.asked(request, key))

    def _with_version(self, signature: Signature) -> Signature:
        """A route that sets the version reaches no other one, whatever else the backend has or does not tell."""
        version = self._settings.version
        return replace(signature, versions=(version,)) if version else signature

    async def companion(self, request: Request, operation: Operation) -> Signature:
        """The same of a derivative of the model that `request` names.

        Raises:
            GatewayError: NOT_FOUND if there is no such model, UNIMPLEMENTED if it does not claim the derivative.
        """
        return self._with_version(await self._companion(request, operation))

    async def _companion(self, request: Request, operation: Operation) -> Signature:
        key = self._addressing.key(request)
        name = f"{request.model}.{operation.value}"
        if not self._upstream.traits.derivatives:
            companion = self._addressing.companion(key, operation)
            signature = await self._upstream.metadata(self._addressing.asked(request, companion))
            if self._alike:
                return replace(signature, name=name)
            return self._as_seen(self._described(name, signature, self._of_derivatives))
        base = await self._declared.described(key)
        if operation not in base.operations:
            raise unsupported(f"model {request.model!r} does not claim {operation.value}")
        return self._as_seen(self._described(name, of_derivative(base, operation), self._of_derivatives))

    async def ready(self, request: Request) -> bool:
        """Whether the backend says that the model is ready."""
        return await self._ready(request, self._addressing.key(request))

    async def companion_ready(self, request: Request, operation: Operation) -> bool:
        """The same of a derivative; of a model that does not claim it, no."""
        key = self._addressing.key(request)
        if not self._upstream.traits.derivatives:
            companion = self._addressing.companion(key, operation)
            return self._upstream.traits.companions and await self._ready(request, companion)
        return operation in (await self._declared.described(key)).operations and await self._ready(request, key)

    async def _ready(self, request: Request, key: Key) -> bool:
        if self._upstream.traits.ready_as_a_whole:
            await self._declared.check(key)
        asked = self._addressing.asked(replace(request, operation=Operation.MODEL_READY), key)
        return bool(await self._upstream.handler(asked))

    def _described(self, name: str, signature: Signature, settings: RouteSettings) -> Signature:
        return replace(
            signature,
            name=name or signature.name,
            inputs=names.as_client(_files(names.inputs_of(signature, settings), settings.image_inputs)),
            outputs=names.as_client(_files(names.outputs_of(signature, settings), settings.image_outputs)),
            platform=signature.platform or self._upstream.traits.platform,
        )

    def _as_seen(self, signature: Signature) -> Signature:
        """By the client: one-point protocols see vectors."""
        if not self._client.points:
            return signature
        return replace(signature, inputs=_points(signature.inputs), outputs=_points(signature.outputs))


def _files(wanted: names.Wanted, images: Container[str]) -> names.Wanted:
    """Pixels as the image files that they are for clients."""
    return [
        (name, TensorSpec(spec.name, Datatype.BYTES, (-1,), "image") if spec.name in images else spec)
        for name, spec in wanted
    ]


def _points(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Each tensor as the vector that stands for it; a size that the signature leaves open is -1. BYTES are no numbers,
    and stay what they are."""
    return tuple(
        TensorSpec(
            spec.name,
            Datatype.BYTES if spec.datatype is Datatype.BYTES else Datatype.FP64,
            (shapes.point_size(spec.shape),),
        )
        for spec in specs
    )
