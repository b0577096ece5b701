"""The values of the label `model`. Clients choose the names of models, so their number has a bound."""

from collections.abc import Iterable

OTHER = "other"
"""Stands for all models without a value of their own."""


class ModelLabels:
    """Which models have a label value of their own: those `named` by the configuration, and of all others the first
    `most` that answered a request. So a name that no server knows never becomes a label."""

    def __init__(self, most: int, named: Iterable[str] = ()) -> None:
        self._seen: set[str] = set()
        self.renew(most, named)

    def renew(self, most: int, named: Iterable[str]) -> None:
        """Change the bound and the names, as after a reload. Models that have a value keep it."""
        self._most, self._named = most, frozenset(named)

    def __contains__(self, model: str) -> bool:
        """Whether a value of the label may be in use: that of a model, OTHER, or none."""
        return model in ("", OTHER) or model in self._named or model in self._seen

    def label(self, model: str, *, is_answered: bool) -> str:
        """The label value of `model`, after a request that was answered without an error or not."""
        if not model or model in self._named or model in self._seen:
            return model
        if is_answered and len(self._seen) < self._most:
            self._seen.add(model)
            return model
        return OTHER
