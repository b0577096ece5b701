"""The OpenAPI 3.1 document of a listener: its paths with their prefixes, as their protocols describe them.

`api` and the command `gateway openapi` create the document. The statuses and bodies of errors come from the protocol's
`encode_error`. The document omits paths whose requests always fail.
"""

import re
from base64 import b64encode
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeAlias

import orjson

from gateway.admin.console.explanations import EXPLANATIONS
from gateway.assembly import registry
from gateway.config.access import AuthConfig
from gateway.config.listeners import ListenerConfig
from gateway.core.address import ALL_ADDRESSES
from gateway.core.errors import REASON_HEADER, RETRY_HEADER, Reason, refusal
from gateway.core.json.openapi import DescribedModel, DescribeOperation, HttpOperation, Media, Parameter, has_example
from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.requests import Request

JsonObject: TypeAlias = dict[str, Any]

VERSION = "3.1.0"

_NEVER_SEEN = {Reason.CANCELLED, Reason.METHOD_NOT_ALLOWED, Reason.VERSION_NOT_SUPPORTED}
"""Error reasons that a client of a documented operation never sees, because the client has disconnected or because the
reasons apply to other kinds of requests."""
_OF_BODIES = {
    Reason.LENGTH_REQUIRED,
    Reason.UNSUPPORTED_ENCODING,
    Reason.UNSUPPORTED_MEDIA_TYPE,
    Reason.TOO_LARGE,
}
_CAPTURE = re.compile(r"\{(\w+)\}")
_REST = "rest"
"""The path parameter for the part of a path that a pattern's `*` matches."""


def document(
    listener: ListenerConfig,
    rows: Iterable[tuple[Protocol, str]],
    url: str,
    auth: AuthConfig | None,
    models: Mapping[str, DescribedModel | str],
    version: str,
) -> JsonObject:
    """Return the document of `listener`.

    - `rows`: The listener's protocols with their prefixes, as in its PathTable.
    - `url`: The listener's address for clients; empty if the address is unknown.
    - `auth`: The credentials that clients can use; None without authentication.
    - `models`: For each protocol name, the model to describe, or the reason why the model cannot be described. For a
      protocol without an entry, the document describes the paths for any model.
    - `version`: The gateway's version.
    """
    schemes = _security_schemes(listener, auth)
    responses = _Responses()
    paths: dict[str, JsonObject] = {}
    names: set[str] = set()
    spoken: set[str] = set()
    for protocol, prefix in rows:
        spoken.add(protocol.name)
        known = models.get(protocol.name)
        for pattern in protocol.patterns:
            model = _model_of(protocol, pattern, known, listener)
            describe = describes(protocol)
            described = None if describe is None else describe(pattern, model, listener.flavor.get(protocol.name, ""))
            made = _operation(protocol, pattern, model, described, responses)
            method, path = _placed(pattern, prefix)
            if made is not None and method not in paths.setdefault(path, {}):
                name = _operation_id(method, path, names)
                names.add(name)
                paths[path][method] = {"operationId": name, **made}
    components = {"responses": responses.found, "securitySchemes": schemes}
    return {
        "openapi": VERSION,
        "info": {
            "title": f"Modelglot: listener {listener.name}",
            "version": version,
            "description": _about(listener, models),
        },
        "servers": [{"url": url or "/", "description": f"Listener {listener.name}"}],
        "tags": [{"name": name} for name in listener.protocols if name in spoken],
        "paths": {path: methods for path, methods in paths.items() if methods},
        "components": {name: each for name, each in components.items() if each},
        **({"security": _security(listener, schemes)} if schemes else {}),
    }


def _model_of(
    protocol: Protocol, pattern: str, known: DescribedModel | str | None, listener: ListenerConfig
) -> DescribedModel | None:
    """Return the model for which the document describes a path. Return None if the description applies to any model, or
    if the path always leads to another model."""
    models = protocol.traits.models
    is_named = models.named or models.may_be_named or "{model}" in pattern
    return known if isinstance(known, DescribedModel) and (is_named or known.name == listener.model) else None


