"""Reads and writes metadata as YAML text in `str_data`: a model's Signature, or a server's model list.

Real servers respond with their own configuration. For a model, they send its entry in inference.yml, which does not
list inputs and outputs. For the server, they send inference.yml and server.yml in one mapping.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import DecodeError
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.tensors import Shape

Entry: TypeAlias = dict[str, Any]

_FREE = -1
"""A dimension of any size."""
_MAX_DIMENSIONS = 32
_MAX_DIGITS = 19
"""Maximum number of digits of a dimension."""

MAX_SIZE = 64 * 1024
"""Maximum length of a backend's metadata, in characters.

Real configurations have a few thousand characters. PyYAML reads 100 characters per millisecond."""
MAX_DEPTH = 16
"""Maximum nesting depth of a backend's metadata."""


# --- To clients ---


def write_model(signature: Signature, name: str) -> str:
    """Return a model's metadata under the `name` that the client used, including the additional entries that a grps
    backend reports."""
    document: Entry = {"name": name or signature.name, **_versions(signature.versions)}
    if signature.platform:
        document["platform"] = signature.platform
    if Operation.INFER not in signature.operations:
        # Clients can only stream from this model, or can call only its derivative models, such as `M.gradient`.
        document["infer"] = False
    if Operation.STREAM in signature.operations:
        document["stream"] = True
    document["inputs"] = [_spec(each) for each in signature.inputs]
    document["outputs"] = [_spec(each) for each in signature.outputs]
    document |= {key: value for key, value in signature.further.items() if key not in document}
    return _write(document)


def _versions(versions: tuple[str, ...]) -> Entry:
    """Return a single version as `version`, as in inference.yml, and several versions as `versions`."""
    if len(versions) == 1:
        return {"version": versions[0]}
    return {"versions": list(versions)} if versions else {}


def _spec(spec: TensorSpec) -> Entry:
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": list(spec.shape)}


def write_server(entries: tuple[ModelEntry, ...]) -> str:
    """Return a server's metadata, with its models in the format of inference.yml."""
    return _write(
        {"models": [{"name": each.name, **_versions((each.version,) if each.version else ())} for each in entries]}
    )


def _write(document: Entry) -> str:
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    return text


# --- From backends ---


def read_model(text: str) -> Signature:
    """Return the Signature in a model's metadata. If the metadata does not list inputs and outputs, the Signature has
    none.

    Raises:
        DecodeError: the text is not a YAML mapping, or has an unknown datatype or a dimension below -1.
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
        further={key: value for key, value in document.items() if key not in _KNOWN},
    )


_KNOWN = frozenset({"name", "version", "versions", "platform", "infer", "stream", "inputs", "outputs"})


def read_server(text: str) -> tuple[ModelEntry, ...]:
    """Return the models in server metadata. Raise DecodeError if the metadata is not a YAML mapping with a model
    list."""
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


def _datatype(value: object, what: str) -> Datatype:
    datatype = DATATYPES.get(value) if isinstance(value, str) else None
    if datatype is None:
        raise DecodeError(f"{what}: datatype {value!r}, expected one of {', '.join(DATATYPES)}")
    return datatype


def _shape(value: object, what: str) -> Shape:
    try:
        if isinstance(value, list) and len(value) <= _MAX_DIMENSIONS:
            shape = tuple(int(each) for each in value if len(each) <= _MAX_DIGITS)
            if len(shape) == len(value) and min(shape, default=0) >= _FREE:
                return shape
    except (TypeError, ValueError) as error:
        raise _not_a_shape(value, what) from error
    raise _not_a_shape(value, what)


def _not_a_shape(value: object, what: str) -> DecodeError:
    return DecodeError(f"{what}: shape {str(value)[:80]}, expected a list of sizes, -1 for a free one")


def _read_versions(document: Entry) -> tuple[str, ...]:
    versions = document.get("versions", [document["version"]] if document.get("version") else [])
    if not isinstance(versions, list):
        raise DecodeError("versions must be a list")
    return tuple(_text(each, "a version") for each in versions)


def _text(value: object, what: str) -> str:
    if value is not None and not isinstance(value, str):
        raise DecodeError(f"{what} must be a text")
    return str(value or "")


def _mappings(document: Entry, key: str) -> Iterator[Entry]:
    values = document.get(key) or []
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise DecodeError(f"{key} must be a list of mappings")
    yield from values


# --- Untrusted YAML from servers ---


def read_mapping(text: str) -> dict[str, Any]:
    """Return the YAML mapping in `text`.

    The values are strings, lists and mappings. Scalars stay strings because `1.0` is a version, not a number.

    Raises:
        DecodeError: the text is longer than MAX_SIZE, is not YAML, contains an alias, is nested deeper than MAX_DEPTH,
            or is not a mapping.
    """
    if len(text) > MAX_SIZE:
        raise DecodeError(f"metadata of {len(text)} characters, expected at most {MAX_SIZE}")
    try:
        document = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise DecodeError(f"metadata is not YAML: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise DecodeError("metadata is not a YAML mapping")
    return document


class _Plain(str):
    """A scalar that had no quotes in the input. The output also contains it without quotes, so readers still treat `16`
    as a number."""

    __slots__ = ()


class _Loader(yaml.BaseLoader):
    """A YAML loader that rejects nesting deeper than MAX_DEPTH, and aliases, which can expand a few lines to
    gigabytes."""

    depth = 0

    def construct_scalar(self, node: Any) -> str:
        text: str = super().construct_scalar(node)
        return _Plain(text) if node.style is None else text

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise DecodeError("metadata holds a YAML alias")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DecodeError(f"metadata is nested deeper than {MAX_DEPTH}")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes _Plain strings without quotes."""


def _write_plain(dumper: Any, text: _Plain) -> yaml.ScalarNode:
    tag = dumper.resolve(yaml.ScalarNode, str(text), (True, False))
    node: yaml.ScalarNode = dumper.represent_scalar(tag, str(text))
    return node


_Dumper.add_representer(_Plain, _write_plain)
