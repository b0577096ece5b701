"""GrpsMessage by protobuf's own library, an independent reader and writer of the bytes; and tensors to compare."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.protobuf.schema import Schema
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps.gmap import MAPS
from gateway.protocols.grps.schema import DTYPES, GRPC_DESCRIPTORS, GrpsMessage, Payload

GRPS = Schema(GRPC_DESCRIPTORS).message("grps.protos.v1.GrpsMessage")


def written(message: GrpsMessage) -> Any:
    """`message` as the library's."""
    made = GRPS(model=message.model)
    if message.status is not None:
        made.status.SetInParent()
        told = message.status
        made.status.code, made.status.msg, made.status.status = told.code, told.text, told.flag
    if message.payload is not None:
        _WRITERS[message.payload](made, message.tensors)
    return made


def _write_tensors(made: Any, tensors: tuple[Tensor, ...]) -> None:
    made.gtensors.SetInParent()
    for each in tensors:
        number, _, member = DTYPES[each.datatype]
        entry = made.gtensors.tensors.add(name=each.name, dtype=number, shape=each.shape)
        getattr(entry, member).extend(elements(each))


def elements(each: Tensor) -> list[Any]:
    """The numbers or texts of a tensor."""
    numbers: list[Any] = each.array.reshape(-1).tolist()
    return [element.decode() for element in numbers] if each.datatype is Datatype.BYTES else numbers


def _write_maps(made: Any, tensors: tuple[Tensor, ...]) -> None:
    made.gmap.SetInParent()
    for each in tensors:
        [element] = each.array.reshape(-1).tolist()
        if each.datatype is Datatype.BYTES:
            is_text = each.content_type == "text"
            getattr(made.gmap, "s_s" if is_text else "s_b")[each.name] = element.decode() if is_text else element
        else:
            [member] = [name for name, datatype in MAPS.items() if datatype is each.datatype]
            getattr(made.gmap, member)[each.name] = element


def _set(member: str) -> Any:
    def write(made: Any, tensors: tuple[Tensor, ...]) -> None:
        [element] = tensors[0].array.tolist()
        setattr(made, member, element.decode() if member == "str_data" else element)

    return write


_WRITERS = {
    Payload.GTENSORS: _write_tensors,
    Payload.GMAP: _write_maps,
    Payload.STR_DATA: _set("str_data"),
    Payload.BIN_DATA: _set("bin_data"),
}

TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)


def _single(name: str, element: bytes, content_type: str = "") -> Tensor:
    raw = len(element).to_bytes(4, "little") + element
    return Tensor(name, Datatype.BYTES, (1,), raw, content_type)


@st.composite
def _arrays(draw: st.DrawFn, shape: st.SearchStrategy[tuple[int, ...]], datatypes: list[Datatype]) -> Tensor:
    datatype, name = draw(st.sampled_from(datatypes)), draw(TEXTS)
    if datatype is Datatype.BYTES:
        made = draw(arrays.arrays(object, shape, elements=TEXTS.map(str.encode), fill=st.nothing()))
    else:
        elements = {"allow_nan": False} if datatype.dtype.kind == "f" else {}
        made = draw(arrays.arrays(datatype.dtype, shape, elements=elements))
    return tensor(name, made, datatype)


_SHAPES = arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6)
_TENSORS = _arrays(_SHAPES, list(DTYPES))
_SCALARS = _arrays(st.just((1,)), [each for each in MAPS.values() if each is not Datatype.BYTES])

DATA = st.one_of(
    st.tuples(st.none(), st.just(())),
    st.tuples(st.just(Payload.GTENSORS), st.lists(_TENSORS, max_size=4).map(tuple)),
    st.tuples(st.just(Payload.STR_DATA), TEXTS.map(lambda text: (_single("", text.encode(), "text"),))),
    st.tuples(st.just(Payload.BIN_DATA), st.binary(max_size=300).map(lambda octets: (_single("", octets),))),
    st.tuples(
        st.just(Payload.GMAP),
        st.lists(
            st.one_of(
                _SCALARS,
                st.builds(_single, TEXTS, TEXTS.map(str.encode), st.just("text")),
                st.builds(_single, TEXTS, st.binary(max_size=300)),
            ),
            max_size=5,
            unique_by=lambda each: each.name,
        ).map(tuple),
    ),
)


def comparable(message: GrpsMessage) -> tuple[object, ...]:
    """All of `message` as values that compare."""
    tensors = [replace(each, data=bytes(each.data)) for each in message.tensors]
    return message.model, message.status, message.payload, tensors
