"""The bridge one writes by hand for V2 clients: `SERVER=http://HOST:PORT uvicorn v2_to_json:app`.

FastAPI, pydantic and httpx as their documentation shows, with the client kept open, in front of a server that takes and
returns bare lists. It reads JSON tensors only, trusts its clients and its server, and knows nothing of what the gateway
checks.
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
    async with httpx.AsyncClient(base_url=os.environ["SERVER"], timeout=None) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v2/models/{model}/infer")
async def infer(model: str, request: InferRequest) -> InferResponse:
    x = request.inputs[0]
    rows, size = x.shape
    given = [x.data[row * size : (row + 1) * size] for row in range(rows)]
    reply = await app.state.client.post(f"/predictions/{model}", json=given)
    reply.raise_for_status()
    found = reply.json()
    data = [number for row in found for number in row]
    y = Tensor(name="output0", datatype="FP64", shape=[len(found), len(found[0])], data=data)
    return InferResponse(model_name=model, id=request.id, outputs=[y])
