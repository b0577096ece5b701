# mypy: ignore-errors
"""Records what the converters of graphpipe 1.0.4 write: `python record.py`, where it and flatbuffers 1.12 are.

Each message goes to a file beside this one; what is in it stands in `tests/protocols/graphpipe/test_recorded.py`.
"""

from pathlib import Path

import numpy as np
from graphpipe import convert

HERE = Path(__file__).parent

NUMBERS = {
    name: np.array([[0, 1, 2], [3, 100, 127]], name)
    for name in (
        "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"
    )
}  # fmt: skip
OTHERS = {
    "scalar": np.float64(1.5),
    "empty": np.zeros((0, 3), np.int32),
    "unicode": np.array(["é", "", "abcd"]),
    "bytes": np.array([[b"\xff", b"a\0b"]], object),
}


def request(name, *arguments):
    (HERE / f"{name}.request").write_bytes(convert.serialize_infer_request(convert.InferReq(*arguments)))


def reply(name, *outputs):
    (HERE / f"{name}.reply").write_bytes(convert.serialize_infer_response(list(outputs), []))


def main():
    (HERE / "metadata.request").write_bytes(convert.serialize_metadata_request())
    for name, array in {**NUMBERS, **OTHERS}.items():
        request(name, None, [np.asarray(array)])
        reply(name, np.asarray(array))
    both = [NUMBERS["float32"], OTHERS["unicode"]]
    request("several", '{"level": 2}', both, ["x", "größe"], ["y", "z"])
    reply("several", *both)
    request("none", None, [], None, ["y"])
    reply("none")
    (HERE / "metadata.reply").write_bytes(
        convert.serialize_metadata_response(
            {
                "name": "model",
                "version": "1.2",
                "server": "a server",
                "description": "what it is for",
                "inputs": [
                    {"name": "a", "shape": [-1, 3], "type": np.dtype("float32")},
                    {"name": "b", "description": "text", "shape": [], "type": np.dtype("O")},
                ],
                "outputs": [{"name": "c", "shape": [2], "type": np.dtype("int64")}],
            }
        )
    )


if __name__ == "__main__":
    main()
