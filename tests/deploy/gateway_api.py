"""JSON Schemas of the Gateway API's routes, gateway.networking.k8s.io/v1, standard channel.

Written from the reference at https://gateway-api.sigs.k8s.io/reference/spec/ : its fields, their limits and
enumerations, as far as the chart and its values use them. Fields that it does not have are refused.
"""

from typing import Any

Schema = dict[str, Any]

NAME = {"type": "string", "minLength": 1, "maxLength": 253}
NAMESPACE = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
HOSTNAME = {
    "type": "string",
    "maxLength": 253,
    "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
DURATION = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
HEADER_NAME = {"type": "string", "pattern": r"^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$", "maxLength": 256}


def closed(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """A map of these fields and no others."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def several(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def kubernetes_object(api_version: str, kind: str, spec: Schema) -> Schema:
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata={"type": "object", "required": ["name"]},
        spec=spec,
    )


PARENT = closed(
    ("name",),
    group={"type": "string"},
    kind={"type": "string"},
    namespace=NAMESPACE,
    name=NAME,
    sectionName=NAME,
    port=PORT,
)
BACKEND = closed(
    ("name", "port"),  # the port is required where the backend is a Service
    group={"type": "string"},
    kind={"type": "string"},
    name=NAME,
    namespace=NAMESPACE,
    port=PORT,
    weight={"type": "integer", "minimum": 0, "maximum": 1000000},
)
HEADER = closed(("name", "value"), name=HEADER_NAME, value={"type": "string", "minLength": 1, "maxLength": 4096})
MODIFIER = closed(set=several(HEADER, 16), add=several(HEADER, 16), remove=several({"type": "string"}, 16))
MATCHED_HEADER = closed(
    ("name", "value"),
    type={"enum": ["Exact", "RegularExpression"]},
    name=HEADER_NAME,
    value={"type": "string", "minLength": 1, "maxLength": 4096},
)
MATCHED_PATH = closed(
    type={"enum": ["Exact", "PathPrefix", "RegularExpression"]}, value={"type": "string", "maxLength": 1024}
)
MATCHED_METHOD = {
    **closed(
        type={"enum": ["Exact", "RegularExpression"]},
        service={
            "type": "string",
            "maxLength": 1024,
            "pattern": r"^[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*$",
        },
        method={"type": "string", "maxLength": 1024, "pattern": r"^[A-Za-z_][A-Za-z_0-9]*$"},
    ),
    "anyOf": [{"required": ["service"]}, {"required": ["method"]}],
}
VERBS = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]


def filters(*types: str) -> Schema:
    names = {each: each[0].lower() + each[1:] for each in types}
    return {
        "oneOf": [
            closed(("type", name), type={"const": each}, **{name: MODIFIER if each.endswith("Modifier") else {}})
            for each, name in names.items()
        ]
    }


def route(kind: str, rule: Schema, hostnames: Schema | None = None, required: tuple[str, ...] = ()) -> Schema:
    spec = closed(
        ("parentRefs", *required),
        parentRefs=several(PARENT, 32, least=1),
        rules=several(rule, 16, least=1),
        **({} if hostnames is None else {"hostnames": hostnames}),
    )
    return kubernetes_object("gateway.networking.k8s.io/v1", kind, spec)


COMMON = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef")

SCHEMAS: dict[str, Schema] = {
    "HTTPRoute": route(
        "HTTPRoute",
        closed(
            name=NAME,
            matches=several(
                closed(
                    path=MATCHED_PATH,
                    headers=several(MATCHED_HEADER, 16),
                    queryParams=several(MATCHED_HEADER, 16),
                    method={"enum": VERBS},
                ),
                64,
            ),
            filters=several(filters(*COMMON, "RequestRedirect", "URLRewrite"), 16),
            backendRefs=several(BACKEND, 16),
            timeouts=closed(request=DURATION, backendRequest=DURATION),
        ),
        several(HOSTNAME, 16),
    ),
    "GRPCRoute": route(
        "GRPCRoute",
        closed(
            name=NAME,
            matches=several(closed(method=MATCHED_METHOD, headers=several(MATCHED_HEADER, 16)), 64),
            filters=several(filters(*COMMON), 16),
            backendRefs=several(BACKEND, 16),
        ),
        several(HOSTNAME, 16),
    ),
    "TCPRoute": route("TCPRoute", closed(("backendRefs",), name=NAME, backendRefs=several(BACKEND, 16, least=1))),
    "TLSRoute": route(
        "TLSRoute",
        closed(("backendRefs",), name=NAME, backendRefs=several(BACKEND, 16, least=1)),
        several(HOSTNAME, 16, least=1),
        ("hostnames",),
    ),
}
