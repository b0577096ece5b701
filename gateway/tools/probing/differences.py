"""Finds models whose versions or signatures differ between a backend's servers."""

from collections.abc import Iterator, Mapping

from gateway.tools.probing.listing import FoundModel, ServerModels
from gateway.tools.probing.stanza import signature_text

MOST_NAMED = 3
"""Maximum number of servers that a message lists for each version or signature."""


def differences(servers: Mapping[str, ServerModels], *, with_signatures: bool = True) -> Iterator[tuple[str, str]]:
    """Yield each model whose version or signature differs between two servers, with a description of the difference.
    `servers` contains the models of each server, by address. Servers that do not report versions or signatures are
    ignored."""
    models: dict[str, dict[str, FoundModel]] = {}
    for address, found in servers.items():
        for each in found.own:
            models.setdefault(each.name, {})[address] = each
    for name, by_server in sorted(models.items()):
        versions = {at: ", ".join(sorted(each.versions)) for at, each in by_server.items() if each.versions}
        if len(set(versions.values())) > 1:
            yield name, f"its versions differ: {_shown(versions)}"
        signatures = {at: text for at, each in by_server.items() if (text := signature_text(each).strip())}
        if with_signatures and len(set(signatures.values())) > 1:
            yield name, f"its signatures differ: {_shown(signatures)}"


def _shown(texts: Mapping[str, str]) -> str:
    """Return each text once, followed by the servers for which it holds."""
    servers: dict[str, list[str]] = {}
    for at, text in texts.items():
        servers.setdefault(text, []).append(at)
    return "; ".join(f"{_named(each)}: {text}" for text, each in servers.items())


def _named(addresses: list[str]) -> str:
    more = len(addresses) - MOST_NAMED
    return ", ".join(addresses[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
