"""Four programs as FastAPI's tutorials have them, each at a path of its own.

`uvicorn fastapi_tutorials:app` serves them.
"""

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Flower(BaseModel):
    sepal_length: float
    sepal_width: float


class Passenger(BaseModel):
    age: float
    sex: str


class Text(BaseModel):
    text: str


@app.post("/flower")
def flower(flower: Flower):
    """One object a call."""
    return {"species": "virginica" if flower.sepal_length > 6 else "setosa", "width": flower.sepal_width}


@app.get("/bmi")
def bmi(weight: float, height: float):
    """Query parameters."""
    return {"bmi": weight / height**2, "healthy": weight / height**2 < 25}


@app.post("/passengers")
def passengers(passengers: list[Passenger]):
    """A list of objects."""
    return [{"survived": int(each.sex == "female"), "age": each.age} for each in passengers]


@app.post("/sentiment")
def sentiment(text: Text, limit: int = 10):
    """A text a call, with a parameter in the query."""
    return {"label": text.text[:limit].upper(), "score": len(text.text) / 10}
