"""Compares two templates for `checks`, to find out if one accepts all bodies of the other.

The comparison covers keys, constants and spellings.
"""

from gateway.protocols.json.templates import (
    Anything,
    Constant,
    Every,
    FixedList,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    RowList,
    Slot,
    Spelling,
    TensorPlace,
)


def covers(wide: Node, narrow: Node, *, ignore_unknown: bool) -> bool:
    """Return True if `wide` accepts everything that `narrow` accepts. Return False if this is not certain."""
    match wide, narrow:
        case Anything(), _:
            return True
        case TensorPlace(), _:
            return _tensor_covers(wide, narrow)
        case Object(), Object():
            return _object_covers(wide, narrow, ignore_unknown=ignore_unknown)
        case RowList(), RowList():
            return covers(wide.row, narrow.row, ignore_unknown=ignore_unknown)
        case RowList(), FixedList():
            return all(covers(wide.row, each, ignore_unknown=ignore_unknown) for each in narrow.nodes)
        case FixedList(), FixedList():
            return len(wide.nodes) == len(narrow.nodes) and all(
                covers(one, other, ignore_unknown=ignore_unknown)
                for one, other in zip(wide.nodes, narrow.nodes, strict=True)
            )
        case Slot(), Constant():
            return isinstance(narrow.value, str)
        case ParameterPlace(), Constant() | ParameterPlace() | ParametersPlace() | Slot():
            return True
        case Constant() | Slot() | Every() | ParametersPlace(), _:
            return wide == narrow
    return False


def _tensor_covers(wide: TensorPlace, narrow: Node) -> bool:
    if isinstance(narrow, RowList):
        return wide.spelling is Spelling.NESTED and _tensor_covers(wide, narrow.row)
    if not isinstance(narrow, TensorPlace):
        return False
    if narrow.spelling in (Spelling.NUMBERS, Spelling.COMMAS) and wide.spelling is not narrow.spelling:
        return False  # declared numbers are not read from strings
    if wide.spelling is Spelling.NESTED:
        return narrow.spelling is not Spelling.SHAPE
    if wide.spelling is Spelling.ITEMS:
        return narrow.spelling not in (Spelling.SHAPE, Spelling.NESTED)
    return wide.spelling is narrow.spelling and wide.datatype is narrow.datatype


def _object_covers(wide: Object, narrow: Object, *, ignore_unknown: bool) -> bool:
    known = {member.key: member for member in wide.members}
    given = {member.key: member for member in narrow.members}
    if narrow.every and not wide.every:
        return False
    for key, member in known.items():
        if key in given:
            if given[key].optional and not member.optional:
                return False
            if not covers(member.node, given[key].node, ignore_unknown=ignore_unknown):
                return False
        elif not member.optional or narrow.every:
            return False
    others = [member.node for key, member in given.items() if key not in known]
    return ignore_unknown or not others or (wide.every and all(isinstance(each, TensorPlace) for each in others))
