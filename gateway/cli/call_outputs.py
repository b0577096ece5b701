"""Shows the responses in `gateway call`: prints them as a table or as V2 JSON, or writes them to a file."""

import sys
from pathlib import Path

import numpy as np

from gateway.cli.call_inputs import ARRAY_FILES, BadArgument
from gateway.client import translate
from gateway.client.outputs import Array
from gateway.core.datatypes import Datatype
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor

SETTINGS = Translate(nan="literal")
"""The settings of the JSON output: NaN and infinities are written as literals."""

SHOWN = 6
"""Maximum number of elements of a tensor in a table."""
WIDEST = 60
"""Maximum width of a value in a table, in characters."""


def json_line(response: Response, request: Request) -> str:
    """Return the response as V2 JSON on one line. Raise GatewayError if BYTES elements are not UTF-8."""
    return bytes(translate.encode_response("v2-rest", response, request, SETTINGS).body).decode()


def table(response: Response, request: Request) -> str:
    """Return the outputs as a table with name, datatype, shape and the first values."""
    rows = [("output", "datatype", "shape", "values")]
    rows += [(each.name, each.datatype.value, str(list(each.shape)), _values(each)) for each in response.outputs]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    return "\n".join(
        f"{name:{widths[0]}}  {datatype:{widths[1]}}  {shape:{widths[2]}}  {values}".rstrip()
        for name, datatype, shape, values in rows
    )


def _values(tensor: Tensor) -> str:
    shown = [_value(each) for each in tensor.array.reshape(-1)[:SHOWN].tolist()]
    return " ".join([*shown, "..."] if tensor.elements > SHOWN else shown)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}..."


def check(output: Path | None) -> None:
    """Raise BadArgument if the suffix of this file name does not belong to an array format."""
    if output is not None and output.suffix not in ARRAY_FILES:
        raise BadArgument(f"--output is {str(output)!r}, expected a name that ends in {' or '.join(ARRAY_FILES)}")


def save(output: Path, response: Response) -> None:
    """Write the outputs to a file: all outputs by name to an .npz file, or a single output to an .npy file. A later
    response replaces an earlier one.

    Raises:
        BadArgument: the file is .npy and the response does not have exactly one output, or the file formats cannot
            represent an output.
        OSError: writing the file fails.
    """
    arrays = {each.name: _storable(each) for each in response.outputs}
    if output.suffix == ".npz":
        np.savez(output, allow_pickle=False, **arrays)
    elif len(arrays) == 1:
        np.save(output, next(iter(arrays.values())), allow_pickle=False)
    else:
        raise BadArgument(f"the response has {len(arrays)} outputs, but {output.suffix} files contain one; use .npz")
    print(f"{output}: {', '.join(f'{name} {list(each.shape)}' for name, each in arrays.items())}", file=sys.stderr)


def _storable(tensor: Tensor) -> Array:
    if tensor.datatype is Datatype.BYTES:
        raise BadArgument(
            f"output {tensor.name!r} is BYTES, which array files cannot contain without pickling; use JSON"
        )
    if tensor.datatype is Datatype.BF16:
        return tensor.array.astype(np.float32)  # numpy files do not support BF16; FP32 can represent its values
    return tensor.array
