"""Determines the signatures of a route's models from these sources, in this order:

1. The route's `signature`. If it declares both inputs and outputs, the gateway does not query the backend. If it
   declares only inputs or only outputs, these override the backend's metadata.
2. The backend's metadata from the SignatureCache, if the protocol's metadata is trusted (`Traits.trusted_metadata`, or
   `trust_metadata` on the backend).
3. For a derivative: the metadata of the derivative model, or the rule in `derivatives`, applied to the base model's
   signature.

An empty signature means that the model's tensors are unknown. The tensors then keep their own datatypes and shapes. All
signatures in this module use the backend's names.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from gateway.bridge import names
from gateway.bridge.derivatives import companion_signature
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.signature_cache import MOST_KEPT, SECONDS_KEPT, Key
from gateway.core.datatypes import Kind
from gateway.core.errors import GatewayError, Status, invalid_input, not_found, unsupported
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.requests import Request
from gateway.core.tensors import Parameters

MODEL_WITHOUT_METADATA = frozenset(
    {Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT, Status.FAILED_PRECONDITION, Status.INTERNAL, Status.UNKNOWN}
)
"""Statuses of the responses to a metadata query from servers that have the model but no metadata for it."""


def is_unknown(signature: Signature) -> bool:
    """Return True if the model's inputs and outputs are unknown."""
    return not signature.inputs and not signature.outputs


