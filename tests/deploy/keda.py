"""The JSON Schema of KEDA's ScaledObject, keda.sh/v1alpha1.

Written from the fields of KEDA's type ScaledObjectSpec and of its triggers. Fields that it does not have are refused.
"""

from tests.deploy.gateway_api import closed, kubernetes_object

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TRIGGER = closed(
    ("type", "metadata"),
    type={"enum": ["external", "external-push"]},
    name=_TEXT,
    useCachedMetrics={"type": "boolean"},
    metadata={"type": "object", "additionalProperties": _TEXT, "required": ["scalerAddress"]},
    authenticationRef=closed(("name",), name=_TEXT, kind=_TEXT),
    metricType={"enum": ["AverageValue", "Value"]},
)
SCHEMAS = {
    "ScaledObject": kubernetes_object(
        "keda.sh/v1alpha1",
        "ScaledObject",
        closed(
            ("scaleTargetRef", "triggers"),
            scaleTargetRef=closed(("name",), name=_TEXT, apiVersion=_TEXT, kind=_TEXT, envSourceContainerName=_TEXT),
            pollingInterval=_COUNT,
            initialCooldownPeriod=_COUNT,
            cooldownPeriod=_COUNT,
            idleReplicaCount=_COUNT,
            minReplicaCount=_COUNT,
            maxReplicaCount=_COUNT,
            advanced={"type": "object"},
            fallback=closed(("failureThreshold", "replicas"), failureThreshold=_COUNT, replicas=_COUNT, behavior=_TEXT),
            triggers={"type": "array", "items": _TRIGGER, "minItems": 1},
        ),
    )
}
