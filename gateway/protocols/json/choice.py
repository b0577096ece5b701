"""Selects the exchange that reads a message, by the message's media type, and the exchange that writes the response, by
the types that the client accepts. `server`, `client` and `relay` use this module.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.protocols.json.bodies import is_json
from gateway.protocols.json.compiled import CompiledExchange
from gateway.protocols.json.media import media_types, web_forms
from gateway.protocols.json.media.media_types import MediaType

_LONGEST_REMEMBERED = 256
"""Maximum length of a header whose choice is cached, in characters. The limit exists because clients choose the
headers."""


class Choice:
    """Selects exchanges by media type. `type_of` returns the type of an exchange's body.

    A body without a Content-Type has the `default` type."""

    def __init__(
        self,
        exchanges: Sequence[CompiledExchange],
        type_of: Callable[[CompiledExchange], MediaType],
        default: MediaType | None = None,
    ) -> None:
        self.exchanges = tuple(exchanges)
        self._default = default
        self._type_of = type_of
        types = [type_of(each) for each in exchanges]
        self._have_one_type = bool(types) and all(each == types[0] for each in types)
        self._by_type = lru_cache(64)(self._find)
        self._replies = lru_cache(64)(self._preferred)

    def by_type(self, content_type: str) -> tuple[CompiledExchange, ...]:
        """Return the exchanges that can read a body with this Content-Type.

        If any exchanges declare exactly this type, return those exchanges. Otherwise, return the exchanges that declare
        a range that includes the type. If the header is missing, return the exchanges for the form's default type. If
        the header is missing and the form declares no default type, or if the header is malformed, return the exchanges
        for JSON, followed by the exchanges for any type. If all exchanges declare the same type, return all of them for
        every Content-Type.

        Raises:
            DecodeError: the body is text in a charset other than UTF-8.
        """
        if len(content_type) > _LONGEST_REMEMBERED:
            return self._find(content_type)
        return self._by_type(content_type)

    def _find(self, content_type: str) -> tuple[CompiledExchange, ...]:
        given = media_types.parse(content_type) if content_type else self._default
        if given is not None:
            media_types.check_charset(given)
        if self._have_one_type:
            return self.exchanges
        if given is None:
            of_json = [each for each in self.exchanges if is_json(self._type_of(each))]
            of_any = [each for each in self.exchanges if self._type_of(each).type == "*"]
            return (*of_json, *of_any)
        own = [
            each for each in self.exchanges if not is_range(self._type_of(each)) and fits(given, self._type_of(each))
        ]
        return tuple(own or [each for each in self.exchanges if self._type_of(each).matches(given)])

    def replying(self, exchange: CompiledExchange, accept: str) -> CompiledExchange:
        """Return the exchange that writes the response to a request that `exchange` has read. The result is `exchange`
        itself, unless the client accepts only another exchange's type."""
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
    """Return True if a body of the type `given` can match the `declared` type. All JSON types count as equal."""
    return declared.matches(given) or (is_json(given) and is_json(declared))


def is_range(media_type: MediaType) -> bool:
    """Return True if `media_type` is a range of media types, such as `*/*`."""
    return "*" in (media_type.type, media_type.subtype)


def is_web_form(content_type: str) -> bool:
    """Return True if `content_type` is the media type of web forms. `curl -d` sends this type with every body, whatever
    its content, so `*/*` does not match it."""
    return content_type.partition(";")[0].strip().lower() == web_forms.CONTENT_TYPE


def unknown_type(content_type: str, exchanges: Sequence[CompiledExchange]) -> GatewayError:
    """Return the error for a request whose Content-Type matches no exchange."""
    names = dict.fromkeys(each.form.media_type for each in exchanges)
    known = ", ".join("the type of your bytes, such as image/png" if name == "*/*" else name for name in names)
    text = f"Content-Type {content_type[:100]!r} is unknown to the form; expected {known}"
    return refusal(
        Reason.UNSUPPORTED_MEDIA_TYPE,
        f"{text}; curl's default is overridden by -H 'Content-Type: ...'" if is_web_form(content_type) else text,
    )
