import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_GRPC
from tests.limits import examples
from tests.protocols.v2.grpc.wire import AS_IS, KSERVE, MLSERVER, TARGET, decode, infer

tensors = st.lists(
    st.tuples(st.sampled_from(list(Datatype)), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 2**32)),
    max_size=3,
)


def raw_tensor(position: int, datatype: Datatype, shape: list[int], seed: int, *, copies: int) -> Tensor:
    """Any bits, including every NaN. With many copies the message is large."""
    source, dimensions = random.Random(seed), (*shape, copies)
    elements = Tensor("", datatype, dimensions, b"").elements
    if datatype is Datatype.BYTES:
        pieces = (source.randbytes(source.randrange(3)) for _ in range(elements))
        data = b"".join(len(piece).to_bytes(4, "little") + piece for piece in pieces)
    elif datatype is Datatype.BOOL:
        data = bytes(source.choices((0, 1), k=elements))
    else:
        data = source.randbytes(elements * datatype.size)
    return Tensor(f"t{position}", datatype, dimensions, data)


@settings(deadline=None, max_examples=examples(50))  # large ones take their time
@given(tensors, st.sampled_from([1, 1, 20000]), st.sampled_from([TARGET, MLSERVER, KSERVE]))
def test_every_datatype_and_shape_survives_both_ways(given: Any, copies: int, target: Target) -> None:
    sent = tuple(raw_tensor(position, *each, copies=copies) for position, each in enumerate(given))
    if target.flavor and any(each.datatype is Datatype.BF16 for each in sent):
        return  # widened, as another test has it
    for operation in (Operation.INFER, Operation.STREAM):
        request = Request(operation, "m", inputs=sent)
        written = V2_GRPC.encode_request(request, target)
        got = infer(b"".join(written.parts), written.path)
        assert got.inputs == sent
        reply_body = b"".join(V2_GRPC.encode_response(Response(sent, "m"), got, AS_IS).parts)
        assert decode(reply_body, got).outputs == sent
