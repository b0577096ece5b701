"""Answers queries about a route's models: metadata and readiness, with the client's names and shapes."""

from collections.abc import Container

from gateway.bridge import names, shapes
from gateway.bridge.config_tensor import CONFIG
from gateway.bridge.derivatives import companion_signature
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import Key
from gateway.bridge.signatures import RouteSignatures, is_unknown
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal, unsupported
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import CALLS, Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Request


class ModelMetadata:
    """Handles queries about one route's models.

    `unchanged` is True if tensors are not adapted. In this case, clients receive the backend's metadata."""

    def __init__(self, client: Protocol, rewrite: Rewrite, signatures: RouteSignatures, unchanged: bool) -> None:
        self._settings = rewrite.settings
        self._for_derivatives = rewrite.settings.for_derivatives
        self._client = client
        self._backend = rewrite.backend
        self._rewrite = rewrite
        self._signatures = signatures
        self._unchanged = unchanged

    async def signature(self, request: Request) -> Signature:
        """Return the model's inputs, outputs, versions and operations, or the requested part of this data.

        Raises:
            GatewayError: the backend's error; FAILED_PRECONDITION if the client requires the model's inputs and they
                are unknown; UNIMPLEMENTED if the client requests the sizes for a config and the backend cannot report
                them.
        """
        key = self._rewrite.key(request)
        apart = self._client.traits.models.operations_part
        if apart and request.part == apart:
            return Signature(operations=await self._operations(key), name=request.model)
        signature = self._with_version(await self._tensors(request, key))
        if apart or not self._client.traits.wire.derivatives:
            return signature
        return replace(signature, operations=await self._operations(key))

    async def supports(self, request: Request) -> bool:
        """Return True if the model has the operation of the call, or if the client's protocol cannot query operations.

        Raises:
            GatewayError: the backend's error.
        """
        if not self._client.traits.models.operations_part or request.operation not in CALLS:
            return True
        return request.operation in await self._operations(self._rewrite.key(request))

    async def _operations(self, key: Key) -> frozenset[Operation]:
        """Return the operations that clients can use. These are the operations that the model claims, except inference.
        Inference is added if the route combines a stream into one response, and removed if the client's protocol cannot
        carry one of the model's tensors."""
        claimed = await self._signatures.operations(key)
        if Operation.STREAM in claimed and self._settings.stream != "error" and self._backend.responses is not None:
            claimed |= {Operation.INFER}
        if Datatype.BYTES in self._client.traits.wire.datatypes:
            return claimed
        shown = self._renamed("", await self._signatures.described(key), self._settings)
        has_bytes = any(spec.datatype is Datatype.BYTES for spec in (*shown.inputs, *shown.outputs))
        return claimed - {Operation.INFER} if has_bytes else claimed

    async def _tensors(self, request: Request, key: Key) -> Signature:
        if self._client.traits.wire.points:
            self._check_config(request)
            known = await self._signatures.model(key)
            if is_unknown(known) and not self._backend.traits.wire.points:
                await self._signatures.check(key)
                text = f"backend {self._backend.name!r} reports no inputs for model {request.model!r}"
                raise refusal(Reason.FAILED_PRECONDITION, f"{text}; declare them by `signature` on the route")
            return self._as_vectors(self._renamed(request.model, known, self._settings))
        if self._unchanged:
            return replace(await self._backend.metadata(self._rewrite.outgoing(request, key)), name=request.model)
        return self._renamed(request.model, await self._known(request, key), self._settings)

    def _check_config(self, request: Request) -> None:
        """Raise UNIMPLEMENTED if the client requests the sizes for a config, but metadata requests to the backend
        cannot include a config and the route does not declare the sizes."""
        traits = self._backend.traits
        is_told = traits.wire.points or traits.models.fixed_sizes or self._signatures.are_declared
        if is_told or CONFIG not in request.parameters:
            return
        raise unsupported(
            f"'config' is not supported in a size query for model {request.model!r}: metadata of backend"
            f" {self._backend.name!r} ({self._backend.protocol}) cannot depend on it; send the query without it, or "
            "declare the"
            " sizes by `signature` on the route"
        )

    async def _known(self, request: Request, key: Key) -> Signature:
        """Return the model's signature.

        A client receives untrusted metadata only if metadata in its own protocol is also untrusted, because the client
        then does not rely on metadata."""
        known = await self._signatures.described(key)
        if (
            not is_unknown(known)
            or self._client.traits.models.trusted_metadata
            or self._backend.traits.models.trusted_metadata
        ):
            return known
        return await self._backend.metadata(self._rewrite.outgoing(request, key))

    def _with_version(self, signature: Signature) -> Signature:
        """Return the signature with the versions that clients can request: the versions that routes name and, if this
        route accepts any version, the backend's versions. If the route's `rewrite` sets a version, only this version of
        the backend remains."""
        settings = self._settings
        versions = (settings.version,) if settings.version else signature.versions
        if settings.routed_versions:
            further = () if settings.takes_one_version else versions
            versions = tuple(dict.fromkeys((*settings.routed_versions, *further)))
        return signature if versions == signature.versions else replace(signature, versions=versions)

    async def companion(self, request: Request, operation: Operation) -> Signature:
        """Return the metadata of a derivative of the model in `request`.

        Raises:
            GatewayError: NOT_FOUND if the model does not exist; UNIMPLEMENTED if the model does not claim the
                derivative.
        """
        return self._with_version(await self._companion(request, operation))

    async def _companion(self, request: Request, operation: Operation) -> Signature:
        key = self._rewrite.key(request)
        name = f"{request.model}.{operation.value}"
        if await self._signatures.is_estimated(key, operation):
            known = companion_signature(await self._estimable(request, key, operation), operation)
            return self._as_vectors(self._renamed(name, known, self._for_derivatives))
        if not self._backend.traits.wire.derivatives:
            await self._signatures.check_companion(key, operation)
            companion = self._rewrite.companion(key, operation)
            signature = await self._backend.metadata(self._rewrite.outgoing(request, companion))
            if self._unchanged:
                return replace(signature, name=name)
            return self._as_vectors(self._renamed(name, signature, self._for_derivatives))
        base = await self._signatures.described(key)
        if operation not in base.operations:
            text = f"model {request.model!r} does not claim {operation.value}"
            raise unsupported(f"{text}; `translate.derivatives` on the route estimates it")
        return self._as_vectors(self._renamed(name, companion_signature(base, operation), self._for_derivatives))

    async def _estimable(self, request: Request, key: Key, operation: Operation) -> Signature:
        if operation not in await self._signatures.operations(key):
            raise unsupported(f"model {request.model!r} does not claim {operation.value}")
        return await self._signatures.described(key)

    async def ready(self, request: Request) -> bool:
        """Return whether the model is ready.

        Raises:
            GatewayError: the backend's error, or NOT_FOUND if the backend does not have the model and the client's
                protocol can report a missing model.
        """
        key = self._rewrite.key(request)
        is_ready = await self._ready(request, key)
        if not is_ready and self._client.traits.models.unknown_are_not_found:
            await self._check_known(key)
        return is_ready

    async def _check_known(self, key: Key) -> None:
        """Raise NOT_FOUND if the backend's metadata shows that the model does not exist.

        Ignore other errors, because a server can reject metadata requests for a model that is not ready."""
        try:
            await self._signatures.described(key)
        except GatewayError as error:
            if error.reason is Reason.MODEL_NOT_FOUND:
                raise

    async def companion_ready(self, request: Request, operation: Operation) -> bool:
        """Return whether a derivative of the model is ready, or False if the model does not claim the derivative."""
        key = self._rewrite.key(request)
        if await self._signatures.is_estimated(key, operation):
            is_claimed = operation in await self._signatures.operations(key)
            return is_claimed and await self._ready(request, key)
        if not self._backend.traits.wire.derivatives:
            has_companion = self._signatures.knows_names or await self._signatures.has_own(key, operation)
            return has_companion and await self._ready(request, self._rewrite.companion(key, operation))
        return operation in (await self._signatures.described(key)).operations and await self._ready(request, key)

    async def _ready(self, request: Request, key: Key) -> bool:
        if self._backend.traits.models.ready_as_a_whole:
            await self._signatures.check(key)
        outgoing = self._rewrite.outgoing(replace(request, operation=Operation.MODEL_READY), key)
        try:
            return bool(await self._backend.handler(outgoing))
        except GatewayError as error:
            # The server responds, but cannot report on its models. The route's `signature` declares this model. A
            # TransportError is not the server's response: a proxy without a route to a gRPC server responds with 404.
            cannot_report = error.status is Status.UNIMPLEMENTED and not isinstance(error, TransportError)
            if not (cannot_report and self._signatures.are_declared):
                raise
            return True

    def _renamed(self, name: str, signature: Signature, settings: RouteSettings) -> Signature:
        """Return the signature with the client's names."""
        files = settings.images
        inputs, outputs = names.inputs_of(signature, settings), names.outputs_of(signature, settings)
        if files is not None:
            inputs = _as_files(inputs, {image.name for image in files.inputs})
            outputs = _as_files(outputs, {image.name for image in files.outputs})
        return replace(
            signature,
            name=name or signature.name,
            inputs=names.with_client_names(inputs),
            outputs=names.with_client_names(outputs),
            platform=signature.platform or self._backend.traits.models.platform,
        )

    def _as_vectors(self, signature: Signature) -> Signature:
        """Return the signature for clients of a one-point protocol, where every tensor is a vector."""
        if not self._client.traits.wire.points:
            return signature
        scalars = self._backend.traits.wire.scalars_in_rows
        return replace(
            signature,
            inputs=_vectors(signature.inputs, scalars=scalars),
            outputs=_vectors(signature.outputs, scalars=scalars),
        )


def _as_files(specs: names.NamedSpecs, images: Container[str]) -> names.NamedSpecs:
    """Replace pixels with image files in the specifications."""
    return [
        (name, TensorSpec(spec.name, Datatype.BYTES, (-1,), "image") if spec.name in images else spec)
        for name, spec in specs
    ]


def _vectors(specs: tuple[TensorSpec, ...], *, scalars: bool) -> tuple[TensorSpec, ...]:
    """Convert each tensor to a vector of FP64, with the length -1 if the signature leaves the length open. BYTES
    tensors remain BYTES."""
    return tuple(
        TensorSpec(
            spec.name,
            Datatype.BYTES if spec.datatype is Datatype.BYTES else Datatype.FP64,
            (shapes.point_size(spec.shape, scalars=scalars),),
        )
        for spec in specs
    )
