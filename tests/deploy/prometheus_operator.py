"""JSON Schemas of the Prometheus Operator's ServiceMonitor and PrometheusRule, monitoring.coreos.com/v1.

Written from the reference at https://prometheus-operator.dev/docs/api-reference/api/ : their fields and enumerations,
as far as the chart and its values use them. Fields that it does not have are refused.
"""

from tests.deploy.gateway_api import Schema, closed, kubernetes_object

DURATION = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
ACTIONS = [
    "replace", "Replace", "keep", "Keep", "drop", "Drop", "hashmod", "HashMod", "labelmap", "LabelMap", "labeldrop",
    "LabelDrop", "labelkeep", "LabelKeep", "lowercase", "Lowercase", "uppercase", "Uppercase", "keepequal",
    "KeepEqual", "dropequal", "DropEqual",
]  # fmt: skip
RELABELING = closed(
    sourceLabels={"type": "array", "items": {"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}},
    separator=TEXT,
    targetLabel=TEXT,
    regex=TEXT,
    modulus={"type": "integer"},
    replacement=TEXT,
    action={"enum": ACTIONS},
)


API = "monitoring.coreos.com/v1"
_KEY = closed(("key",), name=TEXT, key=TEXT, optional={"type": "boolean"})
_SECRET_OR_CONFIG_MAP = closed(secret=_KEY, configMap=_KEY)
_ENDPOINT = closed(
    authorization=closed(type=TEXT, credentials=_KEY),
    tlsConfig=closed(
        ca=_SECRET_OR_CONFIG_MAP,
        cert=_SECRET_OR_CONFIG_MAP,
        keySecret=_KEY,
        serverName=TEXT,
        insecureSkipVerify={"type": "boolean"},
    ),
    port=TEXT,
    path=TEXT,
    scheme={"enum": ["http", "https", "HTTP", "HTTPS"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    relabelings={"type": "array", "items": RELABELING},
    metricRelabelings={"type": "array", "items": RELABELING},
)
_RULE = closed(
    ("expr",), alert=TEXT, expr={"type": ["string", "integer"]}, **{"for": DURATION}, labels=TEXTS, annotations=TEXTS
)
_GROUP = closed(
    ("name",), name={"type": "string", "minLength": 1}, interval=DURATION, rules={"type": "array", "items": _RULE}
)

SCHEMAS: dict[str, Schema] = {
    "ServiceMonitor": kubernetes_object(
        API,
        "ServiceMonitor",
        closed(
            ("endpoints", "selector"),
            selector=closed(matchLabels=TEXTS),
            endpoints={"type": "array", "items": _ENDPOINT},
        ),
    ),
    "PrometheusRule": kubernetes_object(API, "PrometheusRule", closed(groups={"type": "array", "items": _GROUP})),
}
