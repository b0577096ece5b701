"""Caches the signatures that a route derives from a SignatureCache."""

from collections.abc import Callable

from gateway.core.models import Signature

MOST_KEPT = 256


class DerivedSignatures:
    """A cache of the signatures that `derive` returns.

    For the last MOST_KEPT signatures, it returns the same object for the same signature, because Fittings are looked up
    by the signature's identity (`fitting`)."""

    def __init__(self, derive: Callable[[Signature], Signature]) -> None:
        self._derive = derive
        self._kept: dict[int, tuple[Signature, Signature]] = {}
        """Derived signatures, by the identity of the original, which the entry keeps alive."""

    def of(self, signature: Signature) -> Signature:
        """Return the result of `derive` for `signature`."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = signature, self._derive(signature)
        return kept[1]
