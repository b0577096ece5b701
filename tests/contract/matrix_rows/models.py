"""Rows about the metadata of models and servers."""

from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import merge
from gateway.core.requests import Request
from tests.contract.matrix_rows.asked import NONE, Asked


async def metadata(asked: Asked) -> str:
    parts = [
        await asked.tell(Request(Operation.METADATA, "posterior", part=part))
        for part in asked.front.traits.models.metadata_parts
    ]
    told = tuple(each for each in parts if isinstance(each, Signature))
    if not told:
        return NONE
    [spec] = merge(told).inputs
    names = "names, " if spec.name else ""
    return "sizes" if asked.front.traits.wire.points else f"{names}datatypes, shapes"


READINESS = {
    Operation.LIVE: "live",
    Operation.READY: "ready",
    Operation.MODEL_READY: "model ready",
    Operation.METADATA: "by a model's metadata",
    Operation.MODELS: "by the list of models",
}
"""The readiness requests that clients can send."""


async def readiness(asked: Asked) -> str:
    told = []
    for operation in (Operation.LIVE, Operation.READY, Operation.MODEL_READY):
        request = Request(operation, "posterior")
        if await asked.tell(request) is True:
            told.append(READINESS[asked.front.asked(request).operation])
    return ", ".join(dict.fromkeys(told)) or NONE


async def listing(asked: Asked) -> str:
    found = await asked.tell(Request(Operation.MODELS, "posterior"))
    names = [each.name for each in found] if isinstance(found, tuple) else []
    return "yes" if f"{asked.back.name}-posterior" in names else NONE
