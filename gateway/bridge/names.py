"""Assigns a client's tensors to the backend's tensors, by name.

A tensor's client name is the backend's name, unless `rename` contains a different client name. A client sends every
input in the signature except `constants`. The client's inputs are resolved in this order:

1. A named input is identified by its name. `drop` removes inputs.
2. Unnamed inputs get the names in the route's `order` or, without `order`, the remaining names, by position. If the
   number of unnamed inputs equals the number of required inputs, the unnamed inputs get the names of the required
   inputs.
3. Every input in the signature must be present exactly once, and no other inputs are allowed. Optional inputs, and
   index tensors of derivatives, can be missing.

The client receives the outputs that it requests, in the requested order. By default, it receives the outputs in
`select`, or all outputs if the route has no `select`. If the signature is unknown, unnamed inputs get the names
`input0`, `input1`, ..., and outputs the names `output0`, `output1`, ...
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from gateway.bridge.settings import Renaming, RouteSettings
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import INDEX_TENSORS
from gateway.core.requests import RequestedOutput
from gateway.core.tensors import Tensor

NamedSpecs: TypeAlias = Sequence[tuple[str, TensorSpec]]
"""Pairs of a tensor's client name and its specification, which contains the backend's name."""

_LONGEST_COMPARED = 256


def inputs_of(signature: Signature, settings: RouteSettings) -> NamedSpecs:
    """Return the inputs that clients send: all except the route's constants."""
    constants = {tensor.name for tensor in settings.constants}
    specs = _with_names(signature.inputs, settings.rename.inputs)
    return [(name, spec) for name, spec in specs if spec.name not in constants] if constants else specs


def all_outputs(signature: Signature, settings: RouteSettings) -> NamedSpecs:
    """Return the model's outputs."""
    return _with_names(signature.outputs, settings.rename.outputs)


def outputs_of(signature: Signature, settings: RouteSettings) -> NamedSpecs:
    """Return the outputs that clients can receive: the outputs in `select`, in its order, or all outputs."""
    specs = all_outputs(signature, settings)
    if not settings.select:
        return specs
    by_name = dict(specs)
    return [(name, by_name[name]) for name in settings.select if name in by_name]


def with_client_names(specs: NamedSpecs) -> tuple[TensorSpec, ...]:
    """Return the specifications with the client's names."""
    return tuple(replace(spec, name=name) for name, spec in specs)


def _with_names(specs: Sequence[TensorSpec], renamings: Sequence[Renaming]) -> NamedSpecs:
    if not renamings:
        return [(spec.name, spec) for spec in specs]
    client = _client_names(renamings)
    return [(client.get(spec.name, spec.name), spec) for spec in specs]


def resolve_inputs(inputs: Sequence[Tensor], specs: NamedSpecs, settings: RouteSettings) -> dict[str, Tensor]:
    """Return the client's inputs by client name, resolved according to the rules in the module docstring.

    Raises:
        DecodeError: an input is repeated, unknown or missing.
    """
    given: dict[str, Tensor] = {}
    unnamed = []
    for tensor in inputs:
        if not tensor.name:
            unnamed.append(tensor)
        elif tensor.name in given:
            raise DecodeError(f"input {tensor.name!r} occurs twice")
        elif tensor.name not in settings.drop:
            given[tensor.name] = tensor
    if unnamed:
        given.update(zip(_names_by_position(len(unnamed), given, specs, settings), unnamed, strict=True))
    _check(given, specs)
    return given


def _names_by_position(
    count: int, given: Mapping[str, Tensor], specs: NamedSpecs, settings: RouteSettings
) -> list[str]:
    if settings.order:
        client = {spec.name: name for name, spec in specs}
        names = [client.get(name, name) for name in settings.order]
    else:
        left = [(name, spec) for name, spec in specs if name not in given]
        required = [name for name, spec in left if not spec.optional]
        names = required if count == len(required) else [name for name, _ in left]
    if count != len(names):
        raise DecodeError(f"{_inputs(count)} given, expected {len(names)}; the model takes {_list(specs)}")
    return names


