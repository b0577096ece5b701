"""The values of the label `model`. Clients choose model names, so the number of values is limited."""

from collections.abc import Iterable

OTHER = "other"
"""The value for all models without a separate value."""


class ModelLabels:
    """The models with a separate label value: models that the configuration names (`named`), and the first `most` other
    models with a successful response. An unknown name therefore never becomes a label."""

    def __init__(self, most: int, named: Iterable[str] = ()) -> None:
        self._seen: set[str] = set()
        self.renew(most, named)

    def renew(self, most: int, named: Iterable[str]) -> None:
        """Change the bound and the names, for example after a reload. Models with a separate value keep it."""
        self._most, self._named = most, frozenset(named)

    def __contains__(self, model: str) -> bool:
        """Return True if a value of the label can be in use: a model's value, OTHER, or an empty text."""
        return model in ("", OTHER) or model in self._named or model in self._seen

    def label(self, model: str, *, is_answered: bool) -> str:
        """Return the label value of `model`, after a request with or without a successful response."""
        if not model or model in self._named or model in self._seen:
            return model
        if is_answered and len(self._seen) < self._most:
            self._seen.add(model)
            return model
        return OTHER
