"""What became of a question that a client of one protocol asked of a backend of another, in a word or two."""

from collections.abc import Awaitable, Callable, Mapping

import numpy as np

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.operations import Operation
from gateway.core.protocol import merge
from gateway.core.types import (
    Answer,
    Headers,
    Message,
    Parameters,
    Request,
    RequestedOutput,
    Response,
    Signature,
    Tensor,
    tensor,
)
from gateway.core.values import replace, value
from gateway.reference.bundled.testing import KINDS
from tests.contract import expectations as expect
from tests.contract.comparing import numbers
from tests.contract.dialects import Dialect, names_models
from tests.contract.matrix import MODELS, REDUCTIONS, Matrix, serves
from tests.contract.wire import LITERAL, arrived, or_error, returned

FP64 = Datatype.FP64

NONE = ""
"""The client has no word for it, or nothing to say it of."""
SAME, VALUE, ROUNDED, REFUSED = "same", "value", "rounded", "refused"


@value
class Asked:
    """A pair, and how it is asked."""

    matrix: Matrix
    front: Dialect
    back: Dialect

    async def infer(
        self, model: str, *inputs: Tensor, names: tuple[str, ...] = (), parameters: Parameters | None = None,
        version: str = "", id: str | None = None,
    ) -> Response | GatewayError | None:  # fmt: skip
        """What the client gets of `model` for `inputs`, as the client sends them; None if it cannot send them."""
        request = Request(
            Operation.INFER,
            model,
            version,
            id,
            inputs=expect.as_sent(inputs, self.front, self.back),
            outputs=tuple(map(RequestedOutput, names)),
            parameters=parameters or {},
            translate=LITERAL,
        )
        found = await self.tell(request)
        assert found is None or isinstance(found, Response | GatewayError)
        return found

    async def tell(self, request: Request) -> Answer | GatewayError | None:
        """What the client gets; None if it cannot ask."""
        if isinstance(or_error(lambda: self.front.asked(request)), GatewayError):
            return None
        try:
            return await self.matrix.ask(self.front, self.back, request)
        except GatewayError as error:
            return error

    def has(self, model: str) -> bool:
        """Whether there is such a backend."""
        return serves(self.back.protocol, MODELS[model])


Observe = Callable[[Asked], Awaitable[str]]


async def datatype(asked: Asked, datatype: Datatype) -> str:
    """How a tensor comes back from `identity`."""
    if datatype not in asked.front.traits.datatypes:
        return NONE
    sent = expect.pair(datatype)
    found = await asked.infer("identity", sent)
    if not isinstance(found, Response):
        return REFUSED
    [output] = found.outputs
    if numbers(output) != numbers(sent):
        return ROUNDED
    if output.untyped and output.datatype in NUMBERS:
        return VALUE
    return SAME if output.datatype is datatype else f"as {output.datatype}"


# --- Tensors ---


async def not_text(asked: Asked) -> str:
    """BYTES that are no UTF-8."""
    sent = expect.array("x", Datatype.BYTES, [b"\xff\x00", b""])
    found = await asked.infer("identity", sent) if sent.datatype in asked.front.traits.datatypes else None
    return _word(found, lambda response: SAME if numbers(response.outputs[0]) == numbers(sent) else "changed")


async def not_finite(asked: Asked) -> str:
    """NaN and an infinity."""
    found = await asked.infer("identity", expect.infinite(asked.front))
    expected = ["nan", "-inf"]
    return _word(found, lambda response: SAME if [*map(str, numbers(response.outputs[0]))] == expected else "changed")


async def shape(asked: Asked) -> str:
    """Three dimensions, in the tensors of a model that takes any."""
    sent = tensor("x", np.arange(6.0).reshape(3, 1, 2))
    found = None if asked.front.traits.points else await asked.infer("identity", sent)
    return _word(found, lambda response: "kept" if response.outputs[0].shape == sent.shape else "another")


async def batch(asked: Asked) -> str:
    """In how many calls two rows reach the backend."""
    sent = expect.array("x", FP64, [1, 2], [3, 4])
    found = None if asked.front.traits.points else await asked.infer("rows", sent)
    return _word(found, lambda response: "one call" if numbers(response.outputs[0]) == [2.0, 2.0] else "a call each")


A, B = expect.array("a", FP64, [1, 2]), expect.array("b", FP64, [10, 20])


