"""Implements `errors: {detail: brief}`, which removes backend names, backend addresses and the models of graph steps
from error messages. The log contains the complete messages.
"""

import logging
import re
from collections.abc import Callable, Iterable

from gateway.config.keys import Config
from gateway.core.errors import DetailedError, GatewayError, Reason, TransportError
from gateway.core.frozen import replace
from gateway.core.log_limit import LogLimit
from gateway.core.messages import Message
from gateway.core.models import NotReady
from gateway.core.protocol import Protocol
from gateway.core.requests import Answer, Request, Translate
from gateway.core.web_replies import REDIRECTS

log = logging.getLogger(__name__)

UNREACHABLE = "the model's server cannot be reached; try again later, or ask the operator to check it"
"""The replacement for the reason of a failed connection. The reason can contain host names, ports and certificate
details."""
BACKEND = "a model server"
ADDRESS = "its address"

_Shorten = Callable[[str], str]


class ErrorRedaction:
    """Creates protocols with brief errors, for listeners with `detail: brief`.

    `addresses` returns the currently discovered addresses."""

    def __init__(self, config: Config, addresses: Callable[[], Iterable[str]] = tuple) -> None:
        self._config = config
        self._addresses = addresses
        self._known: frozenset[str] = frozenset()
        self._replace_names = _shorten(config, self._known)
        self._limited = LogLimit(log)

    def _shorten(self, text: str) -> str:
        addresses = frozenset(self._addresses())
        if addresses != self._known:
            self._known = addresses
            self._replace_names = _shorten(self._config, addresses)
        return self._replace_names(text)

    def protocol(self, protocol: Protocol, listener: str) -> Protocol:
        """Return a version of `protocol` that writes brief errors."""
        encode_error, encode_response = protocol.encode_error, protocol.encode_response

        def encode_brief_error(error: GatewayError, request: Request | None, message: Message) -> Message:
            principal, model = message.principal, "" if request is None else request.model
            if principal is None or not principal.has("details", model, listener):
                error = self._shortened(error, listener, request, message)
            return encode_error(error, request, message)

        def encode_brief_response(answer: Answer, request: Request, translate: Translate) -> Message:
            principal = request.principal
            if isinstance(answer, NotReady) and not (
                principal is not None and principal.has("details", request.model, listener)
            ):
                self._log(listener, request, request.peer, answer.text)
                answer = NotReady("not ready")
            return encode_response(answer, request, translate)

        return replace(
            protocol, encode_error=encode_brief_error, encode_response=encode_brief_response, errors_pass=False
        )

    def _shortened(self, error: GatewayError, listener: str, request: Request | None, message: Message) -> GatewayError:
        is_unreachable = (
            not isinstance(error, DetailedError)
            and isinstance(error, TransportError)
            and error.reason is Reason.UNREACHABLE
        )
        text = (
            f"{_steps(error.message)}{UNREACHABLE}"
            if is_unreachable
            else self._shorten(error.brief if isinstance(error, DetailedError) else error.message)
        )
        if text == error.message:
            return error
        self._log(listener, request, message.peer, error.message)
        return GatewayError(error.status, error.reason, text, error.retry_after)

    def _log(self, listener: str, request: Request | None, peer: str, text: str) -> None:
        model = request.model if request is not None else ""
        self._limited.write(
            listener, logging.WARNING, "listener %r, client %s, model %r: %s", listener, peer or "-", model, text
        )


def _shorten(config: Config, found: frozenset[str]) -> _Shorten:
    """Return a function that redacts backend names (after the word "backend") and server addresses in a message. The
    function matches addresses in their configured or `found` form, and in the form `host:port`."""
    addresses = found | {address for backend in config.backends.values() for address in backend.addresses}
    addresses |= {place for address in addresses for place in _hosts_and_paths(address)}
    alternatives = "|".join(re.escape(each) for each in sorted(addresses, key=lambda each: (-len(each), each)))
    address = f"(?:{alternatives})" if alternatives else "(?!)"
    names = "|".join(re.escape(repr(name)) for name in sorted(config.backends, key=len, reverse=True)) or "(?!)"
    backend_name = re.compile(rf"\bbackends? (?:{names})(?:, (?:{names}))*(?: \([a-z]+\))?(?: at {address})?")
    address_alone = re.compile(address)

    models = "|".join(re.escape(repr(each)) for each in sorted(_models_of_steps(config), key=len, reverse=True))
    model_of_step = re.compile(rf" \(model (?:{models})\)") if models else re.compile("(?!)")
    model_name = re.compile(rf"\bmodel (?:{models})") if models else re.compile("(?!)")

    def shortened(text: str) -> str:
        text = text.partition(REDIRECTS)[0]
        text = address_alone.sub(ADDRESS, backend_name.sub(BACKEND, text))
        if not models or _IN_STEP.search(text) is None:
            return text
        return model_name.sub("its model", model_of_step.sub("", text))

    return shortened


def _steps(text: str) -> str:
    """Return the step names at the start of an error message. With nested graphs, a message has several names."""
    found = _STEPS.match(text)
    return "" if found is None else "".join(f"{each}: " for each in _STEP.findall(found[0]))


_STEP = re.compile(r"(step '[A-Za-z_][A-Za-z0-9_-]*') \(model (?:'[^']*'|\"[^\"]*\")\): ")
_STEPS = re.compile(f"(?:{_STEP.pattern})+")
_IN_STEP = re.compile(r"\bstep '|: steps\.")
"""A pattern for error messages about a graph step."""


def _models_of_steps(config: Config) -> frozenset[str]:
    """Return the models that graph steps call. Errors must not reveal these models, because clients might not have
    permission to call them."""
    steps = (step for graph in config.models.values() for step in graph.steps.values())
    return frozenset(model for step in steps for model in (step.model, *step.fallback)) - config.models.keys()


def _hosts_and_paths(address: str) -> set[str]:
    """Return the forms of the address in error messages: without its scheme, and without its scheme and path. The forms
    are `host:port` or the path of a unix socket, for example, but not the host name without its port."""
    _, separator, rest = address.partition("://")
    place = rest if separator else address
    return {place, place.split("/")[0]} - {""}
