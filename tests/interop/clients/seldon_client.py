"""Drive Seldon's client of a microservice, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step: `{"success": bool, "reply": document, "text": message}`.
A step has the arguments of `microservice`, with `data` as nested lists.
"""

import numpy as np
from google.protobuf.json_format import MessageToDict
from seldon_core.proto.prediction_pb2 import SeldonMessage
from seldon_core.seldon_client import SeldonClient


def call(client, step):
    data = {"data": np.array(step.pop("data"))} if "data" in step else {}
    found = client.microservice(**data, **step, transport="rest", method="predict")
    return {"success": found.success, "reply": shown(found.response), "text": found.msg.lower()}


def shown(reply):
    """A reply as a document: that of a failure is one already."""
    return MessageToDict(reply) if isinstance(reply, SeldonMessage) else reply


def main(url, steps):
    client = SeldonClient(microservice_endpoint=url.partition("://")[2])
    return [call(client, step) for step in steps]
