"""Write models for `mlflow models serve` into a folder: `mlflow_models.py FOLDER`.

`plain` takes an array of two columns, `columns` a table with the columns `a` and `b`; both give 2 a + 3 b + 1.
"""

import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from sklearn.linear_model import LinearRegression

POINTS = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [4.0, 3.0]])
VALUES = POINTS @ [2.0, 3.0] + 1


def main(folder):
    options = {"pip_requirements": [], "serialization_format": "cloudpickle"}
    mlflow.sklearn.save_model(LinearRegression().fit(POINTS, VALUES), folder / "plain", **options)
    table = pd.DataFrame(POINTS, columns=["a", "b"])
    signature = infer_signature(table, VALUES)
    mlflow.sklearn.save_model(LinearRegression().fit(table, VALUES), folder / "columns", signature=signature, **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
