"""Signatures that a route derives from the signatures of a SignatureCache."""

from collections.abc import Callable

from gateway.core.types import Signature

MOST_KEPT = 256


class DerivedSignatures:
    """A cache of the signatures that `derive` returns. It returns the same object for the same signature, for the
    MOST_KEPT last signatures, because the Fitting of a signature is found by its identity (`fitting`)."""

    def __init__(self, derive: Callable[[Signature], Signature]) -> None:
        self._derive = derive
        self._kept: dict[int, tuple[Signature, Signature]] = {}
        """Derived signatures by the identity of the original signature; the entry keeps the original alive."""

    def of(self, signature: Signature) -> Signature:
        """Return the signature that `derive` makes from `signature`."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = signature, self._derive(signature)
        return kept[1]
