"""Convert the forms of a configuration into protocols for its other parts, and find errors in forms."""

from collections.abc import Iterator

from gateway.config.catalog import Catalog
from gateway.config.document import Node
from gateway.config.fields import VALUE
from gateway.config.forms import JSON
from gateway.config.keys import Config
from gateway.config.partial import Parts, all_parts
from gateway.config.problems import Finding, listed, suggestion
from gateway.core.frozen import replace
from gateway.protocols.json.form import PREFIX, FormError


def with_forms(catalog: Catalog, parts: Parts) -> tuple[Catalog, list[Finding]]:
    """Return `catalog`, with the forms that the configuration declares and the built-in forms that it uses as
    additional protocols, and a finding for each invalid form."""
    found, findings = dict(catalog.protocols), []
    for _, name in protocol_mentions(parts):
        if name in catalog.ready_forms:
            found[name] = catalog.ready_forms[name]
    for name, form in parts.forms.items():
        try:
            found[PREFIX + name] = catalog.form(name, form.document())
        except FormError as error:
            findings.append(Finding(("forms", name, *error.path), str(error)))
    return replace(catalog, protocols=found), findings


_OWN_JSON_NAMES = frozenset(
    {"flask", "fastapi", "express", "django", "starlette", "tornado", "aiohttp", "http", "https", "rest", "http-json",
     "json-over-http", "rest-json", "custom"}
)  # fmt: skip
"""Protocol names that users might write for a server with a custom JSON API: web frameworks and transports."""
_OWN_JSON = "a server with its own JSON, use `json` with a `form`"


def protocol_mentions(parts: Parts) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each protocol name with its location."""
    for at, listener in parts.listeners.items():
        yield from ((("listeners", at, "protocols", i), name) for i, name in enumerate(listener.protocols))
    for at, reference in parts.reference.items():
        yield ("reference", at, "protocol"), reference.protocol
    for key, backend in parts.backends.items():
        yield ("backends", key, "form" if backend.form else "protocol"), backend.protocol
    for at, route in parts.routes.items():
        if route.match.protocol is not None:
            yield ("routes", at, "match", "protocol"), route.match.protocol


def protocol_names(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find names of protocols and forms that do not exist."""
    forms = {*(PREFIX + name for name in parts.form_names), *catalog.ready_forms}
    for location, name in protocol_mentions(parts):
        if name in catalog.protocols or name in forms:
            continue
        if location[-1] == "form":
            known = [each.removeprefix(PREFIX) for each in forms]
            yield Finding(location, f"unknown form {VALUE}{suggestion(name.removeprefix(PREFIX), known)}")
        elif name.startswith(PREFIX):
            yield Finding(location, f"unknown form {VALUE}{suggestion(name, forms)}")
        elif name == JSON:
            in_backend = location[0] == "backends"
            key = "add `form: NAME`" if in_backend else "write json:NAME"
            known = [each.removeprefix(PREFIX) if in_backend else each for each in forms]
            yield Finding(location, f"{VALUE} needs the name of a form: {key}{suggestion('', known)}")
        else:
            near = f"; did you mean {PREFIX + name!r}?" if PREFIX + name in forms else _nearest(name, catalog)
            if location[0] == "backends" and name.lower() in _OWN_JSON_NAMES:
                near += f"{' For' if near.endswith('?') else '; for'} {_OWN_JSON}"
            yield Finding(location, f"unknown protocol {VALUE}{near}")


def _nearest(name: str, catalog: Catalog) -> str:
    """Return the suggestion in a message about an unknown protocol: a protocol with a similar spelling, the protocols
    with this server type, the protocols that share a word with the name, or all protocols."""
    spelled = suggestion(name, catalog.protocols)
    if "did you mean" in spelled:
        return spelled
    flavors = {key: each.traits.servers.flavors for key, each in catalog.protocols.items()}
    if speaking := sorted(key for key, each in flavors.items() if each is not None and name in each.names):
        return f", which is a server type; use {listed(speaking)} with `flavor: {name}`"
    words = set(name.lower().split("-"))
    sharing = sorted(key for key in catalog.protocols if words & set(key.split("-")))
    return f"; did you mean {listed(sharing)}?" if sharing else spelled


def shown_references(root: Node, parts: Parts) -> Iterator[Finding]:
    """Find listeners with a form that contains a reference. References can be secrets, and error messages show clients
    the expected values."""
    forms = root.value.get("forms") if isinstance(root.value, dict) else None
    named = forms.value.items() if forms is not None and isinstance(forms.value, dict) else ()
    having = {PREFIX + name for name, form in named if any(form.referenced())}
    for at, listener in parts.listeners.items():
        for i, name in enumerate(listener.protocols):
            if name in having:
                text = (
                    f"errors would show clients the reference in form {VALUE}; use a form with references only in "
                    "backends"
                )
                yield Finding(("listeners", at, "protocols", i), text)


def form_warnings(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Warn about unused forms, and about forms that replace a built-in form."""
    used = {name for _, name in protocol_mentions(all_parts(config))}
    for name in config.forms:
        if PREFIX + name not in used:
            text = f"{name!r} has no effect: no backend or listener names this form; write `json:{name}` as protocol"
            yield Finding(("forms", name), text, at_key=True)
        if PREFIX + name in catalog.ready_forms:
            yield Finding(
                ("forms", name),
                f"{name!r} replaces the built-in form of this name; rename it to keep both",
                at_key=True,
            )
