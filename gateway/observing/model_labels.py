"""The values of the metrics label `model`. Clients choose model names, so the number of values is limited."""

from collections.abc import Iterable

OTHER = "other"
"""The label value that all other models share."""


class ModelLabels:
    """The models with their own label value: models that the configuration names (`named`), and the first `most` other
    models that gave a successful response. An unknown name therefore never becomes a label value."""

    def __init__(self, most: int, named: Iterable[str] = ()) -> None:
        self._seen: set[str] = set()
        self.renew(most, named)

    def renew(self, most: int, named: Iterable[str]) -> None:
        """Change the limit and the names, for example after a reload. Models that have their own value keep it."""
        self._most, self._named = most, frozenset(named)

    def __contains__(self, model: str) -> bool:
        """Return True if a value of the label can be in use: a model's value, OTHER, or an empty string."""
        return model in ("", OTHER) or model in self._named or model in self._seen

    def label(self, model: str, *, is_answered: bool) -> str:
        """Return the label value of `model` for a request. `is_answered` is True if the response was successful."""
        if not model or model in self._named or model in self._seen:
            return model
        if is_answered and len(self._seen) < self._most:
            self._seen.add(model)
            return model
        return OTHER
