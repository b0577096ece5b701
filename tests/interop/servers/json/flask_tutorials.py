"""Five programs as Flask's tutorials have them, each at a path of its own.

`flask --app flask_tutorials run` serves them.
"""

from flask import Flask, jsonify, request

app = Flask(__name__)


@app.post("/iris")
def iris():
    """The fields of a page's form; the prediction is a text, as `str(model.predict(..)[0])` makes it."""
    length, width = float(request.form["sepal_length"]), float(request.form["sepal_width"])
    return jsonify({"prediction": str(int(length > 6) + int(width > 3))})


@app.post("/titanic")
def titanic():
    """Rows; numpy's integers became texts, since `jsonify` does not take them."""
    rows = request.get_json(force=True)["data"]
    return jsonify(prediction=[str(int(age > 30) + int(fare > 50)) for age, fare in rows])


@app.post("/sum")
def sums():
    """One row as a text with commas."""
    numbers = [float(each) for each in request.get_json()["features"].split(",")]
    return jsonify({"result": sum(numbers)})


@app.get("/price")
def price():
    """Arguments of the URL; the reply is a bare text."""
    area, rooms = request.args.get("area", type=float), request.args.get("rooms", 1, type=int)
    return str(1000 * area + 50 * rooms)


@app.post("/size")
def size():
    """An uploaded file."""
    content = request.files["image"].read()
    return jsonify({"class_name": "large" if len(content) > 4 else "small", "confidence": len(content) / 10})