async def input_names(asked: Asked) -> str:
    """Whether two inputs in another order are taken for what their names say."""
    a, b = expect.as_sent((A, B), asked.front, asked.back)
    found = await asked.tell(Request(Operation.INFER, "sums", inputs=(b, a), translate=LITERAL))
    by_name = [-9.0, -18.0]
    return _word(found, lambda response: "by name" if numbers(response.outputs[1]) == by_name else "by position")


async def output_names(asked: Asked) -> str:
    """How the outputs are called."""
    found = await asked.infer("sums", A, B)
    return _word(
        found, lambda response: ", ".join(f"`{each.name}`" for each in response.outputs if each.name) or "none"
    )


async def selection(asked: Asked) -> str:
    """Whether a client gets one of two outputs, if it wants one."""
    if not asked.front.traits.selects:
        return NONE
    found = await asked.infer("sums", A, B, names=(expect.told_name("difference", "output1", asked.back),))
    return _word(found, lambda response: "those" if len(response.outputs) == 1 else "all")


# --- Any number of responses ---

THREE = expect.array("n", Datatype.INT32, [3])
POINT = expect.array("x", FP64, [1, 2, 3])


async def stream(asked: Asked) -> str:
    """How many responses a client that takes any number gets; of a backend that has no streams its one."""
    if not asked.front.traits.streams:
        return NONE
    model, sent = ("count", THREE) if asked.back.traits.streams else ("double", POINT)
    request = Request(Operation.STREAM, model, inputs=expect.as_sent((sent,), asked.front, asked.back))
    found = [each async for each in asked.matrix.stream(asked.front, asked.back, request)]
    return {1: "the one response", 3: "each response"}[len(found)]


async def reduction(asked: Asked) -> str:
    """What a client of one response gets of several."""
    if not asked.back.traits.streams:
        return NONE
    found = {each: await asked.infer(each, THREE) for each in REDUCTIONS}
    return " or ".join(f"`{each}`" for each in REDUCTIONS if isinstance(found[each], Response)) or REFUSED


# --- Beside the tensors ---


async def config(asked: Asked) -> str:
    """Whether `config` reaches the model."""
    found = await asked.infer("double", POINT, parameters={"config": '{"scale":3}'})
    return _word(found, lambda response: "carried" if numbers(response.outputs[0]) == [3.0, 6.0, 9.0] else "dropped")


async def parameter(asked: Asked) -> str:
    """Whether a parameter reaches the model, which takes none."""
    found = await asked.infer("double", POINT, parameters={"nothing": 1})
    if isinstance(found, GatewayError):
        return "carried" if "takes no parameter" in found.message else REFUSED
    return NONE if found is None else "dropped"


async def identifier(asked: Asked) -> str:
    """Whether the reply has the request's id."""
    question = or_error(lambda: asked.front.asked(Request(Operation.INFER, "m", id="42", inputs=(A,))))
    if not isinstance(question, Request) or question.id != "42":
        return NONE
    found = await asked.infer("double", POINT, id="42")
    return _word(found, lambda response: "kept" if response.id == "42" else "lost")


async def version(asked: Asked) -> str:
    """Whether a client can ask for the version that a model has."""
    if asked.front.traits.versions is None:
        return NONE
    found = await asked.infer("double", POINT, version="1")
    return _word(found, lambda response: "carried")


async def derivatives(asked: Asked) -> str:
    """How a client asks for a gradient."""
    if not names_models(asked.front.traits):
        return NONE
    theta = expect.as_sent(expect.CASES["posterior"].inputs, asked.front, asked.back)
    own = asked.front.traits.derivatives
    vector = np.array([1.0]) if asked.front.traits.points else np.array([[1.0]])
    extras = tensor("out_wrt", np.array([0])), tensor("in_wrt", np.array([0])), tensor("sens", vector)
    operation, model = (Operation.GRADIENT, "posterior") if own else (Operation.INFER, "posterior.gradient")
    found = await asked.tell(Request(operation, model, inputs=(*theta, *extras)))
    return _word(found, lambda response: "operations" if own else "companions")


async def errors(asked: Asked) -> str:
    """How many of the errors that a model can raise are what they were."""
    if not expect.sendable(asked.front, expect.CASES["fail, at nothing"]):
        return NONE
    found = [await reason(asked, number) for number in KINDS]
    kept = sum(one is other for one, other in zip(found, KINDS.values(), strict=True))
    return "all" if kept == len(KINDS) else f"{kept} of {len(KINDS)}"


