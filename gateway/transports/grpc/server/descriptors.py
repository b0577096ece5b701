"""Finds files in descriptor sets, by file name and by the symbols that they define. `reflection` uses it."""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet


class Descriptors:
    """The files in several FileDescriptorSets. If two files have the same name or symbol, the first file is used."""

    def __init__(self, sets: Iterable[bytes]) -> None:
        self._files: dict[str, Any] = {}
        self._symbols: dict[str, str] = {}
        for data in sets:
            for file in FileDescriptorSet.FromString(data).file:
                self._add(file)

    def by_name(self, name: str) -> tuple[bytes, ...]:
        """Return the serialized file, followed by all files that it imports.

        Return an empty result for an unknown file."""
        names = dict.fromkeys([name] if name in self._files else [])
        pending = list(names)
        while pending:
            new = [each for each in self._files[pending.pop()].dependency if each in self._files and each not in names]
            names |= dict.fromkeys(new)
            pending += new
        return tuple(self._files[each].SerializeToString() for each in names)

    def by_symbol(self, symbol: str) -> tuple[bytes, ...]:
        """Same as `by_name`, for the file that defines a service (`package.Service`), a method, a message or an
        enum."""
        return self.by_name(self._symbols.get(symbol, ""))

    def _add(self, file: FileDescriptorProto) -> None:
        if file.name not in self._files:
            self._files[file.name] = file
            for symbol in _symbols(file):
                self._symbols.setdefault(symbol, file.name)


def _symbols(file: FileDescriptorProto) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    for service in file.service:
        yield prefix + service.name
        yield from (f"{prefix}{service.name}.{method.name}" for method in service.method)
    yield from (prefix + enum.name for enum in file.enum_type)
    for message in file.message_type:
        yield from _nested(prefix, message)


def _nested(prefix: str, message: Any) -> Iterator[str]:
    name = prefix + message.name
    yield name
    yield from (f"{name}.{enum.name}" for enum in message.enum_type)
    for inner in message.nested_type:
        yield from _nested(f"{name}.", inner)
