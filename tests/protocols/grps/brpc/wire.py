"""Frames as the transport hands them over."""

from collections.abc import Iterable

from gateway.core.messages import Message


def arrived(data: bytes, *, received: float = 0.0) -> Message:
    """A frame as the transport hands it over."""
    return Message(parts=(data[:12], data[12:]), peer="192.0.2.1:4242", received=received)


def written(message: Message) -> bytes:
    return b"".join(message.parts)


def pieces(data: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({*places, len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
