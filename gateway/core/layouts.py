"""Layouts: what is around the contents of tensors in a body, remembered to know the next body that is like it.

Clients and servers send the same names, datatypes and shapes again and again. A protocol reads and checks the first
such body, and remembers its layout by a key of its own: the bytes that must be the same in the next one. How it finds
them, and what a layout says, is up to the protocol.

Clients choose what is remembered, so there are bounds for all: MOST keys in each store, with ALIKE layouts each where
several share a key, and of each layout LONGEST bytes of a body. The oldest is forgotten first.
"""

from typing import TypeVar

Key = TypeVar("Key")
Layout = TypeVar("Layout")

LONGEST = 1024
"""Bytes around the contents of a body that are remembered."""
MOST = 4096
"""Keys in a store."""
ALIKE = 4
"""Layouts of one key."""


class LayoutStore(dict[Key, Layout]):
    """The layouts of one kind of body. `get`, that of a dict, finds one."""

    def remember(self, key: Key, layout: Layout) -> None:
        """Keep `layout`, and forget the oldest key if there are too many."""
        if len(self) >= MOST and key not in self:
            del self[next(iter(self))]
        self[key] = layout


class AlikeLayoutStore(LayoutStore[Key, tuple[Layout, ...]]):
    """The same where bodies of several layouts have one key, and each has to be tried."""

    def remember_alike(self, key: Key, layout: Layout) -> None:
        """Keep `layout` as the first of its key, and forget the oldest of that key if there are too many."""
        self.remember(key, (layout, *self.get(key, ())[: ALIKE - 1]))
