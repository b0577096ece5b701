"""Drive the real `huggingface_hub.InferenceClient`, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": text}` where the client raised. A step is
`{"op": name of a method, "args": [..], **options}`; an argument `{"bytes": base64}` is raw bytes.
"""

import base64
import dataclasses

import numpy as np
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError


def given(argument):
    return base64.b64decode(argument["bytes"]) if isinstance(argument, dict) and "bytes" in argument else argument


def plain(found):
    if isinstance(found, np.ndarray):
        return found.tolist()
    if dataclasses.is_dataclass(found):
        return {key: value for key, value in dataclasses.asdict(found).items() if value is not None}
    return [plain(each) for each in found] if isinstance(found, list) else found


def run(client, op, args, **options):
    try:
        return plain(getattr(client, op)(*map(given, args), **options))
    except HfHubHTTPError as error:
        return {"error": str(error)}


def main(url, steps):
    client = InferenceClient(model=url)
    return [run(client, **step) for step in steps]
