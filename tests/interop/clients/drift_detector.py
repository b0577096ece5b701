"""Read the payload log as a drift detector does, in the peer's own environment: events by the CloudEvents SDK, tensors
as the arrays that detectors take.

Takes `events, options`. An event is `{"headers": {name: value}, "body": base64}` as it came by HTTP, or `{"line":
text}` of a file. Prints `{"calls": [...], "columns": {name: [..]}, "drift": {name: p-value}}`: what each call said, the
inputs as a table (as Evidently takes them), and for each column the p-value of the two-sample Kolmogorov-Smirnov test,
by which alibi-detect's KSDrift judges each feature, between the calls before and from `options["reference"]` on.
"""

import base64
import json
import math

import numpy as np
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.formats.json import JSONFormat

DTYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "BYTES": object}


def read(given):
    if "line" in given:
        return JSONFormat().read(None, given["line"].encode())
    return from_http_event(HTTPMessage(given["headers"], base64.b64decode(given["body"])))


def tensors(event, role):
    """The tensors of an event as arrays. Those without values are None."""
    data, behind = event.get_data(), b""
    if event.get_datacontenttype() == "application/octet-stream":
        length = int(event.get_extension("headerlength"))
        data, behind = json.loads(data[:length]), data[length:]
    found = {}
    for each in data.get(role, []):
        size = each.get("parameters", {}).get("binary_data_size")
        values = each.get("data")
        if size is not None:
            values, behind = np.frombuffer(behind[:size], DTYPES[each["datatype"]]), behind[size:]
        found[each["name"]] = (
            None if values is None else np.array(values, DTYPES[each["datatype"]]).reshape(each["shape"])
        )
    return found


def p_value(one, other):
    """Of the hypothesis that both samples are of one distribution, by the asymptotic formula."""
    one, other = np.sort(one), np.sort(other)
    both = np.concatenate([one, other])
    distance = np.abs(
        np.searchsorted(one, both, "right") / len(one) - np.searchsorted(other, both, "right") / len(other)
    ).max()
    root = math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * scaled * scaled) for k in range(1, 101))))


def shown(event):
    attributes = event.get_attributes()
    role = "inputs" if attributes["type"].endswith("request") else "outputs"
    found = {name: None if each is None else each.tolist() for name, each in tensors(event, role).items()}
    return {"attributes": {name: str(each) for name, each in attributes.items()}, "tensors": found}


def main(given, options):
    events = [read(each) for each in given]
    requests = [each for each in events if each.get_type() == "org.kubeflow.serving.inference.request"]
    # (calls, features), float32: alibi-detect's x_ref and x
    x = np.concatenate([next(iter(tensors(each, "inputs").values())) for each in requests]).astype(np.float32)
    columns = {f"feature{at}": x[:, at] for at in range(x.shape[1])}
    cut = options["reference"]
    drift = {name: p_value(column[:cut], column[cut:]) for name, column in columns.items()} if cut else {}
    table = {name: column.tolist() for name, column in columns.items()}
    return {"events": [shown(each) for each in events], "columns": table, "drift": drift}
