"""Checks whether a route matches the server's description of a model, and whether a backend's servers give equal
descriptions of their models. The module sends no requests.

A mismatch with a route is an error if calls cannot succeed, and otherwise a warning.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from gateway.bridge.settings import RouteSettings
from gateway.config.document import Location
from gateway.core.datatypes import WIDENINGS, Datatype, sent_as
from gateway.core.frozen import frozen
from gateway.core.models import Signature, TensorSpec, takes_batches
from gateway.core.protocol import Protocol, Rows
from gateway.policies import gather
from gateway.tools.probing.listing import FoundModel, ServerModels
from gateway.tools.probing.stanza import signature_text


@frozen
class Misfit:
    """A mismatch: its location within the route, and an explanation."""

    location: Location
    text: str
    is_warning: bool = False


def missing_model(name: str, models: ServerModels, found: FoundModel | None, route_has_rewrite: bool) -> Misfit | None:
    """Return the error for a model that the server does not have, or None if the server has or might have the model. If
    the server lists the model without a signature, return a warning."""
    names = [each.name for each in models.models if each is not found]
    if found is not None and not found.error:
        return None
    if found is not None and (not names or found.name in names):
        return Misfit(("match", "model"), f"the server has no signature of {name!r}: {found.error}", is_warning=True)
    if found is None and models.error:
        return None
    lowered = {each.lower(): each for each in names}
    close = lowered.get(name.lower()) or next(iter(get_close_matches(name, names, n=1, cutoff=0.6)), None)
    hint = f"; it has {close!r}: `rewrite: {{model: {close}}}` requests it" if close else f"; it has {_some(names)}"
    return Misfit(
        ("rewrite", "model") if route_has_rewrite else ("match", "model"), f"the server has no model {name!r}{hint}"
    )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5])) or "none"
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def undescribed(name: str, protocol: str) -> Misfit:
    """Return the warning for a server that reports neither the tensors nor the readiness of the model `name`, for
    example a handwritten V1 server that has only `:predict`. Servers of other protocols can respond in the same way."""
    text = f"the server does not describe {name!r}, so the check cannot confirm that it speaks {protocol}"
    text = f"{text}; if it does, declare the model's tensors by `signature` on the route"
    return Misfit(("match", "model"), text, is_warning=True)


def wrong_version(version: str, model: FoundModel, *, is_rewritten: bool) -> Misfit | None:
    """Return the error for a version that the server does not have, or None if the server has the version or reports no
    versions."""
    if not version or not model.versions or version in model.versions:
        return None
    text = f"the server has no version {version!r} of {model.name!r}; it has {', '.join(model.versions)}"
    return Misfit(("rewrite", "version") if is_rewritten else ("match", "version"), text)


def of_gather(
    model: str, signature: Signature | None, most: int | None, settings: gather.Settings, rows: Rows
) -> Misfit | None:
    """Return the warning for a model for which the `gather` policy has no effect or builds smaller batches than
    configured. `most` is the max_batch_size that the server reports."""
    if most and settings.rows > most:
        text = (
            f"dynamic batching (gather) makes batches of at most {most} rows for {model!r}, the model's max_batch_size"
        )
        return Misfit(("backend",), f"{text}, not of {settings.rows}; lower `gather.rows`", is_warning=True)
    if settings.models or rows is Rows.FIRST or signature is None or not signature.inputs:
        return None
    if not takes_batches(signature):
        why = "not all of its tensors have a batch dimension, a first dimension of -1 before others"
    elif not most:
        why = "the server reports no max_batch_size above 0, so its rows might depend on each other"
    else:
        return None
    text = f"dynamic batching (gather) does nothing for {model!r}: {why}"
    text = f"{text}; if the rows do not depend on each other, add the model to the policy's `models`"
    return Misfit(("backend",), text, is_warning=True)


def misfits(
    settings: RouteSettings, declared: Signature | None, told: Signature, clients: Sequence[Protocol]
) -> Iterator[Misfit]:
    """Yield the mismatches between a route, the signature that the server reports, and the clients' protocols."""
    if declared is not None:
        yield from _against_declared("inputs", declared.inputs, told.inputs)
        yield from _against_declared("outputs", declared.outputs, told.outputs)
    yield from _unknown_names(settings, told)
    signature = declared or told
    for client in clients:
        yield from _of_client(client, settings, signature)


