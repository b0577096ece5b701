"""A model as a function of arrays, with its derivatives, for optimizers, samplers and autodiff frameworks.
`Client.model` creates the function."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import numpy as np

from gateway.bridge.settings import Cast
from gateway.client.decorators import brief_coroutine
from gateway.client.errors import InvalidInput, NotFound, Unsupported
from gateway.client.outputs import Array, Outputs
from gateway.client.settings import UNSET, Seconds
from gateway.core.errors import Reason
from gateway.core.tasks import spawn


@dataclass(frozen=True)
class FunctionArguments:
    """The arguments of the client's `model` method, whose docstring describes them."""

    name: str
    _: KW_ONLY
    output: str = ""
    parameters: Mapping[str, object] | None = None
    version: str = ""
    cast: Cast = "refuse"
    timeout: Seconds = UNSET

    def given(self) -> dict[str, Any]:
        """Return the arguments shared by all calls."""
        return {
            "parameters": self.parameters, "version": self.version, "cast": self.cast, "timeout": self.timeout,
        }  # fmt: skip


class ModelCalls(Protocol):
    """The methods of an AsyncClient that a function calls. `given` contains the FunctionArguments of every call."""

    address: str

    async def infer(self, model: str, /, *arrays: object, inputs: Mapping[str, object], **given: Any) -> Outputs: ...
    async def gradient(self, model: str, /, *arrays: object, sens: object, **given: Any) -> Array: ...
    async def apply_jacobian(self, model: str, /, *arrays: object, vec: object, **given: Any) -> Array: ...
    async def apply_hessian(self, model: str, /, *arrays: object, sens: object, vec: object, **given: Any) -> Array: ...


