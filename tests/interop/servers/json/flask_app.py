"""A Flask program as tutorials have it: rows of features in, one prediction for each out.

`flask --app flask_app run` serves it.
"""

from flask import Flask, abort, jsonify, request

app = Flask(__name__)


@app.post("/predict")
def predict():
    features = request.get_json()["features"]
    if not features:
        abort(500)
    return jsonify({"prediction": [sum(row) for row in features]})


@app.get("/health")
def health():
    return "ok"
