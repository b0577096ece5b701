"""What a route's models take and give: as the route says, else as the backend does."""

from gateway.bridge.addressing import Addressing
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Key, of_derivative
from gateway.bridge.upstream import Upstream
from gateway.core.errors import GatewayError, Status, unsupported
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.types import Signature
from gateway.core.values import replace


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
        """The same with what only the backend tells: versions, platform, operations, and that there is such a model."""
        fetched = await self._upstream.signatures.get(key)
        return fetched if self._own is None else _overridden(fetched, self._own)

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
        return claimed & {Operation.INFER} | {*offered}

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


def _overridden(fetched: Signature, own: Signature) -> Signature:
    return replace(fetched, inputs=own.inputs or fetched.inputs, outputs=own.outputs or fetched.outputs)