class AsyncModelFunction:
    """A client's model as a function from arrays to an array.

        posterior = client.model("posterior")
        density, slope = await posterior(theta), await posterior.gradient(theta)

    Inputs and errors are the same as in the client's `infer`. A derivative takes its inputs by position, in the order
    of the signature. If the model has several inputs, `in_wrt` is the position of the input for the derivative."""

    def __init__(self, client: ModelCalls, arguments: FunctionArguments) -> None:
        self._client = client
        self.arguments = arguments
        self.name = arguments.name
        self._sizes: dict[str, int] = {}
        """The length of each output in the last response, in the order of the outputs."""

    @brief_coroutine
    async def __call__(self, /, *arrays: object, **named: object) -> Array:
        """Return the model's output; if the model has several outputs, return the output chosen for this function.

        Raises:
            ClientError: like the client's `infer`; InvalidInput if the model has several outputs, or no output with the
                chosen name.
        """
        found = await self._evaluated(arrays, named)
        return found[self._chosen(found)]

    @brief_coroutine
    async def gradient(self, *arrays: object, sens: object = None, in_wrt: int = 0) -> Array:
        """Return the gradient with respect to one input, an array of that input's length.

        `sens` weights the values of the output; optional if the output is one number.

        Raises:
            ClientError: like the client's `gradient`; InvalidInput if `sens` is missing.
        """
        at, size = await self._output(arrays)
        if sens is None:
            sens = self._ones(arrays, size)
        return await self._client.gradient(
            self.name, *arrays, sens=sens, out_wrt=at, in_wrt=in_wrt, **self.arguments.given()
        )

    @brief_coroutine
    async def jacobian(self, *arrays: object, in_wrt: int = 0) -> Array:
        """Return the matrix of derivatives at one point, with a row for each value of the output and a column for each
        value of the input. The client computes the matrix from gradients, or from products with the Jacobian if they
        need fewer calls or if the model has no gradients. The client sends all these calls in parallel.

        Raises:
            ClientError: like the client's `gradient`; InvalidInput if an input is not a vector.
        """
        (at, rows), columns = await self._output(arrays), self._length(arrays, in_wrt)
        given = {"out_wrt": at, "in_wrt": in_wrt, **self.arguments.given()}

        async def by_gradients() -> Array:
            client, name = self._client, self.name
            return np.stack(await _all(client.gradient(name, *arrays, sens=each, **given) for each in _units(rows)))

        async def by_products() -> Array:
            client, name = self._client, self.name
            products = (client.apply_jacobian(name, *arrays, vec=each, **given) for each in _units(columns))
            return np.stack(await _all(products), axis=-1)

        first, second = (by_gradients, by_products) if rows <= columns else (by_products, by_gradients)
        try:
            return await first()
        except (Unsupported, NotFound) as error:
            try:
                return await second()
            except (Unsupported, NotFound):
                raise error from None

    @brief_coroutine
    async def hessian(self, *arrays: object, sens: object = None, in_wrt: int = 0) -> Array:
        """Return the matrix of second derivatives at one point with respect to one input; `sens` is the same as in
        `gradient`. The client requests the columns in parallel.

        Raises:
            ClientError: like the client's `apply_hessian`; InvalidInput if `sens` is missing or an input is not a
                vector.
        """
        (at, size), columns = await self._output(arrays), self._length(arrays, in_wrt)
        given = {"out_wrt": at, "in_wrt1": in_wrt, "in_wrt2": in_wrt, **self.arguments.given()}
        weights = self._ones(arrays, size) if sens is None else sens
        products = (
            self._client.apply_hessian(self.name, *arrays, sens=weights, vec=each, **given) for each in _units(columns)
        )
        return np.stack(await _all(products), axis=-1)

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form: a function of a client with the same arguments."""
        return type(self), (self._client, self.arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._client!r}>"

    async def _evaluated(self, arrays: tuple[object, ...], named: Mapping[str, object]) -> Outputs:
        found = await self._client.infer(self.name, *arrays, inputs=named, **self.arguments.given())
        self._sizes = {name: array.shape[-1] if array.ndim else 1 for name, array in found.items()}
        return found

    def _chosen(self, outputs: Iterable[str]) -> str:
        """Return the name of this function's output among the model's outputs."""
        name, names = self.arguments.output, list(outputs)
        if not name and len(names) == 1:
            return names[0]
        if name not in names:
            which = f"no output {name!r}" if name else "several outputs"
            raise self._wrong(f"model {self.name!r} has {which}: {', '.join(names)}; `output` names one of them")
        return name

    async def _output(self, arrays: tuple[object, ...]) -> tuple[int, int]:
        """Return the position and the length of the output. If the model has not been called yet, call it."""
        if not self._sizes:
            await self._evaluated(arrays, {})
        name = self._chosen(self._sizes)
        return list(self._sizes).index(name), self._sizes[name]

    def _ones(self, arrays: tuple[object, ...], size: int) -> object:
        """Return the default `sens` for an output with one number per row: an array of ones."""
        if size != 1:
            raise self._wrong(f"the output of model {self.name!r} has {size} values: give `sens`, the weight of each")
        batch = _shape(arrays[0])[:-1] if arrays else ()
        return np.ones((*batch, 1)).tolist()

    def _length(self, arrays: tuple[object, ...], at: int) -> int:
        """Return the length of the input at a position."""
        shapes = list(map(_shape, arrays))
        if any(len(shape) != 1 for shape in shapes):
            raise self._wrong(f"the inputs have the shapes {shapes}, expected one point: a vector for each")
        if not 0 <= at < len(shapes):
            raise self._wrong(f"in_wrt is {at}, expected the position of one of {len(shapes)} inputs")
        return shapes[at][0]

    def _wrong(self, text: str) -> InvalidInput:
        return InvalidInput(text, Reason.INVALID_INPUT.status, Reason.INVALID_INPUT, self._client.address)


def _shape(value: object) -> tuple[int, ...]:
    return np.asarray(value).shape


def _units(size: int) -> list[list[float]]:
    """Return the unit vectors of this length, as numbers without a datatype."""
    rows: list[list[float]] = np.eye(size).tolist()
    return rows


async def _all(calls: Iterable[Coroutine[Any, Any, Array]]) -> list[Array]:
    """Run all calls in parallel and return their results. If one call fails, cancel the others."""
    tasks: list[asyncio.Task[Array]] = [spawn(call) for call in calls]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
