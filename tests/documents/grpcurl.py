"""A substitute for `grpcurl`, based on grpcio: `python -m tests.documents.grpcurl -plaintext -d JSON ADDRESS
SERVICE/METHOD`. `examples` runs it for the grpcurl commands in pages.

Like grpcurl without `-proto`, it gets the schema of the method from the server's reflection service. It accepts only
the options that the pages use.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from gateway.transports.grpc.server.own_services import REFLECTIONS, ServerReflectionRequest, ServerReflectionResponse

TIMEOUT = 300


def main(arguments: Sequence[str]) -> str:
    """Return the output of the command. Raises grpc.RpcError if the call fails, LookupError if the method is
    unknown."""
    parser = argparse.ArgumentParser("grpcurl", allow_abbrev=False)
    security = parser.add_mutually_exclusive_group(required=True)
    security.add_argument("-plaintext", action="store_true")
    security.add_argument("-cacert", type=Path)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d", required=True)
    parser.add_argument("address")
    parser.add_argument("method")
    given = parser.parse_args(arguments)
    headers = [(name.strip().lower(), text.strip()) for name, _, text in (each.partition(":") for each in given.H)]
    with _channel(given.address, given.cacert) as channel:
        service, _, name = given.method.rpartition("/")
        pool = schema(channel, service, headers)
        method = pool.FindServiceByName(service).methods_by_name.get(name)
        if method is None:
            raise LookupError(f"service {service!r} does not include a method named {name!r}")
        asked, answered = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        request = json_format.Parse(given.d, asked())
        path, write, read = f"/{given.method}", asked.SerializeToString, answered.FromString
        if not method.server_streaming:
            replies = [channel.unary_unary(path, write, read)(request, timeout=TIMEOUT, metadata=headers)]
        elif not method.client_streaming:
            replies = list(channel.unary_stream(path, write, read)(request, timeout=TIMEOUT, metadata=headers))
        else:
            replies = list(channel.stream_stream(path, write, read)(iter([request]), timeout=TIMEOUT, metadata=headers))
    return "\n".join(json_format.MessageToJson(each, ensure_ascii=False, descriptor_pool=pool) for each in replies)


def _channel(address: str, ca: Path | None) -> grpc.Channel:
    if ca is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.read_bytes()))


def schema(channel: grpc.Channel, service: str, headers: Sequence[tuple[str, str]] = ()) -> DescriptorPool:
    """Return the proto files that describe `service`, from the server's reflection service."""
    pool = DescriptorPool()
    known: dict[str, FileDescriptorProto] = {}

    def add(file: FileDescriptorProto) -> None:
        """Add a file after the files that it imports."""
        if file.name in known:
            return
        known[file.name] = file
        for name in file.dependency:
            for each in _asked(channel, headers, file_by_filename=name):
                add(each)
        pool.Add(file)

    for file in _asked(channel, headers, file_containing_symbol=service):
        add(file)
    return pool


def _asked(channel: grpc.Channel, headers: Sequence[tuple[str, str]], **question: Any) -> Iterator[FileDescriptorProto]:
    call = channel.stream_stream(
        f"/{REFLECTIONS[0]}/ServerReflectionInfo",
        ServerReflectionRequest.SerializeToString,
        ServerReflectionResponse.FromString,
    )
    (reply,) = call(iter([ServerReflectionRequest(**question)]), timeout=TIMEOUT, metadata=headers)
    if reply.HasField("error_response"):
        raise LookupError(reply.error_response.error_message)
    return map(FileDescriptorProto.FromString, reply.file_descriptor_response.file_descriptor_proto)


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except grpc.RpcError as error:
        sys.exit(f"ERROR:\n  Code: {error.code().name}\n  Message: {error.details()}")
    except (LookupError, json_format.ParseError) as error:
        sys.exit(str(error))
