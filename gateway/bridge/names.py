"""Which tensor is which: names by position, renames, dropped and constant inputs, selected outputs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from gateway.bridge.settings import RouteSettings
from gateway.core.errors import DecodeError
from gateway.core.types import RequestedOutput, Tensor, TensorSpec


def for_backend(inputs: Sequence[Tensor], settings: RouteSettings) -> tuple[Tensor, ...]:
    """The client's inputs with the backend's names, without those that the route drops, with its constants."""
    names = dict(settings.rename.inputs)
    kept = [_renamed(tensor, names) for tensor in inputs if tensor.name not in settings.drop or not tensor.name]
    return (*kept, *settings.constants)


def name_by_position(tensors: Sequence[Tensor], names: Sequence[str], prefix: str) -> tuple[Tensor, ...]:
    """Tensors that came without a name get the names by position, past them `prefix0`, `prefix1`, ..."""
    return tuple(
        tensor if tensor.name else replace(tensor, name=names[at] if at < len(names) else f"{prefix}{at}")
        for at, tensor in enumerate(tensors)
    )


def pair(
    tensors: Sequence[Tensor], specs: Sequence[TensorSpec], optional: Iterable[str] = ()
) -> list[tuple[Tensor, TensorSpec]]:
    """Each input with its specification, in the signature's order.

    Raises:
        DecodeError: unknown, missing or repeated inputs, by name.
    """
    given = {tensor.name: tensor for tensor in tensors}
    known = {spec.name for spec in specs}
    if len(given) != len(tensors):
        raise DecodeError(f"input {_repeated(tensors)!r} is given twice")
    for name in given:
        if name not in known:
            raise DecodeError(f"unknown input {name!r}{_suggest(name, known)}; the model takes {_list(specs)}")
    missing = [spec.name for spec in specs if spec.name not in given and spec.name not in optional]
    if missing:
        plural = f"input {missing[0]!r} is" if len(missing) == 1 else f"inputs {', '.join(map(repr, missing))} are"
        raise DecodeError(f"{plural} missing; the model takes {_list(specs)}")
    return [(given[spec.name], spec) for spec in specs if spec.name in given]


def requested(outputs: Sequence[RequestedOutput], settings: RouteSettings) -> tuple[RequestedOutput, ...]:
    """The outputs to ask the backend for, with its names; none: all of them."""
    names = dict(settings.rename.outputs)
    wanted = outputs or tuple(RequestedOutput(name) for name in settings.select)
    return tuple(replace(output, name=names.get(output.name, output.name)) for output in wanted)


def for_client(
    outputs: Sequence[Tensor], asked: Sequence[RequestedOutput], settings: RouteSettings
) -> tuple[Tensor, ...]:
    """The backend's outputs with the client's names: those it asked for, else those the route selects, in that order.

    Raises:
        DecodeError: an output that is not there, by name.
    """
    if settings.rename.outputs:
        names = {backend: client for client, backend in settings.rename.outputs}
        outputs = [_renamed(tensor, names) for tensor in outputs]
    wanted = [output.name for output in asked] or settings.select
    if not wanted or [tensor.name for tensor in outputs] == list(wanted):
        return tuple(outputs)
    return tuple(_pick(outputs, wanted))


def _pick(outputs: Sequence[Tensor], wanted: Sequence[str]) -> Iterable[Tensor]:
    there: Mapping[str, Tensor] = {tensor.name: tensor for tensor in outputs}
    for name in wanted:
        if name not in there:
            raise DecodeError(f"unknown output {name!r}{_suggest(name, there)}; the model gives {_names(there)}")
        yield there[name]


def _renamed(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    name = names.get(tensor.name, tensor.name)
    return tensor if name == tensor.name else replace(tensor, name=name)


def _repeated(tensors: Sequence[Tensor]) -> str:
    names = [tensor.name for tensor in tensors]
    return next(name for name in names if names.count(name) > 1)


def _suggest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f", did you mean {close[0]!r}?" if close else ""


def _list(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {spec.datatype} {list(spec.shape)}" for spec in specs) or "none"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
