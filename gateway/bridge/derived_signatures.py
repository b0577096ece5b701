"""Signatures that a route makes of those of a SignatureCache."""

from collections.abc import Callable

from gateway.core.types import Signature

MOST_KEPT = 256


class DerivedSignatures:
    """A cache of the signatures that `derive` returns. The same object for the same signature, of the MOST_KEPT last
    ones: the Fitting of a signature is found by its identity (`fitting`)."""

    def __init__(self, derive: Callable[[Signature], Signature]) -> None:
        self._derive = derive
        self._kept: dict[int, tuple[Signature, Signature]] = {}
        """By the identity of the signature, which is kept alive so."""

    def of(self, signature: Signature) -> Signature:
        """The signature that `derive` makes of this one."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = signature, self._derive(signature)
        return kept[1]
