"""A real KServe over V1, on loopback: `kserve_v1_server.py HTTP_PORT [PREDICTOR]`.

Without a predictor it has models of its own; with one (`host:port`) the transformer `double`, which asks the predictor
over V1, as KServe's `--predictor_host` does.
"""

import sys

import kserve.model_server
import numpy as np
from kserve import Model, ModelServer
from kserve.context import set_predictor_config
from kserve.errors import InvalidInput
from kserve.predictor_config import PredictorConfig
from kserve.protocol.rest.server import RESTServer

LOOPBACK = "127.0.0.1"


class Double(Model):
    """The numbers of `instances`, or of `inputs`, twice."""

    def predict(self, payload, headers=None):
        if "inputs" in payload:
            return {"outputs": {name: (2 * np.array(each)).tolist() for name, each in payload["inputs"].items()}}
        return {"predictions": (2 * np.array(payload["instances"])).tolist()}

    def explain(self, payload, headers=None):
        return {"explanations": [{"of": each, "anchors": [[0], []]} for each in payload["instances"]], "precision": 0.5}


class Echo(Model):
    """Whatever came, rows as predictions."""

    def predict(self, payload, headers=None):
        return {"predictions": payload.pop("instances"), **payload}


class Fail(Model):
    """InvalidInput where the first instance is 1, else any exception."""

    def predict(self, payload, headers=None):
        if payload["instances"][0] == 1:
            raise InvalidInput("no ones, please")
        raise RuntimeError("boom")


class Resting(Model):
    """Not ready any more after its first call: a model that is not when the server starts is none to KServe."""

    def predict(self, payload, headers=None):
        self.ready = False
        return {"predictions": payload["instances"]}


class LoopbackRESTServer(RESTServer):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.config.host = LOOPBACK


def main():
    port, *predictor = sys.argv[1:]
    kserve.model_server.RESTServer = LoopbackRESTServer
    own = [Double("double"), Echo("echo"), Fail("fail"), Resting("resting")]
    models = [Model("double")] if predictor else own
    for model in models:
        model.ready = True
    server = ModelServer(http_port=int(port), enable_grpc=False, enable_docs_url=False)
    if predictor:
        set_predictor_config(PredictorConfig(*predictor, "v1"))
    server.start(models)


if __name__ == "__main__":
    main()
