"""A real KServe with the models of `v2_models`, on loopback: `kserve_server.py HTTP_PORT GRPC_PORT`.

KServe listens on every interface and has no option for another, so the addresses are set right in what it starts.
"""

import sys

import kserve.model_server
import kserve.protocol.grpc.server
from grpc import aio
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.errors import InferenceError, InvalidInput, ModelNotReady
from kserve.protocol.infer_type import to_http_parameters
from kserve.protocol.rest.server import RESTServer
from v2_kinds import KINDS, RefusedError
from v2_models import TABLE

LOOPBACK = "127.0.0.1"

# What `fail`'s input asks for; 0 succeeds, any other number is a plain Python exception.
ERRORS = {1: InvalidInput, 2: InferenceError, 3: ModelNotReady, 4: NotImplementedError}


JSON_ONLY = ("upper",)
"""Like most models of KServe's users these pay no regard to the form and the outputs that the client asks for."""


class Served(Model):
    def __init__(self, model):
        super().__init__(model.name)
        self.model = model
        self.load()

    def get_input_types(self):
        return [port.described() for port in self.model.inputs]

    def get_output_types(self):
        return [port.described() for port in self.model.outputs]

    def predict(self, payload, headers=None):
        try:
            arrays = KINDS[self.model.kind]([given.as_numpy() for given in payload.inputs])
        except RefusedError as refused:
            raise ERRORS.get(refused.code, RuntimeError)(str(refused)) from refused
        names = self.model.output_names([given.name for given in payload.inputs])
        datatypes = [port.datatype for port in self.model.outputs] or [given.datatype for given in payload.inputs]
        in_json = self.model.kind in JSON_ONLY
        binary = payload.use_binary_outputs and not in_json
        outputs = [
            output_of(name, datatype, array, binary=binary)
            for name, datatype, array in zip(names, datatypes, arrays, strict=True)
        ]
        # With the id of the request, None if it has none.
        return InferResponse(
            payload.id,
            self.name,
            outputs,
            parameters=to_http_parameters(payload.parameters or {}),
            use_binary_outputs=binary,
            requested_outputs=None if in_json else payload.request_outputs,
        )


def output_of(name, datatype, array, *, binary):
    """Not with the array as its data, which over gRPC only arrays of one element survive."""
    output = InferOutput(name, list(array.shape), datatype)
    output.set_data_from_numpy(array, binary_data=binary)
    return output


class LoopbackRESTServer(RESTServer):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.config.host = LOOPBACK


class LoopbackAio:
    """In the place of `grpc.aio` where KServe makes its server."""

    @staticmethod
    def server(*arguments, **options):
        made = aio.server(*arguments, **options)
        bind = made.add_insecure_port
        made.add_insecure_port = lambda address: bind(address.replace("[::]", LOOPBACK))
        return made


def main():
    http, grpc = map(int, sys.argv[1:])
    kserve.model_server.RESTServer = LoopbackRESTServer
    kserve.protocol.grpc.server.aio = LoopbackAio
    models = [Served(model) for model in TABLE if not (model.version or model.streams)]
    ModelServer(http_port=http, grpc_port=grpc, enable_docs_url=False).start(models)


if __name__ == "__main__":
    main()
