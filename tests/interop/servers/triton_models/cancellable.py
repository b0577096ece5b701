"""The model `cancellable`: writes `started` to the file that it is given the name of, and once its request is cancelled
`cancelled`, or `gave up` after a while."""

import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS = 20


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        (name,) = request.inputs()[0].as_numpy()
        file = Path(name.decode())
        file.write_text("started")
        outcome = self.wait(request)
        file.write_text(outcome)
        if outcome == "cancelled":
            error = pb_utils.TritonError(outcome, pb_utils.TritonError.CANCELLED)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([outcome.encode()], object))])

    def wait(self, request):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if request.is_cancelled():
                return "cancelled"
            time.sleep(0.01)
        return "gave up"
