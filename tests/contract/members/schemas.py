"""Reads the members of messages from the schema files in `protos/` and from the gateway's OpenAPI documents."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from gateway.admin.openapi.document import document
from gateway.assembly.registry import protocols
from gateway.config import paths
from tests.running_gateway import config_of

PROTOS = Path(__file__).parents[3] / "protos"
CODE = Path(__file__).parents[3] / "gateway" / "protocols"

FOLDERS = {"v2": "v2/grpc", "grps": "grps", "tensorflow_serving": "tensorflow_serving"}
"""The folder in the package with the descriptors for each folder of `protos`."""

Members: TypeAlias = Mapping[str, frozenset[str]]
"""The member names by message, such as `ModelInferRequest` or `request of POST /v2/models/{model}/infer`."""


def of_schema(source: str) -> Members:
    """Return the members in a schema: `v2/inference.proto`, `graphpipe/graphpipe.fbs`, `openapi v2-rest`, or
    nothing."""
    kind, _, name = source.partition(" ")
    if kind == "openapi":
        return openapi(name)
    if source.endswith(".fbs"):
        return tables((PROTOS / source).read_text())
    return {} if not source else messages(source)


def messages(source: str) -> Members:
    """Return the members in a `.proto` file, from the descriptors that `make generate` compiles (a test compares them
    with the file). The members of a service are its methods. Messages without fields are left out."""
    compiled = CODE / FOLDERS[source.partition("/")[0]] / "descriptors.binpb"
    files = FileDescriptorSet.FromString(compiled.read_bytes()).file
    [file] = [each for each in files if source.endswith(each.name.rpartition("/")[2])]
    return dict(_of_file(file))


def _of_file(file: FileDescriptorProto) -> Iterator[tuple[str, frozenset[str]]]:
    for message in file.message_type:
        yield from _of_message(message, "")
    for service in file.service:
        yield service.name, frozenset(each.name for each in service.method)


def _of_message(message: DescriptorProto, outer: str) -> Iterator[tuple[str, frozenset[str]]]:
    if message.options.map_entry:
        return
    name = f"{outer}{message.name}"
    if message.field:
        yield name, frozenset(each.name for each in message.field)
    for nested in message.nested_type:
        yield from _of_message(nested, f"{name}.")


def tables(text: str) -> Members:
    text = re.sub(r"//.*", "", text)
    found = {name: re.findall(r"(\w+)\s*:", body) for name, body in re.findall(r"table (\w+) \{(.*?)\}", text, re.S)}
    return {name: frozenset(members) for name, members in found.items() if members}


def types(text: str) -> Mapping[str, list[tuple[str, str]]]:
    """Return the fields of the tables with their types, in the order of the schema."""
    text = re.sub(r"//.*", "", text)
    return {
        name: re.findall(r"(\w+)\s*:\s*([\w\[\]]+)", body)
        for name, body in re.findall(r"table (\w+) \{(.*?)\}", text, re.S)
    }


def openapi(name: str) -> Members:
    """Return the members of parameters, request bodies and replies with status 200, from the OpenAPI document of a
    listener with the protocol, for any model."""
    found: dict[str, frozenset[str]] = {}
    for path, methods in _document(name)["paths"].items():
        for method, operation in methods.items():
            asked = {f"{each['in']} {each['name']}" for each in operation.get("parameters", ())}
            for body in operation.get("requestBody", {}).get("content", {}).values():
                asked |= set(_properties(body.get("schema"), ""))
            told: set[str] = set()
            for reply in (operation["responses"].get("200") or {}).get("content", {}).values():
                told |= set(_properties(reply.get("schema"), ""))
            found[f"request of {method.upper()} {path}"] = frozenset(asked)
            found[f"reply of {method.upper()} {path}"] = frozenset(told)
    return {name: members for name, members in found.items() if members}


def _document(name: str) -> dict[str, Any]:
    text = f"""
listeners: [{{name: http, bind: "127.0.0.1:8080", protocols: [{name}]}}]
backends: {{lab: {{protocol: {name}, endpoints: ["http://127.0.0.1:1"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""
    config = config_of(text)
    [listener] = config.listeners
    rows = paths.rows(listener, config.routes, config.backends, protocols())
    return document(listener, rows, "http://127.0.0.1:8080", None, {}, "1.2.3")


def _properties(schema: Any, place: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    for name, each in schema.get("properties", {}).items():
        member = f"{place}.{name}" if place else name
        yield member
        yield from _properties(each, member)
    for key in ("oneOf", "anyOf", "prefixItems"):
        for each in schema.get(key, ()):
            yield from _properties(each, place)
    yield from _properties(schema.get("items"), f"{place}[]")
