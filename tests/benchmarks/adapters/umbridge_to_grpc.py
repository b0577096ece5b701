"""The bridge one writes by hand for UM-Bridge clients: `python umbridge_to_grpc.py PORT HOST:PORT`.

An `umbridge.Model` that calls `tritonclient.grpc`, as the documentation of either shows, with the client kept open. It
trusts its clients and its server, and knows nothing of what the gateway checks.
"""

import sys
from functools import partial

import numpy as np
import tritonclient.grpc as grpcclient
import umbridge
from aiohttp import web


class V2Model(umbridge.Model):
    def __init__(self, name, size, address):
        super().__init__(name)
        self.size = size
        self.client = grpcclient.InferenceServerClient(address)

    def get_input_sizes(self, config):
        return [self.size]

    def get_output_sizes(self, config):
        return [self.size]

    def __call__(self, parameters, config):
        data = np.array(parameters, dtype=np.float64)
        x = grpcclient.InferInput("input0", data.shape, "FP64")
        x.set_data_from_numpy(data)
        result = self.client.infer(self.name, inputs=[x], outputs=[grpcclient.InferRequestedOutput("output0")])
        return result.as_numpy("output0").tolist()

    def supports_evaluate(self):
        return True


if __name__ == "__main__":
    port, address = sys.argv[1:]
    # The package has no option for the address it binds.
    web.run_app = partial(web.run_app, host="127.0.0.1", shutdown_timeout=0.5, print=None)
    umbridge.serve_models([V2Model(f"vector_{size}", size, address) for size in (10, 1_000, 100_000)], int(port))
