"""Metadata as YAML text: a model's Signature, and the list of a server's models.

Real servers answer with their own configuration: a model's entry in inference.yml, which tells no inputs and outputs;
for the server inference.yml and server.yml in one mapping.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import DecodeError
from gateway.core.operations import Operation
from gateway.core.types import ModelEntry, Shape, Signature, TensorSpec
from gateway.protocols.grps.yaml_text import read_mapping

Entry: TypeAlias = dict[str, Any]

_FREE = -1


def write_model(signature: Signature, name: str) -> str:
    """A model's metadata, under the `name` that the client used."""
    document: Entry = {"name": name or signature.name, **_versions(signature.versions)}
    if signature.platform:
        document["platform"] = signature.platform
    if Operation.INFER not in signature.operations:
        # one that only streams, or whose companions alone can be inferred, such as `M.gradient`
        document["infer"] = False
    if Operation.STREAM in signature.operations:
        document["stream"] = True
    document["inputs"] = [_spec(each) for each in signature.inputs]
    document["outputs"] = [_spec(each) for each in signature.outputs]
    return _write(document)


def _versions(versions: tuple[str, ...]) -> Entry:
    """inference.yml has one."""
    if len(versions) == 1:
        return {"version": versions[0]}
    return {"versions": list(versions)} if versions else {}


def _spec(spec: TensorSpec) -> Entry:
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": list(spec.shape)}


def write_server(entries: tuple[ModelEntry, ...]) -> str:
    """A server's metadata: its models, as inference.yml has them."""
    return _write(
        {"models": [{"name": each.name, **_versions((each.version,) if each.version else ())} for each in entries]}
    )


def _write(document: Entry) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return text


def read_model(text: str) -> Signature:
    """The Signature that a model's metadata tells; without inputs and outputs where it tells none.

    Raises:
        DecodeError: not a mapping in YAML; an unknown datatype, a dimension below -1.
    """
    document = read_mapping(text)
    operations = frozenset({Operation.INFER}) if document.get("infer") != "false" else frozenset[Operation]()
    if document.get("stream") == "true":
        operations |= {Operation.STREAM}
    return Signature(
        _specs(document, "input"),
        _specs(document, "output"),
        operations,
        name=_text(document.get("name"), "name"),
        versions=_read_versions(document),
        platform=_text(document.get("platform"), "platform"),
    )


def read_server(text: str) -> tuple[ModelEntry, ...]:
    """The models of a server's metadata. Raises DecodeError for anything but a mapping in YAML with a list of them."""
    document = read_mapping(text)
    return tuple(
        ModelEntry(_text(each.get("name"), "a model's name"), _text(each.get("version"), "a model's version"))
        for each in _mappings(document, "models")
    )


def _specs(document: Entry, role: str) -> tuple[TensorSpec, ...]:
    return tuple(_read_spec(each, role) for each in _mappings(document, f"{role}s"))


def _read_spec(entry: Entry, role: str) -> TensorSpec:
    name = _text(entry.get("name"), f"{role}'s name")
    what = f"{role} {name!r}"
    return TensorSpec(name, _datatype(entry.get("datatype"), what), _shape(entry.get("shape"), what))


def _datatype(given: object, what: str) -> Datatype:
    datatype = DATATYPES.get(given) if isinstance(given, str) else None
    if datatype is None:
        raise DecodeError(f"{what}: datatype {given!r}, expected one of {', '.join(DATATYPES)}")
    return datatype


def _shape(given: object, what: str) -> Shape:
    try:
        if isinstance(given, list) and len(given) <= _MOST_DIMENSIONS:
            shape = tuple(int(each) for each in given if len(each) < _LONGEST_DIMENSION)
            if len(shape) == len(given) and min(shape, default=0) >= _FREE:
                return shape
    except (TypeError, ValueError) as error:
        raise _not_a_shape(given, what) from error
    raise _not_a_shape(given, what)


_MOST_DIMENSIONS = 32
_LONGEST_DIMENSION = 20  # digits


def _not_a_shape(given: object, what: str) -> DecodeError:
    return DecodeError(f"{what}: shape {str(given)[:80]}, expected a list of sizes, -1 for a free one")


def _read_versions(document: Entry) -> tuple[str, ...]:
    given = document.get("versions", [document["version"]] if document.get("version") else [])
    if not isinstance(given, list):
        raise DecodeError("versions must be a list")
    return tuple(_text(each, "a version") for each in given)


def _text(given: object, what: str) -> str:
    if given is not None and not isinstance(given, str):
        raise DecodeError(f"{what} must be a text")
    return given or ""


def _mappings(document: Entry, key: str) -> Iterator[Entry]:
    given = document.get(key) or []
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise DecodeError(f"{key} must be a list of mappings")
    yield from given