def _about(listener: ListenerConfig, models: Mapping[str, DescribedModel | str]) -> str:
    lines = [f"The listener `{listener.name}` serves {', '.join(listener.protocols)}."]
    if listener.model:
        lines.append(f"Requests without a model name are for `{listener.model}`.")
    for name, known in models.items():
        if isinstance(known, str):
            lines.append(f"The model is not described for {name}: {known}.")
        elif not known.signature.inputs:
            lines.append(f"The inputs of `{known.name}` are unknown to clients of {name}.")
        elif not has_example(known.signature.inputs):
            lines.append(f"The inputs of `{known.name}` are too large for examples, or files.")
    return "\n\n".join(lines)


def _placed(pattern: str, prefix: str) -> tuple[str, str]:
    """Return a pattern's method in lowercase, and its path with the prefix."""
    method, _, path = pattern.partition(" ")
    if prefix.strip("/"):
        path = f"/{prefix.strip('/')}{path.rstrip('/')}"
    return method.lower(), f"{path[:-1]}{{{_REST}}}" if path.endswith("*") else path


def _operation_id(method: str, path: str, taken: Container[str]) -> str:
    """Return the operation id, from which generated clients derive a function name, such as
    `post_v2_models_model_infer`."""
    name = "_".join((method, *re.findall(r"[A-Za-z0-9]+", path)))
    return next(each for each in chain([name], (f"{name}_{at}" for at in count(2))) if each not in taken)


class _Responses:
    """The document's error responses, without duplicates. Operations refer to the responses by name."""

    def __init__(self) -> None:
        self.found: dict[str, JsonObject] = {}

    def reference(self, name: str, response: JsonObject) -> JsonObject:
        """Return a reference to the response. Add it under `name` if no equal response exists."""
        unique, number = name, 1
        while self.found.setdefault(unique, response) != response:
            number += 1
            unique = f"{name}-{number}"
        return {"$ref": f"#/components/responses/{unique}"}


def describes(protocol: Protocol) -> DescribeOperation | None:
    """Return the function that describes the protocol's paths; None if the protocol cannot describe them, or if the
    gateway forwards its messages unchanged."""
    if protocol.http.is_passthrough:
        return None
    return protocol.describer() if protocol.describer is not None else registry.descriptions().get(protocol.name)


def _operation(
    protocol: Protocol,
    pattern: str,
    model: DescribedModel | None,
    described: HttpOperation | None,
    responses: _Responses,
) -> JsonObject | None:
    found: JsonObject = {"tags": [protocol.name]}
    parameters = [_path_parameter(name, model) for name in _CAPTURE.findall(pattern)]
    if pattern.endswith("*"):
        parameters.append(_path_parameter(_REST, None))
    if described is None:
        passed = "Passed to the model server as it is" if protocol.http.is_passthrough else f"Served by {protocol.name}"
        found |= {"summary": passed, "responses": {"default": {"description": "Not described."}}}
    elif not described.replies:
        return None
    else:
        found |= _described(protocol, pattern, described, responses)
        parameters += map(_parameter, described.parameters)
    return {**found, **({"parameters": parameters} if parameters else {})}


def _described(protocol: Protocol, pattern: str, described: HttpOperation, responses: _Responses) -> JsonObject:
    found: JsonObject = {"summary": described.summary}
    if described.description:
        found["description"] = described.description
    if described.body:
        content = {name: _media(each) for name, each in described.body.items()}
        found["requestBody"] = {"required": described.body_is_required, "content": content}
    replies: JsonObject = {
        str(status): {
            "description": text or "The answer.",
            "content": {name: _media(each) for name, each in content.items()},
        }
        for status, (text, content) in described.replies.items()
    }
    for status, response in _errors(protocol, pattern, described):
        if str(status) in replies:
            replies[str(status)]["content"] |= _merged(replies[str(status)]["content"], response["content"])
            replies[str(status)]["description"] += f" Or an error: {response['description']}"
        else:
            replies[str(status)] = responses.reference(f"{protocol.name.replace(':', '-')}-{status}", response)
    return {**found, "responses": replies}


def _merged(own: JsonObject, errors: JsonObject) -> JsonObject:
    """Return the error bodies by media type, merged with the bodies (`own`) of other responses with the same status."""
    return {
        name: {"schema": {"anyOf": [own[name]["schema"], each["schema"]]}}
        if name in own and "schema" in own[name] and "schema" in each
        else each
        for name, each in errors.items()
    }


