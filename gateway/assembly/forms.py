"""Provides forms (JSON over HTTP, described by data) as protocols.

A form is either built into the package or declared in a configuration.

Equal descriptions are compiled only once. Therefore, a reload that does not change a form keeps its protocol.

Most parts of the gateway and its tools look up protocols in this module: `spoken` returns the protocols for a
configuration. `with_forms` returns the protocols for a configuration and other protocols than the installed ones.
`known` returns the protocols without a configuration.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gateway.assembly import registry
from gateway.core.protocol import HttpBinding, Protocol
from gateway.protocols.json import ready as files
from gateway.protocols.json.form import PREFIX, FormError, parse_form
from gateway.protocols.json.protocol import protocol_of

__all__ = [
    "PREFIX", "READY", "FormError", "declared_forms", "described_form", "form", "known", "spoken",
    "tells_readiness", "transports", "with_forms",
]  # fmt: skip

if TYPE_CHECKING:
    from gateway.config.keys import Config


def form(name: str, document: Mapping[str, Any]) -> Protocol:
    """Return the protocol `json:NAME` of the form that `document`, its parsed YAML, describes.

    Raises:
        FormError: the description is invalid. The error contains the position in the document.
    """
    return _compiled(name, json.dumps(document))


@lru_cache(maxsize=256)
def _compiled(name: str, document: str) -> Protocol:
    return protocol_of(name, parse_form(json.loads(document)))


class WithReadyForms(Mapping[str, Protocol]):
    """Maps names to protocols: the protocols in `own`, then the built-in forms (`json:FORM`).

    A built-in form is loaded at its first use."""

    def __init__(self, own: Mapping[str, Protocol]) -> None:
        self._own = own

    def __getitem__(self, name: str) -> Protocol:
        if name in self._own:
            return self._own[name]
        bare = name.removeprefix(PREFIX)
        if bare == name or bare not in files.names():
            raise KeyError(name)
        return form(bare, files.document(bare))

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for bare in files.names() if (name := PREFIX + bare) not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == each for each in self)


READY: Mapping[str, Protocol] = WithReadyForms({})
"""A mapping that contains only the built-in forms."""


def described_form(config: "Config", protocol: str) -> Mapping[str, Any] | None:
    """If `config` declares the form with the protocol name `json:FORM`, return its description."""
    declared = config.forms.get(protocol.removeprefix(PREFIX)) if protocol.startswith(PREFIX) else None
    return None if declared is None else declared.document()


def tells_readiness(config: "Config", protocol: str) -> bool:
    """Return True if `protocol` is a form that defines how its servers report readiness."""
    if not protocol.startswith(PREFIX):
        return False
    document = described_form(config, protocol) or files.document(protocol.removeprefix(PREFIX))
    return document.get("ready") is not None


def declared_forms(config: "Config") -> dict[str, Protocol]:
    """Return the protocols of the forms that `config` declares, by name (`json:FORM`)."""
    return {PREFIX + name: form(name, each.document()) for name, each in config.forms.items()}


def with_forms(protocols: Mapping[str, Protocol], config: "Config") -> dict[str, Protocol]:
    """Return `protocols`, the forms that `config` declares, and the built-in forms that it uses. Forms that are already
    in `protocols` stay."""
    declared = declared_forms(config)
    named = {name for each in config.listeners for name in each.protocols}
    named.update(each.protocol for each in config.backends.values())
    named.update(each.protocol for each in config.reference)
    named.update(each.match.protocol for each in config.routes if each.match.protocol is not None)
    ready = {name: READY[name] for name in sorted(named - declared.keys()) if name in READY}
    return {**ready, **declared, **protocols}


def spoken(config: "Config") -> dict[str, Protocol]:
    """Return all protocols for a configuration: the installed protocols, and the forms in the configuration."""
    return with_forms(registry.protocols(), config)


def known(declared: Mapping[str, Protocol] | None = None) -> Mapping[str, Protocol]:
    """Return all protocols that are available without a configuration: the installed protocols, the `declared` forms by
    name (`json:FORM`), and every built-in form."""
    return WithReadyForms({**registry.protocols(), **(declared or {})})


def transports(protocols: Mapping[str, Protocol]) -> dict[str, str]:
    """Return the transport of each of `protocols`. Do not load built-in forms, because they all use HTTP."""
    return {name: HttpBinding.transport if name.startswith(PREFIX) else protocols[name].transport for name in protocols}
