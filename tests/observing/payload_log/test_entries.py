"""Entries as events: KServe's attributes, and what is beside them."""

import json

import pytest

from gateway.core.frozen import replace
from gateway.observing.payload_log.entries import EventForm, event
from tests.observing.payload_log.logged import FACTS, FAILED, FORM, REPLY, REQUEST

COMMON = {
    "id": "id1", "source": "here", "inferenceservicename": "m", "component": "predictor", "endpoint": "b",
    "metadata": "{}", "operation": "infer", "route": "route-0", "protocol": "v2-rest",
}  # fmt: skip


def test_a_request_and_its_reply_have_one_id_and_kserve_s_types() -> None:
    request, reply = event(REQUEST, FORM), event(REPLY, FORM)
    assert request.attributes == {
        **COMMON, "type": "org.kubeflow.serving.inference.request", "time": "2023-11-14T22:13:20.000000Z",
        "complete": True,
    }  # fmt: skip
    assert reply.attributes == {
        **COMMON, "type": "org.kubeflow.serving.inference.response", "time": "2023-11-14T22:13:21.000000Z",
        "status": "OK", "complete": True,
    }  # fmt: skip


def test_an_error_stands_in_place_of_the_reply() -> None:
    found = event(FAILED, FORM)
    assert {key: found.attributes[key] for key in ("type", "status", "reason")} == {
        "type": "org.kubeflow.serving.inference.response", "status": "NOT_FOUND", "reason": "model-not-found",
    }  # fmt: skip
    assert json.loads(found.data) == {"id": "id1", "error": "no model 'm'"}


def test_replies_of_a_stream_are_numbered() -> None:
    assert event(replace(REPLY, number=3), FORM).attributes["sequence"] == "3"


def test_a_namespace_is_told_where_there_is_one() -> None:
    assert event(REQUEST, EventForm("here", "lab")).attributes["namespace"] == "lab"


@pytest.mark.parametrize(("given", "written"), [("", "id1"), ("client's", "client's")])
def test_the_message_has_the_client_s_id_else_that_of_the_request(given: str, written: str) -> None:
    request = replace(REQUEST, call=replace(FACTS, message_id=given))
    assert json.loads(event(request, FORM).data)["id"] == written
    assert event(request, FORM).attributes["id"] == "id1"


def test_binary_says_where_the_data_begins() -> None:
    found = event(REPLY, EventForm("here", is_binary=True))
    length = found.attributes["headerlength"]
    assert isinstance(length, int)
    assert json.loads(found.data[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert found.data[length:] == bytes.fromhex("000000000000f03f")
    assert event(FAILED, EventForm("here", is_binary=True)).content == "application/json"
