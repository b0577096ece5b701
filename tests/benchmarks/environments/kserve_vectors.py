"""KServe with the vectors that come back, on loopback: `kserve_vectors.py HTTP_PORT`."""

import sys

from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.protocol.rest.server import RESTServer
from kserve.utils.utils import generate_uuid


class Vector(Model):
    def __init__(self, size):
        super().__init__(f"vector_{size}")
        self.load()

    async def predict(self, payload, headers=None):
        x = payload.inputs[0].as_numpy()
        y = InferOutput("output0", list(x.shape), "FP64")
        y.set_data_from_numpy(x, binary_data=False)
        return InferResponse(payload.id or generate_uuid(), self.name, [y])


class LoopbackRESTServer(RESTServer):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.config.host = "127.0.0.1"


if __name__ == "__main__":
    import kserve.model_server

    # KServe listens on every interface and has no option for another.
    kserve.model_server.RESTServer = LoopbackRESTServer
    server = ModelServer(http_port=int(sys.argv[1]), enable_grpc=False, access_log_format=None, workers=1)
    server.start([Vector(size) for size in (10, 1_000, 10_000)])
