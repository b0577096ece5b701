"""The conditions of a route (`match` in the configuration).

Conditions on listener, protocol, model, version and operation depend only on names. The Router caches the results of
these conditions by RoutingKey. Conditions on path, headers and inputs are checked for each request.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.operations import CALLS, Operation
from gateway.core.requests import MissingNumbers, NestedParameters, Request, UnequalRows
from gateway.core.tensors import Shape, Tensor


@frozen
class RoutingKey:
    """The names on which a routing decision depends."""

    listener: str
    protocol: str
    model: str
    version: str
    operation: Operation


@frozen
class InputCondition:
    """A condition on one of a request's inputs. Empty fields match every input, and -1 in `shape` matches any size."""

    name: str = ""
    datatype: Datatype | None = None
    shape: Shape | None = None

    def holds(self, request: Request) -> bool:
        """Return True if one input has all the given properties, or if the condition cannot be checked.

        A condition cannot be checked for operations that do not run the model, or for an invalid request. A later check
        rejects invalid requests with a more specific error.

        Return False for a schemaless request, because its inputs are not known yet. Inputs that contain null values or
        rows of unequal length are checked, because a route can accept them."""
        if request.operation not in CALLS:
            return True
        if isinstance(request.flaw, UnequalRows):
            return any(all(map(self._describes, column)) for column in request.flaw.columns)
        if request.flaw and not isinstance(request.flaw, MissingNumbers | NestedParameters):
            return True
        return not request.schemaless and any(map(self._describes, request.inputs))

    @property
    def text(self) -> str:
        """The condition as text, for example `'x' FP32 [-1, 3]`."""
        parts = (
            repr(self.name) if self.name else "",
            self.datatype or "",
            "" if self.shape is None else list(self.shape),
        )
        return " ".join(str(each) for each in parts if each != "")

    def _describes(self, tensor: Tensor) -> bool:
        return (
            self.name in ("", tensor.name)
            and self.datatype in (None, tensor.datatype)
            and (self.shape is None or _has_shape(tensor, self.shape))
        )


@frozen
class Conditions:
    """The conditions in a route's `match`. Empty fields match every request.

    `model` is a name or a glob. `path` is exact or ends with `*`. `headers` contains pairs of a lower-case name and a
    value; the value None matches any value."""

    listener: str = ""
    protocol: str = ""
    path: str = ""
    model: str = ""
    version: str = ""
    operation: Operation | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    input: InputCondition | None = None

    @property
    def per_request(self) -> bool:
        """True if the conditions depend on the path, headers or an input, not only on names."""
        return bool(self.path or self.headers or self.input)

    def holds(self, request: Request) -> bool:
        """Return whether the request meets the conditions on path, headers and input."""
        return self.holds_but_for_input(request) and (self.input is None or self.input.holds(request))

    def holds_but_for_input(self, request: Request) -> bool:
        """Return whether the request meets the conditions on path and headers, regardless of the input condition."""
        return _path_matches(self.path, request.path) and all(
            _header_matches(name, text, request) for name, text in self.headers
        )

    def names(self, key: RoutingKey, model: str, operation: Operation) -> bool:
        """Return whether a request with this `key`, interpreted as a request for `model` and `operation`, meets the
        conditions on names."""
        return (
            self.listener in ("", key.listener)
            and self.protocol in ("", key.protocol)
            and self.version in ("", key.version)
            and self.operation in (None, operation)
            and (not self.model or (model != "" and fnmatchcase(model, self.model)))
        )

    def unmet_names(self, key: RoutingKey, model: str, operation: Operation) -> Iterator[str]:
        """Yield a description of each condition on names that the request does not meet. If `names` returns True, yield
        no descriptions."""
        if self.listener not in ("", key.listener):
            yield f"listener is {key.listener!r}, not {self.listener!r}"
        if self.protocol not in ("", key.protocol):
            yield f"protocol is {key.protocol!r}, not {self.protocol!r}"
        if self.version not in ("", key.version):
            yield (
                f"version is {key.version!r}, not {self.version!r}"
                if key.version
                else f"no version, not {self.version!r}"
            )
        if self.operation not in (None, operation):
            assert self.operation is not None
            yield f"operation is {operation.value!r}, not {self.operation.value!r}"
        if self.model and not model:
            yield f"the request names no model, the route needs {self.model!r}"
        elif self.model and not fnmatchcase(model, self.model):
            yield (
                f"model {model!r} is not {self.model!r}"
                if self.exact
                else f"model {model!r} does not match {self.model!r}"
            )

    def unmet(self, request: Request) -> Iterator[str]:
        """Yield a description of each condition on path, headers and input that the request does not meet. If `holds`
        returns True, yield no descriptions."""
        if not _path_matches(self.path, request.path):
            yield f"path is {request.path!r}, not {self.path!r}" if request.path else f"no path, not {self.path!r}"
        for name, text in self.headers:
            if not _header_matches(name, text, request):
                has = request.headers.all(name)
                # Header values can be secrets, so do not report the request's value or the route's.
                yield (
                    f"header {name!r} has another value than the route needs" if has else f"header {name!r} is missing"
                )
        if self.input is not None and not self.input.holds(request):
            yield f"no input {self.input.text}; the request has {_inputs_text(request)}"

    @property
    def exact(self) -> bool:
        """True if `model` is a name, not a glob."""
        return bool(self.model) and not any(mark in self.model for mark in "*?[")


def _path_matches(wanted: str, path: str) -> bool:
    if wanted.endswith("*"):
        return path.startswith(wanted[:-1])
    return wanted in ("", path)


def _header_matches(name: str, wanted: str | None, request: Request) -> bool:
    """Return whether the header is present and its first value is `wanted`."""
    values = request.headers.all(name)
    return bool(values) and wanted in (None, values[0])


def _inputs_text(request: Request) -> str:
    if request.schemaless:
        return "inputs without datatypes and shapes"
    return ", ".join(f"{each.name!r} {each.datatype} {list(each.shape)}" for each in request.inputs) or "no inputs"


def _has_shape(tensor: Tensor, wanted: Shape) -> bool:
    shape = tensor.shape
    return len(shape) == len(wanted) and all(each in (-1, size) for each, size in zip(wanted, shape, strict=True))
