"""A FastAPI program as tutorials have it: one flower in, its species and a probability out.

`uvicorn fastapi_app:app` serves it.
"""

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Flower(BaseModel):
    sepal_length: float
    petal_length: float


@app.post("/predict")
def predict(flower: Flower):
    ratio = flower.petal_length / flower.sepal_length
    return {"species": "virginica" if ratio > 0.7 else "setosa", "probability": ratio}


@app.get("/health")
def health():
    return {"status": "ok"}
