"""A file with the results of a map, from which another run can continue after an interruption.

The first line is JSON that describes the map. Each further line contains the result of one point, in the order in which
the points ended:

    {"modelglot_map":1,"model":"m","version":"","outputs":null,"parameters":{},"cast":"refuse"}
    {"point":3,"inputs":"9f86...","version":"1","parameters":{},
     "outputs":[{"name":"y","datatype":"FP64","shape":[1],"data":[0.5]}]}

Each entry is on one line. `inputs` is the SHA-256 digest of the first line's members and of the point's inputs. A point
takes its result from the file only if this digest matches. `data` contains the elements in row-major order. If JSON
cannot represent an element (NaN, infinities, bytes that are not UTF-8), `base64` replaces `data` and contains the
entire tensor in V2's raw format.

The client writes each line with a single write. After a crash, the last line can be incomplete; the next run removes
it. Except on Windows, the client locks the file, so two maps cannot write to it concurrently.
"""

import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from io import FileIO
from itertools import islice
from math import isfinite, prod
from typing import Any, Self

import numpy as np

from gateway.client.errors import OtherResults
from gateway.client.map_arguments import MapArguments
from gateway.client.outputs import Array, Outputs, as_array, as_tensor
from gateway.client.results import Evaluation, Point
from gateway.core.datatypes import BYTES, DATATYPES
from gateway.core.errors import GatewayError
from gateway.core.json import write
from gateway.core.requests import Response
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor

if sys.platform != "win32":
    import fcntl

FORMAT = "modelglot_map"
"""The first key of the first line. Its value is the format version."""
VERSION = 1


class ResultsFile:
    """The file at `path`, which stores the results of a map with these `arguments`.

    The constructor creates a missing file.

    Raises:
        OtherResults: the file is in use, belongs to another map, or is not a results file; it stays unchanged.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], arguments: MapArguments) -> None:
        self._path = os.fspath(path)
        self._of = {
            FORMAT: VERSION, "model": arguments.model, "version": arguments.version,
            "outputs": _names(arguments.outputs), "parameters": _plain(arguments.parameters or {}),
            "cast": arguments.cast,
        }  # fmt: skip
        self._digest = sha256(write(self._of))
        self._digests: dict[int, str] = {}
        """The digests of points in flight."""
        self._version = ""
        """The model version of all results in the file."""
        self._file = FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+")
        try:
            self._lock()
            self._lines = self._read(arguments)
        except BaseException:
            self._file.close()
            raise

    def find(self, index: int, point: Point) -> Evaluation | None:
        """Return the result of a point, or None if the file does not contain one.

        Raises:
            OtherResults: the file contains the result of a different point, or the result is damaged.
        """
        digest = self._digest_of(point)
        line = self._lines.pop(index, None)
        if line is None:
            if digest:
                self._digests[index] = digest
            return None
        found = json.loads(line)
        self._check_inputs(found, digest, index)
        try:
            return Evaluation(index, point, 0, _outputs(found, str(self._of["model"])))
        except (ValueError, KeyError, TypeError) as error:
            raise self._other(f"the line of point {index} is damaged; remove this line") from error

    def add(self, evaluations: Iterable[Evaluation]) -> None:
        """Store new results.

        Raises:
            OtherResults: the new results belong to a different model version.
            OSError: the client cannot write the file.
        """
        text = b""
        for each in evaluations:
            digest = self._digests.pop(each.index, "")
            if each.found is not None and digest:
                self._check_version(each.found.version)
                text += _line(each.index, digest, each.found)
        self._write(text)

    def close(self) -> None:
        """Close the file."""
        with self._file:
            os.fsync(self._file.fileno())
            if sys.platform != "win32":
                fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)  # otherwise, a forked process would keep the lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._other("another map writes to it") from error

    def _read(self, arguments: MapArguments) -> dict[int, bytes]:
        """Return the line of each point, and remove an incomplete last line. Check everything first, so an invalid file
        stays unchanged."""
        text = self._file.readall()
        first, end, rest = text.partition(b"\n")
        wanted = write(self._of)
        if not end:
            if not wanted.startswith(text):
                raise self._other("expected a results file of `map`")
            self._file.truncate(0)
            self._file.seek(0)
            self._write(wanted + b"\n")
            return {}
        self._check_head(first)
        whole = rest.rpartition(b"\n")[0]
        lines: dict[int, bytes] = {}
        for number, line in enumerate(whole.split(b"\n") if whole else [], 2):
            try:
                found = json.loads(line)
                lines[_index(found)] = line
                self._check_version(found["version"])
            except (ValueError, KeyError, TypeError) as error:
                raise self._other(f"line {number} is damaged; remove this line") from error
        self._check_points(lines, arguments)
        size = len(first) + 1 + (len(whole) + 1 if whole else 0)
        self._file.truncate(size)
        self._file.seek(size)
        return lines

    def _check_head(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, Mapping) or FORMAT not in found:
            raise self._other("expected a results file of `map`")
        for key, value in self._of.items():
            if found.get(key) != json.loads(write(value)):
                raise self._other(f"its {key} is {found.get(key)!r}, but this map has {value!r}")

    def _check_points(self, lines: Mapping[int, bytes], arguments: MapArguments) -> None:
        """Raise OtherResults if a result belongs to a different point. The map checks a generator's points later, when
        it takes them."""
        total, last = arguments.total, max(lines, default=-1)
        if total is None:
            return
        if last >= total:
            raise self._other(f"it has a result of point {last}, but this map has only {total} points")
        for index, point in enumerate(islice(arguments, last + 1)):
            line = lines.get(index)
            if line is not None:
                self._check_inputs(json.loads(line), self._digest_of(point), index)

    def _check_inputs(self, found: Mapping[str, Any], digest: str, index: int) -> None:
        if found.get("inputs") != digest:
            raise self._other(f"its point {index} has other inputs than in this map; use another file")

    def _check_version(self, version: str) -> None:
        if version and self._version and version != self._version:
            text = f"it has results of version {self._version!r} of the model, and the server answers as {version!r}"
            raise self._other(f"{text}; set `version`")
        self._version = self._version or version

    def _digest_of(self, point: Point) -> str:
        """Return the digest of a point's inputs, or an empty string if no request can contain them."""
        digest = self._digest.copy()
        named = point if isinstance(point, Mapping) else {"": point}
        for name in sorted(named):
            try:
                tensor = as_tensor(name, named[name])
            except GatewayError:
                return ""
            about = [name, tensor.datatype.value, list(tensor.shape), tensor.untyped, len(tensor.data)]
            digest.update(write(about))
            digest.update(tensor.data)
        return digest.hexdigest()

    def _write(self, text: bytes) -> None:
        view = memoryview(text)
        while view:
            view = view[self._file.write(view) or 0 :]

    def _other(self, why: str) -> OtherResults:
        return OtherResults(f"resume={self._path!r}: {why}; give another file for another map")


