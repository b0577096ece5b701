"""What a route's models take and give: as the route says, else as the backend does."""

from gateway.bridge.addressing import Addressing
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Key, of_derivative
from gateway.bridge.upstream import Upstream
from gateway.core.errors import GatewayError, Status, not_found, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.types import Request, Signature


class Declared:
    """Signatures with the backend's names, of models by theirs."""

    def __init__(self, settings: RouteSettings, upstream: Upstream, addressing: Addressing) -> None:
        self._own = settings.signature
        self._companions = settings.operations
        self._upstream = upstream
        self._addressing = addressing

    async def model(self, key: Key) -> Signature:
        """What the model takes and gives. Nothing is asked where the route says it all.

        Raises:
            GatewayError: the backend's.
        """
        own = self._own
        if own is not None and own.inputs and own.outputs:
            return own
        fetched = self._upstream.signatures.kept(key) or await self._upstream.signatures.get(key)
        return fetched if own is None else _overridden(fetched, own)

    async def described(self, key: Key) -> Signature:
        """The same with what only the backend tells: versions, platform, operations, and that there is such a model.

        Raises:
            GatewayError: the backend's; NOT_FOUND if there is no such model.
        """
        if self._upstream.traits.trusted_metadata:
            fetched = await self._upstream.signatures.get(key)
        else:
            fetched = replace(await self._found(key), inputs=(), outputs=())
        return fetched if self._own is None else _overridden(fetched, self._own)

    async def check(self, key: Key) -> None:
        """Raises GatewayError, NOT_FOUND, if the backend says that there is no such model."""
        await self._found(key)

    async def _found(self, key: Key) -> Signature:
        """What the backend tells of a model whose tensors it may tell wrong: little or nothing, but whether it is
        there."""
        model, version, _ = key
        if not self._upstream.traits.metadata_parts or not model:
            return Signature()
        try:
            told = await self._upstream.metadata(Request(Operation.METADATA, model, version))
        except GatewayError as error:
            if error.status in _WITHOUT_METADATA:
                return Signature()
            # grps' C++ server tells of its first model only, but lists all
            if error.status is not Status.NOT_FOUND or not await self._lists(model, version):
                raise
            return Signature()
        if version and told.versions and version not in told.versions and not await self._lists(model, version):
            versions = ", ".join(told.versions)
            raise not_found(
                f"backend {self._upstream.name!r}: model {model!r} has no version {version!r}; it has {versions}"
            )
        return told

    async def _lists(self, model: str, version: str) -> bool:
        """Whether the model is in the backend's list, if it has one."""
        try:
            entries = await self._upstream.handler(Request(Operation.MODELS))
        except GatewayError:
            return False
        assert isinstance(entries, tuple)
        return any(each.name == model and (not version or each.version in ("", version)) for each in entries)

    async def derivative(self, key: Key, operation: Operation) -> Signature:
        """What the derivative of the model takes and gives.

        Raises:
            GatewayError: NOT_FOUND if there is no such model, UNIMPLEMENTED if it has no such companion.
        """
        if self._upstream.traits.derivatives:
            return of_derivative(await self.model(key), operation)
        if not self._upstream.traits.companions:
            # The model itself would be called, with the derivative's tensors for its inputs.
            raise unsupported(f"{operation.value} is not supported by model {key[0]!r}: its server has no other model")
        companion = self._addressing.companion(key, operation)
        try:
            return await self._upstream.signatures.get(companion)
        except GatewayError as error:
            if error.status is Status.NOT_FOUND:
                await self._upstream.signatures.get(key)
                text = f"{operation.value} is not supported by model {key[0]!r}: {error.message}"
                raise unsupported(text) from error
            if error.status is not Status.UNIMPLEMENTED:
                raise
            # It does not tell (another gateway, in front of a model that does not claim the operation). The call goes
            # out by rule, so that the client gets the backend's own refusal.
            return of_derivative(await self.model(key), operation)

    async def operations(self, key: Key) -> frozenset[Operation]:
        """The operations that the model claims, or has companions for.

        Raises:
            GatewayError: NOT_FOUND if there is no such model; whatever else is not the answer "no".
        """
        claimed = (await self.described(key)).operations
        if self._upstream.traits.derivatives:
            return claimed
        offered = [each for each in DERIVATIVES if await self._has(key, each)]
        return claimed & {Operation.INFER, Operation.STREAM} | {*offered}

    async def _has(self, key: Key, operation: Operation) -> bool:
        if not self._upstream.traits.companions:
            return False
        if not self._upstream.traits.trusted_metadata:
            return operation in self._companions
        try:
            await self._upstream.signatures.get(self._addressing.companion(key, operation))
        except GatewayError as error:
            if error.status not in (Status.NOT_FOUND, Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT):
                raise
            return False
        return True


_WITHOUT_METADATA = frozenset(
    {Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT, Status.FAILED_PRECONDITION, Status.INTERNAL, Status.UNKNOWN}
)
"""Answers of servers that have the model, and no good word about it."""


def _overridden(fetched: Signature, own: Signature) -> Signature:
    return replace(fetched, inputs=own.inputs or fetched.inputs, outputs=own.outputs or fetched.outputs)
