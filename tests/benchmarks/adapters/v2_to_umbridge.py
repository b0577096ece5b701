"""The bridge one writes by hand for V2 clients: `UMBRIDGE=http://HOST:PORT uvicorn v2_to_umbridge:app`.

FastAPI, pydantic and httpx as their documentation shows, with the client kept open. It reads JSON tensors only, trusts
its clients and its server, and knows nothing of what the gateway checks.
"""

import os
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI
from pydantic import BaseModel


class Tensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]
    data: list[float]


class InferRequest(BaseModel):
    id: str | None = None
    inputs: list[Tensor]


class InferResponse(BaseModel):
    model_name: str
    id: str | None = None
    outputs: list[Tensor]


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with httpx.AsyncClient(base_url=os.environ["UMBRIDGE"], timeout=None) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v2/models/{model}/infer")
async def infer(model: str, request: InferRequest) -> InferResponse:
    x = request.inputs[0]
    rows, size = x.shape
    data: list[float] = []
    for row in range(rows):
        point = x.data[row * size : (row + 1) * size]
        reply = await app.state.client.post("/Evaluate", json={"name": model, "input": [point], "config": {}})
        reply.raise_for_status()
        data += reply.json()["output"][0]
    y = Tensor(name="output0", datatype="FP64", shape=[rows, len(data) // rows], data=data)
    return InferResponse(model_name=model, id=request.id, outputs=[y])
