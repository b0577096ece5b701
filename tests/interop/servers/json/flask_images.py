"""A Flask program that takes a file, as PyTorch's tutorial has it: the id and the name of a class come out.

The mean of the bytes stands for a network. `flask --app flask_images run` serves it.
"""

from flask import Flask, jsonify, request

app = Flask(__name__)
NAMES = {"0": "dark", "1": "bright"}


def get_prediction(image_bytes):
    class_id = str(int(sum(image_bytes) / len(image_bytes) > 127))
    return class_id, NAMES[class_id]


@app.route("/predict", methods=["POST"])
def predict():
    file = request.files["file"]
    img_bytes = file.read()
    class_id, class_name = get_prediction(image_bytes=img_bytes)
    return jsonify({"class_id": class_id, "class_name": class_name})
