"""A cache of model signatures, one per backend.

The gateway fetches a signature from the backend before its first use, and stores it for a minute.

A request uses the signature if its tensors must be converted. The first such request fetches the signature, and other
requests for the same model wait for it. The cache drops a signature after SECONDS_KEPT, and also when an endpoint of
the backend recovers, because the endpoint might have different models.

A different model can take over the name, for example when a new version is deployed, and the gateway does not notice
the change. The gateway therefore queries the signature again if a request does not match it (`confirm`), if the backend
rejects a request or returns a response that does not match (`doubt`), or if the backend reports a different signature
to a client (`reported`).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from math import inf
from typing import TypeAlias

from gateway.bridge import shapes
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import frozen, replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Traits, merge
from gateway.core.requests import Answer, Request
from gateway.core.tasks import outlived_by, spawn
from gateway.core.transport import Handler

SECONDS_KEPT = 60.0
SECONDS_CONFIRMED = 1.0
"""The minimum time between two signature queries that mismatched or rejected requests cause, and the maximum time that
these requests wait for the result, in seconds. Without the minimum, clients that send invalid requests would double the
server's load.
"""
MOST_KEPT = 1024
"""The maximum number of stored signatures. The limit is necessary because clients choose the `config` in the key."""

UNKNOWN = Signature()
"""The signature of every model if the backend's metadata is untrusted."""

LONGEST_CONFIG = 256
"""The maximum length of a `config` in a key, in characters. For a longer config (up to `limits.config`), the key
contains its digest."""

Key: TypeAlias = tuple[str, str, str]
"""The key of a signature: model, version and config, with the backend's names.

Only UM-Bridge signatures depend on a config; for other protocols, the config is empty.
"""


def _uncounted(change: int) -> None:
    """Ignore the change."""


@frozen
class _Kept:
    """A stored signature, its expiry time, and the time of the last query.

    `knows_optional` is True if the cache has queried the model's configuration."""

    until: float
    asked: float
    signature: Signature
    knows_optional: bool = False