def _check(given: Mapping[str, Tensor], specs: NamedSpecs) -> None:
    missing = [name for name, spec in specs if name not in given and name not in INDEX_TENSORS and not spec.optional]
    if not missing and len(given) <= len(specs) and given.keys() <= {name for name, _ in specs}:
        return
    known = [name for name, _ in specs]
    for name in given:
        if name not in known:
            raise DecodeError(f"unknown input {name!r}{_suggest(name, known)}; the model takes {_list(specs)}")
    plural = f"input {missing[0]!r} is" if len(missing) == 1 else f"inputs {_names(missing)} are"
    raise DecodeError(f"{plural} missing; the model takes {_list(specs)}")


def unresolved_inputs(inputs: Sequence[Tensor], settings: RouteSettings, *, unnamed: bool = False) -> list[Tensor]:
    """Return inputs for a model with an unknown signature, with the route's names, constants and `order`. Unnamed
    inputs get names by position, unless the backend accepts `unnamed` inputs."""
    backend = _backend_names(settings.rename.inputs)
    kept = [_renamed(tensor, backend) for tensor in inputs if not tensor.name or tensor.name not in settings.drop]
    named = [*(kept if unnamed and not settings.order else by_position(kept, settings.order, "input"))]
    named += settings.constants
    if settings.order:
        place = {name: at for at, name in enumerate(settings.order)}
        named.sort(key=lambda tensor: place.get(tensor.name, len(place)))
    return named


def by_position(tensors: Sequence[Tensor], names: Sequence[str], prefix: str) -> Iterable[Tensor]:
    """Give each unnamed tensor the name at its position in `names`, or `prefix` and the position."""
    for at, tensor in enumerate(tensors):
        yield tensor if tensor.name else replace(tensor, name=names[at] if at < len(names) else f"{prefix}{at}")


def requested(
    outputs: Sequence[RequestedOutput], signature: Signature, settings: RouteSettings
) -> tuple[RequestedOutput, ...]:
    """Return the outputs to request from the backend, by the backend's names. An empty result means all outputs.

    Raises:
        DecodeError: the model has no such output, or the route does not select it.
    """
    if not outputs and not settings.select:
        return ()
    backend = _backend_names(settings.rename.outputs)
    known = [name for name, _ in outputs_of(signature, settings)]
    for output in outputs:
        if known and output.name not in known:
            raise unknown_output(output.name, known)
    wanted = outputs or tuple(RequestedOutput(name) for name in settings.select)
    return tuple(replace(output, name=backend.get(output.name, output.name)) for output in wanted)


def for_client(outputs: Sequence[Tensor], settings: RouteSettings) -> Sequence[Tensor]:
    """Replace the backend's output names with the client's names."""
    client = _client_names(settings.rename.outputs)
    return [_renamed(tensor, client) for tensor in outputs]


def picked(outputs: Sequence[Tensor], wanted: Sequence[str]) -> Sequence[Tensor]:
    """Return only the outputs with the names `wanted`, in the same order, or all outputs if `wanted` is empty.

    Raises:
        DecodeError: an output is missing.
    """
    if not wanted:
        return outputs
    by_name = {tensor.name: tensor for tensor in outputs}
    for name in wanted:
        if name not in by_name:
            raise DecodeError(f"output {name!r} is missing; the reply has {_names(by_name)}")
    return [by_name[name] for name in wanted]


def unknown_output(name: str, known: Sequence[str]) -> DecodeError:
    """Return the error for an output that the model does not have."""
    return DecodeError(f"unknown output {name!r}{_suggest(name, known)}; the model gives {_names(known)}")


def _client_names(renamings: Iterable[Renaming]) -> dict[str, str]:
    return {each.backend: each.client for each in renamings}


def _backend_names(renamings: Iterable[Renaming]) -> dict[str, str]:
    return {each.client: each.backend for each in renamings}


def _renamed(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    name = names.get(tensor.name, tensor.name)
    return tensor if name == tensor.name else replace(tensor, name=name)


def _suggest(name: str, known: Iterable[str]) -> str:
    # A comparison takes 0.1 us per character, and the client chooses the length.
    close = get_close_matches(name, list(known), 1) if len(name) <= _LONGEST_COMPARED else []
    return f", did you mean {close[0]!r}?" if close else ""


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def _list(specs: NamedSpecs) -> str:
    return ", ".join(map(_described, specs)) or "none"


def _described(named: tuple[str, TensorSpec]) -> str:
    name, spec = named
    return f"{name!r} {spec.datatype} {list(spec.shape)}{' (optional)' if spec.optional else ''}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
