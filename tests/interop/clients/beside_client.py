"""The gateway and `tritonclient.grpc` in one process, with the gateway's package on PYTHONPATH.

Takes `modules`, which it imports in their order; then a request that tritonclient wrote is read by the gateway's codec,
and what the gateway writes by tritonclient. Prints what each has read.
"""

import importlib


def main(order):
    for name in order:
        importlib.import_module(name)
    return {"request": read_by_the_gateway(), "response": read_by_the_client()}


def read_by_the_gateway():
    import numpy as np
    from tritonclient.grpc import InferInput, service_pb2

    from gateway.core.messages import Message
    from gateway.core.protocol import ListenerSettings
    from gateway.protocols.v2 import V2_GRPC

    x = InferInput("x", [2], "INT32").set_data_from_numpy(np.array([1, 2], np.int32))
    sent = service_pb2.ModelInferRequest(
        model_name="double", id="id-1", inputs=[x._get_tensor()], raw_input_contents=[x._get_content()]
    )
    method = "/inference.GRPCInferenceService/ModelInfer"
    message = Message(path=method, parts=(sent.SerializeToString(),), pattern=method)
    request = V2_GRPC.decode_request(message, ListenerSettings())
    return [request.model, request.id, request.inputs[0].array.tolist()]


def read_by_the_client():
    import numpy as np
    from tritonclient.grpc import InferResult, service_pb2

    from gateway.core.operations import Operation
    from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
    from gateway.core.tensors import tensor
    from gateway.protocols.v2 import V2_GRPC

    answer, request = Response((tensor("y", np.array([0.5, -1.5])),), "double"), Request(Operation.INFER, id="id-1")
    reply = V2_GRPC.encode_response(answer, request, DEFAULT_TRANSLATE)
    result = InferResult(service_pb2.ModelInferResponse.FromString(b"".join(reply.parts)))
    return [result.get_response().model_name, result.get_response().id, result.as_numpy("y").tolist()]
