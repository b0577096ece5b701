"""Which of several exchanges reads a message, by its media type, and which one replies, by what the client accepts."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from gateway.core.errors import DecodeError
from gateway.protocols.json.bodies import is_json
from gateway.protocols.json.compiled import CompiledExchange
from gateway.protocols.json.media import media_types
from gateway.protocols.json.media.media_types import MediaType

_LONGEST_REMEMBERED = 256
"""Characters of a header up to which the choice is remembered; clients choose them."""


class Choice:
    """Chooses among exchanges by their `type_of` a body."""

    def __init__(self, exchanges: Sequence[CompiledExchange], type_of: Callable[[CompiledExchange], MediaType]) -> None:
        self.exchanges = tuple(exchanges)
        self._type_of = type_of
        types = [type_of(each) for each in exchanges]
        self._have_one_type = bool(types) and all(each == types[0] for each in types)
        self._by_type = lru_cache(64)(self._find)
        self._replies = lru_cache(64)(self._preferred)

    def by_type(self, content_type: str) -> tuple[CompiledExchange, ...]:
        """The exchanges that may read a body of this Content-Type: those of that very type, else those of a range of
        types that it is in. Without one, or one that is malformed, those of JSON and then of any type. Exchanges that
        all have one type read every type: nothing else can be meant.

        Raises:
            DecodeError: a text in another charset than UTF-8.
        """
        if len(content_type) > _LONGEST_REMEMBERED:
            return self._find(content_type)
        return self._by_type(content_type)

    def _find(self, content_type: str) -> tuple[CompiledExchange, ...]:
        given = media_types.parse(content_type)
        if given is not None:
            media_types.check_charset(given)
        if self._have_one_type:
            return self.exchanges
        if given is None:
            of_json = [each for each in self.exchanges if is_json(self._type_of(each))]
            of_any = [each for each in self.exchanges if self._type_of(each).type == "*"]
            return (*of_json, *of_any)
        own = [
            each for each in self.exchanges if not _is_range(self._type_of(each)) and fits(given, self._type_of(each))
        ]
        return tuple(own or [each for each in self.exchanges if self._type_of(each).matches(given)])

    def replying(self, exchange: CompiledExchange, accept: str) -> CompiledExchange:
        """The exchange that replies to a request that `exchange` has read: itself, unless the client does not accept
        its type, but that of another one."""
        if not accept:
            return exchange
        find = self._preferred if len(accept) > _LONGEST_REMEMBERED else self._replies
        return self.exchanges[find(self.exchanges.index(exchange), accept)]

    def _preferred(self, at: int, accept: str) -> int:
        if media_types.preferred(accept, [self._type_of(self.exchanges[at])]) is not None:
            return at
        found = media_types.preferred(accept, [self._type_of(each) for each in self.exchanges])
        return at if found is None else found


def fits(given: MediaType, declared: MediaType) -> bool:
    """Whether a body of the type `given` may be one that a form declares so. All types of JSON are one."""
    return declared.matches(given) or (is_json(given) and is_json(declared))


def _is_range(media_type: MediaType) -> bool:
    return "*" in (media_type.type, media_type.subtype)


def unknown_type(content_type: str, exchanges: Sequence[CompiledExchange]) -> DecodeError:
    """The error for a request whose Content-Type no exchange has."""
    known = ", ".join(dict.fromkeys(each.form.request_type for each in exchanges))
    return DecodeError(f"Content-Type {content_type[:100]!r} is none that the form has, which are {known}")
