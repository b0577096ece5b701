"""The signatures of a route's models: where they come from, in this order.

1. The route's `signature`. If it has both inputs and outputs the backend is not asked; if it has one of them, that one
   overrides the backend's metadata.
2. The backend's metadata, through the SignatureCache, if its protocol's metadata can be trusted
   (`Traits.trusted_metadata`, or `trust_metadata` on the backend).
3. Of a derivative: the metadata of the companion model; else the rule in `derivatives`, applied to the model's own.

An empty signature means that nobody knows the model's tensors: they are then passed on with the datatypes and shapes
that they have. Signatures here have the backend's names.
"""

from collections import OrderedDict
from time import monotonic

from gateway.bridge.derivatives import companion_signature
from gateway.bridge.derived_signatures import DerivedSignatures
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.signature_cache import MOST_KEPT, SECONDS_KEPT, Key
from gateway.core.datatypes import Kind
from gateway.core.errors import GatewayError, Status, not_found, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.types import Request, Signature


def is_unknown(signature: Signature) -> bool:
    """Whether nobody knows the model's inputs and outputs."""
    return not signature.inputs and not signature.outputs


class RouteSignatures:
    """The signatures of one route's models."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._own = rewrite.settings.signature
        self._companions = rewrite.settings.operations
        self._estimated = rewrite.settings.derivatives
        self._known_companions: OrderedDict[tuple[Key, Operation], tuple[float, bool]] = OrderedDict()
        self._with_own = DerivedSignatures(self._override)
        """Those that were fetched, with the route's own tensors."""
        self._last_fetched: Signature | None = None
        self._last = Signature()
        """The last of them: most routes have one model."""
        self._backend = rewrite.backend
        self._rewrite = rewrite

    async def model(self, key: Key) -> Signature:
        """The inputs and outputs of a model.

        Raises:
            GatewayError: the backend's error.
        """
        own = self._own
        if own is not None and own.inputs and own.outputs:
            return own
        fetched = self._backend.signatures.kept(key) or await self._backend.signatures.get(key)
        if own is None:
            return fetched
        if fetched is not self._last_fetched:
            self._last_fetched, self._last = fetched, self._with_own.of(fetched)
        return self._last

    async def described(self, key: Key) -> Signature:
        """The signature with what only the backend knows: the model's versions, platform and operations.

        Raises:
            GatewayError: the backend's error; NOT_FOUND if there is no such model.
        """
        if self._backend.traits.models.trusted_metadata:
            fetched = await self._backend.signatures.get(key)
        else:
            fetched = replace(await self._untrusted(key), inputs=(), outputs=())
        return self._override(fetched)

    def _override(self, fetched: Signature) -> Signature:
        """The signature with the route's own tensors."""
        own = self._own
        if own is None:
            return fetched
        return replace(fetched, inputs=own.inputs or fetched.inputs, outputs=own.outputs or fetched.outputs)

    async def check(self, key: Key) -> None:
        """Check that the backend has the model.

        Raises:
            GatewayError: NOT_FOUND if it says that it has not; its error if it cannot be asked.
        """
        await self._untrusted(key)

    async def _untrusted(self, key: Key) -> Signature:
        """The metadata of a backend whose metadata cannot be trusted to have the right tensors; empty if it has none.

        Raises:
            GatewayError: NOT_FOUND if there is no such model or version.
        """
        model, version, _ = key
        if not self._backend.traits.models.metadata_parts or not model:
            return Signature()
        try:
            metadata = await self._backend.metadata(Request(Operation.METADATA, model, version))
        except GatewayError as error:
            if error.status in _MODEL_WITHOUT_METADATA:
                return Signature()
            # grps' C++ server has the metadata of its first model only, but lists all models.
            if error.status is not Status.NOT_FOUND or not await self._lists(model, version):
                raise
            return Signature()
        others = metadata.versions
        if version and others and version not in others and not await self._lists(model, version):
            versions = ", ".join(others)
            raise not_found(
                f"backend {self._backend.name!r}: model {model!r} has no version {version!r}; it has {versions}"
            )
        return metadata

    async def _lists(self, model: str, version: str) -> bool:
        """Whether the backend has a list of models with this model in it."""
        try:
            entries = await self._backend.handler(Request(Operation.MODELS))
        except GatewayError:
            return False
        assert isinstance(entries, tuple)
        return any(each.name == model and (not version or each.version in ("", version)) for each in entries)

    async def derivative(self, key: Key, operation: Operation) -> Signature:
        """The inputs and outputs of a derivative of the model.

        Raises:
            GatewayError: NOT_FOUND if there is no such model, UNIMPLEMENTED if it has no such companion.
        """
        if self._backend.traits.wire.derivatives:
            return companion_signature(await self.model(key), operation)
        if not self._backend.traits.models.companions:
            # The server would run the model itself on the derivative's tensors.
            raise unsupported(
                f"{operation.value} is not supported by model {key[0]!r}: its server has one model and no companions"
            )
        companion = self._rewrite.companion(key, operation)
        try:
            return await self._backend.signatures.get(companion)
        except GatewayError as error:
            if error.status is Status.NOT_FOUND:
                await self._backend.signatures.get(key)
                text = f"{operation.value} is not supported by model {key[0]!r}: {error.message}"
                raise unsupported(text) from error
            if error.status is not Status.UNIMPLEMENTED:
                raise
            # The backend does not say whether there is a companion (another gateway, in front of a model that does not
            # claim the operation). The call goes out by the rule, so that the client gets the backend's own error.
            return companion_signature(await self.model(key), operation)

    async def operations(self, key: Key) -> frozenset[Operation]:
        """The operations that the model claims or has companions for.

        Raises:
            GatewayError: NOT_FOUND if there is no such model; the backend's error if it cannot be asked.
        """
        own = await self._own_operations(key)
        if self._estimated is None or Operation.INFER not in own or not _is_smooth(await self.model(key)):
            return own
        return own | {*DERIVATIVES}

    async def is_estimated(self, key: Key, operation: Operation) -> bool:
        """Whether a derivative of the model is computed by finite differences.

        Raises:
            GatewayError: NOT_FOUND if there is no such model; the backend's error if it cannot be asked.
        """
        settings = self._estimated
        if settings is None:
            return False
        return operation in settings.replace or not await self.has_own(key, operation)

    async def has_own(self, key: Key, operation: Operation) -> bool:
        """Whether the model itself claims a derivative, or has a companion for it. For a companion the answer is
        remembered as long as signatures are.

        Raises:
            GatewayError: as `is_estimated`.
        """
        if self._backend.traits.wire.derivatives:
            return operation in (await self.described(key)).operations
        if operation in self._companions:
            return True
        kept, now = self._known_companions, monotonic()
        entry = kept.get((key, operation))
        if entry is not None and entry[0] > now:
            return entry[1]
        found = await self._has_companion(key, operation)
        kept[key, operation] = now + SECONDS_KEPT, found
        kept.move_to_end((key, operation))
        if len(kept) > MOST_KEPT:
            kept.popitem(last=False)
        return found

    async def _own_operations(self, key: Key) -> frozenset[Operation]:
        claimed = (await self.described(key)).operations
        if self._backend.traits.wire.derivatives:
            return claimed
        if Operation.INFER in claimed and await self._backend.signatures.streams_only(key):
            claimed = claimed - {Operation.INFER} | {Operation.STREAM}
        offered = [each for each in DERIVATIVES if await self._has_companion(key, each)]
        return claimed & {Operation.INFER, Operation.STREAM} | {*offered}

    async def _has_companion(self, key: Key, operation: Operation) -> bool:
        if not self._backend.traits.models.companions:
            return False
        if not self._backend.traits.models.trusted_metadata:
            return operation in self._companions
        try:
            await self._backend.signatures.get(self._rewrite.companion(key, operation))
        except GatewayError as error:
            if error.status not in (Status.NOT_FOUND, Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT):
                raise
            return False
        return True


_MODEL_WITHOUT_METADATA = frozenset(
    {Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT, Status.FAILED_PRECONDITION, Status.INTERNAL, Status.UNKNOWN}
)
"""What servers answer to a question for metadata if they have the model but no metadata."""


def _is_smooth(signature: Signature) -> bool:
    """Whether an input and an output are floats, so that there is something to differentiate."""
    return all(
        any(spec.datatype.kind is Kind.FLOAT for spec in specs) for specs in (signature.inputs, signature.outputs)
    )