def _against_declared(what: str, declared: Sequence[TensorSpec], told: Sequence[TensorSpec]) -> Iterator[Misfit]:
    if not declared or not told:
        return
    named = {each.name: each for each in told}
    for at, spec in enumerate(declared):
        place: Location = ("signature", what, at)
        other = named.pop(spec.name, None)
        if other is None:
            has = ", ".join(repr(each.name) for each in told)
            yield Misfit((*place, "name"), f"the server's model has no {what[:-1]} {spec.name!r}; it has {has}")
            continue
        if other.datatype is not spec.datatype:
            text = f"{what[:-1]} {spec.name!r} is declared as {spec.datatype}, but the server has {other.datatype}"
            yield Misfit((*place, "datatype"), text)
        if not _same_shape(spec.shape, other.shape):
            text = f"{what[:-1]} {spec.name!r} is declared with shape {list(spec.shape)}, but the server has"
            yield Misfit((*place, "shape"), f"{text} {list(other.shape)}")
    for name in named:
        text = f"the server's model has the {what[:-1]} {name!r}, which the route does not declare"
        yield Misfit(("signature", what), f"{text}; add it to `signature`", is_warning=what == "outputs")


def _same_shape(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    return len(ours) == len(theirs) and all(a == b or -1 in (a, b) for a, b in zip(ours, theirs, strict=True))


def _unknown_names(settings: RouteSettings, told: Signature) -> Iterator[Misfit]:
    """Yield a mismatch for each name in `translate` that the server's model does not have."""
    inputs, outputs = [each.name for each in told.inputs], [each.name for each in told.outputs]
    used = (
        *(("inputs", inputs, ("translate", "rename", "inputs"), each.backend) for each in settings.rename.inputs),
        *(("outputs", outputs, ("translate", "rename", "outputs"), each.backend) for each in settings.rename.outputs),
        *(("inputs", inputs, ("translate", "order"), each) for each in settings.order),
        *(("inputs", inputs, ("translate", "constants"), each.name) for each in settings.constants),
    )
    for what, names, place, name in used:
        if names and name not in names:
            yield Misfit(place, f"the server's model has no {what[:-1]} {name!r}; it has {', '.join(map(repr, names))}")


def _of_client(client: Protocol, settings: RouteSettings, signature: Signature) -> Iterator[Misfit]:
    """Yield a mismatch for each tensor that clients of a protocol cannot send or receive."""
    if settings.images is not None:
        return
    carried = client.traits.wire.datatypes
    for what, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            if not _is_carried(spec.datatype, carried, what):
                text = f"{client.name} clients do not support {spec.datatype}, the datatype of {what} {spec.name!r}"
                yield Misfit((), f"{text}, so they cannot call the model", is_warning=True)


def _is_carried(datatype: Datatype, carried: Collection[Datatype], what: str) -> bool:
    """Return whether clients whose protocol has the datatypes `carried` can send an input, or receive an output, of a
    datatype. They send inputs in a narrower datatype and receive outputs in a wider one. UINT8 replaces BOOL."""
    if what == "output" or datatype is Datatype.BOOL:
        return sent_as(datatype, carried) is not None
    return any(datatype in WIDENINGS[each] for each in carried)


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
    """Return each text once, followed by the servers to which it applies."""
    servers: dict[str, list[str]] = {}
    for at, text in texts.items():
        servers.setdefault(text, []).append(at)
    return "; ".join(f"{_named(each)}: {text}" for text, each in servers.items())


def _named(addresses: list[str]) -> str:
    more = len(addresses) - MOST_NAMED
    return ", ".join(addresses[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