class SignatureCache:
    """The signatures of one backend's models.

    Tensors of a one-point protocol get a name and a batch dimension: a vector of n elements becomes FP64 `[-1, n]`.

    `count_joined` is called with 1 for each caller that joins a running query, and with -1 when that caller stops
    waiting. The backend receives only one request for all these callers."""

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
        """The number of callers that wait for a signature that is being fetched."""

    def kept(self, key: Key) -> Signature | None:
        """Return the stored signature, if any, without a query."""
        entry = self._kept.get(_compact(key))
        return entry.signature if entry is not None and entry.until > self._clock() else None

    async def get(self, key: Key) -> Signature:
        """Return the signature of a model, as the protocol declares it or as the backend reports it. If the backend's
        metadata is untrusted, the result is empty.

        Raises:
            GatewayError: the backend's error.
        """
        declared = self._traits.models.signature
        if declared is not None:
            return declared
        if not self._traits.models.trusted_metadata:
            return UNKNOWN
        known = self.kept(key)
        return await self._fetched_by(key) if known is None else known

    async def confirm(self, key: Key) -> bool:
        """Query the signature again, because a request did not match it, or because the backend rejected a request that
        matched it.

        Return True if the stored signature might now differ from the signature for which the request was converted."""
        if self._traits.models.signature is not None or not self._traits.models.trusted_metadata:
            return False
        compact = _compact(key)
        entry = self._kept.get(compact)
        if entry is not None and key not in self._fetching:
            if self._is_confirmed(entry):
                # The signature is the backend's current one, but the request might have been converted for an earlier
                # one, unless an error or a report has expired it since.
                return entry.until > self._clock()
            self._kept[compact] = replace(entry, asked=self._clock())
        try:
            async with asyncio.timeout(SECONDS_CONFIRMED):  # the client already receives another error
                await self._fetched_by(key)
        except (GatewayError, TimeoutError):
            return False
        return True

    def doubt(self, model: str) -> None:
        """Query the signatures of all versions of a model again before the next request, because the backend has
        rejected a request, or its response did not match."""
        self._expire(key for key, entry in self._kept.items() if key[0] == model and not self._is_confirmed(entry))

    def reported(self, request: Request, signature: Signature) -> None:
        """Compare the stored signature with this signature (or part of a signature), which the backend has just
        reported to a client. If the two differ, the stored signature expires."""
        config = request.parameters.get("config", "") if self._traits.wire.points else ""
        key = _compact((request.model, request.version, str(config)))
        entry = self._kept.get(key)
        if entry is None:
            return
        now = shapes.as_batches(signature) if self._traits.wire.points else signature
        pairs = (now.inputs, entry.signature.inputs), (now.outputs, entry.signature.outputs)
        if any(told and not _are_same_tensors(told, kept) for told, kept in pairs):
            self._expire([key])

    def _is_confirmed(self, entry: _Kept) -> bool:
        return self._clock() < entry.asked + SECONDS_CONFIRMED

    def _expire(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self._kept[key] = replace(self._kept[key], until=-inf)

    async def _fetched_by(self, key: Key) -> Signature:
        """Query the backend and return the signature. Concurrent callers share one query."""
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
                self._count_joined(-1)  # whoever leaves, one caller fewer waits for somebody else's query
            else:
                del self._callers[fetch]
            del fetch  # a task with an exception refers to this frame, which would keep the task alive

    async def streams_only(self, key: Key) -> bool:
        """Return True if, according to the model's configuration, the model responds to each request with a stream.
        Inference is then not possible. Return False if the server has no model configurations.

        The first call for a model fetches the configuration, and stores the result with the signature. If STREAM is
        among the operations, the configuration is already known.

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
            if entry is not None:  # possibly with a newer signature
                operations = _with_streams(entry.signature.operations, config)
                self._kept[_compact(key)] = replace(entry, signature=replace(entry.signature, operations=operations))
        return Operation.INFER not in signature.operations

    async def ask_optional(self, key: Key) -> None:
        """If the server has model configurations, query which of the model's inputs are optional, because metadata does
        not contain this information. Only the first request with missing inputs causes a query.

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
            entry = replace(entry, signature=replace(entry.signature, inputs=inputs))
        self._kept[_compact(key)] = replace(entry, knows_optional=True)

    def drop(self, model: str) -> None:
        """Drop the signatures of all versions of a model."""
        self._expire(key for key in self._kept if key[0] == model)
        for key in [key for key in self._fetching if key[0] == model]:
            self._fetching.pop(key)

    def drop_all(self) -> None:
        """Drop all signatures, because a server is back. The results of queries in progress are still stored, because
        they usually come from this server."""
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
        """Store the signature, unless `drop` was called during the query. An equal signature keeps its expiry time, so
        the model's configuration (`streams_only`, `ask_optional`) is also queried again after a minute."""
        if self._fetching.get(key) is not fetch:
            return
        del self._fetching[key]
        if fetch.cancelled() or fetch.exception() is not None:
            return
        compact, now, signature = _compact(key), self._clock(), fetch.result()
        before = self._kept.get(compact)
        if before is not None and before.until > now and are_same(before.signature, signature):
            self._kept[compact] = replace(before, asked=now)
            return
        self._kept[compact] = _Kept(now + SECONDS_KEPT, now, signature)
        self._kept.move_to_end(compact)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    async def _ask(self, request: Request) -> Signature:
        answer = await self._handler(request)
        assert isinstance(answer, Signature)
        return answer


def are_same(one: Signature, other: Signature) -> bool:
    """Return True if both signatures lead to the same conversion of requests. Optional inputs count like required
    ones."""
    return _are_same_tensors(one.inputs, other.inputs) and _are_same_tensors(one.outputs, other.outputs)


def _are_same_tensors(some: Sequence[TensorSpec], others: Sequence[TensorSpec]) -> bool:
    return [_fitted_to(each) for each in some] == [_fitted_to(each) for each in others]


def _fitted_to(spec: TensorSpec) -> tuple[object, ...]:
    return spec.name, spec.datatype, spec.shape, spec.content_type, spec.image


def _with_streams(operations: frozenset[Operation], config: Mapping[str, object]) -> frozenset[Operation]:
    """Return the operations of a model with this configuration.

    Only Triton has configurations. Triton can stream the responses of every model, and supports inference for all
    models without decoupled transactions."""
    policy = config.get("model_transaction_policy")
    decoupled = isinstance(policy, Mapping) and policy.get("decoupled") is True
    return (operations - {Operation.INFER} if decoupled else operations) | {Operation.STREAM}


def _with_optional(inputs: tuple[TensorSpec, ...], config: Mapping[str, object]) -> tuple[TensorSpec, ...]:
    """Mark a model's inputs as optional according to its configuration."""
    entries = config.get("input")
    told = [each for each in entries if isinstance(each, Mapping)] if isinstance(entries, list | tuple) else []
    optional = {each.get("name") for each in told if each.get("optional") is True}
    return tuple([replace(spec, optional=True) if spec.name in optional else spec for spec in inputs])


def _compact(key: Key) -> Key:
    model, version, config = key
    if len(config) <= LONGEST_CONFIG:
        return key
    return model, version, sha256(config.encode("utf-8", "surrogatepass")).hexdigest()
