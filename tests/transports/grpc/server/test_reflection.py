from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from gateway.core.errors import Status
from gateway.transports.grpc.server import own_services
from tests.transports.grpc.server.test_health import SERVICES
from tests.transports.grpc.toy import client

METHODS = [f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")]

REQUEST = own_services.ServerReflectionRequest


async def asked(made: Any, *requests: Any, method: str = METHODS[0]) -> list[Any]:
    response = own_services.ServerReflectionResponse
    call = made.stream_stream(method, REQUEST.SerializeToString, response.FromString)(requests)
    return [each async for each in call]


async def answered(request: Any) -> Any:
    async with client() as made:
        (response,) = await asked(made, request)
    return response


@pytest.mark.parametrize("method", METHODS)
async def test_the_services_that_are_served_are_listed(method: str) -> None:
    async with client() as made:
        (response,) = await asked(made, REQUEST(host="h", list_services="*"), method=method)
    assert tuple(each.name for each in response.list_services_response.service) == SERVICES
    assert (response.valid_host, response.original_request) == ("h", REQUEST(host="h", list_services="*"))


@pytest.mark.parametrize(
    ("request_", "file"),
    [
        (REQUEST(file_by_filename="grpc/health/v1/health.proto"), "grpc/health/v1/health.proto"),
        (REQUEST(file_containing_symbol="grpc.health.v1.Health"), "grpc/health/v1/health.proto"),
        (REQUEST(file_containing_symbol="grpc.health.v1.Health.Check"), "grpc/health/v1/health.proto"),
        (
            REQUEST(file_containing_symbol="grpc.reflection.v1alpha.ServerReflection"),
            "grpc/reflection/v1alpha/reflection.proto",
        ),
    ],
    ids=str,
)
async def test_a_schema_is_found_by_its_file_and_by_what_is_in_it(request_: Any, file: str) -> None:
    response = await answered(request_)
    (data,) = response.file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(data).name == file


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (REQUEST(file_by_filename="no.proto"), "no file no.proto"),
        (REQUEST(file_containing_symbol="no.Such"), "no symbol no.Such"),
        (REQUEST(file_containing_extension={"containing_type": "a.B"}), "no extension of a.B"),
        (REQUEST(all_extension_numbers_of_type="a.B"), "no extension of a.B"),
    ],
    ids=str,
)
async def test_what_is_not_there_is_not_found(request_: Any, text: str) -> None:
    error = (await answered(request_)).error_response
    assert (error.error_code, error.error_message) == (Status.NOT_FOUND, text)


async def test_a_request_that_asks_nothing_is_told_so_and_the_stream_goes_on() -> None:
    async with client() as made:
        first, second = await asked(made, REQUEST(host="h"), REQUEST(list_services="*"))
    assert first.error_response.error_code == Status.INVALID_ARGUMENT
    assert second.list_services_response.service


async def test_a_client_that_knows_v1alpha_alone_can_build_the_messages_of_v1_from_its_schema() -> None:
    async with client() as made:
        symbol = "grpc.reflection.v1.ServerReflection"
        (response,) = await asked(made, REQUEST(file_containing_symbol=symbol), method=METHODS[1])
        pool = DescriptorPool()
        for data in response.file_descriptor_response.file_descriptor_proto:
            pool.Add(FileDescriptorProto.FromString(data))
        (method,) = pool.FindServiceByName(symbol).methods
        question, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        call = made.stream_stream(METHODS[0], question.SerializeToString, answer.FromString)
        (listed,) = [each async for each in call([question(list_services="")])]
    assert tuple(each.name for each in listed.list_services_response.service) == SERVICES
