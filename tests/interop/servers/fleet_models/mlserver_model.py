"""A model of a fleet, for MLServer: it answers its own name, and the numbers that it got.

The parameter `fails` in its settings is what its load raises.
"""

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Named(MLModel):
    async def load(self):
        extra = self.settings.parameters.extra if self.settings.parameters else None
        if extra:
            raise RuntimeError(extra["fails"])
        return True

    async def predict(self, payload):
        (given,) = payload.inputs
        name = ResponseOutput(name="model", datatype="BYTES", shape=[1], data=[self.name])
        copy = ResponseOutput(name="y", datatype="FP64", shape=given.shape, data=given.data)
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[name, copy])
