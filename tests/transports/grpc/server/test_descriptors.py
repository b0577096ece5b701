from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from gateway.transports.grpc.server.own_services import Descriptors


def file(name: str, *imports: str, **definitions: Any) -> Any:
    return FileDescriptorProto(name=name, dependency=imports, **definitions)


def packed(*files: Any) -> bytes:
    data: bytes = FileDescriptorSet(file=files).SerializeToString()
    return data


LINE = {"name": "Line", "nested_type": [{"name": "Deep"}]}
ORDER = {"name": "Order", "nested_type": [LINE], "enum_type": [{"name": "State"}]}
SHOP = file(
    "shop.proto",
    package="shop.v1",
    service=[{"name": "Shop", "method": [{"name": "Buy"}]}],
    message_type=[ORDER],
    enum_type=[{"name": "Colour"}],
)
BARE = file("bare.proto", message_type=[{"name": "Bare"}])


def names(files: tuple[bytes, ...]) -> list[str]:
    return [FileDescriptorProto.FromString(data).name for data in files]


IN_SHOP = ("Shop", "Shop.Buy", "Order", "Order.Line.Deep", "Order.State", "Colour")
FOUND = {f"shop.v1.{each}": ["shop.proto"] for each in IN_SHOP} | {"Bare": ["bare.proto"]}
NOT_FOUND: dict[str, list[str]] = {each: [] for each in ("Shop", "shop.v1", ".shop.v1.Shop", "")}


@pytest.mark.parametrize(("symbol", "found"), (FOUND | NOT_FOUND).items())
def test_a_symbol_is_found_by_its_full_name(symbol: str, found: list[str]) -> None:
    assert names(Descriptors([packed(SHOP), packed(BARE)]).by_symbol(symbol)) == found


def test_a_file_brings_what_it_imports_once_and_itself_first() -> None:
    files = (
        file("base.proto"),
        file("left.proto", "base.proto"),
        file("right.proto", "base.proto", "absent.proto"),
        file("top.proto", "left.proto", "right.proto"),
    )
    descriptors = Descriptors([packed(*files)])
    assert names(descriptors.by_name("top.proto")) == ["top.proto", "left.proto", "right.proto", "base.proto"]
    assert names(descriptors.by_name("base.proto")) == ["base.proto"]
    assert descriptors.by_name("absent.proto") == ()


def test_of_two_files_of_one_name_the_first_counts() -> None:
    second = file("shop.proto", package="shop.v2", service=[{"name": "Shop"}])
    descriptors = Descriptors([packed(SHOP), packed(second)])
    assert descriptors.by_name("shop.proto") == (SHOP.SerializeToString(),)
    assert descriptors.by_symbol("shop.v2.Shop") == ()


def test_protocols_without_descriptors_have_none() -> None:
    assert Descriptors([b""]).by_symbol("shop.v1.Shop") == ()
