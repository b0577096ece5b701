"""Layouts: what is around the contents of tensors in a body, remembered to know the next body that is like it.

Clients and servers send the same names, datatypes and shapes again and again. A protocol reads and checks the first
such body, and remembers its layout by a key of its own: the bytes that must be the same in the next one. How it finds
them, and what a layout says, is up to the protocol.

Clients choose what is remembered, so there are bounds for all: MOST layouts in each store, ALIKE of them where several
share a key, and of each layout LONGEST bytes of a body. The oldest is forgotten first.
"""

from collections.abc import Sequence
from threading import Lock
from typing import TypeAlias, TypeVar

from gateway.core.datatypes import Datatype
from gateway.core.types import Buffer, Shape, Tensor

Key = TypeVar("Key")
Layout = TypeVar("Layout")

LONGEST = 1024
"""Bytes around the contents of a body that are remembered."""
MOST = 4096
"""Layouts in a store."""
ALIKE = 4
"""Layouts of one key."""

BEGINNING = 16
"""Bytes at the beginning of a binary message that, with its size, are a key of its layout."""
LARGEST = 2**17
"""Bytes of a binary message up to which copies of the contents cost less than views of them."""

PlacedTensor: TypeAlias = tuple[str, Datatype, Shape, int, int]
"""Name, datatype and shape of a tensor, and where its contents begin and end in a message."""


_one_at_a_time = Lock()
"""For changes of a store: large bodies are read in threads."""


class LayoutStore(dict[Key, Layout]):
    """The layouts of one kind of body. `get`, that of a dict, finds one."""

    def remember(self, key: Key, layout: Layout) -> None:
        """Keep `layout`, and forget the oldest key if there are too many."""
        with _one_at_a_time:
            if len(self) >= MOST and key not in self:
                del self[next(iter(self))]
            self[key] = layout


class AlikeLayoutStore(LayoutStore[Key, tuple[Layout, ...]]):
    """The same where bodies of several layouts have one key, and each has to be tried."""

    def __init__(self) -> None:
        super().__init__()
        self._layouts = 0
        """Of all keys."""

    def remember_alike(self, key: Key, layout: Layout) -> None:
        """Keep `layout` as the first of its key, and forget the oldest of that key, or the oldest key, if there are too
        many."""
        with _one_at_a_time:
            before = self.pop(key, ())
            self[key] = kept = (layout, *before[: ALIKE - 1])
            self._layouts += len(kept) - len(before)
            if self._layouts > MOST:
                self._layouts -= len(self.pop(next(iter(self))))

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._layouts = 0


class ProofAttempts(LayoutStore[Key, int]):
    """When to try to prove that bodies with one key have a layout: how many were not proven since one was.

    Some writers' bodies never are, and proving takes as long as reading. So it is tried ever more rarely: for the first
    of them, and after 1, 2, 4, 8, ... of them.
    """

    def is_due(self, key: Key) -> bool:
        """Whether to try the proof of a body with this key. The body counts as not proven until `succeeded`."""
        failed = self.get(key, 0)
        self.remember(key, failed + 1)
        return failed & (failed - 1) == 0

    def succeeded(self, key: Key) -> None:
        """The body was proven."""
        self.remember(key, 0)


def cut_at_contents(
    tensors: Sequence[Tensor], parts: Sequence[Buffer]
) -> tuple[bytes, tuple[tuple[int, bytes], ...], tuple[PlacedTensor, ...]]:
    """Cut a message at the contents of its tensors. `parts` are for each tensor the bytes before its contents, and
    these.

    Returns:
        The bytes before the first contents; those before each further one, with their places; and the tensors.
    """
    between: list[tuple[int, bytes]] = []
    placed: list[PlacedTensor] = []
    at = 0
    for tensor, before, data in zip(tensors, parts[::2], parts[1::2], strict=True):
        if placed:
            between.append((at, bytes(before)))
        begin = at + len(before)
        at = begin + len(data)
        placed.append((tensor.name, tensor.datatype, tensor.shape, begin, at))
    return bytes(parts[0]), tuple(between), tuple(placed)
