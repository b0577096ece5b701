"""Drive MLflow's own client of its scoring server, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": text}` where the client raised. Steps:

    {"op": "invoke", "array": [..]}                         the predictions, for an array
    {"op": "invoke", "table": {column: [..]}}               for a DataFrame
    {"op": "ping"}                                          null if the server is ready
"""

from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from mlflow.pyfunc.scoring_server.client import ScoringServerClient


def run(client, op, array=None, table=None):
    if op == "ping":
        return client.ping()
    data = np.array(array) if table is None else pd.DataFrame(table)
    return client.invoke(data).get_predictions(predictions_format="ndarray").tolist()


def tried(client, step):
    try:
        return run(client, **step)
    except Exception as error:  # its class of a refusal is Exception itself
        return {"error": str(error)}


def main(url, steps):
    address = urlsplit(url)
    client = ScoringServerClient(address.hostname, address.port)
    return [tried(client, step) for step in steps]
