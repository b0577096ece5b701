"""Which tensor is which: names by position, renames, dropped and constant inputs, selected outputs."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from gateway.bridge.settings import RouteSettings
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import INDEX_TENSORS
from gateway.core.types import RequestedOutput, Signature, Tensor, TensorSpec

Wanted: TypeAlias = Sequence[tuple[str, TensorSpec]]
"""The client's name of each tensor, and the backend's specification of it."""

_LONGEST_COMPARED = 256


def inputs_of(signature: Signature, settings: RouteSettings) -> Wanted:
    """The inputs that a client gives: all but the route's constants."""
    constants = {tensor.name for tensor in settings.constants}
    wanted = _with_names(signature.inputs, settings.rename.inputs)
    return [(name, spec) for name, spec in wanted if spec.name not in constants] if constants else wanted


def outputs_of(signature: Signature, settings: RouteSettings) -> Wanted:
    """The outputs that a client gets, in its order: those that the route selects."""
    wanted = _with_names(signature.outputs, settings.rename.outputs)
    if not settings.select:
        return wanted
    there = dict(wanted)
    return [(name, there[name]) for name in settings.select if name in there]


def as_client(wanted: Wanted) -> tuple[TensorSpec, ...]:
    """Specifications under the client's names."""
    return tuple(replace(spec, name=name) for name, spec in wanted)


def _with_names(specs: Sequence[TensorSpec], pairs: Sequence[tuple[str, str]]) -> Wanted:
    if not pairs:
        return [(spec.name, spec) for spec in specs]
    client = {backend: client for client, backend in pairs}
    return [(client.get(spec.name, spec.name), spec) for spec in specs]


def by_name(inputs: Sequence[Tensor], wanted: Wanted, settings: RouteSettings) -> dict[str, Tensor]:
    """The client's inputs by its names, without those that the route drops. Inputs that came without a name take, by
    position, the names of the route's `order`, else those that no other input has.

    Raises:
        DecodeError: repeated, unknown or missing inputs, by name. Index tensors may be missing.
    """
    given: dict[str, Tensor] = {}
    unnamed = []
    for tensor in inputs:
        if not tensor.name:
            unnamed.append(tensor)
        elif tensor.name in given:
            raise DecodeError(f"input {tensor.name!r} is given twice")
        elif tensor.name not in settings.drop:
            given[tensor.name] = tensor
    if unnamed:
        given.update(zip(_positions(len(unnamed), given, wanted, settings), unnamed, strict=True))
    _check(given, wanted)
    return given


def _positions(count: int, taken: Mapping[str, Tensor], wanted: Wanted, settings: RouteSettings) -> list[str]:
    if settings.order:
        client = {spec.name: name for name, spec in wanted}
        names = [client.get(name, name) for name in settings.order]
    else:
        names = [name for name, _ in wanted if name not in taken]
    if count != len(names):
        raise DecodeError(f"{_inputs(count)} given, expected {len(names)}; the model takes {_list(wanted)}")
    return names


def _check(given: Mapping[str, Tensor], wanted: Wanted) -> None:
    missing = [name for name, _ in wanted if name not in given and name not in INDEX_TENSORS]
    if not missing and len(given) <= len(wanted) and given.keys() <= {name for name, _ in wanted}:
        return
    known = [name for name, _ in wanted]
    for name in given:
        if name not in known:
            raise DecodeError(f"unknown input {name!r}{_suggest(name, known)}; the model takes {_list(wanted)}")
    plural = f"input {missing[0]!r} is" if len(missing) == 1 else f"inputs {_names(missing)} are"
    raise DecodeError(f"{plural} missing; the model takes {_list(wanted)}")


def as_given(inputs: Sequence[Tensor], settings: RouteSettings, *, unnamed: bool = False) -> list[Tensor]:
    """Inputs for a backend whose signature nobody knows: with its names as far as the route tells them, else `input0`,
    `input1`, ... (or none, if it takes `unnamed` ones), and with the route's constants; in the route's `order`."""
    backend = dict(settings.rename.inputs)
    kept = [_renamed(tensor, backend) for tensor in inputs if not tensor.name or tensor.name not in settings.drop]
    named = [*(kept if unnamed and not settings.order else by_position(kept, settings.order, "input"))]
    named += settings.constants
    if settings.order:
        place = {name: at for at, name in enumerate(settings.order)}
        named.sort(key=lambda tensor: place.get(tensor.name, len(place)))
    return named


def by_position(tensors: Sequence[Tensor], names: Sequence[str], prefix: str) -> Iterable[Tensor]:
    """Tensors that came without a name get the names by position, past them `prefix0`, `prefix1`, ..."""
    for at, tensor in enumerate(tensors):
        yield tensor if tensor.name else replace(tensor, name=names[at] if at < len(names) else f"{prefix}{at}")


def requested(
    outputs: Sequence[RequestedOutput], signature: Signature, settings: RouteSettings
) -> tuple[RequestedOutput, ...]:
    """The outputs to ask the backend for, with its names; none: all of them.

    Raises:
        DecodeError: an output that the client cannot have, by name.
    """
    if not outputs and not settings.select:
        return ()
    backend = dict(settings.rename.outputs)
    known = [name for name, _ in outputs_of(signature, settings)]
    for output in outputs:
        if known and output.name not in known:
            raise unknown_output(output.name, known)
    wanted = outputs or tuple(RequestedOutput(name) for name in settings.select)
    return tuple(replace(output, name=backend.get(output.name, output.name)) for output in wanted)


def for_client(
    outputs: Sequence[Tensor], asked: Sequence[RequestedOutput], settings: RouteSettings
) -> Sequence[Tensor]:
    """The backend's outputs with the client's names: those it asked for, else those the route selects, in that order.

    Raises:
        DecodeError: an output that is not there, by name.
    """
    if settings.rename.outputs:
        client = {backend: client for client, backend in settings.rename.outputs}
        outputs = [_renamed(tensor, client) for tensor in outputs]
    return picked(outputs, [output.name for output in asked] or settings.select)


def picked(outputs: Sequence[Tensor], wanted: Sequence[str]) -> Sequence[Tensor]:
    """The outputs named `wanted`, in that order; all of them if none is. What a backend sent beside them is left out.

    Raises:
        DecodeError: an output that is not there, by name.
    """
    if not wanted:
        return outputs
    there = {tensor.name: tensor for tensor in outputs}
    for name in wanted:
        if name not in there:
            raise DecodeError(f"output {name!r} is missing; the reply has {_names(there)}")
    return [there[name] for name in wanted]


def unknown_output(name: str, known: Sequence[str]) -> DecodeError:
    """There is no such output."""
    return DecodeError(f"unknown output {name!r}{_suggest(name, known)}; the model gives {_names(known)}")


def _renamed(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    name = names.get(tensor.name, tensor.name)
    return tensor if name == tensor.name else replace(tensor, name=name)


def _suggest(name: str, known: Iterable[str]) -> str:
    # Comparing takes a tenth of a microsecond for each character, and clients choose how many there are.
    close = get_close_matches(name, list(known), 1) if len(name) <= _LONGEST_COMPARED else []
    return f", did you mean {close[0]!r}?" if close else ""


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def _list(wanted: Wanted) -> str:
    return ", ".join(f"{name!r} {spec.datatype} {list(spec.shape)}" for name, spec in wanted) or "none"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
