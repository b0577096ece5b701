"""A server's list of its models is longer than any other message outside tensor data: a repository has thousands."""

import json

import pytest

from gateway.assembly.forms import known
from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import LISTED_VALUES, Target
from gateway.core.requests import Request
from gateway.core.statistics import Statistics

MODELS = 10_000
NAMES = [f"model-{number}" for number in range(MODELS)]
FEWEST = 5000
"""Of the lists here: statistics have more values for each model."""
COUNTS = {f"count_{number}": number for number in range(60)}
READY = {"version": "1", "state": "READY", "reason": ""}
OWNED = {"object": "model", "created": 0, "owned_by": "me"}
LISTS = [
    ("v2-rest", "triton", Operation.MODELS, [{"name": n, **READY} for n in NAMES]),
    ("v2-rest", "kserve", Operation.MODELS, {"models": NAMES * 3}),
    ("v2-rest", "triton", Operation.ALL_STATISTICS, {"model_stats": [{"name": n, **COUNTS} for n in NAMES[:FEWEST]]}),
    ("v1-rest", "", Operation.MODELS, {"models": NAMES * 3}),
    ("umbridge", "", Operation.MODELS, {"protocolVersion": 1.0, "models": NAMES * 3}),
    ("umbridge", "", Operation.READY, {"protocolVersion": 1.0, "models": NAMES * 3}),
    ("json:openai-embeddings", "", Operation.MODELS, {"object": "list", "data": [{"id": n, **OWNED} for n in NAMES]}),
]


@pytest.mark.parametrize(("name", "flavor", "operation", "document"), LISTS)
def test_a_list_of_thousands_of_models_is_read(name: str, flavor: str, operation: Operation, document: object) -> None:
    reply = Message(status=200, parts=(json.dumps(document).encode(),))
    answer = known()[name].decode_response(reply, Request(operation), Target(flavor=flavor))
    found = answer.models if isinstance(answer, Statistics) else answer
    assert found is True or (isinstance(found, tuple) and len(found) >= FEWEST)


def test_a_list_has_a_bound_of_its_own() -> None:
    reply = Message(status=200, parts=(b"[%b]" % b",".join([b'{"name":"m"}'] * LISTED_VALUES),))
    with pytest.raises(DecodeError, match="more than 400000 JSON values"):
        known()["v2-rest"].decode_response(reply, Request(Operation.MODELS), Target(flavor="triton"))
