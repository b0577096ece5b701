"""Errors that backends report by their Status."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.messages import NO_HEADERS
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.protocols.grps import client
from gateway.protocols.grps.schema import FAILURE, SUCCESS, UNKNOWN, GrpsMessage, GrpsStatus, Payload
from tests.protocols.grps.values import numbers

FP32 = numbers("y", Datatype.FP32, 1, 2)

CPP_UNKNOWN = "[ExecutorException] Not found model: nobody-1.0.0"
PYTHON_UNKNOWN = (
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3/grps_framework/handler/grps_handler.py", line 53, in Predict\n'
    "    grpc_response = self.__tp.submit(...).result()\n"
    "RuntimeError: Model nobody-1.0.0 not found.\n"
)


def read(grps: GrpsMessage, operation: Operation = Operation.INFER) -> Answer:
    return client.decode_response(grps, NO_HEADERS, Request(operation, "m"))


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        (None, False),
        (GrpsStatus(), False),  # C++'s metadata over RPC
        (GrpsStatus(200, "OK", SUCCESS), False),
        (GrpsStatus(200, "", UNKNOWN), False),
        (GrpsStatus(0, "", FAILURE), True),
        (GrpsStatus(500, "", UNKNOWN), True),
    ],
)
def test_the_flag_decides_and_without_it_the_code(status: GrpsStatus | None, failed: bool) -> None:
    grps = GrpsMessage(status=status, payload=Payload.GTENSORS, tensors=(FP32,))
    if failed:
        with pytest.raises(GatewayError):
            read(grps)
    else:
        answer = read(grps)
        assert isinstance(answer, Response)
        assert answer.outputs == (FP32,)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (GrpsStatus(404, "Not Found", FAILURE), Reason.MODEL_NOT_FOUND, "Not Found"),
        (GrpsStatus(400, "No model name.", FAILURE), Reason.INVALID_INPUT, "No model name."),
        (GrpsStatus(500, "[ExecutorException] x", FAILURE), Reason.MODEL_ERROR, "[ExecutorException] x"),
        (GrpsStatus(500, CPP_UNKNOWN, FAILURE), Reason.MODEL_NOT_FOUND, CPP_UNKNOWN),
        (GrpsStatus(500, PYTHON_UNKNOWN, FAILURE), Reason.MODEL_NOT_FOUND, PYTHON_UNKNOWN),
        (GrpsStatus(500, PYTHON_UNKNOWN + "x", FAILURE), Reason.MODEL_ERROR, PYTHON_UNKNOWN + "x"),
        (GrpsStatus(500, "Model a not found.", FAILURE), Reason.MODEL_ERROR, "Model a not found."),
        (GrpsStatus(400, CPP_UNKNOWN, FAILURE), Reason.INVALID_INPUT, CPP_UNKNOWN),
        (GrpsStatus(503, "Service Unavailable", FAILURE), Reason.UNREACHABLE, "Service Unavailable"),
        (GrpsStatus(0, "", FAILURE), Reason.MODEL_ERROR, "status 0 without a message"),
    ],
)
def test_failures(status: GrpsStatus, reason: Reason, text: str) -> None:
    for operation in (Operation.INFER, Operation.STREAM, Operation.METADATA):
        with pytest.raises(GatewayError) as told:
            read(GrpsMessage(status=status), operation)
        assert (told.value.reason, told.value.message) == (reason, text)
