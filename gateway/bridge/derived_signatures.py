"""Signatures that a route derives from the signatures of a SignatureCache."""

from collections.abc import Callable

from gateway.core.types import Signature

MOST_KEPT = 256


class DerivedSignatures:
    """A cache of the signatures that `derive` returns.

    For the MOST_KEPT last signatures, it returns the same object for the same signature, because the Fitting of a
    signature is found by the signature's identity (`fitting`)."""

    def __init__(self, derive: Callable[[Signature], Signature]) -> None:
        self._derive = derive
        self._kept: dict[int, tuple[Signature, Signature]] = {}
        """Derived signatures by the identity of the original signature. The entry keeps the original alive."""

    def of(self, signature: Signature) -> Signature:
        """Return the signature that `derive` makes from `signature`."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = signature, self._derive(signature)
        return kept[1]
