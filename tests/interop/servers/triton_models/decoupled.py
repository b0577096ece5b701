"""The decoupled model `repeat`: for n the numbers below n, one response each; for a negative n an error after them."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.answer(request)

    def answer(self, request):
        sender = request.get_response_sender()
        (count,) = (int(number) for number in request.inputs()[0].as_numpy())
        for number in range(abs(count)):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([number], np.int32))]))
        if count < 0:
            text = f"refused after {-count} responses"
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