class RouteSignatures:
    """The signatures of one route's models."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._own = rewrite.settings.signature
        self._companions = rewrite.settings.operations
        self._estimated = rewrite.settings.derivatives
        self._known_companions: OrderedDict[tuple[Key, Operation], tuple[float, bool]] = OrderedDict()
        self._with_own = DerivedSignatures(self._override)
        """The fetched signatures, with the tensors that the route declares."""
        self._last_fetched: Signature | None = None
        self._last = Signature()
        """The last used signature, because most routes have only one model."""
        self._backend = rewrite.backend
        self._rewrite = rewrite

    @property
    def are_declared(self) -> bool:
        """True if the route declares all inputs and outputs. The backend is then not queried for them."""
        return self._own is not None and bool(self._own.inputs and self._own.outputs)

    async def model(self, key: Key) -> Signature:
        """Return the inputs and outputs of a model.

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

    async def confirm(self, key: Key) -> bool:
        """Query the backend again (see `SignatureCache.confirm`), unless the route declares all tensors."""
        return not self.are_declared and await self._backend.signatures.confirm(key)

    async def with_optional(self, key: Key) -> Signature:
        """Return the result of `model`, with inputs marked as optional according to the server's model configuration.
        If the route's `signature` declares the inputs, it also determines the optional inputs.

        Raises:
            GatewayError: the backend's error.
        """
        if self._own is None or not self._own.inputs:
            await self._backend.signatures.ask_optional(key)
        return await self.model(key)

    async def check_undeclared(self, parameters: Parameters, key: Key) -> None:
        """Check that no member of a schemaless request is a model input that is missing in the route's `signature`.
        Without this check, the member would be sent as a parameter, which the model ignores.

        Raises:
            GatewayError: INVALID_ARGUMENT; the message contains the input's name.
        """
        own, settings = self._own, self._rewrite.settings
        if own is None or not own.inputs:
            return
        taken = {*[name for name, _ in names.inputs_of(own, settings)], *settings.drop}
        left = parameters.keys() - taken
        if not left:
            return
        try:
            fetched = await self._backend.signatures.get(key)
        except GatewayError:
            return
        declared = {spec.name for spec in own.inputs}
        for spec in fetched.inputs:
            if spec.name in left and spec.name not in declared:
                text = f"input {spec.name!r} of model {key[0]!r} is not in the route's `signature`"
                raise invalid_input(f"{text}; add it there, with `optional: true` if it may be left out")

    async def described(self, key: Key) -> Signature:
        """Return the signature with the data that only the backend provides: the model's versions, platform and
        operations. If the route declares all tensors, the server does not need to have metadata for the model.

        Raises:
            GatewayError: the backend's error, or NOT_FOUND if the model does not exist.
        """
        if not self._backend.traits.models.trusted_metadata:
            return self._override(replace(await self._untrusted(key), inputs=(), outputs=()))
        try:
            return self._override(await self._backend.signatures.get(key))
        except GatewayError as error:
            if not self.are_declared or error.status not in MODEL_WITHOUT_METADATA:
                raise
            return self._override(Signature())

    def _override(self, fetched: Signature) -> Signature:
        """Return the signature with the tensors that the route declares."""
        own = self._own
        if own is None:
            return fetched
        return replace(fetched, inputs=own.inputs or fetched.inputs, outputs=own.outputs or fetched.outputs)

    async def check(self, key: Key) -> None:
        """Check that the backend has the model.

        Raises:
            GatewayError: NOT_FOUND if the backend reports that the model does not exist; the backend's error if the
                query fails.
        """
        await self._untrusted(key)

    async def _untrusted(self, key: Key) -> Signature:
        """Return metadata from a backend whose metadata is untrusted, or an empty signature if the backend has no
        metadata.

        Raises:
            GatewayError: NOT_FOUND if the model or the version does not exist.
        """
        model, version, _ = key
        if not self._backend.traits.models.metadata_parts or not model:
            return Signature()
        try:
            metadata = await self._backend.metadata(Request(Operation.METADATA, model, version))
        except GatewayError as error:
            if error.status in MODEL_WITHOUT_METADATA:
                return Signature()
            # The C++ server of grps has metadata only for its first model, but lists all models.
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
        """Return True if the backend can list its models and the list contains this model."""
        try:
            entries = await self._backend.handler(Request(Operation.MODELS))
        except GatewayError:
            return False
        assert isinstance(entries, tuple)
        return any(each.name == model and (not version or each.version in ("", version)) for each in entries)

    async def derivative(self, key: Key, operation: Operation) -> Signature:
        """Return the inputs and outputs of a derivative of the model.

        Raises:
            GatewayError: NOT_FOUND if the model does not exist; UNIMPLEMENTED if the model does not claim the
                operation, or if no setting or metadata shows that the derivative model exists.
        """
        if self._backend.traits.wire.derivatives:
            await self._check_claimed(key, operation)
            return companion_signature(await self.model(key), operation)
        await self.check_companion(key, operation)
        if not self._backend.traits.models.trusted_metadata:
            return Signature()
        companion = self._rewrite.companion(key, operation)
        try:
            signature = await self._backend.signatures.get(companion)
        except GatewayError as error:
            if error.status not in _NO_COMPANION:
                raise
            if error.status is not Status.UNIMPLEMENTED:
                await self._backend.signatures.get(key)
            raise _lacks(key, operation, error.message) from error
        if self._is_another(signature, companion, operation):
            raise _lacks(key, operation, f"the server describes {signature.name!r} for {companion[0]!r}")
        return signature

    async def check_companion(self, key: Key, operation: Operation) -> None:
        """Check that the derivative model exists.

        If every request contains a model name, a server with trusted metadata makes this check itself.

        Raises:
            GatewayError: UNIMPLEMENTED if the server has only one model, or if no setting or metadata shows that it has
                the derivative model (it might then run the base model on the derivative's tensors); NOT_FOUND if the
                model does not exist. For other errors, see `has_own`.
        """
        models = self._backend.traits.models
        if not models.companions:
            raise _lacks(key, operation, "its server has one model and no derivative models")
        if self.knows_names or await self.has_own(key, operation):
            return
        await self.check(key)
        companion, *_ = self._rewrite.companion(key, operation)
        text = f"backend {self._backend.name!r} does not list model {companion!r}"
        raise _lacks(
            key, operation, f"{text}; `translate: {{operations: ...}}` on the route can name the derivative model"
        )

    @property
    def knows_names(self) -> bool:
        """True if the server runs only the model that a request names, and never a different one."""
        models = self._backend.traits.models
        return models.named and models.companions and models.trusted_metadata

    async def _check_claimed(self, key: Key, operation: Operation) -> None:
        """Raise UNIMPLEMENTED if the server reports that the model does not have the operation.

        If the server does not report operations, a `signature` in the route is sufficient."""
        try:
            claimed = (await self.described(key)).operations
        except GatewayError:
            if self.are_declared:
                return
            raise
        if operation not in claimed:
            text = f"model {key[0]!r} does not claim {operation.value}"
            raise unsupported(f"{text}; `translate.derivatives` on the route estimates it")

    async def operations(self, key: Key) -> frozenset[Operation]:
        """Return the operations that the model claims, or for which it has derivative models.

        Raises:
            GatewayError: NOT_FOUND if the model does not exist; the backend's error if the query fails.
        """
        own = await self._own_operations(key)
        if self._estimated is None or Operation.INFER not in own or not _is_smooth(await self.model(key)):
            return own
        return own | {*DERIVATIVES}

    async def is_estimated(self, key: Key, operation: Operation) -> bool:
        """Return True if the gateway computes a derivative of the model by finite differences.

        Raises:
            GatewayError: NOT_FOUND if the model does not exist; the backend's error if the query fails.
        """
        settings = self._estimated
        if settings is None:
            return False
        return operation in settings.replace or not await self.has_own(key, operation)

    async def has_own(self, key: Key, operation: Operation) -> bool:
        """Return True if the model claims a derivative itself, or has a derivative model for it. The result for a
        derivative model is stored for as long as signatures.

        Raises:
            GatewayError: same as `is_estimated`.
        """
        if self._backend.traits.wire.derivatives:
            return operation in (await self.described(key)).operations
        if operation in self._companions:
            return self._backend.traits.models.companions
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
        """Return True if, according to the route's settings or the server's metadata, the server has a derivative model
        for the operation."""
        models = self._backend.traits.models
        if not models.companions:
            return False
        companion = self._rewrite.companion(key, operation)
        if not models.trusted_metadata:
            return operation in self._companions or await self._shows(companion)
        try:
            signature = await self._backend.signatures.get(companion)
        except GatewayError as error:
            if error.status not in _NO_COMPANION:
                raise
            return False
        return not self._is_another(signature, companion, operation)

    async def _shows(self, companion: Key) -> bool:
        """Return True if a server with untrusted metadata reports the derivative model's name, in the model's metadata
        or in its model list. A response alone is not sufficient, because some servers respond to any name."""
        model, version, _ = companion
        if not self._backend.traits.models.metadata_parts:
            return False
        try:
            metadata = await self._backend.metadata(Request(Operation.METADATA, model, version))
        except GatewayError as error:
            if error.status not in MODEL_WITHOUT_METADATA | _NO_COMPANION:
                raise
        else:
            if metadata.name == model:
                return True
        return await self._lists(model, version)

    def _is_another(self, signature: Signature, companion: Key, operation: Operation) -> bool:
        """Return True if the server describes a different model than the requested one. Servers that have one model and
        accept any name respond in this way. A derivative model that the route names can have a different name on its
        server."""
        return signature.name not in ("", companion[0]) and operation not in self._companions


def _lacks(key: Key, operation: Operation, why: str) -> GatewayError:
    return unsupported(f"{operation.value} is not supported by model {key[0]!r}: {why}")


_NO_COMPANION = frozenset({Status.NOT_FOUND, Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT})
"""The statuses of responses from servers that do not have a derivative model."""


def _is_smooth(signature: Signature) -> bool:
    """Return True if differentiation is possible, because at least one input and one output are float tensors."""
    return all(
        any(spec.datatype.kind is Kind.FLOAT for spec in specs) for specs in (signature.inputs, signature.outputs)
    )


MOST_DERIVED = 256


class DerivedSignatures:
    """A cache of the signatures that `derive` returns for signatures of a SignatureCache.

    For each of the last MOST_DERIVED signatures, the cache always returns the same object, because Fittings are looked
    up by the signature's identity (`fitting`)."""

    def __init__(self, derive: Callable[[Signature], Signature]) -> None:
        self._derive = derive
        self._kept: dict[int, tuple[Signature, Signature]] = {}
        """Derived signatures, by the identity of the original signature. Each entry keeps its original alive."""

    def of(self, signature: Signature) -> Signature:
        """Return the result of `derive` for `signature`."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_DERIVED:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = signature, self._derive(signature)
        return kept[1]