def _names(outputs: Any) -> Any:
    return [outputs] if isinstance(outputs, str) else _plain(outputs)


def _plain(value: Any) -> Any:
    """Return the arguments of a map as JSON values.

    Equal arguments produce equal values, and different arguments produce different values, even for floats that JSON
    cannot represent."""
    if isinstance(value, Mapping):
        return {str(name): _plain(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if not isinstance(value, Iterable):
        raise ValueError(f"resume: {value!r} cannot be stored in the file; expected JSON values")
    return [_plain(each) for each in (sorted(value) if isinstance(value, set | frozenset) else value)]


def _index(found: Mapping[str, Any]) -> int:
    """Return the index of a point in its line. Raises KeyError or TypeError if the line has missing or wrong
    members."""
    index = found["point"]
    if not isinstance(index, int) or not isinstance(found["outputs"], list) or not isinstance(found["version"], str):
        raise TypeError(index)
    return index


def _line(index: int, digest: str, outputs: Outputs) -> bytes:
    tensors = [_written(make_tensor(name, array), array) for name, array in outputs.items()]
    about = {"version": outputs.version, "parameters": outputs.parameters, "outputs": tensors}
    return write({"point": index, "inputs": digest, **about}) + b"\n"


def _written(tensor: Tensor, array: Array) -> dict[str, Any]:
    about = {"name": tensor.name, "datatype": tensor.datatype.value, "shape": list(tensor.shape)}
    data = _as_json(tensor, array)
    return {**about, "base64": b64encode(tensor.data).decode()} if data is None else {**about, "data": data}


def _as_json(tensor: Tensor, array: Array) -> list[Any] | None:
    """Return the elements as JSON values; None if JSON cannot represent all of them."""
    flat = array.reshape(-1)
    if tensor.datatype is BYTES:
        try:
            return [bytes(each).decode() for each in tensor.array.reshape(-1)]
        except UnicodeDecodeError:
            return None
    if flat.dtype.kind in "biu":
        plain: list[Any] = flat.tolist()
        return plain
    flat = flat.astype(np.float64)
    floats: list[Any] = flat.tolist()
    return floats if np.isfinite(flat).all() else None


def _outputs(found: Mapping[str, Any], model: str) -> Outputs:
    response = Response((), model, found["version"], None, found["parameters"])
    return Outputs({each["name"]: _array(each) for each in found["outputs"]}, response)


def _array(written: Mapping[str, Any]) -> Array:
    datatype, shape = DATATYPES[written["datatype"]], tuple(written["shape"])
    if "base64" in written:
        return as_array(Tensor(written["name"], datatype, shape, b64decode(written["base64"])))
    if datatype is BYTES:
        flat = np.empty(prod(shape), object)
        flat[:] = [each.encode() for each in written["data"]]
        return flat.reshape(shape)
    exact = datatype.dtype if datatype.dtype.kind in "biu" else np.float64
    return np.array(written["data"], exact).astype(datatype.dtype).reshape(shape)
