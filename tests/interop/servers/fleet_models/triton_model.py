"""A model of a fleet, for Triton: it answers its own name, and the numbers that it got.

Parameters of its configuration: `journal`, a file to which each load adds the model's name; `fails`, what its load
raises; `gate`, a file without which its load does not end. A load that waits for its gate writes a file beside it,
whose name ends with the id of the server's process.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {key: each["string_value"] for key, each in config["parameters"].items()}
        self.name = np.array([config["name"].encode()], dtype=object)
        if "journal" in parameters:
            with open(parameters["journal"], "a") as journal:
                journal.write(f"{config['name']}\n")
        if "gate" in parameters:
            gate = Path(parameters["gate"])
            gate.with_name(f"{gate.name}.{os.getppid()}").touch()
            while not gate.exists():
                time.sleep(0.01)
        if "fails" in parameters:
            raise RuntimeError(parameters["fails"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        numbers = request.inputs()[0].as_numpy()
        tensors = [pb_utils.Tensor("model", self.name), pb_utils.Tensor("y", numbers)]
        return pb_utils.InferenceResponse(tensors)
