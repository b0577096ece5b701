"""Estimates the memory that the rows of a body take while it is decoded. `reading` refuses the body if the estimate is
too high.

The estimate is made from the body's text, before any row becomes an object.

Rows can take far more memory than their text: `{}` and `[]` have two bytes, but an object or a list takes 50 to 250.
The estimate counts the characters that open or separate rows, including characters within strings.
"""

from gateway.core.errors import Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.protocol import Limits
from gateway.protocols.json.templates import FixedList, Node, Object, RowList, rows_of_tensor, walk

# Bytes of memory, measured with tracemalloc.
_MEMBER = 96
_OPTIONAL, _REQUIRED = 32, 8
"""Memory that a missing optional member takes, and that a required member takes in addition to _MEMBER, in bytes."""
_OBJECT, _OPEN_OBJECT = 72, 248
"""Memory that an object takes without its members: if the members are declared, and if any members are allowed (`"$*":
$*`)."""
_LIST, _ELEMENT = 264, 72


@frozen
class RowMemory:
    """The maximum memory for each `{`, `[` and `,` in a body, in bytes; 0 if the template creates nothing for the
    character."""

    brace: int = 0
    bracket: int = 0
    comma: int = 0

    def check(self, text: bytes, limits: Limits) -> None:
        """Raise GatewayError (RESOURCE_EXHAUSTED) if the rows in `text` would need more than `limits.message`."""
        if len(text) * max(self.brace, self.bracket, self.comma, _MEMBER) <= limits.message:
            return
        size = text.count(b":") * _MEMBER
        for sign, each in ((b"{", self.brace), (b"[", self.bracket), (b",", self.comma)):
            size += each and each * text.count(sign)
        if size > limits.message:
            raise refusal(
                Reason.TOO_LARGE,
                f"rows and members of the body take {size} bytes of memory, limits.message is {limits.message}",
            )


def memory_of_rows(node: Node) -> RowMemory | None:
    """Return the RowMemory of a template, or None if the template has no rows."""
    rows = [each.row for each in walk(node) if isinstance(each, RowList) and rows_of_tensor(each) is None]
    inside = [each for row in rows for each in walk(row) if rows_of_tensor(each) is None]
    if not rows:
        return None
    return RowMemory(
        max([_of_object(each) for each in inside if isinstance(each, Object)], default=0),
        max([_of_list(each) for each in inside if isinstance(each, RowList | FixedList)], default=0),
        0 if all(isinstance(row, Object | RowList | FixedList) for row in rows) else _ELEMENT,
    )


def _of_object(node: Object) -> int:
    size = _OPEN_OBJECT if node.every else _OBJECT
    return size + sum(_OPTIONAL if each.optional else _REQUIRED for each in node.members)


def _of_list(node: RowList | FixedList) -> int:
    return _LIST + (_MEMBER * len(node.nodes) if isinstance(node, FixedList) else 0)
