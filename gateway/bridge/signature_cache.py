"""The signatures of a backend's models, fetched from the backend when first needed, and stored for a minute.

A request whose tensors must be adapted needs the model's signature. The first such request fetches it, while others for
the same model wait for it. The cache drops it after SECONDS_KEPT, when the backend refuses a request for the model, or
when one of its endpoints recovers (possibly with other models).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from gateway.bridge import shapes
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Traits, merge
from gateway.core.tasks import outlived_by, spawn
from gateway.core.transport import Handler
from gateway.core.types import Answer, Request, Signature, TensorSpec

SECONDS_KEPT = 60.0
MOST_KEPT = 1024
"""Maximum number of stored signatures: clients choose the `config` in the key."""

UNKNOWN = Signature()
"""The signature of every model of a backend with untrusted metadata."""

LONGEST_CONFIG = 256
"""A `config` with more characters, up to `limits.config`, is stored as its digest."""

Key: TypeAlias = tuple[str, str, str]
"""(model, version, config), with the backend's names. Only UM-Bridge's signatures depend on a config; for other
protocols it is empty."""


def _uncounted(change: int) -> None:
    """Ignore the change."""


class _Kept(NamedTuple):
    """A signature, and the time until which it is stored. `knows_optional`: the model's configuration was queried."""

    until: float
    signature: Signature
    knows_optional: bool = False


class SignatureCache:
    """The signatures of one backend's models. The tensors of a one-point protocol get a name and a batch dimension: its
    vector of n elements is FP64 `[-1, n]`.

    `count_joined` is called with 1 for each caller that waits for a signature together with another caller, and with -1
    when it stops waiting: the backend sees one request for all of them.
    """

    def __init__(
        self,
        handler: Handler,
        traits: Traits,
        clock: Callable[[], float],
        count_joined: Callable[[int], None] = _uncounted,
    ) -> None:
        self._handler = handler
        self._traits = traits
        self._clock = clock
        self._count_joined = count_joined
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._fetching: dict[Key, asyncio.Task[Signature]] = {}
        self._callers: Counter[asyncio.Task[Signature]] = Counter()
        """Number of callers that wait for a signature that is being fetched."""

    def kept(self, key: Key) -> Signature | None:
        """Return the signature if it is stored."""
        entry = self._kept.get(_compact(key))
        return entry.signature if entry is not None and entry.until > self._clock() else None

    async def get(self, key: Key) -> Signature:
        """Return the signature of a model, from its protocol's declaration or from the backend. The result is empty if
        the backend's metadata is untrusted.

        Raises:
            GatewayError: the backend's error.
        """
        declared = self._traits.models.signature
        if declared is not None:
            return declared
        if not self._traits.models.trusted_metadata:
            return UNKNOWN
        known = self.kept(key)
        if known is not None:
            return known
        fetch = self._fetching.get(key)
        if fetch is None:
            fetch = self._fetching[key] = spawn(self._fetch(key))
            fetch.add_done_callback(lambda done: self._fetched(key, done))
        self._callers[fetch] += 1
        if self._callers[fetch] > 1:
            self._count_joined(1)
        try:
            return await outlived_by(fetch)
        finally:
            self._callers[fetch] -= 1
            if self._callers[fetch]:
                self._count_joined(-1)
            else:
                del self._callers[fetch]
            del fetch  # like in `outlived_by`

    async def streams_only(self, key: Key) -> bool:
        """Return True if, by the model's configuration, each request has a stream of responses, so inference is not
        possible. Return False if the server has no configurations.

        The configuration is fetched with the first query for the model's operations, and stored with the signature: if
        STREAM is among the operations, it was fetched.

        Raises:
            GatewayError: the backend's error about the signature.
        """
        if Operation.CONFIG not in self._traits.servers.extensions:
            return False
        signature = await self.get(key)
        if Operation.STREAM not in signature.operations:
            model, version, _ = key
            try:
                config = await self._handler(Request(Operation.CONFIG, model, version))
            except GatewayError:
                return False
            assert isinstance(config, Mapping)
            signature = replace(signature, operations=_with_streams(signature.operations, config))
            entry = self._kept.get(_compact(key))
            if entry is not None:
                self._kept[_compact(key)] = entry._replace(signature=signature)
        return Operation.INFER not in signature.operations

    async def ask_optional(self, key: Key) -> None:
        """Fetch which inputs of the model are optional, if the server has configurations, because metadata does not
        report it. Called once, when a request lacks inputs.

        Raises:
            GatewayError: the backend's error about the signature.
        """
        if Operation.CONFIG not in self._traits.servers.extensions:
            return
        await self.get(key)
        entry = self._kept.get(_compact(key))
        if entry is None or entry.knows_optional:
            return
        model, version, _ = key
        config: Answer = {}
        try:
            config = await self._handler(Request(Operation.CONFIG, model, version))
        except GatewayError as error:
            if error.status in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED):
                return
        assert isinstance(config, Mapping)
        entry = self._kept.get(_compact(key), entry)
        inputs = _with_optional(entry.signature.inputs, config)
        if inputs != entry.signature.inputs:
            entry = entry._replace(signature=replace(entry.signature, inputs=inputs))
        self._kept[_compact(key)] = entry._replace(knows_optional=True)

    def drop(self, model: str) -> None:
        """Drop a model, in all versions."""
        for kept in (self._kept, self._fetching):
            for key in [key for key in kept if key[0] == model]:
                kept.pop(key)

    def drop_all(self) -> None:
        """Drop all models."""
        self._kept.clear()

    async def _fetch(self, key: Key) -> Signature:
        model, version, config = key
        parameters = {"config": config} if config else {}
        parts = [
            await self._ask(Request(Operation.METADATA, model, version, parameters=parameters, part=part))
            for part in self._traits.models.metadata_parts
        ]
        signature = merge(tuple(parts))
        return shapes.as_batches(signature) if self._traits.wire.points else signature

    def _fetched(self, key: Key, fetch: "asyncio.Task[Signature]") -> None:
        """Store the signature, unless `drop` was called while it was fetched."""
        if self._fetching.get(key) is not fetch:
            return
        del self._fetching[key]
        if fetch.cancelled() or fetch.exception() is not None:
            return
        compact = _compact(key)
        self._kept[compact] = _Kept(self._clock() + SECONDS_KEPT, fetch.result())
        self._kept.move_to_end(compact)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    async def _ask(self, request: Request) -> Signature:
        answer = await self._handler(request)
        assert isinstance(answer, Signature)
        return answer


def _with_streams(operations: frozenset[Operation], config: Mapping[str, object]) -> frozenset[Operation]:
    """Return the operations of a model with this configuration. Only Triton has configurations: it streams the
    responses of every model, and runs inference on all models without decoupled transactions."""
    policy = config.get("model_transaction_policy")
    decoupled = isinstance(policy, Mapping) and policy.get("decoupled") is True
    return (operations - {Operation.INFER} if decoupled else operations) | {Operation.STREAM}


def _with_optional(inputs: tuple[TensorSpec, ...], config: Mapping[str, object]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model with this configuration, which specifies for each input whether it is optional."""
    entries = config.get("input")
    told = [each for each in entries if isinstance(each, Mapping)] if isinstance(entries, list | tuple) else []
    optional = {each.get("name") for each in told if each.get("optional") is True}
    return tuple([replace(spec, optional=True) if spec.name in optional else spec for spec in inputs])


def _compact(key: Key) -> Key:
    model, version, config = key
    if len(config) <= LONGEST_CONFIG:
        return key
    return model, version, sha256(config.encode("utf-8", "surrogatepass")).hexdigest()
