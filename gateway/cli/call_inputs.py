"""Builds the requests of `gateway call` and `gateway bench` from files and option values."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np
import typer

from gateway.client import translate
from gateway.client.outputs import as_parameters, as_tensor
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Request
from gateway.core.tensors import Parameters, Tensor

ARRAY_FILES = (".npy", ".npz")
JSON_PROTOCOL = "v2-rest"
"""The protocol that defines the JSON format of the argument FILE."""


class BadArgument(Exception):  # noqa: N818 - the argument is wrong
    """An argument or a file is invalid. The message contains its name and the expected format."""


def words(given: list[str], address: str, model: str) -> tuple[str, str, str]:
    """Return the address, the model and the file name (empty if not given). `address` and `model` are the values of the
    options with these names. If the address or the model is missing, raise BadParameter, which ends the command."""
    rest = list(given)
    address = address or (rest.pop(0) if rest else "")
    model = model or (rest.pop(0) if rest else "")
    if not address or not model or len(rest) > 1:
        raise typer.BadParameter("expected ADDRESS MODEL [FILE], or --address and --model instead of the first two")
    return address, model, rest[0] if rest else ""


def request(file: str, model: str) -> Request:
    """Return the request in a file, without its V2-specific data (`origin`). Without a file, return a request without
    inputs.

    Raises:
        BadArgument, DecodeError, GatewayError: the file is unreadable or contains no request.
    """
    if not file:
        return Request(Operation.INFER, model)
    if file.endswith(ARRAY_FILES):
        return Request(Operation.INFER, model, inputs=read_arrays(file))
    body = read(file)
    path = f"/v2/models/{quote(model, safe='')}/infer"
    return replace(translate.decode_request(JSON_PROTOCOL, body, path=path), origin=None)


def read(file: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raise BadArgument if the file is unreadable."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadArgument(f"{file}: {error.strerror}") from error


def read_arrays(file: str) -> tuple[Tensor, ...]:
    """Return the arrays in an .npz file with their names, or the array in an .npy file with an empty name.

    Raises:
        BadArgument: the file is unreadable, or contains Python objects.
    """
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return (as_tensor("", loaded),)
        with loaded:
            return tuple(as_tensor(name, loaded[name]) for name in loaded.files)
    except OSError as error:
        raise BadArgument(f"{file}: {os.strerror(error.errno) if error.errno else error}") from error
    except (ValueError, EOFError, GatewayError) as error:
        raise BadArgument(f"{file}: {error}") from error


def assigned(texts: Iterable[str], operation: Operation) -> tuple[Tensor, ...]:
    """Return the tensors from `--set`. The tensors that only derivative calls have follow the model's inputs; an
    omitted position is 0.

    Raises:
        BadArgument: a value cannot be a tensor, or a tensor that a derivative call needs is missing.
    """
    given: dict[str, Tensor] = {}
    unnamed: list[Tensor] = []
    for text in texts:
        name, value = _pair(text, "--set")
        tensor = _assigned_tensor(name, value)
        if not name:
            unnamed.append(tensor)
        elif name in given:
            raise BadArgument(f"--set {name} occurs twice")
        else:
            given[name] = tensor
    own = [_of_derivative(name, given.pop(name, None)) for name in DERIVATIVES.get(operation, ())]
    return (*unnamed, *given.values(), *own)


def combined(inputs: Iterable[Tensor], given: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the inputs from a file and from `--set`. An input from `--set` replaces the file's input with the same
    name."""
    given = tuple(given)
    replaced = {each.name for each in given if each.name}
    return (*(each for each in inputs if each.name not in replaced), *given)


def parameters(texts: Iterable[str]) -> Parameters:
    """Return the parameters from `--parameter`. Raise BadArgument if a value is unsuitable."""
    try:
        return as_parameters({name: _json_or_text(value) for name, value in _pairs(texts, "--parameter")})
    except GatewayError as error:
        raise BadArgument(f"--parameter: {error}") from error


def headers(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the headers from `--header`. Raise BadArgument for a header without a value."""
    return dict(_pairs(texts, "--header"))


def _of_derivative(name: str, tensor: Tensor | None) -> Tensor:
    if tensor is not None:
        return tensor
    if name in INDEX_TENSORS:
        return as_tensor(name, [0])
    raise BadArgument(f"the derivative needs --set {name}=...")


def _assigned_tensor(name: str, value: str) -> Tensor:
    if value.startswith("@"):
        (tensor, *others) = read_arrays(value[1:])
        if others or not value.endswith(".npy"):
            raise BadArgument(f"--set {name}={value}: expected an .npy file, which contains one array")
        return as_tensor(name, tensor.array)
    try:
        return as_tensor(name, json.loads(value) if value.startswith("[") else list(map(_scalar, value.split(","))))
    except json.JSONDecodeError as error:
        raise BadArgument(f"--set {name}={value}: not a list as JSON, such as [[1,2],[3,4]]: {error}") from error
    except (ValueError, GatewayError) as error:
        raise BadArgument(f"--set {name}={value}: {error}") from error


def _scalar(text: str) -> object:
    """Return `text` as a number or a bool, or unchanged if it is neither."""
    for read_as in (int, float):
        try:
            return read_as(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _pairs(texts: Iterable[str], option: str) -> Iterable[tuple[str, str]]:
    return [_pair(text, option) for text in texts]


def _pair(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        # A header without a value might be a secret, so the message does not contain it.
        raise BadArgument(f"{option}: expected NAME=VALUE")
    return name, value
