"""The bridge one writes by hand for clients with JSON of their own: `V2=HOST:PORT uvicorn json_to_grpc:app`.

FastAPI, pydantic and tritonclient.grpc as their documentation shows, with the client kept open. It trusts its clients
and its server, and knows nothing of what the gateway checks.
"""

import os
from contextlib import asynccontextmanager

import numpy as np
import tritonclient.grpc.aio as grpcclient
from fastapi import FastAPI
from pydantic import BaseModel


class PredictRequest(BaseModel):
    features: list[list[float]]


class PredictResponse(BaseModel):
    prediction: list[list[float]]


@asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.client = grpcclient.InferenceServerClient(os.environ["V2"])
    yield
    await app.state.client.close()


app = FastAPI(lifespan=lifespan)


@app.post("/predict/{model}")
async def predict(model: str, request: PredictRequest) -> PredictResponse:
    data = np.array(request.features, dtype=np.float64)
    x = grpcclient.InferInput("input0", data.shape, "FP64")
    x.set_data_from_numpy(data)
    result = await app.state.client.infer(model, inputs=[x], outputs=[grpcclient.InferRequestedOutput("output0")])
    return PredictResponse(prediction=result.as_numpy("output0").tolist())