async def reason(asked: Asked, number: int) -> Reason | None:
    """Which error a client gets for one of `fail`."""
    found = await asked.infer("fail", expect.array("kind", Datatype.INT32, [number]))
    return found.reason if isinstance(found, GatewayError) else None


LEFT_OUT = """\
Between two gateways every error is what it was: its reason travels beside the protocol's own words, as header or
trailer `gateway-reason`, or in the text of the error. Clients and servers that know nothing of it see what is left:
the same (**kept**), or another, where the protocol has no number of its own for it.
"""


def left_of(reason: Reason, dialect: Dialect) -> str:
    """What a peer makes of an error that does not know the gateway's word for it."""
    request = Request(Operation.INFER, "m")
    protocol = dialect.protocol
    question = arrived(protocol.encode_request(request, dialect.target), protocol)
    reply = _without(reason, returned(protocol.encode_error(refusal(reason, "why"), None, question), protocol))
    found = or_error(lambda: protocol.decode_response(reply, request, dialect.target))
    assert isinstance(found, GatewayError)
    return "kept" if found.reason is reason else found.reason.value


def _without(reason: Reason, reply: Message) -> Message:
    word = reason.value.encode()
    headers = [(name, text) for name, text in reply.headers.raw if text != word]
    parts = tuple(bytes(part).replace(word, b"x" * len(word)) for part in reply.parts)
    return replace(reply, headers=Headers(headers), parts=parts)


# --- What is told of models and of servers ---


async def metadata(asked: Asked) -> str:
    """What a client learns of a model."""
    parts = [
        await asked.tell(Request(Operation.METADATA, "posterior", part=part))
        for part in asked.front.traits.metadata_parts
    ]
    told = tuple(each for each in parts if isinstance(each, Signature))
    if not told:
        return NONE
    [spec] = merge(told).inputs
    names = "names, " if spec.name else ""
    return "sizes" if asked.front.traits.points else f"{names}datatypes, shapes"


READINESS = {
    Operation.LIVE: "live",
    Operation.READY: "ready",
    Operation.MODEL_READY: "model ready",
    Operation.METADATA: "by a model's metadata",
    Operation.MODELS: "by the list of models",
}
"""What the questions for it are on the wire."""


async def readiness(asked: Asked) -> str:
    """What of it a client learns."""
    told = []
    for operation in (Operation.LIVE, Operation.READY, Operation.MODEL_READY):
        request = Request(operation, "posterior")
        if await asked.tell(request) is True:
            told.append(READINESS[asked.front.asked(request).operation])
    return ", ".join(dict.fromkeys(told)) or NONE


async def listing(asked: Asked) -> str:
    """Whether a client finds the model in a list."""
    found = await asked.tell(Request(Operation.MODELS, "posterior"))
    names = [each.name for each in found] if isinstance(found, tuple) else []
    return "yes" if f"{asked.back.name}-posterior" in names else NONE


def _word(found: Answer | GatewayError | None, describe: Callable[[Response], str]) -> str:
    if found is None:
        return NONE
    if isinstance(found, GatewayError):
        return REFUSED
    assert isinstance(found, Response)
    return describe(found)


ROWS: Mapping[str, Observe] = {
    "NaN and infinities": not_finite,
    "bytes that are no text": not_text,
    "shape `[3, 1, 2]`": shape,
    "two rows": batch,
    "inputs are told apart": input_names,
    "names of outputs": output_names,
    "outputs asked for": selection,
    "a stream": stream,
    "several responses as one, by `stream:`": reduction,
    "`config`, without `carry_config`": config,
    "other parameters": parameter,
    "id": identifier,
    "version": version,
    "derivatives": derivatives,
    "errors": errors,
    "metadata": metadata,
    "readiness": readiness,
    "in the list of models": listing,
}
"""Everything but the datatypes, in the order of the document."""

Observed = Mapping[str, str]
"""A word for each datatype and each of ROWS."""


async def observed(asked: Asked) -> Observed:
    """All of one pair."""
    datatypes = {each.value: await datatype(asked, each) for each in Datatype}
    return {**datatypes, **{name: await observe(asked) for name, observe in ROWS.items()}}