def _errors(protocol: Protocol, pattern: str, described: HttpOperation) -> Iterator[tuple[int, JsonObject]]:
    """Yield the error responses, by status."""
    method, _, path = pattern.partition(" ")
    message = Message(method, path, pattern=pattern)
    request = None if described.operation is None else Request(described.operation, "MODEL", origin=message)
    by_status: dict[int, list[tuple[Reason, Message]]] = {}
    for reason in Reason:
        if reason not in _NEVER_SEEN and (described.body or reason not in _OF_BODIES):
            reply = protocol.encode_error(refusal(reason, EXPLANATIONS[reason].meaning), request, message)
            by_status.setdefault(reply.status, []).append((reason, reply))
    for status, replies in sorted(by_status.items()):
        yield status, _error_response(status, replies, described)


def _error_response(status: int, replies: Sequence[tuple[Reason, Message]], described: HttpOperation) -> JsonObject:
    reasons = [reason for reason, _ in replies]
    headers: JsonObject = {
        REASON_HEADER: {"description": "Which of them.", "schema": {"enum": [each.value for each in reasons]}}
    }
    if status in (429, 503):
        headers[RETRY_HEADER] = {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}
    examples = {
        reason.value: {"value": orjson.loads(reply.body)}
        for reason, reply in replies
        if reply.headers.get("content-type") == "application/json"
    }
    content = {name: _media(each) for name, each in described.error.items()}
    if examples and "application/json" in content:
        content["application/json"]["examples"] = examples
    text = " ".join(f"`{each.value}`: {EXPLANATIONS[each].meaning}" for each in reasons)
    return {"description": text, "headers": headers, "content": content}


def _media(media: Media) -> JsonObject:
    found: JsonObject = {} if media.schema is None else {"schema": dict(media.schema)}
    if media.example is not None:
        found["example"] = media.example
    if media.binary_example:
        # OpenAPI cannot represent examples of bytes
        found["x-example-base64"] = b64encode(media.binary_example).decode()
    if media.example_headers:
        found["x-example-headers"] = dict(media.example_headers)
    return found


def _parameter(parameter: Parameter) -> JsonObject:
    found: JsonObject = {"name": parameter.name, "in": parameter.place, "schema": dict(parameter.schema)}
    found["description"] = parameter.description
    return found


def _path_parameter(name: str, model: DescribedModel | None) -> JsonObject:
    known: tuple[str, ...] = ()
    if model is not None:
        versions = (model.version,) if model.version else model.signature.versions
        known = {"model": (model.name,), "version": versions}.get(name, ())
    schema: JsonObject = {"type": "string", "enum": list(known)} if known else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _security_schemes(listener: ListenerConfig, auth: AuthConfig | None) -> JsonObject:
    """Return the credentials that a client can send."""
    if listener.auth is None or auth is None:
        return {}
    return security_schemes(listener.auth.accept or auth.ways, auth)


def security_schemes(ways: Sequence[str], auth: AuthConfig) -> JsonObject:
    """Return the security schemes for these authentication methods."""
    found: JsonObject = {}
    if "keys" in ways or "jwt" in ways:
        what = " or ".join(name for way, name in (("keys", "an API key"), ("jwt", "a token")) if way in ways)
        found["bearer"] = {"type": "http", "scheme": "bearer", "description": f"{what.capitalize()}."}
        found["basic"] = {"type": "http", "scheme": "basic", "description": f"Any user, and {what} as the password."}
    if "keys" in ways and auth.keys is not None:
        found["key"] = {"type": "apiKey", "in": "header", "name": auth.keys.header}
    if "certificates" in ways:
        found["certificate"] = {"type": "mutualTLS"}
    return found


def _security(listener: ListenerConfig, schemes: JsonObject) -> list[JsonObject]:
    is_optional = listener.auth is not None and listener.auth.anonymous is not None
    return [{name: []} for name in schemes] + ([{}] if is_optional else [])


def listener_url(config: ListenerConfig, address: str, host: str) -> str:
    """Return the URL of a listener that is bound to `address` (`host:port`). `host`, the host name in the caller's own
    request, replaces a wildcard address."""
    bound, _, port = address.rpartition("://")[2].rpartition(":")
    if bound.strip("[]") in ALL_ADDRESSES:
        bound = f"[{host}]" if ":" in host else host or "localhost"
    return f"{'http' if config.tls is None else 'https'}://{bound}:{port}"
